//! The containers of an incarnation, and the tasks of each container of a task set.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::FailedTask;
use dormouse_messages::ids::Rank;
use dormouse_messages::{NodeId, Sequence, TaskRanges, Timestamp};

use super::incarnation::Due;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    Asked,
    Runs,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Gang {
    pub(super) containers: BTreeMap<Rank, (NodeId, Container)>,
    /// The sequence of the first start request.
    pub(super) request: Sequence,
    pub(super) size: u32,
    /// The members after the first resize.
    pub(super) members: Option<BTreeSet<Rank>>,
    pub(super) resumes: bool,
    pub(super) in_place: bool,
    /// True for replicas, which never complete.
    pub(super) served: bool,
    pub(super) starts_at: Option<Timestamp>,
    pub(super) stopping: BTreeSet<Rank>,
    /// Task-set containers that take no more tasks and leave at their next due time.
    pub(super) draining: BTreeSet<Rank>,
    /// True if a task outlasts the drain.
    pub(super) hangs: Option<bool>,
    pub(super) leaving: BTreeSet<Rank>,
    pub(super) tasks: BTreeMap<Rank, Queue>,
    /// Containers with a slow engine, and their due starts.
    pub(super) unanswered: BTreeMap<Rank, Option<Due>>,
    pub(super) begun: bool,
    /// Containers that had succeeded before the last one ran, on a recorded log.
    pub(super) succeeded: u32,
    /// True if a container failed before the whole gang ran, on a recorded log.
    pub(super) failed: bool,
    pub(super) auxiliary: u32,
}

impl Gang {
    /// True for workers; the auxiliary containers have the ranks after the coordinator's.
    pub(super) fn is_worker(&self, rank: Rank) -> bool {
        !(1..=self.auxiliary).contains(&rank.0)
    }

    pub(super) fn replace(&mut self, ranks: impl Iterator<Item = Rank>, size: u32) {
        ranks.for_each(|rank| drop(self.containers.remove(&rank)));
        (self.size, self.begun, self.starts_at) = (size, false, None);
    }

    pub(super) fn workers(&self) -> u32 {
        self.size.saturating_sub(self.auxiliary)
    }
}

/// The tasks of one container.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    pub newest: Sequence,
    waiting: TaskRanges,
    running: TaskRanges,
    since: Timestamp,
}

impl Queue {
    /// Appends tasks; returns the number that begin now if the container was idle.
    pub fn give(&mut self, tasks: &TaskRanges, now: Timestamp) -> Option<u64> {
        self.waiting.extend(tasks);
        if self.running.is_empty() {
            self.begin(now)
        } else {
            None
        }
    }

    pub fn begin(&mut self, now: Timestamp) -> Option<u64> {
        self.running = std::mem::take(&mut self.waiting);
        self.since = now;
        (!self.running.is_empty()).then(|| self.running.len())
    }

    pub fn ended(&mut self) -> TaskRanges {
        std::mem::take(&mut self.running)
    }

    pub fn running(&self) -> u64 {
        self.running.len()
    }

    /// Removes the tasks that a log reports ended; returns the number that begin now if none runs.
    pub fn have_ended(
        &mut self,
        completed: &TaskRanges,
        failed: &[FailedTask],
        now: Timestamp,
    ) -> Option<u64> {
        for ended in [&mut self.running, &mut self.waiting] {
            let _ = ended.take_common(completed);
            for task in failed {
                ended.remove(task.task);
            }
        }
        if self.running.is_empty() {
            self.begin(now)
        } else {
            None
        }
    }

    pub fn cut_short(&mut self, task_s: f64, now: Timestamp) -> TaskRanges {
        let done = now.seconds_since(self.since).max(0.0) / task_s.max(1e-6);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a million tasks"
        )]
        let done = done.min(1e6) as u32;
        self.running.take_lowest(done, usize::MAX)
    }
}
