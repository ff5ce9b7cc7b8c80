//! Moves starting role containers to nodes of their job's workers, which P2 ignores: to the node with the
//! most workers that has free capacity.

use std::cmp::Reverse;

use crate::model::candidate::Candidate;
use crate::model::instance::Instance;
use crate::model::room::{fits, give, take};
use crate::primal::slots_to_jobs::Partitions;

pub(crate) fn near_workers(
    instance: &Instance,
    candidate: &mut Candidate,
    partitions: &mut Partitions,
) {
    if !instance.jobs.iter().any(|job| job.is_role) {
        return;
    }
    let Some(mut rooms) = candidate.rooms(instance) else {
        return;
    };
    let mut head = 0;
    for (index, job) in instance.jobs.iter().enumerate() {
        if !job.is_role {
            head = index;
            continue;
        }
        if !candidate.is_free(instance, index) {
            continue;
        }
        let mut workers = partitions[head].clone();
        for (node, count) in &instance.jobs[head].fixed {
            *workers.entry(*node).or_insert(0) += count;
        }
        let mut homes: Vec<(usize, u32)> = workers.into_iter().collect();
        homes.sort_by_key(|(node, count)| (Reverse(*count), *node));
        let demand = &instance.types[job.ty].demand;
        let stands = partitions[index].clone();
        let away = stands
            .iter()
            .filter(|(node, _)| !homes.iter().any(|it| it.0 == **node));
        for from in away.flat_map(|(node, count)| (0..*count).map(|_| *node)) {
            let home = homes
                .iter()
                .find(|(node, _)| fits(demand, &rooms[*node]) > 0);
            let Some((home, _)) = home else {
                break;
            };
            take(demand, 1, &mut rooms[*home]);
            give(demand, 1, &mut rooms[from]);
            for counts in [&mut candidate.slots[job.ty], &mut partitions[index]] {
                if let Some(count) = counts.get_mut(&from) {
                    *count -= 1;
                }
                *counts.entry(*home).or_insert(0) += 1;
                counts.retain(|_, count| *count > 0);
            }
        }
    }
}
