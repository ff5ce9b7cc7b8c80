//! Poses the problem of a folded cluster: running jobs, jobs in transit, waiting jobs.
//!
//! A job in transit is pinned at its target, and capacity held by its former incarnation is reserved;
//! likewise for a cancelled job until it has ended. A job that must leave a node is stopped, and may reuse
//! its own capacity on other nodes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{Gpu, Waiting};
use dormouse_messages::job::{CheckpointMode, Urgency};
use dormouse_messages::needs::GPU_PARTS;
use dormouse_messages::policy;
use dormouse_messages::{Amounts, JobId, NodeId, Rank, Timestamp};
use dormouse_state::{ClusterState, Job, Place, Protection};

use crate::present::{stands, starts, stays_in_place};
use crate::problem::{
    Budget, InPlace, Misfit, Precedence, Problem, ProblemGpu, ProblemJob, ProblemNode,
};
use crate::speeds::Values;
use crate::tenants;

/// A checkpoint that just failed is likely to fail again.
const KEPT_COOL_DOWN_MS: u64 = 10 * 60 * 1000;

/// Keeps a decision within the log's 4 MiB message limit; a larger one is made again with fewer jobs.
pub(crate) const MOST_NAMED_BYTES: usize = 3 << 20;

/// A line with the allocation and one with the reason for waiting.
const NAMED_BYTES: usize = 400;

/// Poses the problem of `state` at `now`.
#[must_use]
pub fn problem_of(state: &ClusterState, now: Timestamp, budget: Budget) -> Problem {
    problem_within(state, now, budget, MOST_NAMED_BYTES)
}

/// Returns the starting jobs beyond the size limit; jobs that lost their nodes come first.
fn left_to_the_next<'a>(
    state: &ClusterState,
    released: &[(&'a JobId, &Job)],
    most_bytes: usize,
) -> BTreeSet<&'a JobId> {
    let starts = |(_, job): &&(&JobId, &Job)| !job.is_served() && starts(state, job);
    let mut starting: Vec<&(&JobId, &Job)> = released.iter().filter(starts).collect();
    let bytes = |id: &JobId| NAMED_BYTES + 2 * id.as_str().len();
    if starting.iter().map(|(id, _)| bytes(id)).sum::<usize>() <= most_bytes {
        return BTreeSet::new();
    }
    starting.sort_by_key(|(_, job)| (Reverse(job.precedence.value()), job.assignment.is_none()));
    let mut named = 0;
    let is_left = |(id, _): &&&(&JobId, &Job)| {
        named += bytes(id);
        named > most_bytes
    };
    starting.iter().filter(is_left).map(|(id, _)| *id).collect()
}

pub(crate) fn leaves_jobs(state: &ClusterState) -> bool {
    // An `allocation.unchanged` leaves nothing to the next decision.
    let is_allocation = state.decided_asof < state.allocation.sequence;
    let may_be = state.jobs.len() > MOST_NAMED_BYTES / (2 * NAMED_BYTES);
    if !is_allocation || !may_be {
        return false;
    }
    let waiting: BTreeSet<&JobId> = state.waiting.iter().map(|waiting| &waiting.job).collect();
    let is_left = |(id, job): (&JobId, &Job)| {
        let is_known = job.released <= Some(state.decided_asof);
        let takes_part = job.cancel_requested.is_none() && !job.gives_up();
        takes_part && is_known && starts(state, job) && !waiting.contains(id)
    };
    state.jobs.iter().any(is_left)
}

