//! The phases of a job, and counts.

use serde::{Deserialize, Serialize};

/// The phase of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Admitted, not released.
    #[default]
    Queued,
    /// Released, not allocated.
    Waiting,
    /// Allocated, not started.
    Placed,
    Starting,
    Running,
    /// Saving before a resize.
    Checkpointing,
    Stopping,
    Completed,
    Failed,
    Cancelled,
}

impl Phase {
    /// All phases, in order.
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

    /// Returns the displayed name.
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

    /// True for an ended job.
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

/// Jobs by phase, including dropped ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseCounts([u64; Phase::ALL.len()]);

impl PhaseCounts {
    /// Returns the jobs in `phase`.
    #[must_use]
    pub const fn get(&self, phase: Phase) -> u64 {
        self.0[phase as usize]
    }

    /// Returns each phase with its jobs.
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
