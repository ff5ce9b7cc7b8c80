//! Answers about tenants: shares, quotas, waits.

use dormouse_messages::JobId;
use dormouse_messages::events::TenantConfigured;

use super::*;
use crate::queries::TenantDetail;

fn tenant(history: &mut History, name: &str, weight: u32, quota: &str) {
    history.push_by(
        Writer::Operator,
        TenantConfigured {
            tenant: name.parse().expect("a tenant"),
            weight,
            quota: quota.parse().unwrap_or_default(),
            max_job_weight: None,
            priority: None,
        },
    );
}

/// Two queued jobs of `vision` exceed its quota, the third does not.
#[test]
fn who_is_above_the_quota_says_so_and_the_others_are_not_behind() {
    let mut history = busy();
    history.submit("vision/third");
    let last = history.log.last_mut().expect("just pushed");
    if let Body::Event(Event::JobAdmitted(event)) = &mut last.envelope.body {
        event.spec.demand = "cpu=1".parse().expect("amounts");
    }
    tenant(&mut history, "vision", 3, "cpu=1");
    let answer: TenantDetail = ask(&history, "tenant", json!({"tenant": "vision"}));
    let jobs: JobsAnswer = ask(&history, "jobs", json!({"tenant": "vision"}));
    let said = |id: &JobId| {
        let row = jobs.jobs.iter().find(|row| row.job == *id);
        row.expect("listed").reason.clone()
    };
    let [first, second, third] = &answer.queue[..] else {
        panic!("three: {:?}", answer.queue);
    };
    for above in [first, second] {
        let said = said(&above.job);
        assert!(said.contains("the quota of vision is 1"), "{said}");
    }
    let said = said(&third.job);
    assert!(!said.contains("behind"), "{said}");
    assert!(
        answer.row.reason.starts_with("third"),
        "{}",
        answer.row.reason
    );
}

#[test]
fn on_an_empty_cluster_tenants_are_entitled_to_parts_of_it() {
    let mut history = History::default();
    tenant(&mut history, "ads", 1, "");
    tenant(&mut history, "vision", 3, "");
    history.join("n0", 1).run("ads/lr", 1).complete("ads/lr");
    let answer: TenantsAnswer = ask(&history, "tenants", Value::Null);
    let entitled: Vec<f64> = answer.tenants.iter().map(|it| it.entitled).collect();
    assert_eq!(entitled, [0.25, 0.75]);
}

/// A shrinking partition counts whole until the last container ended.
#[test]
fn no_more_runs_than_the_nodes_offer() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/lr")
        .release("ads/lr");
    history.allocate(1, &[("ads/lr", 0, 4)], &[]);
    history.place(1, "ads/lr", 1, &[("n0", 4)]);
    history
        .request_start(1, "ads/lr", 1, 4)
        .started(1, "ads/lr", 1, 4);
    history.submit("vision/mlp").release("vision/mlp");
    history.allocate(2, &[("ads/lr", 4, 2), ("vision/mlp", 0, 2)], &[]);
    history.place_more(2, "ads/lr", 1, &[], &[(2, "n0"), (3, "n0")]);
    history.place(2, "vision/mlp", 1, &[("n0", 2)]);
    history.request_resize(2, "ads/lr", 1, &[], &[2, 3]);
    for rank in [2, 3] {
        history.container_exited("ads/lr", 1, rank, "n0", Some(0));
    }
    history
        .request_start(2, "vision/mlp", 1, 2)
        .started(2, "vision/mlp", 1, 2);
    let cluster: ClusterAnswer = ask(&history, "cluster", Value::Null);
    let cpu = cluster.resources["cpu"];
    assert_eq!((cpu.running, cpu.capacity), (8_000, 8_000));
    let request = json!({"metric": "utilization"});
    let timeline: crate::timelines::Timeline = ask(&history, "timeline", request);
    let greatest = timeline.series.iter().map(|it| it.summary.max);
    let total = timeline.series.iter().find(|it| it.name == "cpu running");
    assert_eq!(
        total.expect("drawn").summary.max,
        1.0,
        "{:?}",
        greatest.collect::<Vec<_>>()
    );
}

#[test]
fn tenants_with_their_shares_and_what_their_queues_wait_for() {
    let mut history = busy();
    tenant(&mut history, "vision", 3, "cpu=1");
    tenant(&mut history, "idle", 1, "");
    let answer: TenantsAnswer = ask(&history, "tenants", Value::Null);
    let names: Vec<&str> = answer
        .tenants
        .iter()
        .map(|row| row.tenant.as_str())
        .collect();
    assert_eq!(names, ["ads", "idle", "vision"]);
    let [ads, idle, vision] = &answer.tenants[..] else {
        panic!("three");
    };
    assert_eq!((ads.released_jobs, ads.configured), (1, false));
    // 2 containers of 8 GiB in 2 nodes of 16 GiB; weights 1 and 3.
    assert!(ads.share > 0.0 && (ads.entitled - 0.25).abs() < 1e-12);
    assert_eq!(idle.reason, "nothing queued");
    assert_eq!((vision.queued_jobs, vision.weight), (2, 3));
    assert!(
        vision.reason.contains("the quota of vision is 1"),
        "{}",
        vision.reason
    );
    let detail: TenantDetail = ask(&history, "tenant", json!({"tenant": "vision"}));
    let places: Vec<_> = detail
        .queue
        .iter()
        .map(|job| (job.position, job.job.as_str()))
        .collect();
    assert_eq!(places, [(1, "vision/a"), (2, "vision/b")]);
    assert_eq!(
        refused(&history, "tenant", json!({"tenant": "x"})).0,
        "not_found"
    );
}

#[test]
fn a_tenants_mean_wait_is_never_above_its_longest() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a");
    for _ in 0..50 {
        history.progress("ads/none", 1, 1, 0.5);
    }
    let row = |history: &History| {
        let tenants: TenantsAnswer = ask(history, "tenants", Value::Null);
        tenants.tenants[0].clone()
    };
    let queued = row(&history);
    assert!(queued.mean_wait_s > 0.0);
    assert!(queued.longest_wait_s >= queued.mean_wait_s, "{queued:?}");
    history.release("ads/a");
    for _ in 0..50 {
        history.progress("ads/none", 1, 1, 0.5);
    }
    let released = row(&history);
    assert!(
        released.mean_start_wait_s > released.mean_wait_s,
        "{released:?}"
    );
    assert!(released.longest_start_wait_s >= released.mean_start_wait_s);
}