pub(crate) fn problem_within(
    state: &ClusterState,
    now: Timestamp,
    budget: Budget,
    most_bytes: usize,
) -> Problem {
    let mut released: Vec<(&JobId, &Job)> = state.jobs.iter().collect();
    released.sort_by_key(|(_, job)| {
        let class = Reverse(job.precedence.value());
        (Reverse(job.urgency), class, job.released)
    });
    released.retain(|(_, job)| job.cancel_requested.is_none());
    released.retain(|(_, job)| !job.gives_up());
    let over_quota = held_by_quota(state, now);
    let over_quota: BTreeSet<&JobId> = over_quota.iter().map(|over| &over.job).collect();
    released.retain(|(id, _)| !over_quota.contains(id));
    let left = left_to_the_next(state, &released, most_bytes);
    released.retain(|(id, _)| !left.contains(id));
    let weights = tenants::weights(state, &released, now);
    let caps = tenants::caps(state, &released);
    let least = released.iter().map(|(_, job)| job.precedence.value()).min();
    let values = Values::new(state, now);
    let jobs = released.iter().flat_map(|(id, job)| {
        let mut posed = problem_job(state, id, job, now);
        posed.useful = values.of(id, job, posed.max);
        posed.crossing = values.crossing(id);
        posed.ends_in_s = values.ends_in_s(id, job);
        // Nobody of a lower class overtakes.
        posed.may_be_overtaken &= Some(posed.precedence.class) == least;
        posed.weight = weights.get(id).copied().unwrap_or(job.weight);
        if let Some(cap) = caps.get(id) {
            // A job that cannot restart now keeps its containers.
            let pinned = posed.previous.iter().filter(|_| !posed.adjustable);
            let kept: u32 = pinned.flat_map(BTreeMap::values).sum();
            posed.max = posed.max.min((*cap).max(kept));
            if job.is_served() {
                posed.min = posed.min.min(posed.max);
            }
        }
        let roles = roles(state, job, &posed);
        std::iter::once(posed).chain(roles)
    });
    Problem {
        nodes: nodes(state),
        jobs: jobs.collect(),
        policy: state.policy.clone(),
        misfit: Misfit::Skip,
        budget,
    }
}

/// Returns the period in which a running job stays unchanged: one decision answers all changes within it.
fn left_alone(state: &ClusterState, job: &Job) -> Option<(Timestamp, Timestamp)> {
    if job.mode == CheckpointMode::None || job.in_place || job.in_transit() {
        return None;
    }
    let since = job.partition.as_ref().and_then(|it| it.running_since);
    let settled = since.zip(job.settled_at(&state.policy));
    let cooled = job
        .kept_at
        .map(|kept| (kept, kept.plus_ms(KEPT_COOL_DOWN_MS)));
    match (settled, cooled) {
        (Some(settled), Some(cooled)) if cooled.1 > settled.1 => Some(cooled),
        (settled, cooled) => settled.or(cooled),
    }
}

fn is_kept(state: &ClusterState, job: &Job, now: Timestamp) -> bool {
    let displaced = job.assignment.as_ref().is_some_and(|it| it.displaced);
    let left_alone = left_alone(state, job).is_some_and(|(_, until)| now < until);
    !displaced && (left_alone || job.in_transit())
}

/// Returns released jobs whose tenant's quota is too small, or used by jobs that cannot be resized yet.
pub(crate) fn held_by_quota(state: &ClusterState, now: Timestamp) -> Vec<Waiting> {
    let mut released: Vec<(&JobId, &Job)> = state.jobs.iter().collect();
    released.sort_by_key(|(_, job)| job.released);
    released.retain(|(_, job)| job.cancel_requested.is_none() && !job.gives_up());
    tenants::over_quota(state, &released, |job| is_kept(state, job, now))
}

/// Returns when a job left unchanged by the newest allocation may be resized.
pub(crate) fn freed_at(state: &ClusterState) -> Option<Timestamp> {
    if state.policy.allocation != policy::Allocation::Dorm {
        return None;
    }
    let left = state.jobs.values().filter_map(|job| left_alone(state, job));
    let left = left.filter(|(from, until)| *from <= state.decided_at && state.decided_at < *until);
    left.map(|(_, until)| until).chain(exposed_at(state)).min()
}

/// Returns when a protected job becomes preemptible while a higher, preempting class waits.
fn exposed_at(state: &ClusterState) -> Option<Timestamp> {
    let waiting = state
        .waiting
        .iter()
        .filter_map(|it| state.jobs.get(&it.job));
    let preempting = waiting.filter(|job| job.precedence.preempts());
    let highest = preempting.map(|job| job.precedence.value()).max()?;
    let lower = state.jobs.values().filter(|job| {
        !job.is_served() && job.assignment.is_some() && job.precedence.value() < highest
    });
    let until = lower.filter_map(
        |job| match job.protection(&state.policy, state.decided_at) {
            Protection::Until(until) => Some(until),
            Protection::None | Protection::UntilItRuns => None,
        },
    );
    until.min()
}

