//! Two thousand short tasks of three tenants on a real local cluster: waits match the simulator's.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::common::{Cluster, PATIENCE, count_job, poll};
use dormouse_messages::TenantId;
use dormouse_runtime::{Log, Settings};
use serde_json::{Value, json};

const NODE: &str = "cpu=16,memory=16Gi";
/// Sixteen at a time are 80 a second, and 222 a second arrive.
const TASK_S: f64 = 0.2;
const TENANTS: [(&str, u32, f64); 3] =
    [("ads", 900, 0.01), ("lab", 650, 0.0138), ("web", 450, 0.02)];

fn spec() -> Value {
    json!({
        "kind": "batch", "command": {"start": ["sleep", TASK_S.to_string()]},
        "demand": {"cpu": 1, "memory": "64Mi"},
    })
}

fn waits(of: impl Fn(&str) -> Option<f64>) -> BTreeMap<&'static str, f64> {
    let waits = TENANTS.iter().map(|(name, ..)| (*name, of(name)));
    waits
        .map(|(name, wait)| (name, wait.unwrap_or_else(|| panic!("no wait of {name}"))))
        .collect()
}

fn simulated(cluster: &Cluster, queue: &str) -> BTreeMap<&'static str, f64> {
    let jobs = TENANTS.iter().map(|(tenant, count, interval_s)| {
        let mut spec = spec();
        spec["tenant"] = json!(tenant);
        spec["name"] = json!("t");
        let tasks = json!({"count": count, "interval_s": interval_s, "duration_s": TASK_S});
        json!({"at_s": 0, "spec": spec, "model": {"tasks": tasks}})
    });
    let scenario = json!({
        "scenario": "tenants", "horizon_s": 60,
        "policy": {"allocation": "drf", "queue": queue},
        "nodes": [{"name": "n0", "capacity": {"cpu": 16, "memory": "16Gi"}}],
        "jobs": jobs.collect::<Vec<_>>(),
    });
    let path = cluster.dir().join("scenario.json");
    std::fs::write(&path, scenario.to_string()).expect("writes");
    let said = cluster.run(&["lab", "simulate", path.to_str().expect("UTF-8")]);
    let run = said.ok().json()["runs"][0]["tenants"].clone();
    waits(|tenant| run[tenant]["waiting_s"]["mean"].as_f64())
}

fn measured(cluster: &Cluster, queue: &str) -> BTreeMap<&'static str, f64> {
    let policy = cluster.dir().join("policy.json");
    let document = json!({"policy": {"allocation": "drf", "queue": queue}});
    std::fs::write(&policy, document.to_string()).expect("writes");
    cluster
        .run(&["policy", "set", policy.to_str().expect("UTF-8")])
        .ok();
    publish(cluster);
    let all: u32 = TENANTS.iter().map(|(_, count, _)| count).sum();
    let jobs = poll("the last task", 4 * PATIENCE, || {
        let said = cluster.run(&["jobs", "--phase", "completed"]);
        let jobs = said.json()["jobs"].as_array()?.clone();
        (jobs.len() >= all as usize).then_some(jobs)
    });
    waits(|tenant| {
        let of_tenant = |job: &&Value| job["job"].as_str().is_some_and(|id| id.starts_with(tenant));
        let jobs = jobs.iter().filter(of_tenant);
        let waits: Vec<_> = jobs.filter_map(|job| job["waiting_s"].as_f64()).collect();
        let count = u32::try_from(waits.len()).expect("few");
        (count > 0).then(|| waits.iter().sum::<f64>() / f64::from(count))
    })
}

fn publish(cluster: &Cluster) {
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let settings = Settings::new(cluster.url(), "tenants");
    let log = runtime.block_on(Log::connect(&settings)).expect("connects");
    let mut arrivals = Vec::new();
    for (tenant, count, interval_s) in TENANTS {
        let times = (0..count).map(|task| (f64::from(task) * interval_s, tenant, task));
        arrivals.extend(times);
    }
    arrivals.sort_by(|a, b| a.0.total_cmp(&b.0));
    let started = Instant::now();
    for (at_s, tenant, task) in arrivals {
        let at = Duration::from_secs_f64(at_s);
        std::thread::sleep(at.saturating_sub(started.elapsed()));
        let mut spec = spec();
        spec["name"] = json!(format!("t-{task}"));
        let tenant = TenantId::new(tenant).expect("valid");
        let payload = spec.to_string().into_bytes().into();
        let stored = log.publish_ingress(&tenant, "submit", "application/json", payload);
        runtime.block_on(stored).expect("stored");
    }
}

#[test]
fn the_waits_of_three_tenants_come_in_the_order_that_the_simulator_predicts() {
    let cluster = Cluster::up(1, NODE);
    let (predicted, seen) = (simulated(&cluster, "drf"), measured(&cluster, "drf"));
    println!("mean waits in seconds: simulated {predicted:.2?}, measured {seen:.2?}");
    for (one, other) in [("web", "lab"), ("lab", "ads"), ("web", "ads")] {
        assert!(
            predicted[one] < 0.9 * predicted[other],
            "too close to tell: {predicted:?}"
        );
        assert!(seen[one] < seen[other], "{one}, {other}: {seen:?}");
    }
    cluster.check();
}

#[test]
fn a_tenant_is_forgotten_when_it_has_no_jobs() {
    let cluster = Cluster::up(1, "cpu=4,memory=4Gi");
    cluster.run(&["tenant", "set", "ads", "--weight", "3"]).ok();
    let grant = ["tenant", "grant", "ads", "--max-queued", "5"];
    cluster.run(&grant).ok();
    let remove = ["tenant", "remove", "ads", "--reason", "the team has left"];
    cluster.submit(&count_job("a", 600, (1, 1), &[])).ok();
    let early = cluster.run(&remove);
    assert_eq!(early.error()["code"], "has_jobs", "{early:?}");
    cluster.run(&["job", "cancel", "ads/a"]).ok();
    poll("it is forgotten", PATIENCE, || {
        (cluster.run(&remove).code == 0).then_some(())
    });
    poll("it is not in the list", PATIENCE, || {
        let tenants = cluster.run(&["tenants"]).ok().json();
        let rows = tenants["tenants"].as_array().expect("a list");
        rows.iter().all(|it| it["tenant"] != "ads").then_some(())
    });
    let twice = cluster.run(&remove);
    assert_eq!(twice.error()["code"], "not_found", "{twice:?}");
    cluster.submit(&count_job("b", 2, (1, 1), &[])).ok();
    let ads = cluster.run(&["tenant", "show", "ads"]).ok().json();
    assert_eq!(
        (&ads["weight"], &ads["configured"]),
        (&json!(1), &json!(false)),
        "{ads}"
    );
    cluster.wait_completed("ads/b");
    cluster.check();
}
