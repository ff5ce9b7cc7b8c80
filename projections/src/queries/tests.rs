//! Answers of the queries after given histories.

mod entitlements;

use dormouse_messages::events::{
    ClusterConfigured, JobRefused, JobReleased, JobRequeued, JobRevised, NodeDrained, NodeFenced,
    RawEncoding, StopReason, SubmissionReceived,
};
use dormouse_messages::policy::Policy;
use dormouse_messages::{Body, Event, TenantId, Timestamp, Writer};
use serde_json::{Value, json};

use super::{
    ClusterAnswer, JobDetail, JobsAnswer, LedgerAnswer, NodeDetail, NodesAnswer, QueryError,
    TenantsAnswer, answer, answer_tenant,
};
use crate::ReadModel;
use crate::timelines::Timeline;
use dormouse_state::history::{History, job, node};

fn busy() -> History {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1).run("ads/lr", 3);
    history.progress("ads/lr", 1, 120, 0.75);
    history
        .allocate(2, &[("ads/lr", 3, 2)], &[])
        .place(2, "ads/lr", 2, &[("n0", 2)]);
    history
        .request_checkpoint(2, "ads/lr", 1)
        .saved("ads/lr", 1, 130);
    history
        .stopped(2, "ads/lr", 1, StopReason::Adjusted)
        .request_start(2, "ads/lr", 2, 2);
    history
        .started(2, "ads/lr", 2, 2)
        .progress("ads/lr", 2, 140, 0.8);
    history.submit("vision/a").submit("vision/b");
    history.push(JobRefused {
        job: Some(job("vision/c")),
        tenant: None,
        ingress_sequence: 1,
        code: "unknown_field".to_owned(),
        reason: "unknown field `gpus`; did you mean `demand.gpu`?".to_owned(),
        by: None,
        basis: None,
    });
    history
}

fn ask<T: serde::de::DeserializeOwned>(history: &History, name: &str, request: Value) -> T {
    let answer =
        answer(&history.fold::<ReadModel>(), name, request, history.now()).expect("an answer");
    serde_json::from_value(answer).expect("reads back")
}

#[track_caller]
fn refused(history: &History, name: &str, request: Value) -> (String, String) {
    let error =
        answer(&history.fold::<ReadModel>(), name, request, history.now()).expect_err("an error");
    (error.code, error.message)
}

#[test]
fn jobs_are_filtered_and_in_order() {
    let history = busy();
    let all: JobsAnswer = ask(&history, "jobs", Value::Null);
    let names: Vec<&str> = all.jobs.iter().map(|row| row.job.as_str()).collect();
    assert_eq!(names, ["ads/lr", "vision/a", "vision/b"]);
    assert_eq!(all.jobs[2].reason, "queued behind 1 job of vision");
    assert_eq!(
        (all.jobs[1].position, all.jobs[2].position),
        (Some(1), Some(2))
    );
    let queued: JobsAnswer = ask(&history, "jobs", json!({"phase": "queued", "limit": 1}));
    assert_eq!((queued.jobs.len(), queued.more), (1, 1));
    let ads: JobsAnswer = ask(&history, "jobs", json!({"tenant": "ads", "phase": "live"}));
    assert_eq!(ads.jobs.len(), 1);
    let refused: JobsAnswer = ask(&history, "jobs", json!({"phase": "refused"}));
    assert_eq!((refused.jobs.len(), refused.refused.len()), (0, 1));
}

#[test]
fn a_requeued_job_is_not_on_hold() {
    let on_hold = |event: Event| {
        let mut history = busy();
        history.push(event);
        let detail: JobDetail = ask(&history, "job", json!({"job": "ads/lr"}));
        detail.row.on_hold
    };
    let requeued = JobRequeued {
        job: job("ads/lr"),
        ingress_sequence: 2,
        by: None,
        basis: None,
    };
    assert!(!on_hold(requeued.into()));
    let held = JobRevised {
        held: Some(true),
        ..JobRevised::nothing(job("ads/lr"), 2)
    };
    assert!(on_hold(held.into()));
}

