//! The static allocation, Dorm's baseline: strict first in, first out. Each job gets a fixed number of
//! containers or blocks the queue; containers are spread, away from nodes with unneeded resources.
//!
//! A job resized in place regains lost containers first. Without gangs such a job starts with the containers
//! that fit, and blocks the queue until it is complete. Equal containers of changed jobs are divided among the
//! jobs again, by the policy's placement.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;

use crate::drive::waiting::{on_those, unschedulable};
use crate::drive::work::Work;
use crate::model::cluster::{Cluster, limits, runs};
use crate::model::room::{fits, give, take};
use crate::primal::slots_to_jobs::divide_again;
use crate::problem::{Problem, ProblemJob};
use crate::report::{Draft, write};
use crate::service_scaling;
use crate::solution::{Solution, WaitCode};

pub(crate) fn solve(problem: &Problem) -> Solution {
    let cluster = Cluster::new(problem);
    let work = Work::new(u64::MAX);
    let mut rooms = cluster.rooms.clone();
    let mut draft = Draft::empty(problem, "static");
    keep_running(problem, &cluster, &mut rooms, &mut draft);
    let mut blocked: Option<usize> = None;
    for (index, job) in problem.heads() {
        if runs(&cluster, job) {
            if blocked.is_none() && completes(job) {
                let all = wanted(problem, &cluster, index).min(limits(job).1);
                let missing = all.saturating_sub(draft.placed[index].values().sum());
                let more = some(&cluster, job, missing, &mut rooms);
                let is_short = more.values().sum::<u32>() < missing;
                // A running gang waits for nothing.
                blocked = (is_short && !problem.policy.gang).then_some(index);
                for (node, count) in more {
                    *draft.placed[index].entry(node).or_insert(0) += count;
                }
            }
            continue;
        }
        if let Some(why) = unschedulable(problem, &cluster, &work, index) {
            draft.waiting.insert(index, why);
            continue;
        } else if let Some(head) = blocked {
            let head = &problem.jobs[head].job;
            let reason = format!("waits behind {head}, which was released before it");
            draft.waiting.insert(index, (WaitCode::Behind, reason));
            continue;
        }
        let before = rooms.clone();
        let roles = place_auxiliary(problem, &cluster, index, &mut rooms);
        let count = wanted(problem, &cluster, index);
        let whole = roles
            .is_some()
            .then(|| spread(&cluster, (job, count), &mut rooms));
        let mut some = || begun(problem, &cluster, (job, count), &mut rooms);
        if let Some(placed) = whole.flatten() {
            draft.placed[index] = placed;
        } else if let Some(placed) = roles.as_ref().and_then(|_| some()) {
            draft.placed[index] = placed;
            blocked = Some(index);
        } else {
            let reason = format!(
                "its {count} containers ({} each) do not all fit now{}",
                job.demand,
                on_those(problem, &cluster, job)
            );
            draft.waiting.insert(index, (WaitCode::Resources, reason));
            blocked = Some(index);
            rooms = before;
            continue;
        }
        for (role, placed) in roles.into_iter().flatten() {
            draft.placed[role] = placed;
        }
    }
    divide_again(problem, &cluster, &mut draft.placed);
    write(problem, &cluster, draft)
}

/// `None` if the roles do not fit; the caller then restores `rooms`.
pub(crate) fn place_auxiliary(
    problem: &Problem,
    cluster: &Cluster,
    job: usize,
    rooms: &mut [Vec<u64>],
) -> Option<Vec<(usize, BTreeMap<usize, u32>)>> {
    let placed = problem.roles(job).map(|index| {
        let role = &problem.jobs[index];
        let placed = some(cluster, role, role.min, rooms);
        (placed.values().sum::<u32>() == role.min).then_some((index, placed))
    });
    placed.collect()
}

pub(crate) fn keep_running(
    problem: &Problem,
    cluster: &Cluster,
    rooms: &mut [Vec<u64>],
    draft: &mut Draft,
) {
    for (index, job) in problem.jobs.iter().enumerate() {
        let located = job
            .previous
            .as_ref()
            .and_then(|previous| cluster.locate(previous));
        let demand = cluster.demand(job);
        let (Some(located), Some(demand), true) = (located, demand, runs(cluster, job)) else {
            continue;
        };
        for (node, count) in &located {
            for (room, amount) in rooms[*node].iter_mut().zip(&demand) {
                *room = room.saturating_sub(amount.saturating_mul(u64::from(*count)));
            }
        }
        draft.placed[index] = located.into_iter().collect();
    }
    service_scaling::scale(problem, cluster, rooms, draft);
}

