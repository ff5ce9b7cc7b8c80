//! One event of every type, with every field set.

mod serving;

use std::collections::BTreeMap;

use dormouse_messages::budget::{AtLimit, BudgetLevel, Period, TenantBudget};
use dormouse_messages::events::*;
use dormouse_messages::grants::{Grants, Network};
use dormouse_messages::job::*;
use dormouse_messages::policy::Policy;
use dormouse_messages::reservation::{Reservation, ReservationPhase};
use dormouse_messages::service::Resize;
use dormouse_messages::slurm::SlurmQueue;
use dormouse_messages::speed::{Curve, CurveSource, SpeedPoint};
use dormouse_messages::{
    Amounts, Build, ContainerId, Envelope, Epoch, Event, Format, Incarnation, JobId, NodeId,
    QueueId, Rank, Reads, Recorded, ReservationId, Role, Sequence, Timestamp,
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
            nodes: Some(20_000),
            seconds: Some(2.0),
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
        kind: Kind::Training,
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
        static_containers: None,
        min_run_s: None,
        ready: None,
        time_limit_s: None,
        warning: None,
        queue_limit_s: None,
        checkpoint: Checkpoint {
            mode: CheckpointMode::Exit,
            signal: "SIGTERM".to_owned(),
            command: words("save now"),
            grace_s: 60,
        },
        success: Success::Chief,
        mounts: vec![Mount {
            source: "/data".to_owned(),
            target: "/data".to_owned(),
            read_only: true,
        }],
        network: None,
        retries: 2,
        priority: 0,
        priority_class: None,
        depends_on: Vec::new(),
        tasks: None,
        resize: Resize::default(),
        service: None,
        tolerations: Default::default(),
        constraints: Default::default(),
        gpu_limit_milli: None,
        gpu_memory_bytes: None,
        roles: BTreeMap::new(),
        workdir: None,
        python: None,
        speed_milli: Vec::new(),
        batch: None,
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
            nodes: Some(12),
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
    operator(&mut events);
    admission(&mut events);
    optimizer(&mut events);
    placer(&mut events);
    checkpointer(&mut events);
    ends(&mut events);
    agent(&mut events);
    tenant(&mut events);
    of_task_sets(&mut events);
    health(&mut events);
    serving::membership(&mut events);
    serving::serving(&mut events);
    fences_and_clocks(&mut events);
    granted(&mut events);
    events.push(Event::from(WebhookConfigured {
        tenant: "ads".parse().expect("a tenant"),
        url: Some("https://hooks.example.org/dormouse".to_owned()),
    }));
    plans(&mut events);
    limits(&mut events);
    serving::notebooks(&mut events);
    labels(&mut events);
    execs(&mut events);
    serving::gpus(&mut events);
    keys(&mut events);
    serving::reconciled(&mut events);
    events.push(Event::from(TenantRemoved {
        tenant: "ads".parse().expect("a tenant"),
        reason: Some("the team has left".to_owned()),
    }));
    events
}

fn limits(events: &mut Vec<Event>) {
    events.push(Event::from(PartitionWarned {
        job: job(),
        incarnation: Incarnation(3),
        signal: "SIGUSR1".to_owned(),
        left_s: 60,
        basis: basis(),
    }));
}

fn operator(events: &mut Vec<Event>) {
    events.push(Event::from(ClusterConfigured {
        policy: Policy::default(),
    }));
    events.push(Event::from(NodeDrained {
        node: node(),
        reason: None,
        deadline_s: None,
    }));
    events.push(Event::from(NodeRestored { node: node() }));
}

fn tenant(events: &mut Vec<Event>) {
    events.push(Event::from(TenantConfigured {
        tenant: "ads".parse().expect("a tenant"),
        weight: 3,
        quota: "cpu=20,memory=64Gi".parse().expect("a quota"),
        max_job_weight: Some(4),
        priority: Some(1),
    }));
}

fn labels(events: &mut Vec<Event>) {
    events.push(Event::from(NodeLabelled {
        node: node(),
        labels: BTreeMap::from([
            ("zone".to_owned(), Some("a".to_owned())),
            ("rack".to_owned(), None),
        ]),
        taints: BTreeMap::from([("owner=ads".to_owned(), true)]),
    }));
    events.push(Event::from(NodeRemoved { node: node() }));
}