#[test]
fn a_job_tells_its_incarnations() {
    let detail: JobDetail = ask(&busy(), "job", json!({"job": "ads/lr"}));
    assert_eq!(detail.incarnations.len(), 2);
    assert_eq!(detail.incarnations[1].resumed_step, Some(130));
    assert_eq!(detail.row.resizes, 1);
    assert_eq!(detail.row.step, Some(140));
    assert_eq!(detail.row.metrics.get("accuracy"), Some(&0.8));
    assert_eq!(detail.row.nodes.len(), 1);
    let drawn: Vec<f64> = detail.containers_timeline.series[0]
        .points
        .iter()
        .map(|p| p.1)
        .collect();
    assert_eq!(drawn, [3.0, 0.0, 2.0]);
}

#[test]
fn a_job_on_several_nodes_says_what_that_costs() {
    let spread = |crossing: f64| {
        let mut history = busy();
        let mut policy = Policy::default();
        policy.objective.crossing = crossing;
        history.push(ClusterConfigured { policy });
        history.allocate(3, &[("ads/lr", 2, 3)], &[]).place(
            3,
            "ads/lr",
            3,
            &[("n0", 1), ("n1", 2)],
        );
        history
            .stopped(3, "ads/lr", 2, StopReason::Adjusted)
            .request_start(3, "ads/lr", 3, 3);
        let detail: JobDetail = ask(&history, "job", json!({"job": "ads/lr"}));
        assert_eq!(detail.row.nodes.len(), 2);
        detail.spread
    };
    assert_eq!(spread(0.0), None);
    let priced = spread(0.5).expect("it costs something");
    assert_eq!((priced.crossing, priced.works_as), (0.5, 1.5));
}

#[test]
fn nodes_and_what_stands_on_them() {
    let history = busy();
    let nodes: NodesAnswer = ask(&history, "nodes", Value::Null);
    assert_eq!(nodes.nodes.len(), 2);
    let node: NodeDetail = ask(&history, "node", json!({"node": "n0"}));
    assert_eq!((node.row.containers, node.placed.len()), (2, 2));
}

#[test]
fn a_node_says_how_it_is_known_to_be_gone() {
    let mut history = busy();
    history.push(NodeFenced {
        node: node("n0"),
        incarnation: 1,
        reason: "its power is off".to_owned(),
    });
    let detail: NodeDetail = ask(&history, "node", json!({"node": "n0"}));
    let reason = &detail.row.reason;
    assert!(
        reason.starts_with("its containers have ended, ") && reason.contains("its power is off"),
        "{reason}"
    );
}

#[test]
fn a_tenant_is_told_of_a_node_by_its_state() {
    let mut history = busy();
    history.push(NodeFenced {
        node: node("n0"),
        incarnation: 1,
        reason: "cannot pull python:3 for /var/lib/dormouse/containers/search/merger/2/0"
            .to_owned(),
    });
    history.push(NodeDrained {
        node: node("n1"),
        reason: Some("merger eats its disk".to_owned()),
        deadline_s: None,
    });
    let tenant = "ads".parse().expect("valid");
    let answer = answer_tenant(
        &history.fold::<ReadModel>(),
        &tenant,
        "nodes",
        Value::Null,
        history.now(),
    );
    let told = answer.expect("an answer").to_string();
    assert!(told.contains("lost; its jobs restart elsewhere"), "{told}");
    assert!(told.contains("drained by the operator"), "{told}");
    for word in ["merger", "python", "/var"] {
        assert!(!told.contains(word), "{word}: {told}");
    }
}

#[test]
fn of_a_drained_node_it_is_said_what_stays() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 1);
    history.push(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    let detail: NodeDetail = ask(&history, "node", json!({"node": "n0"}));
    let reason = &detail.row.reason;
    assert!(
        reason.ends_with("; 1 container stays until it ends, without a checkpoint"),
        "{reason}"
    );
}

