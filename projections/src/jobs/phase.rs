//! The phases of a job, and how many jobs are in each.

use serde::{Deserialize, Serialize};

/// Where a job is in its life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Admitted; the queue has not let it go.
    #[default]
    Queued,
    /// Released; no allocation gives it containers.
    Waiting,
    /// It has containers by the allocation; its partition is not asked to start yet.
    Placed,
    /// Its partition is asked to start.
    Starting,
    /// Every container of its partition runs.
    Running,
    /// It is asked to save, to be resized.
    Checkpointing,
    /// Its partition is asked to stop.
    Stopping,
    /// It succeeded.
    Completed,
    /// It failed for good.
    Failed,
    /// Its tenant cancelled it.
    Cancelled,
}

impl Phase {
    /// Every phase, in the order of a life.
    pub const ALL: [Self; 10] = [
        Self::Queued,
        Self::Waiting,
        Self::Placed,
        Self::Starting,
        Self::Running,
        Self::Checkpointing,
        Self::Stopping,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name that people read.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Waiting => "waiting",
            Self::Placed => "placed",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Checkpointing => "checkpointing",
            Self::Stopping => "stopping",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether the job is over.
    #[must_use]
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Phase {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or_else(|| {
                let names = Self::ALL.map(Self::as_str).join(", ");
                format!("{text:?} is not a phase; the phases are {names}")
            })
    }
}

/// How many jobs are in each phase. Ended ones stay counted, beyond those kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts([u64; Phase::ALL.len()]);

impl PhaseCounts {
    /// Jobs in `phase`.
    #[must_use]
    pub const fn get(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }

    /// Each phase with its jobs.
    pub fn iter(&self) -> impl Iterator<Item = (Phase, u64)> + '_ {
        Phase::ALL.into_iter().map(|phase| (phase, self.get(phase)))
    }

    pub(super) const fn add(&mut self, phase: Phase) {
        self.0[phase as usize] += 1;
    }

    pub(super) const fn remove(&mut self, phase: Phase) {
        let count = &mut self.0[phase as usize];
        *count = count.saturating_sub(1);
    }
}
