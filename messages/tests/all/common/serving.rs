//! Samples of events about partitions resized in place, services and gateways.

use dormouse_messages::service::Scaling;
use dormouse_messages::{Epoch, GatewayId};

use super::*;

pub fn container() -> ContainerId {
    ContainerId {
        job: job(),
        incarnation: Incarnation(2),
        rank: Rank(3),
    }
}

fn gateway() -> GatewayId {
    "g0".parse().expect("a gateway")
}

pub fn membership(events: &mut Vec<Event>) {
    let incarnation = Incarnation(2);
    events.push(Event::from(PartitionResizeRequested {
        job: job(),
        epoch: Epoch(12),
        incarnation,
        generation: 4,
        join: vec![Rank(5)],
        leave: vec![Rank(3)],
        stay: vec![Rank(0), Rank(1)],
        grace_s: 30,
        cause: ResizeCause::Adjusted,
        made_for: Some("ads/model".parse().expect("a job id")),
        basis: basis(),
    }));
    events.push(Event::from(PartitionLeaveRequested {
        job: job(),
        incarnation,
        generation: 4,
        ranks: vec![Rank(3)],
        grace_s: 10,
        basis: basis(),
    }));
    events.push(Event::from(PartitionResized {
        job: job(),
        epoch: Epoch(12),
        incarnation,
        generation: 4,
        containers: 3,
        members: vec![Rank(0), Rank(1), Rank(5)],
        cause: ResizeCause::Adjusted,
        basis: basis(),
    }));
    events.push(Event::from(ContainerReady {
        container: container(),
        node: node(),
        after_ms: 1_250,
        token_blake3: None,
    }));
    events.push(Event::from(ContainerUnready {
        container: container(),
        node: node(),
        reason: "GET /healthz was answered with 503 for 60 s".to_owned(),
    }));
    events.push(Event::from(MemberAcknowledged {
        container: container(),
        node: node(),
        generation: 4,
        state: Acknowledged::Joined,
        step: Some(120),
    }));
}

pub fn serving(events: &mut Vec<Event>) {
    events.push(Event::from(GatewayJoined {
        gateway: gateway(),
        address: "http://127.0.0.1:8080".to_owned(),
    }));
    events.push(Event::from(GatewayLeft { gateway: gateway() }));
    events.push(Event::from(GatewayUnrouted {
        gateway: gateway(),
        container: container(),
        answers: Sequence(40),
        closed: 1,
    }));
    events.push(Event::from(ServiceMeasured {
        job: job(),
        gateway: gateway(),
        window_s: 2,
        requests: 21,
        arrivals: vec![10, 11],
        concurrency: 1.5,
        queued: 2,
        latency_ms: histogram(),
        service_ms: histogram(),
        errors: 1,
        shed: 1,
        ready: 3,
        touched: 0,
        until: None,
        ingress_sequence: None,
        published_at: None,
        basis: None,
    }));
    events.push(Event::from(ServiceScaled {
        job: job(),
        replicas: 4,
        previous: 3,
        scaling: Scaling::Objective,
        observed: Observed {
            rate: 10.5,
            concurrency: 1.5,
            service_ms: 98.5,
            burstiness: 1.25,
            attainment: 0.995,
            ready: 3,
        },
        forecast: 14.0,
        capacity_per_replica: 6.5,
        reason: "14 requests a second are expected".to_owned(),
        saturated: true,
        basis: basis(),
    }));
    events.push(Event::from(NotebookWarned {
        job: job(),
        idle_since: time("2026-11-21T09:00:00.000000Z"),
        ends_at: time("2026-11-21T10:10:00.000000Z"),
        basis: basis(),
    }));
}

pub fn notebooks(events: &mut Vec<Event>) {
    events.push(Event::from(NotebookObserved {
        container: container(),
        node: node(),
        activity: NotebookActivity::Unknown,
        idle_ms: 61_000,
        kernels: 1,
        reason: Some("GET /api/kernels was answered with 503".to_owned()),
    }));
    events.push(Event::from(GatewayLost {
        gateway: gateway(),
        last_seen: time("2026-11-21T10:00:00.000000Z"),
    }));
}

pub fn gpus(events: &mut Vec<Event>) {
    events.push(Event::from(ContainerGpuUsed {
        container: container(),
        node: node(),
        window_ms: 10_000,
        devices: vec![GpuUse {
            uuid: "GPU-5a1c0e02-7d1f-4d52-9b43-0d8c3f1f2a10".to_owned(),
            busy_us: 2_960_000,
            charged_us: 3_004_000,
            launches: 61_440,
            waits: 130,
            waited_us: 6_870_000,
            memory_bytes: 5 << 30,
            refused: 1,
            driver_bytes: None,
            beyond_bytes: 0,
        }],
    }));
}

pub fn reconciled(events: &mut Vec<Event>) {
    events.push(Event::from(NodeGpuReconciled {
        node: node(),
        uuid: "GPU-5a1c0e02-7d1f-4d52-9b43-0d8c3f1f2a10".to_owned(),
        strangers: vec![GpuStranger {
            pid: 4711,
            program: Some("python3".to_owned()),
            memory_bytes: Some(2 << 30),
        }],
        beyond: vec![GpuBeyond {
            container: container(),
            cap_bytes: 8 << 30,
            counted_bytes: 5 << 30,
            driver_bytes: 11 << 30,
        }],
    }));
}

fn histogram() -> Histogram {
    Histogram {
        bounds: vec![50.0, 100.0, 200.0],
        counts: vec![1, 15, 4, 1],
    }
}