#[test]
fn timelines_and_the_cluster() {
    let history = busy();
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "fairness_loss"}));
    assert_eq!(
        (drawn.metric.as_str(), drawn.series.len()),
        ("fairness-loss", 3)
    );
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "containers"}));
    assert_eq!(drawn.series[0].name, "all jobs");
    assert_eq!(drawn.series[1].name, "ads/lr");
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "adjustments"}));
    assert_eq!(drawn.series[1].summary.last, 1.0);
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "jobs"}));
    assert_eq!(drawn.series[3].summary.last, 2.0, "queued");
    let cluster: ClusterAnswer = ask(&history, "cluster", Value::Null);
    assert_eq!(
        (cluster.nodes.up, cluster.containers, cluster.log.flagged),
        (2, 2, 0)
    );
    assert_eq!(cluster.jobs["running"], 1);
    assert_eq!(cluster.resources["cpu"].capacity, 16_000);
}

#[test]
fn the_ledger_sums_by_tenant() {
    let mut history = busy();
    history.complete("ads/lr");
    let ledger: LedgerAnswer = ask(&history, "ledger", Value::Null);
    assert_eq!(ledger.jobs[0].accuracy, Some(0.8));
    let ads = &ledger.tenants["ads"];
    assert_eq!((ads.completed, ads.resizes), (1, 1));
    assert_eq!(ads.mean_jct_s, ledger.jobs[0].jct_s);
}

#[test]
fn errors_say_what_to_do() {
    let history = busy();
    let (code, message) = refused(&history, "quotas", Value::Null);
    assert_eq!(code, "unknown_query");
    assert!(message.contains("timeline"), "{message}");
    let (code, message) = refused(&history, "jobs", json!({"state": "running"}));
    assert_eq!(code, "bad_request");
    assert!(message.contains("`state`"), "{message}");
    let (_, message) = refused(&history, "jobs", json!({"phase": "runing"}));
    assert!(message.contains("running"), "{message}");
    let (code, message) = refused(&history, "job", json!({"job": "vision/c"}));
    assert_eq!(code, "not_found");
    assert!(message.contains("did you mean"), "{message}");
    let (_, message) = refused(&history, "job", json!({"job": "ads/lrr"}));
    assert!(message.contains("; did you mean ads/lr?"), "{message}");
    let own = answer_tenant(
        &history.fold::<ReadModel>(),
        &"vision".parse().expect("a tenant"),
        "job",
        json!({"job": "lr"}),
        history.now(),
    );
    let message = own.expect_err("not its own").message;
    assert!(!message.contains("mean"), "{message}");
    assert_eq!(
        refused(&history, "node", json!({"node": "n9"})).0,
        "not_found"
    );
    assert_eq!(
        refused(&history, "timeline", json!({"metric": "cost"})).0,
        "bad_request"
    );
}

#[test]
fn what_must_not_count_is_flagged_once() {
    let mut history = busy();
    let released = JobReleased {
        job: job("vision/a"),
        turn: None,
        passed_over: Vec::new(),
        basis: None,
    };
    history
        .push_by(Writer::Optimizer, released.clone())
        .push(released);
    let last = history.log.last_mut().expect("there");
    last.envelope.body = Body::Unknown {
        type_name: "dormouse.job.promoted.v1".to_owned(),
    };
    let cluster: ClusterAnswer = ask(&history, "cluster", Value::Null);
    assert_eq!(cluster.log.flagged, 2);
    let last = cluster.log.last_flagged.expect("flagged");
    assert!(last.reason.contains("dormouse.job.promoted.v1"));
    assert_eq!(
        cluster.jobs["queued"], 2,
        "the wrong writer released nothing"
    );
}

