//! What is resized in place stays where it runs, as far as it can.
//!
//! The model counts containers of one demand on nodes and does not ask whose they are. Of a job that
//! is resized in place each container that lands on another node than before leaves and joins, for
//! nothing where it could have stayed. Here such containers go back, where there is room or where
//! another's container of the same demand, which is new there, can go instead.

use std::collections::BTreeMap;

use crate::candidate::Candidate;
use crate::instance::{Instance, give, take};
use crate::primal::slots_to_jobs::Partitions;

/// Moves containers of jobs that are resized in place back to where they ran.
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

/// A node where the job has more than it had.
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

/// Takes the room of one container at home, where there is any.
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

/// Exchanges with a job of the same demand that has more there than it had.
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
