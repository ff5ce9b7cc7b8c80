//! The life of each released job, one job at a time.
//!
//! Folds: the shared [`ClusterState`]. Appends: `checkpoint.requested`,
//! `partition.{start_requested, started, stop_requested, stopped, kept}`, `tasks.assigned`,
//! `partition.{resize_requested, leave_requested, resized}`, `job.{completed, failed, cancelled}`.
//!
//! ```text
//!                 room on every node              every container runs
//!   (assigned) ─────────────────────▶ starting ─────────────────────▶ running ◀─┐ kept
//!        ▲                               │ a member dies, time-out       │      │
//!        │                               ▼                               ▼      │
//!        └──────────── stopped ◀────── stopping ◀───────────────────── saving ──┘
//!                                                 saved, or time-out
//! ```
//!
//! 1. For each job, in the order of its release: one step ([`crate::step`]), if one is due.
//! 2. A start is due only when the room of the whole gang is free ([`crate::room`]); what this
//!    decision starts is taken from the room that the next job sees.
//! 3. A running task set gives each container its next tasks before it runs out ([`crate::tasks`]).
//! 4. A job that has just started is resized when it is ready and has run for its `min_run_s`, not
//!    before ([`Job::settled_at`]); a drain, a loss or a cancellation does not wait.
//! 5. A job that is resized in place has members that come and go within one life
//!    ([`crate::elastic`]).
//! 6. A life that has used up its job's `time_limit_s` is stopped, and warned before
//!    ([`crate::limits`]); a job that was never started within its `queue_limit_s` is cancelled.
//! 7. The earliest time-out of all jobs is the next wake.
//!
//! Invariant: at most one incarnation of a job has containers, and no node is over-committed:
//! whatever held the room has exited, by the agent's own word, or its node is lost. Left to
//! others: where containers stand (placer), how many there are (optimizer).

use dormouse_messages::{Decider, Decision, JobId, Proposal, Timestamp, Writer};
use dormouse_state::{ClusterState, Job};

use crate::room::Room;
use crate::step::{Step, step};

/// The checkpointer.
#[derive(Debug, Clone, Copy)]
pub struct Checkpointer {
    /// A gang that is not running this long after it was asked to start has failed. Two
    /// minutes: pulling a large image is done beforehand, starting takes seconds.
    pub start_timeout_s: u32,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self {
            start_timeout_s: 120,
        }
    }
}

/// What a node has beyond that to make an environment of a job's packages: some are gigabytes.
const ENVIRONMENT_S: u32 = 900;

impl Checkpointer {
    /// Seconds from a start's request until it has failed.
    pub(crate) const fn start_timeout_of(&self, job: &Job) -> u32 {
        match job.has_packages {
            true => self.start_timeout_s + ENVIRONMENT_S,
            false => self.start_timeout_s,
        }
    }
}

impl Decider for Checkpointer {
    type State = ClusterState;

    const WRITER: Writer = Writer::Checkpointer;

    fn decide(&self, state: &ClusterState, now: Timestamp) -> Decision {
        let mut decision = Decision::default();
        let mut room = Room::of(state);
        let mut jobs: Vec<(&JobId, &Job)> = state.jobs.iter().collect();
        jobs.sort_by_key(|(_, job)| job.released);
        for (id, job) in jobs {
            match step(self, state, (id, job), now, &mut room) {
                Step::Append(proposal) => decision.proposals.push(*proposal),
                Step::Wait(until) => decision.next_wake = earliest(decision.next_wake, until),
            }
        }
        decision
    }
}

/// The earlier of two times, where there are any.
pub(crate) fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

impl From<Proposal> for Step {
    fn from(proposal: Proposal) -> Self {
        Self::Append(Box::new(proposal))
    }
}
