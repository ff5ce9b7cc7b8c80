//! One event of every type, with every field set.
//!
//! - `operators.rs`, `deciders.rs`: events of the operator and of the deciders
//! - `serving.rs`: partitions resized in place, services, gateways. `slurm.rs`: queues of Slurm

mod deciders;
mod operators;
mod serving;
mod slurm;

use std::collections::BTreeMap;

use dormouse_messages::events::*;
use dormouse_messages::job::*;
use dormouse_messages::{
    Amounts, ContainerId, Envelope, Event, Incarnation, JobId, NodeId, Rank, Recorded, Sequence,
    Timestamp,
};

/// The log of the exported samples.
pub const LOG: &str = "01J0SAMPLE";

fn job() -> JobId {
    "ads/lr-criteo".parse().expect("a job id")
}

fn node() -> NodeId {
    "n0".parse().expect("a node name")
}

fn time(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

fn amounts(text: &str) -> Amounts {
    text.parse().expect("amounts")
}

fn basis() -> Option<Basis> {
    Some(Basis {
        asof: Sequence(41),
        now: time("2026-11-21T10:00:00.000000Z"),
        causes: vec![Sequence(40), Sequence(39)],
        build: "0.1.0+abc1234".to_owned(),
        state_hash: Some("b3:9f86d081884c7d65".to_owned()),
        budget: Some(Budget {
            gap: 0.01,
            work: 100_000_000_000,
        }),
    })
}

fn spec() -> JobSpec {
    let env = [
        ("BATCH", EnvValue::Plain("512".to_owned())),
        ("TOKEN", secret(SecretSource::File("/run/token".to_owned()))),
        ("KEY", secret(SecretSource::Env("AGENT_KEY".to_owned()))),
    ];
    JobSpec {
        name: "lr-criteo".to_owned(),
        tenant: "ads".to_owned(),
        executor: Executor::Mxnet,
        image: Some("dormouse/empty".to_owned()),
        command: Command {
            start: words("python3 train.py"),
            resume: words("python3 train.py --resume"),
        },
        env: BTreeMap::from(env.map(|(name, value)| (name.to_owned(), value))),
        demand: amounts("cpu=2,gpu=500m,memory=8Gi,fpga=1"),
        weight: 2,
        containers: Containers::between(1, 32),
        checkpoint: Checkpoint {
            mode: CheckpointMode::Exit,
            signal: "SIGTERM".to_owned(),
            command: words("save now"),
            grace_s: 60,
        },
        success: Success::Coordinator,
        mounts: vec![Mount {
            source: "/data".to_owned(),
            target: "/data".to_owned(),
            read_only: true,
        }],
        retries: 2,
        ..JobSpec::default()
    }
}

fn secret(from: SecretSource) -> EnvValue {
    EnvValue::Secret(SecretFrom { from })
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

fn outcome() -> Outcome {
    Outcome {
        waiting: vec![Waiting {
            job: "vision/resnet-50".parse().expect("a job id"),
            code: "no_room".to_owned(),
            reason: "needs gpu 1; 0 are free".to_owned(),
        }],
        utilization: Utilization {
            resources: BTreeMap::from([("cpu".to_owned(), 0.75), ("memory".to_owned(), 0.5)]),
            total: 1.25,
        },
        fairness_loss: 0.125,
        fairness_loss_all: 0.25,
        fairness_loss_bound: 1.0,
        adjusted_jobs: 1,
        adjustment_bound: 2,
        forced_jobs: 0,
        unbounded: false,
        forced: false,
        solver: Solver {
            name: "HiGHS".to_owned(),
            version: "1.15.0".to_owned(),
            status: "optimal".to_owned(),
            objective: 1.2,
            bound: 1.21,
            gap: 0.008,
            work: 48_000,
            stopped_by: StoppedBy::Gap,
            stage: "exact".to_owned(),
        },
    }
}

fn fences_and_clocks(events: &mut Vec<Event>) {
    events.push(Event::from(NodeFenced {
        node: node(),
        incarnation: 3,
        reason: "its power is off".to_owned(),
    }));
    events.push(Event::from(ClockStepped {
        sequence: Sequence(41),
        by_ms: -86_400_000,
        basis: basis(),
    }));
}

/// Returns every type once, in the registry's order.
pub fn events() -> Vec<Event> {
    let mut events = Vec::new();
    operators::operator(&mut events);
    deciders::admission(&mut events);
    deciders::optimizer(&mut events);
    deciders::placer(&mut events);
    deciders::checkpointer(&mut events);
    deciders::ends(&mut events);
    agent(&mut events);
    operators::tenant(&mut events);
    of_task_sets(&mut events);
    deciders::health(&mut events);
    serving::membership(&mut events);
    serving::serving(&mut events);
    fences_and_clocks(&mut events);
    operators::granted(&mut events);
    events.push(Event::from(WebhookConfigured {
        tenant: "ads".parse().expect("a tenant"),
        url: Some("https://hooks.example.org/dormouse".to_owned()),
    }));
    deciders::plans(&mut events);
    deciders::limits(&mut events);
    serving::notebooks(&mut events);
    operators::labels(&mut events);
    execs(&mut events);
    serving::gpus(&mut events);
    operators::keys(&mut events);
    serving::reconciled(&mut events);
    events.push(Event::from(TenantRemoved {
        tenant: "ads".parse().expect("a tenant"),
        reason: Some("the team has left".to_owned()),
    }));
    events
}

fn agent(events: &mut Vec<Event>) {
    let incarnation = Incarnation(2);
    let container = ContainerId {
        job: job(),
        incarnation,
        rank: Rank(0),
    };
    events.push(Event::from(NodeJoined {
        node: node(),
        capacity: amounts("cpu=12,gpu=1,memory=128Gi"),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        gpus: vec![Gpu {
            uuid: "GPU-5a1c".to_owned(),
            model: "H200".to_owned(),
            memory_bytes: 150_754_820_096,
        }],
        incarnation: 3,
        running: vec![container.clone()],
        address: "10.0.0.1".to_owned(),
        runtime: "docker".to_owned(),
        taints: Default::default(),
    }));
    events.push(Event::from(ContainerStarted {
        container: container.clone(),
        node: node(),
        pid: 4711,
    }));
    events.push(Event::from(ContainerExited {
        container,
        node: node(),
        exit_code: Some(137),
        signal: Some(9),
        out_of_memory: true,
        reason: Some("killed: out of memory".to_owned()),
        evicted: false,
    }));
    checkpoints(events);
}

fn checkpoints(events: &mut Vec<Event>) {
    let incarnation = Incarnation(2);
    events.push(Event::from(CheckpointSaved {
        job: job(),
        incarnation,
        node: node(),
        uri: "file:///var/lib/dormouse/ckpt/2".to_owned(),
        step: 120,
        bytes: 1_572_864,
        duration_ms: 900,
    }));
    events.push(Event::from(CheckpointFailed {
        job: job(),
        incarnation,
        node: node(),
        reason: "no checkpoint within grace_s".to_owned(),
    }));
    events.push(Event::from(Progress {
        job: job(),
        incarnation,
        node: node(),
        step: 120,
        steps_total: 500,
        containers: 5,
        metrics: BTreeMap::from([("loss".to_owned(), 0.31), ("accuracy".to_owned(), 0.8125)]),
    }));
}

fn of_task_sets(events: &mut Vec<Event>) {
    events.push(Event::from(TasksAssigned {
        job: job(),
        incarnation: Incarnation(2),
        assigned: vec![Assigned {
            rank: Rank(1),
            tasks: [4, 5, 6, 9].into_iter().collect(),
        }],
        basis: basis(),
    }));
    events.push(Event::from(TasksEnded {
        job: job(),
        incarnation: Incarnation(2),
        rank: Rank(1),
        node: node(),
        completed: [4, 5, 9].into_iter().collect(),
        failed: vec![FailedTask {
            task: 6,
            exit_code: 137,
        }],
    }));
}

fn execs(events: &mut Vec<Event>) {
    events.push(Event::from(ContainerExecStarted {
        container: serving::container(),
        node: node(),
        exec: 1_795_000_000_000_001,
        by: ExecBy::Tenant,
        command: vec!["ps".to_owned(), "-ef".to_owned()],
        terminal: true,
    }));
    events.push(Event::from(ContainerExecEnded {
        container: serving::container(),
        node: node(),
        exec: 1_795_000_000_000_001,
        exit_code: Some(1),
        signal: Some(9),
        reason: Some("nobody followed it any more".to_owned()),
    }));
}

/// Returns every type once, as recorded on a log.
pub fn samples() -> Vec<Recorded> {
    let placed = events().into_iter().zip(42u64..);
    let samples = placed.map(|(event, sequence)| {
        let writer = event.writers()[0];
        let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let envelope = Envelope::new(
            format!("{writer}-0-{sequence}"),
            writer,
            time("2026-11-21T10:00:00.000000Z"),
            Some(traceparent.to_owned()),
            event,
        );
        Recorded {
            sequence: Sequence(sequence),
            stored_at: time("2026-11-21T10:00:00.004000Z"),
            writer,
            envelope,
        }
    });
    samples.collect()
}
