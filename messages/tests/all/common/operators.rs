//! Samples of the operator's events, and of the log's archive.

use dormouse_messages::budget::{AtLimit, BudgetLevel, Period, TenantBudget};
use dormouse_messages::grants::{Grants, Network};
use dormouse_messages::policy::Policy;
use dormouse_messages::reservation::{Reservation, ReservationPhase};
use dormouse_messages::{Build, Format, Reads, ReservationId, Role};

use super::*;

pub fn operator(events: &mut Vec<Event>) {
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

pub fn tenant(events: &mut Vec<Event>) {
    events.push(Event::from(TenantConfigured {
        tenant: "ads".parse().expect("a tenant"),
        weight: 3,
        quota: "cpu=20,memory=64Gi".parse().expect("a quota"),
        max_job_weight: Some(4),
        priority: Some(1),
    }));
}

pub fn labels(events: &mut Vec<Event>) {
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

pub fn granted(events: &mut Vec<Event>) {
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
    events.push(Event::from(SubmissionsRateLimited {
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

pub fn keys(events: &mut Vec<Event>) {
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
    slurm::slurm(events);
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