fn is_overdue(state: &ClusterState, job: &Job, now: Timestamp) -> bool {
    let patience_ms = u64::from(state.policy.reserve_after_s) * 1000;
    let since = job.waiting_since;
    since.is_some_and(|since| now.ms_since(since) >= patience_ms)
}

fn problem_job(state: &ClusterState, id: &JobId, job: &Job, now: Timestamp) -> ProblemJob {
    let left_until = left_alone(state, job)
        .map(|(_, until)| until)
        .filter(|until| now < *until);
    let runs = !starts(state, job);
    let displaced = job.assignment.is_some() && !runs;
    let (min, max) = match job.is_served() {
        true => (job.target(), job.target()),
        false if !runs => (job.containers.start(), job.containers.max),
        false => (job.containers.min, job.containers.max),
    };
    let previous = stands(state, job, |rank| job.auxiliary.is_worker(rank));
    let measured = job
        .stall_ms
        .map(|stall_ms| Timestamp::default().plus_ms(stall_ms));
    let measured = measured.map(|stall| stall.seconds_since(Timestamp::default()));
    ProblemJob {
        job: id.clone(),
        demand: job.demand.clone(),
        weight: job.weight,
        min,
        max,
        adjustable: job.is_adjustable() && !job.in_transit() && left_until.is_none(),
        left_until,
        displaced,
        previous,
        stall_s: measured.or(state.stalls.mean_s()).unwrap_or(0.0),
        may_be_overtaken: state.policy.queue != policy::Queue::Fifo && !is_overdue(state, job, now),
        in_place: job.in_place.then(|| InPlace {
            coordinator: coordinator(job).cloned(),
        }),
        urgency: job.urgency,
        has_checkpoint: job.checkpoint.is_some() || job.mode != CheckpointMode::None,
        static_containers: Some(job.static_containers.unwrap_or(job.containers.max)),
        needs: state.needs_at(id, job, now),
        gpu_parts: state.nodes.gpu_parts(&job.container_type()),
        precedence: Precedence {
            class: job.precedence.value(),
            preempts: job.precedence.preempts(),
            protected: job.protection(&state.policy, now) != Protection::None,
            at_risk_s: job.at_risk_s(now),
        },
        useful: None,
        crossing: 0.0,
        ends_in_s: None,
        role: None,
    }
}

fn roles(state: &ClusterState, job: &Job, posed: &ProblemJob) -> Vec<ProblemJob> {
    let parts = job.auxiliary.parts().iter().enumerate();
    let roles = parts.map(|(index, part)| {
        let ranks = job.auxiliary.ranks(index);
        let previous = stands(state, job, |rank| ranks.contains(&rank.0));
        posed.role(part, previous)
    });
    roles.collect()
}

/// Returns the node of rank 0 or of a notebook's server; replicas of a service are interchangeable.
fn coordinator(job: &Job) -> Option<&NodeId> {
    let places = &job.assignment.as_ref()?.places;
    let place = match job.urgency {
        Urgency::Training => places.get(&Rank(0)),
        Urgency::Notebook => places.values().next(),
        Urgency::Service => None,
    };
    Some(&place?.node)
}

