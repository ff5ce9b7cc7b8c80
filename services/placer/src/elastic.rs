//! Partitions resized in place: the containers that stay, go or come.
//!
//! 1. Containers stay on the allocation's nodes; of several on a node the coordinator and the oldest stay.
//! 2. New containers get ranks that the incarnation has not used.
//! 3. If the coordinator would move, the training job is placed whole, under its next incarnation.

use std::collections::BTreeMap;

use dormouse_messages::{NodeId, Rank};
use dormouse_state::{Assignment, Job, Place};

/// The change of an assignment.
pub struct Changed {
    pub remove: Vec<Rank>,
    pub create: Vec<(Rank, NodeId)>,
}

/// `None` if the job is placed whole. Roles stay.
pub fn change(job: &Job, counts: &BTreeMap<NodeId, u32>) -> Option<Changed> {
    let assignment = job.assignment.as_ref().filter(|_| job.in_place)?;
    if !is_alive(job, assignment) {
        return None;
    }
    let mut left = counts.clone();
    let mut remove = Vec::new();
    let workers = assignment.places.iter();
    for (rank, place) in workers.filter(|(rank, _)| job.auxiliary.is_worker(**rank)) {
        match left.get_mut(&place.node) {
            Some(count) if *count > 0 => *count -= 1,
            _ => remove.push(*rank),
        }
    }
    if remove.contains(&Rank(0)) && !job.is_served() {
        return None;
    }
    let missing = left
        .into_iter()
        .flat_map(|(node, count)| (0..count).map(move |_| node.clone()));
    let numbers = (assignment.next.0..).map(Rank);
    let create = numbers.zip(missing).collect();
    Some(Changed { remove, create })
}

/// An incarnation yet to begin is placed whole, since its starter may not see the change.
pub fn is_alive(job: &Job, assignment: &Assignment) -> bool {
    let partition = job.partition.as_ref();
    partition.is_some_and(|it| it.incarnation == assignment.incarnation)
        && (job.is_served() || assignment.places.contains_key(&Rank(0)))
}

pub fn staying<'a>(
    assignment: &'a Assignment,
    changed: &'a Changed,
) -> impl Iterator<Item = (&'a Rank, &'a Place)> {
    let places = assignment.places.iter();
    places.filter(|(rank, _)| !changed.remove.contains(rank))
}
