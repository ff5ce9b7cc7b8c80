//! Samples of the deciders' events, and of the reports about nodes.

use dormouse_messages::Epoch;
use dormouse_messages::speed::{Curve, CurveSource, SpeedPoint};

use super::*;

pub fn limits(events: &mut Vec<Event>) {
    events.push(Event::from(PartitionWarned {
        job: job(),
        incarnation: Incarnation(3),
        signal: "SIGUSR1".to_owned(),
        left_s: 60,
        basis: basis(),
    }));
}

pub fn admission(events: &mut Vec<Event>) {
    events.push(Event::from(SubmissionReceived {
        ingress_sequence: 17,
        tenant: "ads".to_owned(),
        verb: "submit".to_owned(),
        content_type: "application/json".to_owned(),
        bytes: 17,
        sha256: "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef".to_owned(),
        raw: "{\"name\":\"a\"}".to_owned(),
        raw_encoding: RawEncoding::Utf8,
        published_at: time("2026-11-21T09:59:59.900000Z"),
        by: None,
    }));
    events.push(Event::from(JobAdmitted {
        job: job(),
        spec: spec(),
        ingress_sequence: 17,
        by: None,
        basis: basis(),
    }));
    events.push(Event::from(JobRefused {
        job: Some(job()),
        tenant: Some("ads".parse().expect("a tenant")),
        ingress_sequence: 18,
        code: "unknown_field".to_owned(),
        reason: "unknown field `gpus`".to_owned(),
        by: None,
        basis: basis(),
    }));
    events.push(Event::from(JobReleased {
        job: job(),
        turn: None,
        passed_over: Vec::new(),
        basis: basis(),
    }));
    events.push(Event::from(JobRevised {
        job: job(),
        ingress_sequence: 19,
        weight: Some(4),
        containers: Some(Containers::between(2, 16)),
        priority: None,
        held: None,
        time_limit_s: None,
        queue_limit_s: None,
        gpu_limit_milli: None,
        by: None,
        basis: basis(),
    }));
    events.push(Event::from(JobCancelRequested {
        job: job(),
        ingress_sequence: 20,
        by: None,
        basis: basis(),
    }));
}

pub fn optimizer(events: &mut Vec<Event>) {
    events.push(Event::from(AllocationDecided {
        epoch: Epoch(12),
        jobs: vec![JobAllocation {
            job: job(),
            containers: 5,
            nodes: [(None, 4), (Some("ps".to_owned()), 1)]
                .map(|(role, containers)| NodeContainers {
                    node: node(),
                    role,
                    containers,
                })
                .into(),
            previous: 3,
            new: false,
            share: 0.375,
            fair_share: 0.5,
            made_for: None,
        }],
        outcome: outcome(),
        basis: basis(),
    }));
    events.push(Event::from(AllocationUnchanged {
        reason: "no better one within the bounds".to_owned(),
        outcome: outcome(),
        basis: basis(),
    }));
    events.push(Event::from(JobSpeedFitted {
        job: job(),
        curve: Curve {
            a: 0.02,
            b: 0.4,
            c: 0.001,
        },
        error: 0.03,
        source: CurveSource::Measured,
        points: vec![SpeedPoint {
            containers: 4,
            step_s: 0.125,
            seconds: 50.0,
        }],
        crossing: Some(0.25),
        basis: basis(),
    }));
}

pub fn placer(events: &mut Vec<Event>) {
    events.push(Event::from(PlacementDecided {
        epoch: Epoch(12),
        create: vec![PlacedContainer {
            job: job(),
            incarnation: Incarnation(2),
            rank: Rank(0),
            node: node(),
            gpus: vec!["GPU-5a1c".to_owned()],
            port: 20_000,
        }],
        remove: vec![RemovedContainer {
            job: job(),
            incarnation: Incarnation(1),
            rank: Rank(0),
            node: node(),
        }],
        basis: basis(),
    }));
    events.push(Event::from(PlacementRefused {
        epoch: Epoch(13),
        unplaceable: vec![Unplaceable {
            job: job(),
            node: node(),
            containers: 2,
            why: WhyUnplaceable::Short("memory".to_owned()),
        }],
        basis: basis(),
    }));
    events.push(Event::from(NodeLost {
        node: node(),
        incarnation: 3,
        last_seen: time("2026-11-21T09:59:50Z"),
    }));
    events.push(Event::from(NodeRecovered {
        node: node(),
        last_seen: time("2026-11-21T09:59:50Z"),
        basis: basis(),
    }));
}

