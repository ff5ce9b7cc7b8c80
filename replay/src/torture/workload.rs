//! Draws a trial's external events: jobs of every kind from three tenants with dependencies,
//! cancellations and revisions, lost and drained nodes, any queue policy.
//!
//! - [`brokers`]: several brokers, second agents.
//! - [`wide`]: start faults, suspended hosts, reboots.
//! - `classes`, `labels`, `roles`: priority classes; labels and taints; auxiliary containers.
//! - `submission`: a submitted job.

pub mod brokers;
mod classes;
mod labels;
mod roles;
mod submission;
pub mod wide;

use dormouse_messages::Shares;
use dormouse_messages::events::{ClusterConfigured, Observed, ServiceScaled, TenantConfigured};
use dormouse_messages::policy::{Allocation, Objective, Policy, Queue, Value};
use dormouse_messages::service::Scaling;
use dormouse_messages::{Amounts, Event, JobId, NodeId, Quota, Resource};
use serde_json::json;

use submission::{Submitted, TENANTS, afterwards, in_place, submit};

use crate::engine::{Action, Cut, Engine, ModelJob};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::simulate::seconds_after_start;

/// Draws two to four nodes and up to twelve jobs within five minutes.
pub fn small_cluster(engine: &mut Engine, random: &mut Random) -> Vec<(NodeId, Amounts)> {
    cluster(engine, random, 4)
}

/// As [`small_cluster`], without lost nodes.
pub fn whole_cluster(engine: &mut Engine, random: &mut Random) {
    let _ = cluster(engine, random, 1);
}

fn cluster(engine: &mut Engine, random: &mut Random, troubles: u64) -> Vec<(NodeId, Amounts)> {
    let policy = policy(random);
    let configured = Event::from(ClusterConfigured {
        policy: policy.clone(),
    });
    engine.at(seconds_after_start(0.0), Action::Operator(configured));
    configure_tenant(engine, random);
    let nodes: Vec<(NodeId, Amounts)> = (0..2 + random.below(3))
        .filter_map(|index| node(index, random))
        .collect();
    for (node, capacity) in &nodes {
        let at_s = if random.chance(0.1) {
            random.between(0.0, 60.0)
        } else {
            0.0
        };
        join(engine, node, capacity, at_s);
    }
    for number in 0..1 + random.below(12) {
        job(engine, number, &nodes, random);
    }
    for _ in 0..random.below(troubles) {
        trouble(engine, &nodes, 400.0, random);
    }
    // Drawn last, so that earlier seeds keep their choices.
    labels::change(engine, &nodes, random);
    roles::job(engine, &nodes, random);
    // A small container fits each node that stays.
    let room = nodes.len() as u64 - 1;
    classes::jobs(engine, &policy, room, random);
    nodes
}

/// Disturbs one in four of a scenario's nodes; all come back.
pub fn troubles(engine: &mut Engine, scenario: &Scenario, random: &mut Random) {
    for _ in 0..scenario.nodes.len().div_ceil(4) {
        lost_or_drained(engine, &scenario.nodes, scenario.horizon_s / 2.0, random);
    }
}

fn policy(random: &mut Random) -> Policy {
    let thresholds = [0.0, 0.1, 0.2, 0.5, 1.0];
    let allocations = [
        Allocation::Dorm,
        Allocation::Dorm,
        Allocation::Dorm,
        Allocation::Drf,
        Allocation::Static,
    ];
    let speed = Objective {
        value: Value::Speed,
        concave: 0.7,
        attained: 0.5,
        ..Objective::default()
    };
    Policy {
        allocation: *random.choose(&allocations),
        theta1: *random.choose(&thresholds),
        theta2: *random.choose(&thresholds),
        objective: *random.choose(&[Objective::default(), Objective::paper(), speed]),
        queue: *random.choose(&Queue::ALL),
        shares: *random.choose(&[Shares::Job, Shares::Tenant]),
        reserve_after_s: *random.choose(&[0, 20, 600]),
        lease_s: *random.choose(&[20, 30, 90]),
        ..Policy::default()
    }
}