#[test]
fn timelines_by_tenant_and_by_job() {
    let history = busy();
    for metric in [
        "dominant-share",
        "demand-share",
        "waiting",
        "fairness-loss-by-tenant",
    ] {
        let drawn: Timeline = ask(&history, "timeline", json!({"metric": metric}));
        let names: Vec<&str> = drawn
            .series
            .iter()
            .map(|series| series.name.as_str())
            .collect();
        assert_eq!(names, ["ads", "vision"], "{metric}");
    }
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "demand-share"}));
    assert!(drawn.series[1].summary.last > drawn.series[0].summary.last);
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "unfairness"}));
    assert!(drawn.title.contains("area"), "{}", drawn.title);
    let tenants: TenantsAnswer = ask(&history, "tenants", Value::Null);
    assert!(tenants.unfairness_area > 0.0);
    // vision has only queued jobs and lacks its half.
    assert_eq!(drawn.series[0].summary.last, 0.5);
    let by_job = json!({"metric": "fairness-loss-by-job", "job": "ads/lr"});
    let drawn: Timeline = ask(&history, "timeline", by_job);
    assert_eq!(drawn.series.len(), 1);
}

#[test]
fn a_refused_cancellation_is_not_a_refused_job() {
    let mut history = busy();
    history.push(SubmissionReceived {
        ingress_sequence: 77,
        tenant: "ads".to_owned(),
        verb: "cancel".to_owned(),
        content_type: "application/json".to_owned(),
        bytes: 2,
        sha256: String::new(),
        raw: "{}".to_owned(),
        raw_encoding: RawEncoding::Utf8,
        published_at: Timestamp::default(),
        by: None,
    });
    history.push(JobRefused {
        job: Some(job("ads/nobody")),
        tenant: None,
        ingress_sequence: 77,
        code: "no_such_job".to_owned(),
        reason: "ads/nobody does not exist".to_owned(),
        by: None,
        basis: None,
    });
    let (code, message) = refused(&history, "job", json!({"job": "ads/nobody"}));
    assert_eq!(code, "not_found");
    assert!(message.starts_with("there is no job"), "{message}");
    let answer: JobsAnswer = ask(&history, "jobs", json!({"phase": "refused"}));
    assert_eq!(answer.refused.len(), 1);
}

#[test]
fn what_is_allocated_and_what_runs_are_told_apart() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/lr").release("ads/lr");
    history
        .allocate(1, &[("ads/lr", 0, 2)], &[])
        .place(1, "ads/lr", 1, &[("n0", 2)]);
    let cpu = |history: &History| {
        let cluster: ClusterAnswer = ask(history, "cluster", Value::Null);
        let cpu = cluster.resources["cpu"];
        (cpu.allocated, cpu.used, cpu.running)
    };
    assert_eq!(cpu(&history), (4_000, 0, 0), "allocated, nothing starts");
    history.request_start(1, "ads/lr", 1, 2);
    assert_eq!(cpu(&history), (4_000, 4_000, 0), "asked to start");
    history
        .container_started("ads/lr", 1, 0, "n0")
        .container_started("ads/lr", 1, 1, "n0")
        .started(1, "ads/lr", 1, 2);
    assert_eq!(cpu(&history), (4_000, 4_000, 4_000), "runs");
    let drawn: Timeline = ask(&history, "timeline", json!({"metric": "utilization"}));
    let named = |name: &str| drawn.series.iter().find(|series| series.name == name);
    let running = named("cpu running").expect("a series of what runs");
    let values: Vec<f64> = running.points.iter().map(|point| point.1).collect();
    assert_eq!(values.first(), Some(&0.0));
    assert!(running.summary.last > 0.0);
    assert_eq!(drawn.series[0].name, "total");
    assert!(named("total running").is_some());
    history.complete("ads/lr");
    assert_eq!(cpu(&history), (0, 0, 0));
    let figures = history.fold::<ReadModel>();
    let mut figures = figures.timelines.utilization();
    assert!(figures.all(|(_, _, running)| running == 0.0));
}

