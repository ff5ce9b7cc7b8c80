//! Tenants through the whole pipeline: grants, quotas, shares, dependencies.

mod dependencies;

use dormouse_messages::Shares;
use dormouse_messages::events::{
    ClusterConfigured, TenantConfigured, TenantGranted, TenantRemoved, Waiting,
};
use dormouse_messages::grants::{Grants, GrantsRule};
use dormouse_messages::policy::{Policy, Queue, UnknownTenants};
use dormouse_messages::{Event, Fold as _, JobId, Timestamp};
use dormouse_replay::Verifier;
use dormouse_replay::engine::{Action, Engine, ModelJob};

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus_ms(1000 * seconds)
}

pub fn cluster(policy: Policy) -> Engine {
    let mut engine = Engine::new(at(0), true);
    engine.at(at(0), Action::Operator(ClusterConfigured { policy }.into()));
    for index in 0..2 {
        let node = format!("n{index}").parse().expect("a node");
        let capacity = "cpu=8,memory=16Gi".parse().expect("amounts");
        engine.at(at(0), Action::Join { node, capacity });
    }
    engine
}

fn tenant(engine: &mut Engine, name: &str, weight: u32, quota: &str, max_job_weight: Option<u32>) {
    tenant_at(engine, 0, name, weight, quota, max_job_weight);
}

fn tenant_at(
    engine: &mut Engine,
    second: u64,
    name: &str,
    weight: u32,
    quota: &str,
    max_job_weight: Option<u32>,
) {
    let configured = TenantConfigured {
        tenant: name.parse().expect("a tenant"),
        weight,
        quota: quota.parse().unwrap_or_default(),
        max_job_weight,
        priority: None,
    };
    engine.at(at(second), Action::Operator(configured.into()));
}

pub fn submit(engine: &mut Engine, second: u64, id: &str, bounds: (u32, u32), more: &str) {
    let (tenant, name) = id.split_once('/').expect("tenant/name");
    let (min, max) = bounds;
    let payload = format!(
        r#"{{"name":"{name}","command":{{"start":["run"]}},"demand":{{"cpu":1}},"containers":{{"min":{min},"max":{max}}},"checkpoint":{{"mode":"exit"}}{more}}}"#
    );
    send(engine, second, tenant, "submit", &payload);
    let job = id.parse().expect("a job");
    engine.model(job, ModelJob::linear(f64::from(max) * 60.0));
}

fn one(cpu: u32, name: &str) -> String {
    format!(
        r#"{{"name":"{name}","command":{{"start":["a"]}},"demand":{{"cpu":{cpu}}},"containers":{{"min":1,"max":1}},"checkpoint":{{"mode":"none"}}}}"#
    )
}

pub fn send(engine: &mut Engine, second: u64, tenant: &str, verb: &str, payload: &str) {
    let action = Action::Submit {
        tenant: tenant.to_owned(),
        verb: verb.to_owned(),
        payload: payload.as_bytes().to_vec(),
    };
    engine.at(at(second), action);
}

pub fn run(engine: &mut Engine, seconds: u64) {
    engine.run_until(at(seconds)).expect("a healthy run");
    let mut verifier = Verifier::default();
    for recorded in engine.log() {
        verifier.read(recorded);
    }
    assert_eq!(verifier.finish().findings, []);
}

pub fn refusals(engine: &Engine) -> Vec<(String, String)> {
    let events = engine.log().iter().filter_map(|recorded| recorded.event());
    let refused = events.filter_map(|event| match event {
        Event::JobRefused(event) => Some((event.code.clone(), event.reason.clone())),
        _ => None,
    });
    refused.collect()
}

#[track_caller]
pub fn assert_refused(engine: &Engine, code: &str, says: &[&str]) {
    let refusals = refusals(engine);
    let found = refusals.iter().find(|(found, _)| found == code);
    let (_, reason) = found.unwrap_or_else(|| panic!("{code} is not among {refusals:?}"));
    for part in says {
        assert!(reason.contains(part), "{part:?} is not in {reason:?}");
    }
}