fn granted(events: &mut Vec<Event>) {
    events.push(Event::from(TenantGranted {
        tenant: "ads".parse().expect("a tenant"),
        grants: Grants {
            run_as: Some("10001:10001".parse().expect("ids")),
            mounts: vec!["/data:ro".parse().expect("a folder")],
            secrets: Some("/etc/dormouse/secrets/ads".to_owned()),
            images: vec!["registry/ads/*".to_owned()],
            network: Some(Network::Published),
            max_queued: Some(1_000),
            max_queued_bytes: None,
            max_rate: Some(20),
            max_containers: Some(64),
            max_storage: None,
            exec: None,
            priority_classes: Default::default(),
        },
    }));
    events.push(Event::from(SubmissionsShed {
        tenant: "ads".to_owned(),
        first: 18,
        last: 420,
        count: 380,
        since: time("2026-11-21T10:00:00.100000Z"),
        until: time("2026-11-21T10:00:00.990000Z"),
        max_rate: 20,
        verb: None,
    }));
}

fn admission(events: &mut Vec<Event>) {
    events.push(Event::from(SubmissionReceived {
        ingress_sequence: 17,
        tenant: "ads".to_owned(),
        verb: "submit".to_owned(),
        content_type: "application/json".to_owned(),
        bytes: 17,
        sha256: "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef".to_owned(),
        raw: "{\"name\":\"a\"}".to_owned(),
        raw_encoding: RawEncoding::Utf8,
        published_at: None,
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

fn optimizer(events: &mut Vec<Event>) {
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

fn placer(events: &mut Vec<Event>) {
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

fn health(events: &mut Vec<Event>) {
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

fn checkpointer(events: &mut Vec<Event>) {
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

fn ends(events: &mut Vec<Event>) {
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

fn plans(events: &mut Vec<Event>) {
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

fn keys(events: &mut Vec<Event>) {
    let (name, tenant) = ("user-ads.alice", "ads".parse().ok());
    let key = "UCONVG5TVMGVF2QCAEEBVFRWZRS5RKYB7QFTG7CKJZXPEXNNQOSGXTUK";
    events.push(Event::from(KeyCreated {
        name: name.to_owned(),
        tenant: tenant.clone(),
        role: Some(Role::Submitter),
        key: key.to_owned(),
    }));
    events.push(Event::from(KeyRotated {
        name: name.to_owned(),
        tenant: tenant.clone(),
        key: key.to_owned(),
        revoked: 1,
    }));
    events.push(Event::from(KeyRevoked {
        name: name.to_owned(),
        tenant,
        revoked: 1,
    }));
    events.push(Event::from(JobRequeued {
        job: job(),
        ingress_sequence: 19,
        by: None,
        basis: basis(),
    }));
    events.extend([archived(), trimmed()]);
    upgrade(events);
    slurm(events);
    entitlements(events);
    events.push(Event::from(LogFilled {
        fill: Fill::Full,
        bytes: 91_268_055_040,
        most_bytes: 107_374_182_400,
        bound: LogBound::Stream,
    }));
}

fn trimmed() -> Event {
    Event::from(LogTrimmed {
        first: Sequence(400_001),
        number: 2,
        manifest: "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae".to_owned(),
        basis: basis(),
    })
}

fn upgrade(events: &mut Vec<Event>) {
    let process = || "optimizer/host1-3fa2".to_owned();
    events.push(Event::from(BuildJoined {
        process: process(),
        build: Build {
            version: "0.2.0".to_owned(),
            name: "0.2.0-2a3f58-692ad8f0".to_owned(),
            reads: Reads {
                oldest: Format(1),
                newest: Format(2),
            },
        },
    }));
    events.push(Event::from(BuildLeft { process: process() }));
    events.push(Event::from(UpgradeApproved { format: Format(2) }));
    // The format of every build: a build does not read the upgrade to a later one.
    events.push(Event::from(ClusterUpgraded {
        format: Format(1),
        basis: basis(),
    }));
}

fn entitlements(events: &mut Vec<Event>) {
    events.push(Event::from(StartsForecast {
        asof: Sequence(41),
        draws: 9,
        starts: vec![StartForecast {
            job: job(),
            earliest: Some(time("2026-11-21T10:12:00.000000Z")),
            likely: Some(time("2026-11-21T10:15:00.000000Z")),
            latest: Some(time("2026-11-21T10:25:00.000000Z")),
        }],
    }));
    let name = || ReservationId::new("maintenance").expect("valid");
    let (from, until) = (
        time("2026-12-01T08:00:00.000000Z"),
        time("2026-12-01T12:00:00.000000Z"),
    );
    events.push(Event::from(BudgetConfigured {
        tenant: "ads".parse().expect("valid"),
        budget: Some(TenantBudget {
            hours: "gpu=10000,cpu=50000".parse().expect("valid"),
            period: Period::Month,
            carry: true,
            at_limit: AtLimit::Preempt,
        }),
    }));
    events.push(Event::from(BudgetLevelChanged {
        tenant: "ads".parse().expect("valid"),
        level: BudgetLevel::Warned,
        resource: "gpu".to_owned(),
        used: 8_000_000,
        budget: 10_000_000,
        until: Some(until),
        basis: basis(),
    }));
    events.push(Event::from(ReservationConfigured {
        reservation: name(),
        settings: Reservation {
            nodes: [node()].into(),
            amounts: amounts("gpu=16"),
            from,
            length_s: 14_400,
            every_s: Some(604_800),
            lead_s: 300,
            tenants: ["ads".parse().expect("valid")].into(),
            jobs: [job()].into(),
            reason: Some("a new driver".to_owned()),
        },
    }));
    events.push(Event::from(ReservationRemoved {
        reservation: name(),
    }));
    events.push(Event::from(ReservationPhaseChanged {
        reservation: name(),
        phase: ReservationPhase::Active,
        nodes: vec![node()],
        from,
        until,
        basis: basis(),
    }));
}

fn slurm(events: &mut Vec<Event>) {
    let queue = || QueueId::new("gpu").expect("valid");
    let number = 7;
    events.push(Event::from(SlurmQueueConfigured {
        queue: queue(),
        settings: SlurmQueue {
            partition: Some("gpu".to_owned()),
            account: Some("ml".to_owned()),
            options: vec!["--constraint=a100".to_owned()],
            node: "cpu=32,memory=240Gi,gpu=4".parse().expect("valid"),
            labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
            nodes: 2,
            time_limit_s: 14_400,
            drain_s: 120,
            most: 8,
            backlog: 1,
            idle_s: 300,
            pause_after: 3,
            grow: true,
            paused: true,
        },
    }));
    events.push(Event::from(SlurmQueueRemoved { queue: queue() }));
    events.push(Event::from(SlurmRequested {
        queue: queue(),
        number,
        slot: 0,
        nodes: 2,
        jobs: vec![job()],
        basis: basis(),
    }));
    events.push(Event::from(SlurmSubmitted {
        queue: queue(),
        number,
        slurm_job: 4711,
    }));
    events.push(Event::from(SlurmRefused {
        queue: queue(),
        number,
        reason: "sbatch: error: invalid partition specified: gpu".to_owned(),
    }));
    events.push(Event::from(SlurmEstimated {
        queue: queue(),
        number,
        reason: "Priority".to_owned(),
        starts_at: Some(Timestamp::from_micros(1_764_325_200_000_000)),
    }));
    events.push(Event::from(SlurmGranted {
        queue: queue(),
        number,
        hosts: "gpu[01-02]".to_owned(),
        ends_at: Some(Timestamp::from_micros(1_764_339_600_000_000)),
    }));
    events.push(Event::from(SlurmReleased {
        queue: queue(),
        number,
        reason: "no container for 300 s".to_owned(),
        in_vain: true,
        basis: basis(),
    }));
    events.push(Event::from(SlurmEnded {
        queue: queue(),
        number,
        state: "TIMEOUT".to_owned(),
        reason: "TimeLimit".to_owned(),
    }));
}

fn archived() -> Event {
    Event::from(LogArchived {
        number: 3,
        first: Sequence(400_001),
        last: Sequence(600_000),
        asof: Sequence(599_990),
        ended: Timestamp::from_micros(1_763_719_200_000_000),
        bytes: 5_400_000,
        manifest: "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08".to_owned(),
        place: "s3://bucket/dormouse".to_owned(),
        findings: 1,
    })
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