/// Without a decision about the job.
#[test]
fn a_job_s_share_is_of_the_nodes_that_are_there_now() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 4);
    let shares = |history: &History| {
        let answer: JobsAnswer = ask(history, "jobs", Value::Null);
        (answer.jobs[0].share, answer.jobs[0].share_now)
    };
    // Four containers of cpu=2,memory=8Gi.
    assert_eq!(shares(&history), (0.5, Some(1.0)));
    history.join("n1", 1);
    assert_eq!(shares(&history), (0.5, Some(0.5)));
    history.push(dormouse_messages::events::NodeDrained {
        node: dormouse_state::history::node("n0"),
        reason: None,
        deadline_s: None,
    });
    assert_eq!(shares(&history), (0.5, Some(0.5)), "it still stands there");
    history.complete("ads/lr");
    assert_eq!(shares(&history).1, None);
}

#[test]
fn a_node_that_was_lost_long_ago_is_listed_only_on_request() {
    use dormouse_messages::events::NodeLost;

    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.push(NodeLost {
        node: dormouse_state::history::node("n1"),
        incarnation: 1,
        last_seen: history.now(),
    });
    let model = history.fold::<ReadModel>();
    let ask = |request: Value, after_s: u64| -> NodesAnswer {
        let now = history.now().plus_ms(after_s * 1_000);
        let answer = answer(&model, "nodes", request, now).expect("an answer");
        serde_json::from_value(answer).expect("reads back")
    };
    assert_eq!(
        (
            ask(Value::Null, 60).nodes.len(),
            ask(Value::Null, 60).left_out
        ),
        (2, 0)
    );
    let later = ask(Value::Null, 4_000);
    assert_eq!((later.nodes.len(), later.left_out), (1, 1));
    assert_eq!(ask(json!({"all": true}), 4_000).nodes.len(), 2);
}

#[test]
fn a_tenant_asks_about_itself_only() {
    let history = busy();
    let model = history.fold::<ReadModel>();
    let ask = |tenant: &str, name: &str, request: Value| {
        let tenant = TenantId::new(tenant).expect("a name");
        answer_tenant(&model, &tenant, name, request, history.now())
    };
    let code = |asked: Result<Value, QueryError>| asked.expect_err("refused").code;
    let jobs = ask("vision", "jobs", Value::Null).expect("its jobs");
    let named = jobs["jobs"].as_array().expect("a list").iter();
    let named: Vec<&Value> = named.map(|job| &job["job"]).collect();
    assert_eq!(named, ["vision/a", "vision/b"]);
    for name in ["lr", "ads/lr"] {
        let job = ask("ads", "job", json!({"job": name})).expect("its job");
        assert_eq!(job["job"], "ads/lr");
        assert_eq!(job["sha256"].as_str().map(str::len), Some(0));
    }
    // Nor can another tenant be named.
    for job in ["ads/lr", "ads/none"] {
        assert_eq!(code(ask("vision", "job", json!({"job": job}))), "not_found");
        let timeline = json!({"metric": "containers", "job": job});
        assert_eq!(code(ask("vision", "timeline", timeline)), "not_found");
    }
    for name in ["jobs", "ledger", "tenant"] {
        assert_eq!(
            code(ask("vision", name, json!({"tenant": "ads"}))),
            "bad_request"
        );
    }
    assert_eq!(
        code(ask("vision", "timeline", json!({"metric": "containers"}))),
        "bad_request"
    );
    let ledger = ask("ads", "ledger", json!({"tenant": "ads"})).expect("its own name is no harm");
    let tenants: Vec<&String> = ledger["tenants"]
        .as_object()
        .expect("a map")
        .keys()
        .collect();
    assert_eq!(tenants, ["ads"]);
    let nodes = ask("ads", "nodes", Value::Null).expect("the nodes");
    let nodes = nodes["nodes"].as_array().expect("a list");
    assert!(!nodes.is_empty() && nodes.iter().all(|it| it["address"] == ""));
    for name in ["cluster", "node", "tenants", "nothing"] {
        assert_eq!(code(ask("ads", name, Value::Null)), "unknown_query");
    }
}
