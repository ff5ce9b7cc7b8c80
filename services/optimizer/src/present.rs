//! The containers that a job has and may keep: all of them, the rest of a partition resized in place, or none.

use std::collections::BTreeMap;

use dormouse_messages::{NodeId, Rank};
use dormouse_state::{Assignment, ClusterState, Job, PartitionContainer, Place};

/// True if the job has no containers, or must leave them.
pub(crate) fn starts(state: &ClusterState, job: &Job) -> bool {
    let Some(assignment) = &job.assignment else {
        return true;
    };
    assignment.displaced && !stays_in_place(state, job, assignment)
}

/// Returns the containers of the chosen ranks by node; of a displaced job only those on nodes open to it.
pub(crate) fn stands(
    state: &ClusterState,
    job: &Job,
    which: impl Fn(Rank) -> bool,
) -> Option<BTreeMap<NodeId, u32>> {
    let assignment = job.assignment.as_ref()?;
    let mut counts = assignment.by_node_of(which);
    if assignment.displaced {
        counts.retain(|node, _| state.nodes.is_open(&job.needs, node));
    }
    Some(counts)
}

/// True if a job that lost or must leave a node continues with the rest.
pub(crate) fn stays_in_place(state: &ClusterState, job: &Job, assignment: &Assignment) -> bool {
    let partition = job.partition.as_ref();
    let partition = partition
        .filter(|partition| job.in_place && partition.incarnation == assignment.incarnation);
    let Some(partition) = partition else {
        return false;
    };
    // A node that was lost and came back no longer runs its containers.
    let is_left = |(rank, place): &(&Rank, &Place)| {
        let container = partition.containers.get(*rank);
        state.nodes.is_open(&job.needs, &place.node)
            && container.is_none_or(PartitionContainer::holds_room)
    };
    let left: Vec<&Rank> = assignment
        .places
        .iter()
        .filter(is_left)
        .map(|(rank, _)| rank)
        .collect();
    let least = job.auxiliary.containers(job.containers.min);
    let least = usize::try_from(least).unwrap_or(usize::MAX);
    let roles = left.iter().filter(|rank| !job.auxiliary.is_worker(***rank));
    if roles.count() < usize::try_from(job.auxiliary.count()).unwrap_or(usize::MAX) {
        return false;
    }
    let coordinator = left.first() == Some(&&Rank(0));
    !left.is_empty() && (job.is_served() || (coordinator && left.len() >= least))
}

/// True if containers of a partition resized in place died or must leave. The decision then lists the job
/// even if nothing else changes, so that all counts agree.
pub(crate) fn has_less(state: &ClusterState, job: &Job) -> bool {
    let may_go_on = job.in_place && !job.in_transit() && job.cancel_requested.is_none();
    let Some(assignment) = job.assignment.as_ref().filter(|_| may_go_on) else {
        return false;
    };
    let nodes = &state.nodes;
    let leaves = |(rank, place): (&Rank, &Place)| {
        let partition = job.partition.as_ref();
        let container = partition.and_then(|it| it.containers.get(rank));
        let runs = container.is_some_and(PartitionContainer::holds_room);
        runs && !nodes.is_open(&job.needs, &place.node) && !nodes.is_lost(&place.node)
    };
    if assignment.displaced {
        assignment.places.iter().any(leaves) && stays_in_place(state, job, assignment)
    } else {
        assignment.lost > 0
    }
}
