//! Runs the autoscaler's fold and decision for one service on simulated clients, and compares other
//! rules and an oracle.
//!
//! - `world` serves the arrivals of [`traces`]; `watched` is the autoscaler there.
//! - [`compare`] compares rules; [`closed`] is DynamoML's closed loop.

pub mod closed;
pub mod compare;
pub mod traces;
mod watched;
mod world;

use dormouse_autoscaler::staffing::{Goal, Load, Times};
use dormouse_messages::Recorded;
use dormouse_messages::job::Containers;
use dormouse_messages::service::{LatencyObjective, Percentile, Scaling};

use crate::random::Random;
use traces::{Kind, Trace};
use watched::{Promise, Watched};
use world::{Driver, World};

/// Uncounted seconds at the trace's first rate.
const WARM_UP_S: usize = 600;

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
    pub course: bool,
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
            course: false,
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

/// A moment of a simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Course {
    pub at_s: f64,
    pub target: u32,
    pub ready: u32,
    pub waiting: u32,
    pub arrivals: u32,
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
    rises_s: Vec<f64>,
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

/// Simulates one seed of a trace, with arrivals and work independent of the rule.
#[must_use]
pub fn simulate(kind: Kind, seed: u64, rule: Rule, setting: &Setting) -> (Figures, Vec<Course>) {
    let mut random = Random::new(seed);
    let trace = kind.trace(&mut random.split()).warmed(WARM_UP_S);
    let arrivals = trace.arrivals(&mut random.split());
    let driver = match rule {
        Rule::Scaling(scaling) => {
            let promise = Promise {
                scaling,
                objective: setting.objective,
                containers: setting.containers,
                concurrency: setting.concurrency,
            };
            // The first replicas started before the simulation.
            Driver::Decider(Box::new(Watched::new(&promise, -setting.start_s)))
        }
        Rule::Oracle => Driver::Oracle(oracle(&trace, setting)),
    };
    let from = f64::from(u32::try_from(WARM_UP_S).unwrap_or(0));
    World::new(setting, driver, random.split(), from).run(&trace, &arrivals)
}

/// Requests replicas a start-up time in advance, by the autoscaler's formula and spare service time.
fn oracle(trace: &Trace, setting: &Setting) -> Vec<u32> {
    let cv2 = setting.service_cv * setting.service_cv;
    let times = Times::gamma(setting.service_s, cv2);
    let goal = Goal {
        latency_s: f64::from(setting.objective.latency_ms) / 1000.0 - setting.service_s,
        late: 1.0 - setting.objective.percentile.fraction(),
    };
    let needed = trace.rates.iter().map(|rate| {
        let load = Load {
            rate: *rate,
            dispersion: trace.cv * trace.cv,
            times: &times,
        };
        let replicas = load.replicas(goal, setting.concurrency, setting.containers.max);
        replicas.clamp(setting.containers.min, setting.containers.max)
    });
    let needed: Vec<u32> = needed.collect();
    let ahead = (0..)
        .take_while(|it| f64::from(*it) < setting.start_s + 2.0)
        .count();
    (0..needed.len())
        .map(|at| {
            needed[at..needed.len().min(at + ahead + 1)]
                .iter()
                .max()
                .copied()
        })
        .map(|most| most.unwrap_or(setting.containers.min))
        .collect()
}
