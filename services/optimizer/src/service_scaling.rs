//! Scales running services and notebooks under the policies that restart nobody. Surplus replicas go first
//! from the node with the fewest; services grow before notebooks, one replica at a time on the node with the
//! most free capacity.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;

use crate::model::cluster::{Cluster, limits, runs};
use crate::model::room::{fits, give, take};
use crate::problem::Problem;
use crate::report::Draft;

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
            if !grows {
                shrink(placed, most, &demand[..cluster.columns.counted()], rooms)
            } else {
                grow(placed, least, &demand, rooms)
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
