//! When a notebook is ended because nobody uses it.
//!
//! 1. It is used while a kernel works, and when somebody opens its page or saves; how its kernels
//!    and terminals are, its agent tells, and what clients do, the gateways tell.
//! 2. A notebook that may have no container (`containers.min: 0`) and is not used for
//!    `service.idle_s` is ended. It is warned before: ten minutes, or half of `idle_s` where that
//!    is less.
//! 3. It is ended only on a word of its agent from behind that moment, which says that no kernel
//!    works. One that does not say what it does is never ended.
//! 4. Whatever a container did is forgotten with it: the next one begins anew.

use dormouse_messages::events::{
    ContainerReady, NotebookActivity, NotebookObserved, NotebookWarned, ServiceMeasured,
};
use dormouse_messages::{Incarnation, JobId, Proposal, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// A warning comes so long before the end, where `idle_s` is long enough.
const WARNED_MS: u64 = 600_000;

/// Two words about the same last activity differ by how long they took to the log.
const SAME_MS: u64 = 2_000;

/// A notebook whose container runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Used {
    container: (Incarnation, Rank),
    /// The last sign that somebody uses it.
    active_at: Timestamp,
    /// What its agent said last, and when.
    said: Option<Said>,
    /// The warning that holds.
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

/// What is to be done about a notebook.
#[derive(Debug, Clone, PartialEq)]
pub enum Unused {
    /// Nothing; when to look again, where time alone changes that.
    Keep(Option<Timestamp>),
    /// It is warned.
    Warn(Proposal),
    /// It is ended; why, and the word that it is ended on.
    End(String, Sequence),
}

impl Used {
    /// A container that has become ready.
    #[must_use]
    pub fn ready(event: &ContainerReady, at: Timestamp) -> Self {
        Self {
            container: (event.incarnation, event.rank),
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

    /// Its agent says what it does.
    pub fn observed(&mut self, event: &NotebookObserved, sequence: Sequence, at: Timestamp) {
        if self.container != (event.incarnation, event.rank) {
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

    /// A gateway says what its clients did.
    pub fn measured(&mut self, event: &ServiceMeasured, at: Timestamp) {
        if event.touched > 0 {
            self.is_active(at);
        }
    }

    /// It was warned.
    pub fn warned(&mut self, event: &NotebookWarned, sequence: Sequence) {
        self.warned = Some(Warned {
            ends_at: event.ends_at,
            sequence,
        });
    }

    /// Whether `container` is this one.
    #[must_use]
    pub fn is(&self, incarnation: Incarnation, rank: Rank) -> bool {
        self.container == (incarnation, rank)
    }

    /// What is to be done now about a notebook that may be idle for `idle_s`.
    #[must_use]
    pub fn verdict(&self, job: &JobId, idle_s: u32, now: Timestamp) -> Unused {
        let idle_ms = u64::from(idle_s) * 1000;
        let before_ms = WARNED_MS.min(idle_ms / 2);
        let Some(said) = self.said.filter(|it| it.activity == NotebookActivity::Idle) else {
            return Unused::Keep(None);
        };
        if let Some(warned) = self.warned {
            // A later word comes by itself.
            return match said.at >= warned.ends_at {
                true => Unused::End(self.reason(), said.sequence.max(warned.sequence)),
                false => Unused::Keep(None),
            };
        }
        let ends_at = self.active_at.plus_ms(idle_ms);
        let warn_at = self.active_at.plus_ms(idle_ms - before_ms);
        if now < warn_at {
            return Unused::Keep(Some(warn_at));
        }
        // Somebody who was away himself warns late, and leaves the same time.
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
