//! Starts, saves, stops and ends jobs, one at a time.
//!
//! Folds the shared [`ClusterState`]. Appends `checkpoint.requested`,
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
//! 1. Each job, in order of release, takes its due step ([`crate::step`]).
//! 2. A gang starts once all its capacity is free ([`crate::room`]); later jobs see less.
//! 3. Task sets get their next tasks in time ([`crate::tasks`]).
//! 4. A job is resized once ready and after `min_run_s` ([`Job::settled_at`]); drains, losses and
//!    cancellations do not wait.
//! 5. In-place jobs change members within one incarnation ([`crate::elastic`]).
//! 6. Jobs past `time_limit_s` are warned and stopped ([`crate::limits`]); unstarted ones past
//!    `queue_limit_s` are cancelled.
//!
//! Invariant: at most one incarnation of a job has containers, and no node is over-committed: previous
//! holders exited, by the agent's report, or their node is lost. The placer chooses nodes, the optimizer
//! sizes.

use dormouse_messages::{Decider, Decision, JobId, Timestamp, Writer};
use dormouse_state::{ClusterState, Job};

use crate::incarnation::{Step, earliest};
use crate::room::Room;
use crate::step::step;

/// The checkpointer's decider.
#[derive(Debug, Clone, Copy)]
pub struct Checkpointer {
    /// Large images are pulled beforehand, and starts take seconds.
    pub start_timeout_s: u32,
}

impl Default for Checkpointer {
    fn default() -> Self {
        Self {
            start_timeout_s: 120,
        }
    }
}

/// Building an environment of packages may fetch gigabytes.
const ENVIRONMENT_S: u32 = 900;

impl Checkpointer {
    /// Returns the start time-out in seconds.
    const fn start_timeout_of(&self, job: &Job) -> u32 {
        if job.has_packages {
            self.start_timeout_s + ENVIRONMENT_S
        } else {
            self.start_timeout_s
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
            match step(self.start_timeout_of(job), state, (id, job), now, &mut room) {
                Step::Append(proposal) => decision.proposals.push(*proposal),
                Step::Wait(until) => decision.next_wake = earliest(decision.next_wake, until),
            }
        }
        #[cfg(feature = "test-format")]
        name_format(state, &mut decision);
        decision
    }
}

/// The addition of the format of the tests of upgrades.
#[cfg(feature = "test-format")]
fn name_format(state: &ClusterState, decision: &mut Decision) {
    use dormouse_messages::{Event, Format};

    let format = state.builds.format;
    for proposal in &mut decision.proposals {
        if let Event::JobCompleted(event) = &mut proposal.event {
            event.format = (format >= Format(2)).then_some(format);
        }
    }
}