fn configure_tenant(engine: &mut Engine, random: &mut Random) {
    let mut quota = Quota::new();
    if random.chance(0.5) {
        quota.set(Resource::Cpu, 1000 * (2 + random.below(10)));
    }
    let configured = Event::from(TenantConfigured {
        tenant: match TENANTS[0].parse() {
            Ok(tenant) => tenant,
            Err(_) => return,
        },
        weight: 2,
        quota,
        max_job_weight: None,
        priority: None,
    });
    engine.at(seconds_after_start(0.0), Action::Operator(configured));
}

fn node(index: u64, random: &mut Random) -> Option<(NodeId, Amounts)> {
    let name = NodeId::new(format!("n{index}")).ok()?;
    let mut capacity = Amounts::new();
    capacity.set(Resource::Cpu, 1000 * *random.choose(&[4, 8, 8]));
    capacity.set(Resource::Memory, 16 << 30);
    Some((name, capacity))
}

fn join(engine: &mut Engine, node: &NodeId, capacity: &Amounts, at_s: f64) {
    let action = Action::Join {
        node: node.clone(),
        capacity: capacity.clone(),
    };
    engine.at(seconds_after_start(at_s), action);
}

fn job(engine: &mut Engine, number: u64, nodes: &[(NodeId, Amounts)], random: &mut Random) {
    let at_s = random.between(0.0, 300.0);
    let name = format!("j{number}");
    let cpu = 1 + random.below(4);
    // An impossible minimum would wait without end, and the last node may stay away.
    let stay = nodes.iter().take(nodes.len() - 1);
    let room: u64 = stay
        .map(|(_, capacity)| capacity.get(&Resource::Cpu) / (1000 * cpu))
        .sum();
    let min = 1 + random.below(room.clamp(1, 3));
    let max = min + random.below(7);
    let tenant = *random.choose(&TENANTS);
    let before = random
        .chance(0.15)
        .then(|| format!("j{}", random.below(number + 1)));
    let document = json!({
        "priority": random.below(3),
        "depends_on": before.into_iter().collect::<Vec<_>>(),
        "name": name, "command": {"start": ["x"]},
        "demand": {"cpu": cpu, "memory": "1Gi"},
        "weight": 1 + random.below(5),
        "containers": {"min": min, "max": max},
        "checkpoint": {
            "mode": random.choose(&["exit", "exit", "continue", "none"]),
            "grace_s": random.choose(&[10, 30]),
        },
        "success": random.choose(&["all", "coordinator"]),
        "retries": random.below(3),
    });
    let document = limited(document, random);
    let constrained = labels::constrained(number, random);
    let room = match &constrained {
        Some(constraints) if constraints["exclusive"] == true => 1,
        _ => room,
    };
    let document = match random.below(10) {
        0 | 1 => as_task_set(document, random),
        2 | 3 => in_place(document, room, random),
        4 => as_service(document, random),
        _ => document,
    };
    let document = match constrained {
        Some(constraints) => labels::with(document, constraints),
        None => document,
    };
    if document["kind"] == "inference" {
        scales(engine, &format!("{tenant}/{name}"), at_s, max, random);
        let ends_s = at_s + random.between(50.0, 1_500.0);
        submit(engine, ends_s, tenant, "cancel", &json!({"job": name}));
    }
    submit(engine, at_s, tenant, "submit", &document);
    if let Ok(id) = format!("{tenant}/{name}").parse() {
        let model = ModelJob {
            save_s: random.between(0.0, 20.0),
            resume_s: random.between(0.0, 20.0),
            start_s: random.between(0.0, 5.0),
            resize_s: random.between(0.0, 5.0),
            ready_s: random.between(0.0, 20.0),
            ..ModelJob::linear(random.between(1.0, 1500.0))
        };
        engine.model(id, model);
    }
    let submitted = Submitted {
        at_s,
        tenant,
        name: &name,
    };
    afterwards(engine, &submitted, &document, room, random);
}

fn limited(mut document: serde_json::Value, random: &mut Random) -> serde_json::Value {
    if random.chance(0.15) {
        let limit_s = 2 + random.below(200);
        document["time_limit_s"] = json!(limit_s);
        if random.chance(0.5) {
            document["warning"] = json!({"before_s": 1 + random.below(limit_s - 1)});
        }
    }
    if random.chance(0.15) {
        document["queue_limit_s"] = json!(1 + random.below(300));
    }
    document
}

