//! Undoes restarts that win less than the solver's proven gap, the cheapest first, as long as the allocation
//! stays within the budget's gap.

use crate::model::candidate::{Candidate, SHARE_SLACK};
use crate::model::instance::Instance;
use crate::model::room::{give, take};
use crate::primal::slots_to_jobs::Partitions;

/// `gap` is proven and `allowed` may be lost, both absolute.
pub(crate) fn prune_restarts(
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
    gap: f64,
    allowed: f64,
) {
    let Some(mut rooms) = candidate.rooms(instance) else {
        return;
    };
    let mut loss = candidate.loss(instance);
    let mut spent = 0.0;
    let mut restarts: Vec<(f64, usize)> = (0..instance.jobs.len())
        .filter(|index| candidate.restarted[*index])
        .map(|index| (cost(instance, candidate, index), index))
        .filter(|(cost, _)| *cost <= gap.max(0.0))
        .collect();
    restarts.sort_by(|left, right| left.0.total_cmp(&right.0).then(left.1.cmp(&right.1)));
    for (cost, index) in restarts {
        let job = &instance.jobs[index];
        let after =
            loss - instance.loss(index, candidate.counts[index]) + instance.loss(index, job.count);
        let too_unfair = after > loss && after > instance.loss_bound + SHARE_SLACK;
        if too_unfair || spent + cost.max(0.0) > allowed.max(0.0) {
            continue;
        }
        if swap(instance, &mut rooms, partitions, index) {
            spent += cost.max(0.0);
            loss = after;
            take_back(instance, candidate, partitions, index);
        }
    }
}

fn cost(instance: &Instance, candidate: &Candidate, index: usize) -> f64 {
    let job = &instance.jobs[index];
    instance.worth(index, candidate.counts[index]) - job.restart - instance.worth(index, job.count)
}

/// Returns false and changes nothing if the former room does not fit.
fn swap(
    instance: &Instance,
    rooms: &mut [Vec<u64>],
    partitions: &Partitions,
    index: usize,
) -> bool {
    let job = &instance.jobs[index];
    let demand = &instance.types[job.ty].demand;
    for (node, count) in &partitions[index] {
        give(demand, *count, &mut rooms[*node]);
    }
    let mut taken = 0;
    let fits = job.previous.iter().all(|(node, count)| {
        let fits = take(demand, *count, &mut rooms[*node]);
        taken += usize::from(fits);
        fits
    });
    if !fits {
        for (node, count) in &job.previous[..taken] {
            give(demand, *count, &mut rooms[*node]);
        }
        for (node, count) in &partitions[index] {
            take(demand, *count, &mut rooms[*node]);
        }
    }
    fits
}

fn take_back(
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
    index: usize,
) {
    let job = &instance.jobs[index];
    for (node, count) in &partitions[index] {
        if let Some(slot) = candidate.slots[job.ty].get_mut(node) {
            *slot = slot.saturating_sub(*count);
        }
    }
    candidate.slots[job.ty].retain(|_, count| *count > 0);
    candidate.restarted[index] = false;
    candidate.counts[index] = job.count;
    partitions[index] = job.previous.iter().copied().collect();
}