pub fn health(events: &mut Vec<Event>) {
    events.push(Event::from(CheckpointRejected {
        job: job(),
        incarnation: Incarnation(3),
        node: node(),
        uri: "file:///var/lib/dormouse/ckpt/ads/lr/2.1".to_owned(),
        reason: "model was written to after the checkpoint was complete".to_owned(),
    }));
    events.push(Event::from(NodeFaulted {
        node: node(),
        job: job(),
        incarnation: Incarnation(2),
        rank: Rank(1),
        fault: NodeFault::Disk,
        reason: "no space left on device".to_owned(),
    }));
    events.push(Event::from(NodeQuarantined {
        node: node(),
        reason: "3 starts in a row failed: no space left on device".to_owned(),
        until: time("2026-11-21T10:01:00Z"),
        basis: basis(),
    }));
    events.push(Event::from(NodeReadmitted {
        node: node(),
        basis: basis(),
    }));
}

pub fn checkpointer(events: &mut Vec<Event>) {
    let (epoch, incarnation) = (Epoch(12), Incarnation(2));
    events.push(Event::from(CheckpointRequested {
        job: job(),
        epoch,
        incarnation,
        basis: basis(),
    }));
    events.push(Event::from(PartitionStartRequested {
        job: job(),
        epoch,
        incarnation,
        containers: 5,
        resumed_from: Some("file:///var/lib/dormouse/ckpt/1".to_owned()),
        basis: basis(),
    }));
    events.push(Event::from(PartitionStopRequested {
        job: job(),
        epoch,
        incarnation,
        containers: 5,
        reason: StopReason::Adjusted,
        grace_s: None,
        basis: basis(),
    }));
    events.push(Event::from(PartitionStarted {
        job: job(),
        epoch,
        incarnation,
        containers: 5,
        resumed_from: Some("file:///var/lib/dormouse/ckpt/1".to_owned()),
        basis: basis(),
    }));
    events.push(Event::from(PartitionStopped {
        job: job(),
        epoch,
        incarnation,
        containers: 5,
        reason: StopReason::NodeLost,
        attempts: 1,
        basis: basis(),
    }));
    events.push(Event::from(ResizeAbandoned {
        job: job(),
        epoch,
        incarnation,
        reason: "the checkpoint failed".to_owned(),
        basis: basis(),
    }));
}

pub fn ends(events: &mut Vec<Event>) {
    events.push(Event::from(JobCompleted {
        job: job(),
        reason: "every container exited with 0".to_owned(),
        attempts: 1,
        basis: basis(),
    }));
    events.push(Event::from(JobFailed {
        job: job(),
        reason: "rank 0 on n0: exit code 1; no retries are left".to_owned(),
        attempts: 3,
        basis: basis(),
    }));
    events.push(Event::from(JobCancelled {
        job: job(),
        reason: "cancelled by its tenant".to_owned(),
        attempts: 0,
        code: None,
        ingress_sequence: Some(20),
        by: None,
        basis: basis(),
    }));
}

pub fn plans(events: &mut Vec<Event>) {
    events.push(Event::from(PlanAccepted {
        job: job(),
        ingress_sequence: 17,
        containers: 4,
        planned_at: Sequence(40),
        basis: basis(),
    }));
    events.push(Event::from(PlanMissed {
        job: job(),
        planned: 4,
        containers: 2,
        decided: Sequence(46),
        basis: basis(),
    }));
}
