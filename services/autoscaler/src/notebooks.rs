//! Ends unused notebooks.
//!
//! 1. A working kernel, an opened page or a save is use. Agents report kernels, gateways report clients.
//! 2. A notebook with `containers.min: 0` ends after `service.idle_s` without use. A warning precedes by ten
//!    minutes, or half of `idle_s`.
//! 3. The end requires the agent's later report of an idle kernel. A silent notebook never ends.
//! 4. Activity is forgotten with the container.

use dormouse_messages::events::{
    ContainerReady, NotebookActivity, NotebookObserved, NotebookWarned, ServiceMeasured,
};
use dormouse_messages::{Incarnation, JobId, Proposal, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// If `idle_s` allows.
const WARNED_MS: u64 = 600_000;

/// Reports about one activity differ by their log delays.
const SAME_MS: u64 = 2_000;

/// A notebook with a running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    container: (Incarnation, Rank),
    /// The last sign of use.
    active_at: Timestamp,
    said: Option<Said>,
    warned: Option<Warned>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Said {
    at: Timestamp,
    sequence: Sequence,
    activity: NotebookActivity,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Warned {
    ends_at: Timestamp,
    sequence: Sequence,
}

/// The verdict on a notebook.
#[derive(Debug, Clone, PartialEq)]
pub enum Unused {
    /// Until the next check, if time alone matters.
    Keep(Option<Timestamp>),
    Warn(Proposal),
    /// Reason and deciding report.
    End(String, Sequence),
}

impl Used {
    /// Starts with a ready container.
    #[must_use]
    pub fn ready(event: &ContainerReady, at: Timestamp) -> Self {
        Self {
            container: (event.container.incarnation, event.container.rank),
            active_at: at,
            said: None,
            warned: None,
        }
    }

    fn is_active(&mut self, at: Timestamp) {
        if at.ms_since(self.active_at) > SAME_MS {
            self.warned = None;
        }
        self.active_at = self.active_at.max(at);
    }

    /// Records an agent's report.
    pub fn observed(&mut self, event: &NotebookObserved, sequence: Sequence, at: Timestamp) {
        if self.container != (event.container.incarnation, event.container.rank) {
            return;
        }
        let activity = event.activity;
        self.said = Some(Said {
            at,
            sequence,
            activity,
        });
        match activity {
            NotebookActivity::Idle => self.is_active(at.minus_ms(event.idle_ms)),
            NotebookActivity::Busy | NotebookActivity::Unknown => self.is_active(at),
        }
    }

    /// Records a gateway's report.
    pub fn measured(&mut self, event: &ServiceMeasured, at: Timestamp) {
        if event.touched > 0 {
            self.is_active(at);
        }
    }

    /// Records a warning.
    pub fn warned(&mut self, event: &NotebookWarned, sequence: Sequence) {
        self.warned = Some(Warned {
            ends_at: event.ends_at,
            sequence,
        });
    }

    /// Reports whether the container matches.
    #[must_use]
    pub fn is(&self, incarnation: Incarnation, rank: Rank) -> bool {
        self.container == (incarnation, rank)
    }

    /// Decides about a notebook that may idle for `idle_s`.
    #[must_use]
    pub fn verdict(&self, job: &JobId, idle_s: u32, now: Timestamp) -> Unused {
        let idle_ms = u64::from(idle_s) * 1000;
        let before_ms = WARNED_MS.min(idle_ms / 2);
        let Some(said) = self.said.filter(|it| it.activity == NotebookActivity::Idle) else {
            return Unused::Keep(None);
        };
        if let Some(warned) = self.warned {
            // A later report arrives by itself.
            return if said.at >= warned.ends_at {
                Unused::End(self.reason(), said.sequence.max(warned.sequence))
            } else {
                Unused::Keep(None)
            };
        }
        let ends_at = self.active_at.plus_ms(idle_ms);
        let warn_at = self.active_at.plus_ms(idle_ms - before_ms);
        if now < warn_at {
            return Unused::Keep(Some(warn_at));
        }
        // A late warning leaves the full time.
        let ends_at = ends_at.max(now.plus_ms(before_ms));
        let event = NotebookWarned {
            job: job.clone(),
            idle_since: self.active_at,
            ends_at,
            basis: None,
        };
        Unused::Warn(Proposal::new(event, said.sequence))
    }

    fn reason(&self) -> String {
        format!("nobody has used it since {}", self.active_at)
    }
}
