//! Assigns the slots of a type to jobs. A restarted job keeps as many places as it can; the others, largest
//! first, take the tightest fit, else the node with the most slots.

use std::collections::{BTreeMap, BTreeSet};

use crate::candidate::Candidate;
use crate::instance::Instance;

pub(crate) type Partitions = Vec<BTreeMap<usize, u32>>;

/// A restarted job that gets its exact former places is no longer restarted.
pub(crate) fn slots_to_jobs(instance: &Instance, candidate: &mut Candidate) -> Partitions {
    let mut partitions: Partitions = vec![BTreeMap::new(); instance.jobs.len()];
    let mut members = vec![Vec::new(); instance.types.len()];
    for (index, job) in instance.jobs.iter().enumerate() {
        if candidate.is_free(instance, index) {
            members[job.ty].push(index);
        } else {
            partitions[index] = job.previous.iter().copied().collect();
        }
    }
    for (slots, members) in candidate.slots.iter().zip(members) {
        let mut slots = slots.clone();
        let mut rest: Vec<(u32, usize)> = Vec::with_capacity(members.len());
        for index in members {
            let kept = keep(
                &instance.jobs[index].previous,
                candidate.counts[index],
                &mut slots,
            );
            let count: u32 = kept.values().sum();
            partitions[index] = kept;
            rest.push((candidate.counts[index].saturating_sub(count), index));
        }
        rest.sort_by(|left, right| right.0.cmp(&left.0).then(left.1.cmp(&right.1)));
        pack(slots, rest, &mut partitions);
    }
    unmark_unchanged(instance, candidate, &partitions);
    partitions
}

fn keep(
    previous: &[(usize, u32)],
    count: u32,
    slots: &mut BTreeMap<usize, u32>,
) -> BTreeMap<usize, u32> {
    let mut rest = count;
    let mut kept = BTreeMap::new();
    for (node, had) in previous {
        if let Some(slot) = slots.get_mut(node) {
            let stays = (*had).min(*slot).min(rest);
            if stays > 0 {
                *slot -= stays;
                rest -= stays;
                kept.insert(*node, stays);
            }
        }
    }
    kept
}

fn pack(slots: BTreeMap<usize, u32>, jobs: Vec<(u32, usize)>, partitions: &mut Partitions) {
    let filled = slots.into_iter().filter(|(_, count)| *count > 0);
    let mut free: BTreeSet<(u32, usize)> = filled.map(|(node, count)| (count, node)).collect();
    for (mut rest, index) in jobs {
        while rest > 0 {
            let fit = free
                .range((rest, 0)..)
                .next()
                .or_else(|| free.last())
                .copied();
            let Some((count, node)) = fit else { break };
            free.remove(&(count, node));
            let taken = count.min(rest);
            rest -= taken;
            *partitions[index].entry(node).or_insert(0) += taken;
            if count > taken {
                free.insert((count - taken, node));
            }
        }
    }
}

fn unmark_unchanged(instance: &Instance, candidate: &mut Candidate, partitions: &Partitions) {
    for (index, job) in instance.jobs.iter().enumerate() {
        let same = job
            .previous
            .iter()
            .copied()
            .eq(partitions[index].iter().map(|(n, c)| (*n, *c)));
        if candidate.restarted[index] && same {
            candidate.restarted[index] = false;
            for (node, count) in &job.previous {
                if let Some(slot) = candidate.slots[job.ty].get_mut(node) {
                    *slot = slot.saturating_sub(*count);
                }
            }
            candidate.slots[job.ty].retain(|_, count| *count > 0);
        }
    }
}