/// A count beyond the empty cluster would block the queue without end.
fn wanted(problem: &Problem, cluster: &Cluster, index: usize) -> u32 {
    let job = &problem.jobs[index];
    let least = limits(job).0;
    let fixed = match job.urgency {
        Urgency::Training => job.static_containers.unwrap_or(least).max(1),
        Urgency::Notebook | Urgency::Service => least,
    };
    let demand = cluster.demand(job).unwrap_or_default();
    let held = |rooms: &[Vec<u64>]| -> u64 { rooms.iter().map(|room| fits(&demand, room)).sum() };
    let empty = match problem.roles(index).next() {
        None => held(&cluster.capacities),
        Some(_) => {
            let mut rooms = cluster.capacities.clone();
            let _ = place_auxiliary(problem, cluster, index, &mut rooms);
            held(&rooms).max(u64::from(least))
        }
    };
    u32::try_from(empty).map_or(fixed, |empty| fixed.min(empty))
}

const fn completes(job: &ProblemJob) -> bool {
    let training = matches!(job.urgency, Urgency::Training);
    training && job.in_place.is_some() && job.adjustable
}

fn begun(
    problem: &Problem,
    cluster: &Cluster,
    (job, count): (&ProblemJob, u32),
    rooms: &mut [Vec<u64>],
) -> Option<BTreeMap<usize, u32>> {
    let begins = !problem.policy.gang && completes(job);
    let demand = cluster.demand(job).filter(|_| begins)?;
    let placed = some(cluster, job, count, rooms);
    if placed.values().sum::<u32>() >= limits(job).0 {
        return Some(placed);
    }
    give_back(&demand, placed, rooms);
    None
}

fn give_back(demand: &[u64], placed: BTreeMap<usize, u32>, rooms: &mut [Vec<u64>]) {
    for (node, count) in placed {
        give(demand, count, &mut rooms[node]);
    }
}

pub(crate) fn spread(
    cluster: &Cluster,
    (job, wanted): (&ProblemJob, u32),
    rooms: &mut [Vec<u64>],
) -> Option<BTreeMap<usize, u32>> {
    let placed = some(cluster, job, wanted, rooms);
    if placed.values().sum::<u32>() == wanted {
        return Some(placed);
    }
    give_back(&cluster.demand(job)?, placed, rooms);
    None
}

/// Each container goes on the emptiest node of the most modest kind.
fn some(
    cluster: &Cluster,
    job: &ProblemJob,
    count: u32,
    rooms: &mut [Vec<u64>],
) -> BTreeMap<usize, u32> {
    let mut placed: BTreeMap<usize, u32> = BTreeMap::new();
    let Some(demand) = cluster.demand(job) else {
        return placed;
    };
    for _ in 0..count {
        let able = (0..rooms.len()).filter(|node| fits(&demand, &rooms[*node]) > 0);
        // Fewest kinds of unneeded resources first, then most free, then by name.
        let rank = |node: usize| {
            let capacities = cluster.capacities[node].iter().take(cluster.totals.len());
            let unneeded = capacities.zip(&demand);
            let unneeded = unneeded.filter(|(capacity, amount)| **capacity > 0 && **amount == 0);
            let free = rooms[node].iter().zip(&cluster.totals).zip(&demand);
            let free: f64 = free
                .filter(|(_, amount)| **amount > 0)
                .map(|((room, total), _)| *room as f64 / *total as f64)
                .sum();
            (unneeded.count(), free)
        };
        let best = able.min_by(|left, right| {
            let (left, right) = (rank(*left), rank(*right));
            left.0.cmp(&right.0).then(right.1.total_cmp(&left.1))
        });
        let Some(node) = best else {
            break;
        };
        take(&demand, 1, &mut rooms[node]);
        *placed.entry(node).or_insert(0) += 1;
    }
    placed
}
