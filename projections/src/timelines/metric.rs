//! The metrics by name.

use serde::{Deserialize, Serialize};

/// A metric of a timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// By resource and in total (Dorm, eq. 5).
    Utilization,
    /// With its bound (Dorm, eq. 11, 12, 15).
    FairnessLoss,
    Adjustments,
    Containers,
    Jobs,
    /// |s − ŝ| of jobs.
    FairnessLossByJob,
    /// Use of shared GPUs by jobs: 1 is a whole device.
    GpuUse,
    Latency,
    /// With errors and refusals.
    RequestRate,
    Attainment,
    Replicas,
    /// Σ |s − ŝ| of a tenant's jobs.
    FairnessLossByTenant,
    DominantShare,
    DemandShare,
    Waiting,
    /// Use ÷ due of each tenant, by the policy's memory.
    Balance,
    /// Forecasts of starts against the starts.
    ForecastError,
    /// The shares that backlogged tenants lack.
    Unfairness,
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 18] = [
        Self::Utilization,
        Self::FairnessLoss,
        Self::Adjustments,
        Self::Containers,
        Self::Jobs,
        Self::FairnessLossByJob,
        Self::GpuUse,
        Self::Latency,
        Self::RequestRate,
        Self::Attainment,
        Self::Replicas,
        Self::FairnessLossByTenant,
        Self::DominantShare,
        Self::DemandShare,
        Self::Waiting,
        Self::Balance,
        Self::ForecastError,
        Self::Unfairness,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Utilization => "utilization",
            Self::FairnessLoss => "fairness-loss",
            Self::Adjustments => "adjustments",
            Self::Containers => "containers",
            Self::Jobs => "jobs",
            Self::FairnessLossByJob => "fairness-loss-by-job",
            Self::GpuUse => "gpu-use",
            Self::Latency => "latency",
            Self::RequestRate => "request-rate",
            Self::Attainment => "attainment",
            Self::Replicas => "replicas",
            Self::FairnessLossByTenant => "fairness-loss-by-tenant",
            Self::DominantShare => "dominant-share",
            Self::DemandShare => "demand-share",
            Self::Waiting => "waiting",
            Self::Balance => "balance",
            Self::ForecastError => "forecast-error",
            Self::Unfairness => "unfairness",
        }
    }

    pub(super) const fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Utilization => (
                "fraction",
                "Utilization of the cluster: allocated, and running",
            ),
            Self::FairnessLoss => ("fraction", "Fairness loss Σ |s − ŝ|"),
            Self::Adjustments => ("jobs", "Adjusted jobs"),
            Self::Containers => ("containers", "Containers that run"),
            Self::Jobs => ("jobs", "Jobs by phase"),
            Self::FairnessLossByJob => ("fraction", "Fairness loss |s − ŝ| by job"),
            Self::GpuUse => (
                "fraction",
                "Time of a GPU that jobs with parts of GPUs used",
            ),
            Self::Latency => (
                "milliseconds",
                "Latency at the objective's percentile: bounds of buckets; 0: no answer",
            ),
            Self::RequestRate => ("requests/s", "Requests to services"),
            Self::Attainment => (
                "fraction",
                "Requests answered within the objective; 1 where there was none",
            ),
            Self::Replicas => ("replicas", "Replicas of services that are ready"),
            Self::FairnessLossByTenant => ("fraction", "Fairness loss Σ |s − ŝ| by tenant"),
            Self::DominantShare => ("fraction", "Dominant share of what each tenant has"),
            Self::DemandShare => ("fraction", "Dominant share of what each tenant has queued"),
            Self::Waiting => ("seconds", "Mean time in the queue so far"),
            Self::Balance => (
                "fraction",
                "Use of each tenant by its due, remembered with the policy's half-life",
            ),
            Self::ForecastError => (
                "fraction",
                "Forecasts of starts: the newest 500 that were scored",
            ),
            Self::Unfairness => (
                "fraction",
                "What backlogged tenants lack, Σ max(0, w/W − share)",
            ),
        }
    }

    /// True for metrics of jobs, including services.
    #[must_use]
    pub const fn is_of_jobs(self) -> bool {
        self.is_of_services()
            || matches!(
                self,
                Self::Containers | Self::FairnessLossByJob | Self::GpuUse
            )
    }

    /// True for metrics of services.
    #[must_use]
    pub const fn is_of_services(self) -> bool {
        matches!(
            self,
            Self::Latency | Self::RequestRate | Self::Attainment | Self::Replicas
        )
    }
}

impl std::str::FromStr for Metric {
    type Err = String;

    /// Accepts `_` for `-`.
    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.replace('_', "-");
        let found = Self::ALL.into_iter().find(|metric| metric.as_str() == name);
        found.ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            format!("{text:?} is not a metric; the metrics are {names}")
        })
    }
}