/// Returns usable nodes, and drained ones that immovable jobs still fill.
fn nodes(state: &ClusterState) -> Vec<ProblemNode> {
    let mut pinned: BTreeMap<NodeId, Amounts> = BTreeMap::new();
    let mut reserved: BTreeMap<NodeId, Amounts> = BTreeMap::new();
    let mut gpus = Gpus::of(state);
    for job in state.jobs.values() {
        let assignment = job.assignment.as_ref();
        let cancelled = job.cancel_requested.is_some();
        // The placer, too, keeps a cancelled job's places until the job has ended.
        for (rank, place) in assignment.iter().flat_map(|a| &a.places) {
            if cancelled {
                let node = place.node.clone();
                let held = held_by_one(state, (job, *rank), &node);
                reserved.entry(node).or_default().add(held, 1);
            }
        }
        let stops = job.gives_up();
        let stays_in_place = assignment.is_some_and(|it| stays_in_place(state, job, it));
        let assignment =
            assignment.filter(|a| cancelled || (!stops && (!a.displaced || stays_in_place)));
        let stays = !cancelled && (job.in_transit() || !job.is_adjustable());
        if let Some(assignment) = assignment.filter(|_| stays) {
            let open = |node: &NodeId| state.nodes.is_open(&job.needs, node);
            let left = |node: &NodeId| !assignment.displaced || open(node);
            let places = assignment.places.iter();
            for (rank, place) in places.filter(|(_, place)| left(&place.node)) {
                let pinned = pinned.entry(place.node.clone()).or_default();
                pinned.add(job.demand_at(*rank), 1);
            }
        }
        if let Some(assignment) = assignment {
            let places = assignment.places.iter();
            places.for_each(|(rank, place)| gpus.take((job, *rank), place));
        }
        // A container without an assignment holds its capacity until it has ended. A stopped job's capacity
        // elsewhere is free.
        let leaves = job.assignment.as_ref().filter(|it| it.displaced && !stops);
        let stands = assignment.or(leaves);
        let is_assigned = |incarnation, rank: &Rank| {
            stands.is_some_and(|it| it.incarnation == incarnation && it.places.contains_key(rank))
        };
        if let Some(partition) = &job.partition {
            for (rank, container) in &partition.containers {
                if container.holds_room() && !is_assigned(partition.incarnation, rank) {
                    let node = container.place.node.clone();
                    let held = held_by_one(state, (job, *rank), &node);
                    gpus.take((job, *rank), &container.place);
                    reserved.entry(node).or_default().add(held, 1);
                }
            }
        }
    }
    let nodes = state.nodes.iter().filter_map(|(name, node)| {
        let pinned = pinned.remove(name).unwrap_or_default();
        let capacity = match node.is_usable() {
            true => node.capacity.clone(),
            false if pinned.is_empty() => return None,
            false => pinned.clone(),
        };
        let reserved = reserved.remove(name).unwrap_or_default();
        Some(ProblemNode {
            name: name.clone(),
            reserved: at_most(reserved, &capacity, &pinned),
            capacity,
            closed: !node.is_usable(),
            labels: node.labels.clone(),
            taints: node.taints.clone(),
            gpus: gpus.of_node(name),
        })
    });
    nodes.collect()
}

struct Gpus<'a>(
    BTreeMap<NodeId, Vec<(String, ProblemGpu)>>,
    &'a ClusterState,
);

impl<'a> Gpus<'a> {
    fn of(state: &'a ClusterState) -> Self {
        let nodes = state.nodes.iter().map(|(name, node)| {
            let gpu = |gpu: &Gpu| {
                let free = ProblemGpu {
                    memory_bytes: gpu.memory_bytes,
                    taken: Some(0),
                };
                (gpu.uuid.clone(), free)
            };
            (name.clone(), node.gpus.iter().map(gpu).collect())
        });
        Self(nodes.collect(), state)
    }

    fn take(&mut self, (job, rank): (&Job, Rank), place: &Place) {
        if place.gpus.is_empty() {
            return;
        }
        let Some(gpus) = self.0.get_mut(&place.node) else {
            return;
        };
        let parts = self.1.nodes.gpu_parts(&job.type_at(rank)).min(GPU_PARTS);
        for (_, gpu) in gpus
            .iter_mut()
            .filter(|(uuid, _)| place.gpus.contains(uuid))
        {
            gpu.taken = gpu.taken.map(|taken| taken + parts);
        }
    }

    fn of_node(&self, name: &NodeId) -> Vec<ProblemGpu> {
        let gpus = self.0.get(name).into_iter().flatten();
        gpus.map(|(_, gpu)| *gpu).collect()
    }
}

/// An exclusive container keeps the whole node from others.
fn held_by_one<'a>(
    state: &'a ClusterState,
    (job, rank): (&'a Job, Rank),
    node: &NodeId,
) -> &'a Amounts {
    let node = state.nodes.get(node);
    let whole = node.filter(|_| job.needs_at(rank).constraints.exclusive);
    whole.map_or(job.demand_at(rank), |node| &node.capacity)
}

/// A job resized on its node may need its old capacity twice: pinned containers bound the reservation.
fn at_most(reserved: Amounts, capacity: &Amounts, pinned: &Amounts) -> Amounts {
    let mut left = capacity.clone();
    left.subtract(pinned, 1);
    let mut bounded = Amounts::new();
    for (resource, amount) in reserved.iter() {
        bounded.set(resource.clone(), amount.min(left.get(resource)));
    }
    bounded
}
