//! Services and notebooks that run, under the policies that restart nobody: each gives back what its
//! target no longer says, and then each takes what it lacks where there is room.
//!
//! 1. Replicas go from the node that holds the fewest of them: whole nodes become free.
//! 2. Services take before notebooks, and each in the order of release, one replica after the other,
//!    on the node with the most free room for it.
//!
//! Nobody makes room for them here: these policies take nothing from who has it.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;

use crate::instance::{Cluster, fits, give, limits, runs, take};
use crate::problem::Problem;
use crate::report::Draft;

/// Brings what runs to its targets.
pub(crate) fn scale(
    problem: &Problem,
    cluster: &Cluster,
    rooms: &mut [Vec<u64>],
    draft: &mut Draft,
) {
    let mut served: Vec<usize> = (0..problem.jobs.len())
        .filter(|index| {
            let job = &problem.jobs[*index];
            job.urgency > Urgency::Training && runs(cluster, job)
        })
        .collect();
    served.sort_by_key(|index| (std::cmp::Reverse(problem.jobs[*index].urgency), *index));
    for grows in [false, true] {
        for index in &served {
            let job = &problem.jobs[*index];
            let Some(demand) = cluster.demand(job) else {
                continue;
            };
            let (least, most) = limits(job);
            let placed = &mut draft.placed[*index];
            match grows {
                // A replica that stayed where it may no longer be took no permit there, and leaves none.
                false => shrink(placed, most, &demand[..cluster.columns.counted()], rooms),
                true => grow(placed, least, &demand, rooms),
            }
        }
    }
}

fn count(placed: &BTreeMap<usize, u32>) -> u32 {
    placed.values().sum()
}

fn shrink(placed: &mut BTreeMap<usize, u32>, most: u32, demand: &[u64], rooms: &mut [Vec<u64>]) {
    while count(placed) > most {
        let fewest = placed.iter().min_by_key(|(node, count)| (**count, **node));
        let Some(node) = fewest.map(|(node, _)| *node) else {
            return;
        };
        if let Some(held) = placed.get_mut(&node) {
            *held -= 1;
        }
        placed.retain(|_, held| *held > 0);
        give(demand, 1, &mut rooms[node]);
    }
}

fn grow(placed: &mut BTreeMap<usize, u32>, least: u32, demand: &[u64], rooms: &mut [Vec<u64>]) {
    while count(placed) < least {
        let able = (0..rooms.len()).filter(|node| fits(demand, &rooms[*node]) > 0);
        let roomiest =
            able.max_by_key(|node| (fits(demand, &rooms[*node]), std::cmp::Reverse(*node)));
        let Some(node) = roomiest else {
            return;
        };
        if !take(demand, 1, &mut rooms[node]) {
            return;
        }
        *placed.entry(node).or_insert(0) += 1;
    }
}
