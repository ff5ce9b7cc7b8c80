//! Allocation by DRF offers: nodes in name order, one node's free capacity an offer; the job with the
//! smallest key takes one container if it fits.
//!
//! Running jobs keep their containers, except services, which scale. A job below its minimum returns
//! everything, and the offers repeat without it, the last released first. Jobs left out then get their
//! minimum in order of release if it fits. If the policy packs, equal containers of changed jobs are divided
//! among the jobs again, so that gangs are on few nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use dormouse_messages::policy::Placement;

use crate::drf::{Key, User, key};
use crate::drive::waiting::{on_those, unschedulable};
use crate::drive::work::Work;
use crate::model::cluster::{Cluster, limits, runs};
use crate::model::room::{fits, take};
use crate::primal::slots_to_jobs::divide_again;
use crate::problem::{Misfit, Problem};
use crate::report::{Draft, write};
use crate::solution::{Solution, WaitCode};
use crate::static_policy::{keep_running, place_auxiliary, spread};

/// Rounds that drop one job each; later rounds drop all jobs that fell short.
const RETRIES: usize = 32;

pub(crate) fn solve(problem: &Problem) -> Solution {
    let cluster = Cluster::new(problem);
    let work = Work::new(u64::MAX);
    let mut rooms = cluster.rooms.clone();
    let mut draft = Draft::empty(problem, "drf");
    keep_running(problem, &cluster, &mut rooms, &mut draft);
    let mut takers = Vec::new();
    for (index, job) in problem.heads() {
        if runs(&cluster, job) {
            continue;
        }
        match (
            unschedulable(problem, &cluster, &work, index),
            cluster.demand(job),
        ) {
            (None, Some(demand)) => {
                let (_, max) = limits(job);
                let user = User {
                    demand,
                    weight: job.weight,
                    cap: Some(max),
                    ..User::default()
                };
                takers.push(Taker {
                    index,
                    user,
                    min: limits(job).0,
                });
            }
            (why, _) => draft.waiting.extend(why.map(|why| (index, why))),
        }
    }
    let mut placed = with_roles(problem, &cluster, takers.clone(), &rooms);
    if problem.misfit == Misfit::Skip {
        fill(problem, &cluster, &takers, (&mut placed, &mut rooms));
    }
    for (index, job) in problem.jobs.iter().enumerate() {
        if let Some(nodes) = placed.get(&index) {
            draft.placed[index].clone_from(nodes);
        } else if draft.placed[index].is_empty() && job.role.is_none() {
            let min = limits(job).0;
            let reason = format!(
                "the offers left room for fewer than its minimum of {min} containers ({} each){}",
                job.demand,
                on_those(problem, &cluster, job)
            );
            draft
                .waiting
                .entry(index)
                .or_insert((WaitCode::Resources, reason));
        }
    }
    if problem.policy.placement == Placement::Pack {
        divide_again(problem, &cluster, &mut draft.placed);
    }
    write(problem, &cluster, draft)
}

/// Places roles before the offers. A job whose roles fit and whose offers fall short waits, and the offers
/// repeat without it.
fn with_roles(
    problem: &Problem,
    cluster: &Cluster,
    mut takers: Vec<Taker>,
    rooms: &[Vec<u64>],
) -> Placed {
    loop {
        let mut rooms = rooms.to_vec();
        let mut roles: BTreeMap<usize, Vec<_>> = BTreeMap::new();
        takers.retain(|taker| {
            let before = rooms.clone();
            let Some(placed) = place_auxiliary(problem, cluster, taker.index, &mut rooms) else {
                rooms = before;
                return false;
            };
            if !placed.is_empty() {
                roles.insert(taker.index, placed);
            }
            true
        });
        let mut placed = rounds(cluster, takers.clone(), &rooms, problem.misfit);
        let short = roles.keys().copied().find(|job| !placed.contains_key(job));
        let Some(short) = short else {
            placed.extend(roles.into_values().flatten());
            return placed;
        };
        takers.retain(|taker| taker.index != short);
    }
}

