//! Keeps jobs that are resized in place on their nodes as far as possible.
//!
//! P2 counts containers per node and ignores owners, so a container may land on a new node for nothing. Such
//! containers go back into free capacity, or in exchange with another job's container that is new there.

use std::collections::BTreeMap;

use crate::model::candidate::Candidate;
use crate::model::instance::Instance;
use crate::model::room::{give, take};
use crate::primal::slots_to_jobs::Partitions;

pub(crate) fn keep_in_place(
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
) {
    let Some(mut rooms) = candidate.rooms(instance) else {
        return;
    };
    for index in 0..instance.jobs.len() {
        let job = &instance.jobs[index];
        if !job.in_place {
            continue;
        }
        for (home, had) in &job.previous {
            while at(&partitions[index], *home) < *had {
                let Some(away) = new_place(&job.previous, &partitions[index]) else {
                    break;
                };
                let moved = back(instance, candidate, &mut rooms, index, away, *home)
                    && shift(&mut partitions[index], away, *home);
                if !moved && !exchange(instance, partitions, index, away, *home) {
                    break;
                }
            }
        }
    }
}

fn at(partition: &BTreeMap<usize, u32>, node: usize) -> u32 {
    partition.get(&node).copied().unwrap_or(0)
}

fn new_place(previous: &[(usize, u32)], partition: &BTreeMap<usize, u32>) -> Option<usize> {
    let had = |node: usize| {
        let before = previous.iter().find(|(at, _)| *at == node);
        before.map_or(0, |(_, count)| *count)
    };
    let mut nodes = partition.iter();
    let (node, _) = nodes.find(|(node, count)| **count > had(**node))?;
    Some(*node)
}

fn shift(partition: &mut BTreeMap<usize, u32>, from: usize, to: usize) -> bool {
    if let Some(count) = partition.get_mut(&from) {
        *count -= 1;
        if *count == 0 {
            partition.remove(&from);
        }
    }
    *partition.entry(to).or_insert(0) += 1;
    true
}

fn back(
    instance: &Instance,
    candidate: &mut Candidate,
    rooms: &mut [Vec<u64>],
    index: usize,
    away: usize,
    home: usize,
) -> bool {
    let ty = instance.jobs[index].ty;
    let demand = &instance.types[ty].demand;
    if !take(demand, 1, &mut rooms[home]) {
        return false;
    }
    give(demand, 1, &mut rooms[away]);
    let slots = &mut candidate.slots[ty];
    shift(slots, away, home);
    true
}

fn exchange(
    instance: &Instance,
    partitions: &mut Partitions,
    index: usize,
    away: usize,
    home: usize,
) -> bool {
    let ty = instance.jobs[index].ty;
    let is_new = |other: &usize| {
        let job = &instance.jobs[*other];
        let before = job.previous.iter().find(|(at, _)| *at == home);
        let had = before.map_or(0, |(_, count)| *count);
        *other != index && job.ty == ty && at(&partitions[*other], home) > had
    };
    let Some(other) = (0..partitions.len()).find(is_new) else {
        return false;
    };
    shift(&mut partitions[other], home, away);
    shift(&mut partitions[index], away, home);
    true
}
