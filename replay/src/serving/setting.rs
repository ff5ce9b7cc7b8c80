//! A simulated service: its parameters, the rule that scales it, and the result.

use dormouse_messages::Recorded;
use dormouse_messages::job::Containers;
use dormouse_messages::service::{LatencyObjective, Percentile, Scaling};

/// Parameters of a simulated service.
#[derive(Debug, Clone)]
pub struct Setting {
    /// Seconds from a decision to a ready replica.
    pub start_s: f64,
    /// Mean seconds of work per request.
    pub service_s: f64,
    /// The work's coefficient of variation (Gamma).
    pub service_cv: f64,
    pub objective: LatencyObjective,
    pub containers: Containers,
    /// Concurrent requests per replica.
    pub concurrency: u32,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            start_s: 15.0,
            service_s: 0.1,
            service_cv: 0.5,
            objective: LatencyObjective {
                latency_ms: 400,
                percentile: Percentile::from(99.0),
            },
            containers: Containers::between(1, 24),
            concurrency: 1,
        }
    }
}

/// The rule that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    Scaling(Scaling),
    /// Knows every second's rate in advance.
    Oracle,
}

impl Rule {
    /// All rules in the table's order.
    pub const ALL: [Self; 5] = [
        Self::Scaling(Scaling::Objective),
        Self::Scaling(Scaling::Hpa),
        Self::Scaling(Scaling::Kpa),
        Self::Scaling(Scaling::Ray),
        Self::Oracle,
    ];

    /// Returns the rule's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scaling(Scaling::Objective) => "objective",
            Self::Scaling(Scaling::Hpa) => "hpa",
            Self::Scaling(Scaling::Kpa) => "kpa",
            Self::Scaling(Scaling::Ray) => "ray",
            Self::Oracle => "oracle",
        }
    }
}

/// The result of one simulation.
#[derive(Debug, Clone, Default)]
pub struct Figures {
    pub requests: u64,
    pub late: u64,
    /// Seconds of replicas from decision to end.
    pub replica_s: f64,
    pub seconds: f64,
    pub changes: u32,
    /// Seconds from each jump of the rate to the next increase.
    pub reactions_s: Vec<f64>,
    pub log: Vec<Recorded>,
    pub(super) rises_s: Vec<f64>,
}

impl Figures {
    /// Returns the fraction of requests answered in time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "requests of a few hours")]
    pub fn attainment(&self) -> f64 {
        match self.requests {
            0 => 1.0,
            requests => 1.0 - self.late as f64 / requests as f64,
        }
    }

    /// Returns the mean number of replicas.
    #[must_use]
    pub fn replicas(&self) -> f64 {
        self.replica_s / self.seconds.max(1.0)
    }
}
