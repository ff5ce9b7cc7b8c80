//! Partitions that are resized in place: which of their containers stay, go or come.
//!
//! 1. A job keeps its containers on the nodes where the allocation leaves it room; of several on a
//!    node the oldest stay, the chief first.
//! 2. What it has too many goes, what is missing comes under numbers that the life has not used.
//! 3. A training job whose chief would have to move is restarted instead: it is placed whole, under
//!    its next incarnation.

use std::collections::BTreeMap;

use dormouse_messages::{NodeId, Rank};
use dormouse_state::{Assignment, Job, Place};

/// What becomes of an assignment.
pub struct Changed {
    /// Those that go.
    pub remove: Vec<Rank>,
    /// Those that come, without a port yet.
    pub create: Vec<(Rank, NodeId)>,
}

/// The change of a job's present assignment into these workers on each node; `None` where it is
/// placed whole. Its roles stay.
pub fn change(job: &Job, counts: &BTreeMap<NodeId, u32>) -> Option<Changed> {
    let assignment = job.assignment.as_ref().filter(|_| job.in_place)?;
    if !is_alive(job, assignment) {
        return None;
    }
    let mut left = counts.clone();
    let mut remove = Vec::new();
    // By rank, so that the chief and the oldest stay.
    let workers = assignment.places.iter();
    for (rank, place) in workers.filter(|(rank, _)| job.beside.is_worker(**rank)) {
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

/// Whether the assignment's life goes on. One that has yet to begin is placed whole: whoever starts
/// it may not have seen the change.
pub fn is_alive(job: &Job, assignment: &Assignment) -> bool {
    let life = job.life.as_ref();
    life.is_some_and(|life| life.incarnation == assignment.incarnation)
        && (job.is_served() || assignment.places.contains_key(&Rank(0)))
}

/// The places that stay of a changed assignment.
pub fn staying<'a>(
    assignment: &'a Assignment,
    changed: &'a Changed,
) -> impl Iterator<Item = (&'a Rank, &'a Place)> {
    let places = assignment.places.iter();
    places.filter(|(rank, _)| !changed.remove.contains(rank))
}