fn fill(
    problem: &Problem,
    cluster: &Cluster,
    takers: &[Taker],
    (placed, rooms): (&mut Placed, &mut Vec<Vec<u64>>),
) {
    for (index, nodes) in &*placed {
        let demand = cluster.demand(&problem.jobs[*index]).unwrap_or_default();
        for (node, count) in nodes {
            take(&demand, *count, &mut rooms[*node]);
        }
    }
    for taker in takers {
        if placed.contains_key(&taker.index) {
            continue;
        }
        let before = rooms.clone();
        let roles = place_auxiliary(problem, cluster, taker.index, rooms);
        let job = (&problem.jobs[taker.index], taker.min);
        let own = roles
            .is_some()
            .then(|| spread(cluster, job, rooms))
            .flatten();
        match (roles, own) {
            (Some(roles), Some(own)) => {
                placed.extend(roles);
                placed.insert(taker.index, own);
            }
            _ => *rooms = before,
        }
    }
}

#[derive(Clone)]
struct Taker {
    index: usize,
    user: User,
    min: u32,
}

type Placed = BTreeMap<usize, BTreeMap<usize, u32>>;

fn rounds(cluster: &Cluster, mut takers: Vec<Taker>, rooms: &[Vec<u64>], misfit: Misfit) -> Placed {
    let mut round = 0;
    loop {
        let got = offer_nodes(cluster, &takers, rooms, misfit);
        let total = |nodes: &BTreeMap<usize, u32>| nodes.values().sum::<u32>();
        let falls_short = |taker: &Taker, nodes| (1..taker.min).contains(&total(nodes));
        let short: Vec<usize> = takers
            .iter()
            .zip(&got)
            .filter(|(taker, nodes)| falls_short(taker, nodes))
            .map(|(taker, _)| taker.index)
            .collect();
        let Some(last) = short.last() else {
            let placed = takers
                .iter()
                .zip(got)
                .filter(|(_, nodes)| !nodes.is_empty());
            return placed.map(|(taker, nodes)| (taker.index, nodes)).collect();
        };
        round += 1;
        takers.retain(|taker| {
            taker.index != *last && (round < RETRIES || !short.contains(&taker.index))
        });
    }
}

fn offer_nodes(
    cluster: &Cluster,
    takers: &[Taker],
    rooms: &[Vec<u64>],
    misfit: Misfit,
) -> Vec<BTreeMap<usize, u32>> {
    let mut got = vec![BTreeMap::new(); takers.len()];
    let mut counts = vec![0u32; takers.len()];
    let mut queues: BTreeMap<&[u64], BTreeSet<(Key, usize)>> = BTreeMap::new();
    for (index, taker) in takers.iter().enumerate() {
        let first = (key(&taker.user, &cluster.totals, 0), index);
        queues.entry(&taker.user.demand).or_default().insert(first);
    }
    let mut heads: BTreeSet<(Key, usize)> = queues
        .values_mut()
        .filter_map(BTreeSet::pop_first)
        .collect();
    for (node, room) in rooms.iter().enumerate() {
        let mut room = room.clone();
        // A misfit stays a misfit on this node, and a taker moves back in the order: one pass is enough.
        let mut from = Bound::Unbounded;
        let demand = |index: usize| takers[index].user.demand.as_slice();
        let may_take = |head: &&(Key, usize), room: &[u64]| {
            misfit == Misfit::Stop || fits(demand(head.1), room) > 0
        };
        while let Some(head) = heads
            .range((from, Bound::Unbounded))
            .find(|head| may_take(head, &room))
            .copied()
        {
            let (_, index) = head;
            if !take(demand(index), 1, &mut room) {
                break;
            }
            counts[index] += 1;
            *got[index].entry(node).or_insert(0) += 1;
            heads.remove(&head);
            if let Some(queue) = queues.get_mut(demand(index)) {
                let user = &takers[index].user;
                if user.cap != Some(counts[index]) {
                    queue.insert((key(user, &cluster.totals, counts[index]), index));
                }
                heads.extend(queue.pop_first());
            }
            from = Bound::Included(head);
        }
    }
    got
}
