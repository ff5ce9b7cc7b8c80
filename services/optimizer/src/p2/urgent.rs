//! Room for services and notebooks: they get what they are to have, and training makes room.
//!
//! Where one of them has less than its target, P2 is solved under bounds that are loosened step by
//! step, and the first that has a solution is taken:
//!
//! 1. nothing is restarted: what is resized in place shrinks;
//! 2. restarts as θ2 allows, unfairness as θ1 allows;
//! 3. restarts and unfairness without bound;
//! 4. jobs are sent back to the queue, those with a checkpoint first, then the lightest, then the
//!    youngest: as few as make room.
//!
//! From the second step on the decision says for whom room was made. Nobody who waits is admitted by
//! such a decision: the next one sees what is left. If even an empty cluster is too small, the targets
//! are cut, the last one first.

use std::collections::BTreeSet;

use dormouse_messages::job::Urgency;

use super::admit::{Admitted, Queue};
use super::instance::{Instance, fits, limits, runs};
use super::pipeline::may_be_feasible;

/// A service or notebook that has fewer containers than it is to have: the first by its order. One
/// that has to be placed again has none: where it was it may not be, or there is no room any more.
pub(crate) fn short(queue: &Queue<'_>) -> Option<usize> {
    let jobs = queue.problem.jobs.iter().enumerate();
    let mut urgent = jobs.filter(|(_, job)| job.urgency > Urgency::Training);
    let short = urgent.find(|(index, job)| {
        let stands = job.previous.iter().filter(|_| runs(queue.cluster, job));
        let has: u32 = stands.flat_map(|it| it.values()).sum();
        has < limits(job).0 && queue.takes_part(*index)
    });
    short.map(|(index, _)| index)
}

/// What was decided, and who was sent back to the queue for it.
pub(crate) struct MadeRoom {
    pub admitted: Admitted,
    pub evicted: BTreeSet<usize>,
    /// Whether bounds were loosened.
    pub forced: bool,
}

/// Makes room; `None` where nothing does.
pub(crate) fn make_room(queue: &Queue<'_>) -> Option<MadeRoom> {
    let whole = queue.instance(&[]);
    let within = |instance: Instance, forced| {
        let admitted = solved(queue, instance, forced)?;
        Some(MadeRoom {
            admitted,
            evicted: BTreeSet::new(),
            forced,
        })
    };
    let mut in_place = whole.clone();
    in_place.restart_bound = 0;
    within(in_place, false)
        .or_else(|| within(whole.clone(), false))
        .or_else(|| within(unbounded(whole), true))
        .or_else(|| evict(queue))
}

fn unbounded(mut instance: Instance) -> Instance {
    instance.restart_bound = u32::MAX;
    instance.loss_bound = f64::INFINITY;
    instance
}

fn solved(queue: &Queue<'_>, instance: Instance, forced: bool) -> Option<Admitted> {
    if !may_be_feasible(&instance) {
        return None;
    }
    let found = queue.search(&instance)?;
    Some(Admitted {
        members: Vec::new(),
        instance,
        found,
        unbounded: forced,
    })
}

/// Step 4: the fewest of the victims, in their order, without which there is a solution.
fn evict(queue: &Queue<'_>) -> Option<MadeRoom> {
    let victims = victims(queue);
    let without = |count: usize| {
        let evicted: BTreeSet<usize> = victims.iter().take(count).copied().collect();
        let instance = unbounded(queue.instance_without(&evicted));
        (evicted, instance)
    };
    let (mut low, mut high) = (0, victims.len());
    if !may_be_feasible(&without(high).1) {
        return None;
    }
    while high > low + 1 {
        let middle = low.midpoint(high);
        match may_be_feasible(&without(middle).1) {
            true => high = middle,
            false => low = middle,
        }
    }
    // The relaxation may promise too much: then one more makes room, or a few.
    for count in high..=victims.len() {
        let (mut evicted, instance) = without(count);
        if let Some(admitted) = solved(queue, instance, true) {
            spare(queue, &mut evicted, &victims[..count]);
            let again = unbounded(queue.instance_without(&evicted));
            let admitted = solved(queue, again, true).unwrap_or(admitted);
            return Some(MadeRoom {
                admitted,
                evicted,
                forced: true,
            });
        }
    }
    None
}

/// Takes victims back whose room is not needed after all: the first ones were small.
fn spare(queue: &Queue<'_>, evicted: &mut BTreeSet<usize>, victims: &[usize]) {
    for victim in victims.iter().rev().skip(1) {
        let mut fewer = evicted.clone();
        fewer.remove(victim);
        let instance = unbounded(queue.instance_without(&fewer));
        if solved(queue, instance, true).is_some() {
            *evicted = fewer;
        }
    }
}

/// Running jobs that may be sent back, the first victim first.
fn victims(queue: &Queue<'_>) -> Vec<usize> {
    let whole = queue.instance(&[]);
    let heads = whole.jobs.iter().filter(|job| !job.is_role);
    let indices = heads.map(|job| job.index);
    let mut victims: Vec<usize> = indices
        .filter(|index| {
            let job = &queue.problem.jobs[*index];
            job.urgency == Urgency::Training && runs(queue.cluster, job)
        })
        .collect();
    victims.sort_by_key(|index| {
        let job = &queue.problem.jobs[*index];
        (
            !job.has_checkpoint,
            job.weight.max(1),
            std::cmp::Reverse(*index),
        )
    });
    victims
}

/// The targets of services and notebooks as far as the empty cluster holds them, the first ones
/// first: what is above is cut.
pub(crate) fn cut_targets(queue: &Queue<'_>) -> Vec<(usize, u32)> {
    let mut rooms = queue.cluster.rooms.clone();
    let mut cut = Vec::new();
    for (index, job) in queue.problem.jobs.iter().enumerate() {
        let Some(demand) = queue.cluster.demand(job) else {
            continue;
        };
        if job.urgency == Urgency::Training {
            continue;
        }
        let (target, _) = limits(job);
        let mut left = u64::from(target);
        for room in &mut rooms {
            let count = fits(&demand, room).min(left);
            left -= count;
            for (room, amount) in room.iter_mut().zip(&demand) {
                *room -= amount * count;
            }
        }
        if left > 0 {
            let fits = u64::from(target) - left;
            cut.push((index, u32::try_from(fits).unwrap_or(u32::MAX)));
        }
    }
    cut
}
