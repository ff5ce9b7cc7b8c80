//! Shared test tools: events; `replica`: test servers; `world`: a gateway on a real broker.

#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod replica;
pub mod world;

use std::time::Duration;

use dormouse_messages::events::*;
use dormouse_messages::job::{JobSpec, Kind};
use dormouse_messages::{
    Amounts, ContainerId, Envelope, Epoch, Event, Fold, Incarnation, JobId, NodeId, Rank, Recorded,
    Sequence, Timestamp,
};
use dormouse_state::routes::Routes;
use serde_json::json;

/// A longer wait is a hang.
pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn job(text: &str) -> JobId {
    text.parse().expect("valid")
}

pub fn node(text: &str) -> NodeId {
    text.parse().expect("valid")
}

pub fn container(job: &JobId, incarnation: u32, rank: u32) -> ContainerId {
    ContainerId {
        job: job.clone(),
        incarnation: Incarnation(incarnation),
        rank: Rank(rank),
    }
}

pub fn admitted(job: &JobId, kind: Kind, min: u32, service: serde_json::Value) -> Event {
    let spec: JobSpec = serde_json::from_value(json!({
        "name": job.name(), "tenant": job.tenant(), "kind": kind,
        "command": {"start": ["serve"]}, "demand": {}, "weight": 1,
        "containers": {"min": min, "max": 100},
        "checkpoint": {"mode": "none", "signal": "SIGTERM", "grace_s": 5},
        "resize": "in_place", "service": service,
    }))
    .expect("valid");
    Event::from(JobAdmitted {
        job: job.clone(),
        spec,
        ingress_sequence: 1,
        by: None,
        basis: None,
    })
}

pub fn joined(name: &str, address: &str) -> Event {
    joined_again(name, address, 1)
}

pub fn joined_again(name: &str, address: &str, incarnation: u64) -> Event {
    Event::from(NodeJoined {
        node: node(name),
        capacity: Amounts::new(),
        labels: Default::default(),
        gpus: Vec::new(),
        incarnation,
        running: Vec::new(),
        address: address.to_owned(),
        runtime: "process".to_owned(),
        taints: Default::default(),
    })
}

pub fn placed(job: &JobId, incarnation: u32, places: &[(u32, &str, u16)]) -> Event {
    let create = places.iter().map(|(rank, name, port)| PlacedContainer {
        job: job.clone(),
        incarnation: Incarnation(incarnation),
        rank: Rank(*rank),
        node: node(name),
        gpus: Vec::new(),
        port: *port,
    });
    Event::from(PlacementDecided {
        epoch: Epoch(1),
        create: create.collect(),
        remove: Vec::new(),
        basis: None,
    })
}

pub fn ready(container: &ContainerId, name: &str) -> Event {
    Event::from(ContainerReady {
        container: container.clone(),
        node: node(name),
        after_ms: 10,
        token_blake3: None,
    })
}

pub fn unready(container: &ContainerId, name: &str) -> Event {
    Event::from(ContainerUnready {
        container: container.clone(),
        node: node(name),
        reason: "no answer".to_owned(),
    })
}

pub fn exited(container: &ContainerId, name: &str) -> Event {
    Event::from(ContainerExited {
        container: container.clone(),
        node: node(name),
        exit_code: Some(0),
        signal: None,
        out_of_memory: false,
        reason: None,
        evicted: false,
    })
}

pub fn lost(name: &str) -> Event {
    Event::from(NodeLost {
        node: node(name),
        incarnation: 1,
        last_seen: Timestamp::from_micros(0),
    })
}

pub fn resize(
    job: &JobId,
    incarnation: u32,
    generation: u32,
    leave: &[u32],
    stay: &[u32],
    grace_s: u32,
) -> Event {
    let ranks = |ranks: &[u32]| ranks.iter().copied().map(Rank).collect();
    Event::from(PartitionResizeRequested {
        job: job.clone(),
        epoch: Epoch(1),
        incarnation: Incarnation(incarnation),
        generation,
        join: Vec::new(),
        leave: ranks(leave),
        stay: ranks(stay),
        grace_s,
        cause: ResizeCause::Adjusted,
        made_for: None,
        basis: None,
    })
}

pub fn stop_requested(job: &JobId, incarnation: u32) -> Event {
    Event::from(PartitionStopRequested {
        job: job.clone(),
        epoch: Epoch(1),
        incarnation: Incarnation(incarnation),
        containers: 1,
        reason: StopReason::Cancelled,
        grace_s: None,
        basis: None,
    })
}

pub fn completed(job: &JobId) -> Event {
    Event::from(JobCompleted {
        job: job.clone(),
        reason: "done".to_owned(),
        attempts: 0,
        basis: None,
    })
}

pub fn recorded(sequence: u64, event: Event) -> Recorded {
    let writer = event.writers()[0];
    let time = Timestamp::from_micros(0);
    Recorded {
        sequence: Sequence(sequence),
        stored_at: time,
        writer,
        envelope: Envelope::new(format!("id-{sequence}"), writer, time, None, event),
    }
}

/// Folds `events` from the log's start.
#[track_caller]
pub fn given(events: Vec<Event>) -> Routes {
    let mut routes = Routes::default();
    for (sequence, event) in (1..).zip(events) {
        routes.evolve(&recorded(sequence, event));
        routes.check_invariants().expect("an invariant");
    }
    routes
}
