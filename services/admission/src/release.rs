//! First in, first out: which queued jobs may have containers now.
//!
//! A job is released while the smallest partitions of all released jobs, with its own, fit the
//! cluster's totals: P2 can shrink every running job to its minimum, so more could not run
//! together anyway. The first job that does not fit holds the queue back; one that could not run
//! even on an empty cluster of the nodes there are now is passed over until nodes change.

use dormouse_messages::{Amounts, JobId, Sequence};
use dormouse_projections::shared::{ClusterState, Job};

/// The room that the smallest partitions of the released jobs leave.
pub struct Releases<'a> {
    state: &'a ClusterState,
    total: Amounts,
    committed: Amounts,
    blocked: bool,
}

impl<'a> Releases<'a> {
    /// What is released already.
    pub fn of(state: &'a ClusterState) -> Self {
        let mut committed = Amounts::new();
        for job in state.jobs.values() {
            committed.add(&job.demand, u64::from(job.containers.min));
        }
        Self {
            state,
            total: state.nodes.total(),
            committed,
            blocked: false,
        }
    }

    /// Whether the next job of the queue is released; must be asked in the queue's order.
    pub fn next(&mut self, demand: &Amounts, min: u32) -> bool {
        let min = u64::from(min);
        let some_node = self
            .state
            .nodes
            .usable()
            .any(|(_, node)| demand.times_in(&node.capacity) >= 1);
        if self.blocked || !some_node || demand.first_short(&self.total, min).is_some() {
            return false;
        }
        let mut with = self.committed.clone();
        with.add(demand, min);
        if with.first_short(&self.total, 1).is_some() {
            self.blocked = true;
            return false;
        }
        self.committed = with;
        true
    }

    /// Whether nothing further back in the queue can be released.
    pub fn is_blocked(&self) -> bool {
        self.blocked
    }
}

/// The queued jobs that are released now, in order.
pub fn releases<'a>(
    room: &mut Releases<'_>,
    queue: impl Iterator<Item = (&'a Sequence, &'a JobId)>,
    job: impl Fn(&JobId) -> Option<&'a Job>,
) -> Vec<(Sequence, JobId)> {
    let mut released = Vec::new();
    for (admitted, id) in queue {
        let Some(job) = job(id) else { continue };
        if room.next(&job.demand, job.containers.min) {
            released.push((*admitted, id.clone()));
        }
        if room.is_blocked() {
            break;
        }
    }
    released
}
