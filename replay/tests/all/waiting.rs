//! Nobody waits next to resources that no earlier job can use, over random small clusters. The test
//! computes usability independently.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::needs::{ContainerType, GPU_PARTS};
use dormouse_messages::policy::{Allocation, Policy, Queue};
use dormouse_messages::{Amounts, Event, Fold, JobId, NodeId, Recorded, Resource, Timestamp};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::random::Random;
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_state::{ClusterState, Job, Node};
use serde_json::{Value, json};

use crate::common::submit;

/// Used without the variable `CASES`.
const CASES: u64 = 60;

/// Seeds on which a job waited too long.
const FOUND: [u64; 3] = [358, 419, 882];

const FIRST_SEED: u64 = 1;

/// One decision and its execution: at most 5 s to save, stop and start, and the wait for a release.
const ONE_DECISION_MS: u64 = 20_000;

#[derive(Clone)]
struct Free {
    amounts: Amounts,
    devices: Vec<u64>,
}

impl Free {
    fn empty(node: &Node) -> Self {
        let devices = node.capacity.get(&Resource::Gpu) / 1000;
        Self {
            amounts: node.capacity.clone(),
            devices: vec![GPU_PARTS; usize::try_from(devices).expect("few")],
        }
    }

    fn take(&mut self, of_type: &ContainerType) -> bool {
        if of_type.demand.first_short(&self.amounts, 1).is_some() {
            return false;
        }
        let parts = of_type.gpu_parts(u64::MAX);
        let (each, many) = if of_type.shares_gpu() {
            (parts, 1)
        } else {
            (GPU_PARTS, parts / GPU_PARTS)
        };
        let mut able: Vec<&mut u64> = self.devices.iter_mut().filter(|it| **it >= each).collect();
        able.sort();
        let many = usize::try_from(many).expect("few");
        if parts > 0 && able.len() < many {
            return false;
        }
        if parts > 0 {
            able.into_iter()
                .take(many)
                .for_each(|device| *device -= each);
        }
        self.amounts.subtract(&of_type.demand, 1);
        true
    }
}

fn allows(node: &Node, of_type: &ContainerType) -> bool {
    of_type.needs.allow(&node.labels, &node.taints)
}

fn free(state: &ClusterState) -> BTreeMap<&NodeId, (&Node, Free)> {
    let usable = state.nodes.usable();
    let mut nodes: BTreeMap<_, _> = usable
        .map(|(name, node)| (name, (node, Free::empty(node))))
        .collect();
    for job in state.jobs.values() {
        let containers = job.partition.iter().flat_map(|it| &it.containers);
        let held = containers.filter(|(_, container)| container.holds_room());
        let mut places: BTreeSet<_> = BTreeSet::new();
        let held = held.map(|(rank, container)| (*rank, &container.place));
        let assigned = job.assignment.iter().filter(|it| !it.displaced);
        let assigned = assigned
            .flat_map(|it| &it.places)
            .map(|(rank, place)| (*rank, place));
        for (rank, place) in held.chain(assigned) {
            if !places.insert((rank, place.node.clone(), place.gpus.clone())) {
                continue;
            }
            let Some((node, free)) = nodes.get_mut(&place.node) else {
                continue;
            };
            free.amounts.subtract(job.demand_at(rank), 1);
            let parts = job.type_at(rank).gpu_parts(u64::MAX).min(GPU_PARTS);
            for uuid in &place.gpus {
                let index = node.gpus.iter().position(|gpu| gpu.uuid == *uuid);
                if let Some(device) = index.and_then(|index| free.devices.get_mut(index)) {
                    *device = device.saturating_sub(parts);
                }
            }
        }
    }
    nodes
}

fn waiting(state: &ClusterState) -> Vec<(&JobId, &Job)> {
    let released = state.jobs.iter().filter(|(_, job)| {
        job.assignment.as_ref().is_none_or(|it| it.displaced) && job.partition.is_none()
    });
    let mut waiting: Vec<(&JobId, &Job)> = released.chain(state.queued.iter()).collect();
    waiting.retain(|(_, job)| job.cancel_requested.is_none());
    waiting.sort_by_key(|(_, job)| (job.released.is_none(), job.released, job.admitted));
    waiting
}

fn next_to_room(state: &ClusterState) -> Vec<JobId> {
    let waiting = waiting(state);
    if waiting.is_empty() {
        return Vec::new();
    }
    let nodes = free(state);
    let can_use = |job: &Job, node: &Node| {
        let of_type = job.container_type();
        allows(node, &of_type) && Free::empty(node).take(&of_type)
    };
    let fairness: BTreeSet<&JobId> = state
        .waiting
        .iter()
        .filter(|it| it.code == "fairness_bound")
        .map(|it| &it.job)
        .collect();
    let mut found = Vec::new();
    for (place, (id, job)) in waiting.iter().enumerate() {
        // Only first in, first out fixes the order.
        let before: Vec<&Job> = match state.policy.queue {
            Queue::Fifo => waiting[..place].iter().map(|(_, job)| *job).collect(),
            _ => {
                let others = waiting.iter().filter(|(other, _)| other != id);
                others.map(|(_, job)| *job).collect()
            }
        };
        let of_type = job.container_type();
        let mut left = job.containers.start();
        for (node, free) in nodes.values() {
            let is_kept = before.iter().any(|before| can_use(before, node));
            let mut free = free.clone();
            while left > 0 && !is_kept && allows(node, &of_type) && free.take(&of_type) {
                left -= 1;
            }
        }
        if left == 0 && !fairness.contains(id) {
            found.push((*id).clone());
        }
    }
    found
}