fn last_waiting(engine: &Engine) -> Vec<Waiting> {
    let waiting = engine.log().iter().rev().find_map(|it| match it.event()? {
        Event::AllocationUnchanged(it) => Some(it.outcome.waiting.clone()),
        Event::AllocationDecided(it) => Some(it.outcome.waiting.clone()),
        _ => None,
    });
    waiting.expect("a decision")
}

pub fn when(engine: &Engine, id: &str, kind: &str) -> Option<f64> {
    let job: JobId = id.parse().expect("a job");
    let about = |event: &Event| match event {
        Event::JobReleased(e) => e.job == job && kind == "released",
        Event::JobCompleted(e) => e.job == job && kind == "completed",
        Event::JobCancelled(e) => e.job == job && kind == "cancelled",
        _ => false,
    };
    let found = engine.log().iter().find(|r| r.event().is_some_and(about));
    found.map(|recorded| recorded.stored_at.seconds_since(at(0)))
}

/// A key may outlive its tenant, or open an account without a configuration.
#[test]
fn a_tenant_that_nobody_named_submits_nothing_where_grants_are_required() {
    let mut engine = cluster(Policy {
        grants: Some(GrantsRule::Required),
        ..Policy::default()
    });
    tenant(&mut engine, "ads", 1, "cpu=4", None);
    let granted = TenantGranted {
        tenant: "lab".parse().expect("valid"),
        grants: Grants::default(),
    };
    engine.at(at(1), Action::Operator(granted.into()));
    for job in ["stranger/a", "ads/a", "lab/a"] {
        submit(&mut engine, 2, job, (1, 1), "");
    }
    let policy = Policy::default();
    engine.at(
        at(100),
        Action::Operator(ClusterConfigured { policy }.into()),
    );
    let removed = TenantRemoved {
        tenant: "ads".parse().expect("valid"),
        reason: None,
    };
    engine.at(at(200), Action::Operator(removed.into()));
    submit(&mut engine, 201, "ads/b", (1, 1), "");
    submit(&mut engine, 201, "lab/b", (1, 1), "");
    run(&mut engine, 400);
    assert_refused(
        &engine,
        "unknown_tenant",
        &["stranger", "dormouse tenant set stranger"],
    );
    let log = engine.log().iter().filter_map(|it| it.event());
    let refused = log.filter_map(|event| match event {
        Event::JobRefused(event) => event.tenant.as_ref().map(ToString::to_string),
        _ => None,
    });
    assert_eq!(Vec::from_iter(refused), ["stranger", "ads"]);
    for job in ["ads/a", "lab/a", "lab/b"] {
        assert!(when(&engine, job, "completed").is_some(), "{job}");
    }
}

