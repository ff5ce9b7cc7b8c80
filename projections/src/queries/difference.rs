//! Compares two moments of a cluster.

use std::collections::BTreeSet;

use dormouse_messages::policy::Policy;
use dormouse_messages::{JobId, NodeId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::ReadModel;
use crate::jobs::{Job, Phase};
use crate::nodes::NodeState;

/// The difference between two moments.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    pub from: Moment,
    pub to: Moment,
    /// Largest change of containers first.
    pub jobs: Vec<Change<JobId, JobSide>>,
    pub more_jobs: usize,
    pub nodes: Vec<Change<NodeId, NodeSide>>,
    pub more_nodes: usize,
}

/// A sequence with the cluster's figures.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Moment {
    pub sequence: Sequence,
    pub at: Timestamp,
    pub policy: Policy,
    pub utilization: f64,
    pub fairness_loss: f64,
    pub running: u64,
    /// Queued, or unallocated.
    pub waiting: u64,
    pub completed: u64,
}

/// An item that differs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Change<I, S> {
    pub id: I,
    /// Absent if new.
    pub from: Option<S>,
    /// Absent if gone.
    pub to: Option<S>,
}

/// One side of a change.
pub type Side<S> = Option<S>;

/// A job at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobSide {
    pub phase: Phase,
    pub containers: u32,
    pub share: f64,
    pub fair_share: f64,
}

/// A node at a moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeSide {
    pub state: NodeState,
    pub containers: u32,
}

/// Returns at most `limit` jobs and nodes.
#[must_use]
pub fn difference(from: &ReadModel, to: &ReadModel, limit: usize) -> Difference {
    let mut jobs = jobs(from, to);
    let containers = |side: &Side<JobSide>| side.as_ref().map_or(0, |side| side.containers);
    jobs.sort_by_key(|it| {
        let by = containers(&it.from).abs_diff(containers(&it.to));
        (std::cmp::Reverse(by), it.id.clone())
    });
    let mut nodes = nodes(from, to);
    let more_jobs = jobs.len().saturating_sub(limit);
    let more_nodes = nodes.len().saturating_sub(limit);
    jobs.truncate(limit);
    nodes.truncate(limit);
    Difference {
        from: moment(from),
        to: moment(to),
        jobs,
        more_jobs,
        nodes,
        more_nodes,
    }
}

fn moment(model: &ReadModel) -> Moment {
    let last = model.cluster.allocation.as_deref();
    let count = |phase| model.jobs.counts().get(phase);
    Moment {
        sequence: model.cluster.head,
        at: model.cluster.now,
        policy: model.cluster.policy.clone(),
        utilization: last.map_or(0.0, |last| last.utilization.total),
        fairness_loss: last.map_or(0.0, |last| last.fairness_loss),
        running: count(Phase::Running),
        waiting: count(Phase::Queued) + count(Phase::Waiting),
        completed: count(Phase::Completed),
    }
}

fn jobs(from: &ReadModel, to: &ReadModel) -> Vec<Change<JobId, JobSide>> {
    // Jobs ended in both are equal.
    let mut ids: BTreeSet<&JobId> = from.jobs.live().map(|(id, _)| id).collect();
    ids.extend(to.jobs.live().map(|(id, _)| id));
    let came_and_went = to.jobs.ended().map(|(id, _)| id);
    ids.extend(came_and_went.filter(|id| from.jobs.get(id).is_none()));
    let side = |job: &Job| JobSide {
        phase: job.phase,
        containers: if job.phase.is_over() { 0 } else { job.target },
        share: job.share,
        fair_share: job.fair_share,
    };
    let changes = ids.into_iter().map(|id| Change {
        id: id.clone(),
        from: from.jobs.get(id).map(side),
        to: to.jobs.get(id).map(side),
    });
    changes.filter(|it| differs(&it.from, &it.to)).collect()
}

/// Shares change with every new job, and do not count.
fn differs(from: &Side<JobSide>, to: &Side<JobSide>) -> bool {
    let seen = |side: &Side<JobSide>| side.as_ref().map(|side| (side.phase, side.containers));
    seen(from) != seen(to)
}

fn nodes(from: &ReadModel, to: &ReadModel) -> Vec<Change<NodeId, NodeSide>> {
    let mut ids: BTreeSet<&NodeId> = from.state().nodes.iter().map(|(id, _)| id).collect();
    ids.extend(to.state().nodes.iter().map(|(id, _)| id));
    let side = |model: &ReadModel, id: &NodeId| {
        model.node(id).map(|node| NodeSide {
            state: node.state(),
            containers: node.load.containers,
        })
    };
    let changes = ids.into_iter().map(|id| Change {
        id: id.clone(),
        from: side(from, id),
        to: side(to, id),
    });
    changes.filter(|it| it.from != it.to).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_state::history::History;

    #[test]
    fn only_what_differs_is_listed_the_greatest_change_first() {
        let mut history = History::default();
        history.join("n0", 1).run("ads/same", 2).run("ads/less", 8);
        let from = history.fold::<ReadModel>();
        history.run("web/new", 4).complete("ads/less");
        let to = history.fold::<ReadModel>();
        let found = difference(&from, &to, 10);
        let ids: Vec<&str> = found.jobs.iter().map(|it| it.id.as_str()).collect();
        assert_eq!(ids, ["ads/less", "web/new"]);
        assert_eq!(found.jobs[1].from, None);
        assert_eq!(found.to.completed, found.from.completed + 1);
        assert_eq!(difference(&from, &from, 10).jobs, []);
        let cut = difference(&from, &to, 1);
        assert_eq!((cut.jobs.len(), cut.more_jobs), (1, 1));
    }
}