fn waits_too_long(log: &[Arc<Recorded>]) -> Option<String> {
    let mut state = ClusterState::default();
    let mut since: BTreeMap<JobId, Timestamp> = BTreeMap::new();
    for (index, recorded) in log.iter().enumerate() {
        let at = recorded.stored_at;
        let late = since
            .iter()
            .find(|(_, since)| at.ms_since(**since) > ONE_DECISION_MS);
        if let Some((id, since)) = late {
            let why = state.waiting.iter().find(|it| it.job == *id);
            let why = why.map(|it| format!("{}: {}", it.code, it.reason));
            let waiting = waiting(&state);
            let order = waiting.iter().map(|(id, job)| {
                let of_type = job.container_type();
                let start = job.containers.start();
                format!(
                    "{id} {start} x {} {}",
                    of_type.demand, of_type.needs.constraints
                )
            });
            let order: Vec<String> = order.collect();
            let nodes = free(&state).into_iter().map(|(name, (node, free))| {
                let (zone, taints) = (&node.labels["zone"], &node.taints);
                let (has, devices) = (&node.capacity, &free.devices);
                format!(
                    "{name} {zone} {taints:?} {has}: {} {devices:?}",
                    free.amounts
                )
            });
            let nodes: Vec<String> = nodes.collect();
            return Some(format!(
                "{id} waits next to room from {since} to {at}, before event {}; {why:?}; {:?}\n  in order {order:#?}\n  free {nodes:#?}",
                recorded.sequence, state.policy.allocation
            ));
        }
        state.evolve(recorded);
        let is_last = log.get(index + 1).is_none_or(|next| next.stored_at > at);
        if is_last {
            let found = next_to_room(&state);
            since.retain(|id, _| found.contains(id));
            for id in found {
                since.entry(id).or_insert(at);
            }
        }
    }
    None
}

fn cluster(seed: u64) -> Engine {
    let mut random = Random::new(seed);
    let mut engine = Engine::new(START, false);
    let policy = Policy {
        allocation: *random.choose(&[Allocation::Dorm, Allocation::Dorm, Allocation::Drf]),
        queue: if random.chance(0.7) {
            Queue::Fifo
        } else {
            *random.choose(&Queue::ALL)
        },
        theta1: *random.choose(&[0.1, 1.0]),
        theta2: *random.choose(&[0.1, 0.5]),
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for index in 0..2 + random.below(4) {
        let node: NodeId = format!("n{index}").parse().expect("a name");
        let mut capacity = Amounts::new();
        capacity.set(Resource::Cpu, 1000 * *random.choose(&[4, 8, 8, 16]));
        capacity.set(Resource::Gpu, 1000 * *random.choose(&[0, 0, 1, 2, 3]));
        engine.at(
            START,
            Action::Join {
                node: node.clone(),
                capacity,
            },
        );
        let zone = random.choose(&["a", "b"]).to_string();
        let taints = random.chance(0.2).then(|| ("old".to_owned(), true));
        let labelled = dormouse_messages::events::NodeLabelled {
            node,
            labels: [("zone".to_owned(), Some(zone))].into(),
            taints: taints.into_iter().collect(),
        };
        engine.at(START, Action::Operator(Event::from(labelled)));
    }
    for number in 0..6 + random.below(14) {
        add_job(&mut engine, &mut random, number);
    }
    engine
}

fn add_job(engine: &mut Engine, random: &mut Random, number: u64) {
    let gpu: Value = match random.below(8) {
        0 => json!(1),
        1 => json!(2),
        2 => json!(0.5),
        3 => json!(0.6),
        4 => json!(0.25),
        _ => json!(0),
    };
    let mut demand = json!({"cpu": *random.choose(&[1, 1, 2, 4, 7])});
    if gpu != json!(0) {
        demand["gpu"] = gpu;
    }
    let min = *random.choose(&[1, 1, 1, 2, 3]);
    let max = min + random.below(3);
    let mut constraints = json!({});
    if random.chance(0.2) {
        constraints["zone"] = json!(random.choose(&["a", "b"]));
    }
    let tolerations: &[&str] = if random.chance(0.3) { &["old"] } else { &[] };
    let payload = json!({
        "demand": demand,
        "containers": {"min": min, "max": max},
        "checkpoint": {"mode": random.choose(&["none", "none", "exit"])},
        "constraints": constraints,
        "tolerations": tolerations,
    });
    let tenant = random.choose(&["t", "u"]);
    let model = ModelJob {
        save_s: random.between(0.0, 2.0),
        start_s: random.between(0.0, 2.0),
        ..ModelJob::linear(random.between(30.0, 3_000.0))
    };
    let at_s = random.between(0.0, 400.0);
    let id = format!("{tenant}/j{number}");
    let fields = payload.to_string();
    let fields = &fields[1..fields.len() - 1];
    submit(engine, at_s, &id, fields, model);
}

#[test]
fn nobody_waits_next_to_room_that_no_job_before_it_can_use() {
    let cases = std::env::var("CASES")
        .ok()
        .and_then(|cases| cases.parse().ok());
    let cases: u64 = cases.unwrap_or(CASES);
    let mut wrong = Vec::new();
    let first: u64 = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(FIRST_SEED);
    for seed in FOUND.into_iter().chain(first..first + cases) {
        let mut engine = cluster(seed);
        let ran = engine.run_until(seconds_after_start(30_000.0));
        if let Err(error) = ran {
            wrong.push(format!("seed {seed}: {error}"));
        } else if let Some(late) = waits_too_long(engine.log()) {
            wrong.push(format!("seed {seed}: {late}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {cases}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}