fn as_service(mut document: serde_json::Value, random: &mut Random) -> serde_json::Value {
    document["kind"] = json!("inference");
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|name, _| !["checkpoint", "success"].contains(&name.as_str()));
    }
    if random.chance(0.3) {
        document["containers"]["min"] = json!(0);
    }
    document["service"] = json!({
        "ready": {"path": "/", "timeout_s": random.choose(&[5, 60])},
        "drain_s": random.choose(&[0, 5, 30]),
    });
    document
}

fn scales(engine: &mut Engine, id: &str, at_s: f64, max: u64, random: &mut Random) {
    let Ok(job) = id.parse::<JobId>() else {
        return;
    };
    for _ in 0..random.below(6) {
        let scaled = Event::from(ServiceScaled {
            job: job.clone(),
            replicas: u32::try_from(random.below(max + 2)).unwrap_or(0),
            previous: 0,
            scaling: Scaling::Objective,
            observed: Observed::default(),
            forecast: 0.0,
            capacity_per_replica: 0.0,
            reason: "by the trial".to_owned(),
            saturated: false,
            basis: None,
        });
        let at_s = at_s + random.between(0.0, 600.0);
        engine.at(seconds_after_start(at_s), Action::Autoscaler(scaled));
    }
}

fn as_task_set(mut document: serde_json::Value, random: &mut Random) -> serde_json::Value {
    let grace_s = document["checkpoint"]["grace_s"].take();
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|name, _| !["containers", "success"].contains(&name.as_str()));
    }
    document["kind"] = json!("batch");
    document["checkpoint"] = json!({"grace_s": grace_s});
    document["tasks"] = json!({
        "count": 1 + random.below(40), "concurrency": 1 + random.below(6),
    });
    document
}

/// The times derive from earlier draws, so that found seeds keep their trials.
fn forsaken(engine: &mut Engine, node: &NodeId, at_s: f64, back_s: f64) {
    let away_ms = seconds_after_start(back_s).ms_since(seconds_after_start(at_s));
    if away_ms.is_multiple_of(2) {
        let waits_s = 3.0 + (away_ms % 7) as f64;
        let late_ms = away_ms % 5_003;
        let at = seconds_after_start(at_s + waits_s);
        engine.at(at, Action::Forsake(node.clone(), late_ms));
    }
}

fn trouble(engine: &mut Engine, nodes: &[(NodeId, Amounts)], within_s: f64, random: &mut Random) {
    match nodes.last().filter(|_| random.chance(0.15)) {
        Some((last, _)) => {
            let at_s = random.between(0.0, within_s);
            engine.at(seconds_after_start(at_s), Action::Lose(last.clone()));
        }
        None => lost_or_drained(engine, nodes, within_s, random),
    }
}

fn lost_or_drained(
    engine: &mut Engine,
    nodes: &[(NodeId, Amounts)],
    within_s: f64,
    random: &mut Random,
) {
    let at_s = random.between(0.0, within_s);
    let back_s = at_s + random.between(0.001, 200.0);
    let (node, capacity) = random.choose(nodes);
    match random.below(7) {
        0 => {
            engine.at(seconds_after_start(at_s), Action::Lose(node.clone()));
            join(engine, node, capacity, back_s);
        }
        1 => {
            engine.at(seconds_after_start(at_s), Action::Fence(node.clone()));
            join(engine, node, capacity, back_s);
        }
        2..=5 => {
            let ways = [Cut::Whole, Cut::Mute, Cut::Deaf, Cut::Killed];
            let cut = *random.choose(&ways);
            engine.at(seconds_after_start(at_s), Action::Cut(node.clone(), cut));
            if cut == Cut::Killed {
                forsaken(engine, node, at_s, back_s);
            }
            engine.at(seconds_after_start(back_s), Action::Mend(node.clone()));
        }
        _ => {
            engine.at(seconds_after_start(at_s), Action::Drain(node.clone()));
            engine.at(seconds_after_start(back_s), Action::Restore(node.clone()));
        }
    }
}