#[test]
fn what_a_tenant_may_not_ask_for_is_refused_with_what_to_do() {
    let mut engine = cluster(Policy {
        unknown_tenants: UnknownTenants::Refuse,
        ..Policy::default()
    });
    tenant(&mut engine, "ads", 2, "cpu=4", Some(3));
    submit(&mut engine, 1, "stranger/a", (1, 1), "");
    submit(&mut engine, 1, "ads/wide", (5, 8), "");
    submit(&mut engine, 1, "ads/heavy", (1, 1), r#","weight":4"#);
    submit(&mut engine, 1, "ads/good", (1, 1), r#","weight":3"#);
    send(
        &mut engine,
        2,
        "ads",
        "revise",
        r#"{"job":"good","weight":9}"#,
    );
    run(&mut engine, 300);
    assert_refused(
        &engine,
        "unknown_tenant",
        &["stranger", "dormouse tenant set stranger"],
    );
    assert_refused(
        &engine,
        "above_quota",
        &["needs 5 cpu", "is 4", "ask for less"],
    );
    assert_refused(&engine, "weight_above_limit", &["weight 4", "at most 3"]);
    assert_eq!(refusals(&engine).len(), 4);
    assert!(when(&engine, "ads/good", "completed").is_some());
}

#[test]
fn a_revision_may_not_ask_for_what_a_submission_may_not() {
    let mut engine = cluster(Policy::default());
    let batch = r#"{"name":"one","kind":"batch","command":{"start":["a"]},"demand":{"cpu":1}}"#;
    send(&mut engine, 1, "ads", "submit", batch);
    submit(&mut engine, 1, "ads/many", (1, 2), "");
    submit(
        &mut engine,
        1,
        "ads/fixed",
        (1, 4),
        r#","static_containers":2"#,
    );
    let set = r#"{"name":"set","kind":"batch","command":{"start":["a"]},"demand":{"cpu":1},"tasks":{"count":9,"concurrency":4}}"#;
    send(&mut engine, 1, "ads", "submit", set);
    for revised in [
        r#"{"job":"one","containers":{"min":1,"max":2}}"#,
        r#"{"job":"many","containers":{"min":1,"max":10001}}"#,
        r#"{"job":"many","weight":4294967295}"#,
        r#"{"job":"fixed","containers":{"min":3,"max":4}}"#,
        r#"{"job":"set","containers":{"min":1,"max":5}}"#,
    ] {
        send(&mut engine, 2, "ads", "revise", revised);
    }
    run(&mut engine, 300);
    let reasons = refusals(&engine);
    assert_eq!(reasons.len(), 5, "{reasons:?}");
    assert!(
        reasons[2].1.contains("between 1 and 1000000"),
        "{reasons:?}"
    );
    assert!(reasons[3].1.contains("static_containers 2"), "{reasons:?}");
    assert!(
        reasons[4]
            .1
            .contains("above 4, the job's tasks.concurrency"),
        "{reasons:?}"
    );
    assert!(
        reasons[0].1.contains("a batch job has one container"),
        "{reasons:?}"
    );
    assert!(reasons[1].1.contains("≤ 10000"), "{reasons:?}");
}

#[test]
fn the_limit_of_a_part_of_a_gpu_is_revised_within_its_request_and_a_whole_one() {
    let mut engine = cluster(Policy::default());
    let node = "g0".parse().expect("a node");
    let capacity = "cpu=8,memory=16Gi,gpu=4".parse().expect("amounts");
    engine.at(at(0), Action::Join { node, capacity });
    for (name, gpu) in [
        ("part", "0.25"),
        ("whole", "1"),
        ("two", "2"),
        ("none", "0"),
    ] {
        let job = format!(
            r#"{{"name":"{name}","command":{{"start":["a"]}},"demand":{{"cpu":1,"gpu":{gpu}}},"containers":{{"min":1,"max":1}}}}"#
        );
        send(&mut engine, 1, "ads", "submit", &job);
    }
    for (at, job, limit) in [
        (2, "part", "0.75"),
        (3, "part", r#""250m""#),
        (4, "part", "1"),
        (5, "part", "0.2"),
        (6, "part", "1.1"),
        (7, "part", r#""much""#),
        (8, "two", "1"),
        (9, "none", "0.5"),
        (10, "whole", "0.5"),
    ] {
        let revised = format!(r#"{{"job":"{job}","gpu_limit":{limit}}}"#);
        send(&mut engine, at, "ads", "revise", &revised);
    }
    run(&mut engine, 60);
    let revised = engine.log().iter().filter_map(|it| match it.event() {
        Some(Event::JobRevised(it)) => it.gpu_limit_milli,
        _ => None,
    });
    let revised: Vec<u64> = revised.collect();
    let reasons = refusals(&engine);
    assert_eq!(revised, [750, 250, 1000], "{reasons:?}");
    assert_eq!(reasons.len(), 6, "{reasons:?}");
    assert!(reasons.iter().all(|it| it.0 == "bad_demand"), "{reasons:?}");
    for (at, words) in [
        (
            0,
            "gpu_limit 200m must lie between the request, demand.gpu 250m, and 1",
        ),
        (2, "gpu_limit: "),
        (3, "is of a part of a GPU"),
        (4, "is of a part of a GPU"),
        (5, "must lie between"),
    ] {
        assert!(reasons[at].1.contains(words), "{at}: {reasons:?}");
    }
}

#[test]
fn a_quota_of_nothing_is_no_missing_quota() {
    let mut engine = cluster(Policy::default());
    tenant(&mut engine, "ads", 1, "gpu=0", None);
    let gpu = r#"{"name":"gpu","command":{"start":["a"]},"demand":{"cpu":1,"gpu":1}}"#;
    send(&mut engine, 1, "ads", "submit", gpu);
    submit(&mut engine, 1, "ads/cpu", (1, 1), "");
    run(&mut engine, 300);
    assert_refused(&engine, "above_quota", &["needs 1 gpu", "is 0"]);
    assert!(when(&engine, "ads/cpu", "completed").is_some());
}

fn lose_node_of(engine: &mut Engine, second: u64, id: &str) {
    let mut cluster = dormouse_state::ClusterState::default();
    engine.log().iter().for_each(|it| cluster.evolve(it));
    let job = cluster.jobs.get(&id.parse().expect("a job"));
    let places = job.and_then(|job| job.assignment.as_ref());
    let place = places.and_then(|it| it.places.values().next());
    let node = place.expect("it has a node").node.clone();
    engine.at(at(second), Action::Lose(node));
}

#[test]
fn a_quota_below_what_a_job_needs_stops_that_job_alone_and_says_so() {
    let mut engine = cluster(Policy::default());
    for (tenant, cpu, name) in [("lab", 5, "left"), ("ads", 6, "big")] {
        send(&mut engine, 1, tenant, "submit", &one(cpu, name));
        let job = format!("{tenant}/{name}").parse().expect("a job");
        engine.model(job, ModelJob::linear(1000.0));
    }
    run(&mut engine, 5);
    // Three CPUs are left: `big` was released, and fits no node.
    lose_node_of(&mut engine, 6, "ads/big");
    send(&mut engine, 7, "ads", "submit", &one(7, "queued"));
    run(&mut engine, 10);
    assert!(when(&engine, "ads/big", "released").is_some());
    assert!(when(&engine, "ads/queued", "released").is_none());
    tenant_at(&mut engine, 20, "ads", 1, "cpu=4", None);
    send(&mut engine, 30, "ads", "submit", &one(3, "small"));
    run(&mut engine, 600);
    assert!(when(&engine, "ads/small", "completed").is_some());
    let waiting = last_waiting(&engine);
    let big = waiting.iter().find(|it| it.job.as_str() == "ads/big");
    let big = big.unwrap_or_else(|| panic!("it is not among {waiting:?}"));
    assert_eq!(big.code, "above_quota");
    for part in ["needs 6 cpu and the quota of ads is 4", "tenant set ads"] {
        assert!(big.reason.contains(part), "{}", big.reason);
    }
    tenant_at(&mut engine, 700, "ads", 1, "cpu=8", None);
    run(&mut engine, 4000);
    for job in ["ads/big", "ads/queued"] {
        assert!(when(&engine, job, "completed").is_some(), "{job}");
    }
}

#[test]
fn jobs_that_are_resized_in_place_and_gangs_stay_within_their_tenants_quota() {
    let mut engine = cluster(Policy::default());
    tenant(&mut engine, "ads", 1, "cpu=8", None);
    let send_one = |engine: &mut Engine, second: u64, name: &str, bounds: &str| {
        let payload = format!(
            r#"{{"name":"{name}","command":{{"start":["a"]}},"demand":{{"cpu":1}},"containers":{bounds},"resize":"in_place","checkpoint":{{"mode":"none"}}}}"#
        );
        send(engine, second, "ads", "submit", &payload);
        let job = format!("ads/{name}").parse().expect("a job");
        engine.model(job, ModelJob::linear(8_000.0));
    };
    send_one(&mut engine, 1, "first", r#"{"min":1,"max":8}"#);
    send_one(&mut engine, 60, "gang", r#"{"min":1,"start":4,"max":4}"#);
    let mut most = 0;
    for second in 0..300 {
        run(&mut engine, second);
        let mut cluster = dormouse_state::ClusterState::default();
        engine.log().iter().for_each(|it| cluster.evolve(it));
        let containers = cluster
            .jobs
            .values()
            .filter_map(|job| job.assignment.as_ref());
        most = most.max(containers.map(|it| it.containers()).sum::<u32>());
    }
    assert_eq!(most, 8);
    let mut queues = dormouse_state::Queues::default();
    engine.log().iter().for_each(|it| queues.evolve(it));
    let held: Vec<u64> = queues.jobs.values().map(|job| job.held()).collect();
    assert_eq!(held.iter().sum::<u64>(), 8, "{held:?}");
    assert!(held.iter().all(|held| *held > 0));
}

#[test]
fn a_job_waits_for_a_quota_that_others_keep_and_says_so() {
    let mut engine = cluster(Policy::default());
    for (tenant, cpu, name) in [("lab", 5, "left"), ("ads", 1, "runs"), ("ads", 4, "waits")] {
        send(&mut engine, 1, tenant, "submit", &one(cpu, name));
        let job = format!("{tenant}/{name}").parse().expect("a job");
        engine.model(job, ModelJob::linear(1000.0));
    }
    run(&mut engine, 5);
    // Two CPUs are left: `waits` was released, and fits no node.
    lose_node_of(&mut engine, 6, "ads/waits");
    run(&mut engine, 10);
    assert!(when(&engine, "ads/waits", "released").is_some());
    tenant_at(&mut engine, 20, "ads", 1, "cpu=4", None);
    run(&mut engine, 30);
    let waiting = last_waiting(&engine);
    assert_eq!(waiting[0].code, "quota");
    assert!(
        waiting[0].reason.contains("cannot give back"),
        "{waiting:?}"
    );
    send(
        &mut engine,
        40,
        "ads",
        "revise",
        r#"{"job":"waits","priority":3}"#,
    );
    tenant_at(&mut engine, 50, "ads", 1, "cpu=3", None);
    send(
        &mut engine,
        60,
        "ads",
        "revise",
        r#"{"job":"waits","held":true,"force":true}"#,
    );
    run(&mut engine, 70);
    assert_eq!(refusals(&engine), []);
}

#[test]
fn what_a_gang_needed_to_start_is_not_what_it_keeps() {
    let mut engine = cluster(Policy {
        shares: Shares::Tenant,
        ..Policy::default()
    });
    tenant(&mut engine, "ads", 3, "", None);
    let in_place = r#","resize":"in_place""#;
    submit(&mut engine, 1, "ads/large", (1, 16), in_place);
    let gang = r#"{"name":"gang","command":{"start":["a"]},"demand":{"cpu":1},"containers":{"min":1,"start":8,"max":16},"checkpoint":{"mode":"exit"},"resize":"in_place"}"#;
    send(&mut engine, 200, "lab", "submit", gang);
    for job in ["ads/large", "lab/gang"] {
        let model = ModelJob::linear(100_000.0);
        engine.model(job.parse().expect("a job"), model);
    }
    run(&mut engine, 500);
    let mut cluster = dormouse_state::ClusterState::default();
    engine.log().iter().for_each(|it| cluster.evolve(it));
    let jobs = cluster.jobs.values();
    let workers: Vec<u32> = jobs.map(|job| job.workers()).collect();
    assert_eq!(workers, [12, 4]);
}

#[test]
fn a_service_without_a_replica_is_measured_by_one() {
    let mut engine = cluster(Policy::default());
    tenant(&mut engine, "ads", 1, "cpu=1", None);
    let service = r#"{"name":"s","kind":"inference","command":{"start":["a"]},"demand":{"cpu":2},"containers":{"min":0,"max":2},"service":{}}"#;
    send(&mut engine, 1, "ads", "submit", service);
    run(&mut engine, 10);
    assert_refused(&engine, "above_quota", &["needs 2 cpu", "is 1"]);
}

#[test]
fn a_task_set_makes_room_for_others_and_completes() {
    let mut engine = cluster(Policy::default());
    let set = r#"{"name":"set","kind":"batch","command":{"start":["a"]},"demand":{"cpu":1},"tasks":{"count":200,"concurrency":64}}"#;
    send(&mut engine, 1, "ads", "submit", set);
    engine.model("ads/set".parse().expect("a job"), ModelJob::linear(4000.0));
    submit(&mut engine, 60, "lab/other", (1, 64), "");
    run(&mut engine, 3600);
    for job in ["ads/set", "lab/other"] {
        assert!(when(&engine, job, "completed").is_some(), "{job}");
    }
    let started = |it: &&std::sync::Arc<dormouse_messages::Recorded>| matches!(it.event(), Some(Event::PartitionStarted(event)) if event.job.as_str() == "ads/set");
    let starts = engine.log().iter().filter(started).count();
    assert!(starts > 1, "it gave way to the other one");
}

#[test]
fn the_optimizer_keeps_a_tenant_within_its_quota() {
    let mut engine = cluster(Policy::default());
    tenant(&mut engine, "ads", 1, "cpu=6", None);
    submit(&mut engine, 1, "ads/a", (1, 16), "");
    submit(&mut engine, 2, "ads/b", (1, 16), "");
    run(&mut engine, 30);
    let mut given = std::collections::BTreeMap::new();
    for recorded in engine.log() {
        if let Some(Event::AllocationDecided(event)) = recorded.event() {
            let jobs = event.jobs.iter();
            given.extend(jobs.map(|job| (job.job.clone(), job.containers)));
            assert!(given.values().sum::<u32>() <= 6, "{given:?}");
        }
    }
    assert_eq!(given.values().sum::<u32>(), 6);
}

/// Four jobs against one: four fifths by job, half by tenant.
#[test]
fn shares_by_tenant_divide_a_tenants_weight_among_its_jobs() {
    let fair = |shares| {
        let mut engine = cluster(Policy {
            shares,
            queue: Queue::Drf,
            ..Policy::default()
        });
        for job in ["many/a", "many/b", "many/c", "many/d", "one/a"] {
            submit(&mut engine, 1, job, (1, 16), "");
        }
        run(&mut engine, 30);
        let decided = engine
            .log()
            .iter()
            .rev()
            .find_map(|recorded| match recorded.event() {
                Some(Event::AllocationDecided(event)) if event.jobs.len() == 5 => {
                    Some(event.clone())
                }
                _ => None,
            });
        let jobs = decided.expect("an allocation of all five").jobs;
        let one = jobs.iter().find(|job| job.job.as_str() == "one/a");
        one.expect("listed").fair_share
    };
    assert!((fair(Shares::Job) - 0.2).abs() < 1e-9);
    assert!((fair(Shares::Tenant) - 0.5).abs() < 1e-9);
}

#[test]
fn a_job_that_is_cancelled_the_moment_it_is_submitted_does_not_run() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/oops", (1, 1), "");
    send(&mut engine, 1, "ads", "cancel", r#"{"job":"oops"}"#);
    run(&mut engine, 300);
    assert_eq!(refusals(&engine), []);
    assert!(when(&engine, "ads/oops", "cancelled").is_some());
}
