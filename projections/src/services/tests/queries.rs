//! Answers of the queries about services.

use dormouse_messages::TenantId;
use dormouse_state::history::{History, job};
use serde_json::{Value, json};

use super::{admitted, ready, scaled, tell, window};
use crate::ReadModel;
use crate::queries::{self, JobDetail, JobsAnswer};
use crate::timelines::Timeline;

/// Returns a service that answers one request of ten too late.
fn slow() -> History {
    let mut history = History::default();
    history.join("n0", 1).push(admitted("ads/line"));
    history
        .release("ads/line")
        .allocate(1, &[("ads/line", 0, 1)], &[])
        .place(1, "ads/line", 1, &[("n0", 1)])
        .request_start(1, "ads/line", 1, 1)
        .container_started("ads/line", 1, 0, "n0")
        .started(1, "ads/line", 1, 1)
        .push(ready(0, "n0"));
    for second in (102..=130).step_by(2) {
        tell(&mut history, second, window("g0", 9, 1));
    }
    history
}

fn ask(history: &History, name: &str, request: Value) -> Value {
    let model = history.fold::<ReadModel>();
    queries::answer(&model, name, request, history.now()).expect("an answer")
}

#[test]
fn a_job_that_is_a_service_says_how_it_is() {
    let history = slow();
    let answer = ask(&history, "job", json!({"job": "ads/line"}));
    let service = &answer["service"];
    assert_eq!(service["last_minute"]["attainment"], 0.9);
    assert_eq!(service["last_minute"]["latency_ms"], 211.758);
    assert_eq!(
        service["objective"],
        json!({"latency_ms": 128, "percentile": 99.0})
    );
    assert_eq!(service["ready"], 1);
    assert_eq!(service["gateways"], json!(["g0"]));
    let detail: JobDetail = serde_json::from_value(answer).expect("reads back");
    let health = detail.service.expect("a service");
    assert_eq!(health.total.requests, 150);
    let reason = &detail.row.reason;
    assert!(reason.ends_with("; p99 212 ms of 128"), "{reason}");
    let jobs = ask(&history, "jobs", Value::Null);
    let jobs: JobsAnswer = serde_json::from_value(jobs).expect("reads back");
    assert_eq!(jobs.jobs[0].reason, *reason);
}

#[test]
fn what_starts_when_it_is_asked_for_is_idle_and_waits_for_nothing() {
    let mut history = History::default();
    let mut idle = admitted("ads/line");
    idle.spec.containers.min = 0;
    history.join("n0", 1).push(idle);
    history.release("ads/line");
    for number in 1..60 {
        history.join(&format!("m{number}"), 1);
    }
    let row = ask(&history, "job", json!({"job": "ads/line"}));
    assert_eq!(row["reason"], "idle: it starts when it is asked for");
    assert_eq!(
        (&row["phase"], &row["code"]),
        (&json!("waiting"), &json!("idle"))
    );
    let tenant = ask(&history, "tenant", json!({"tenant": "ads"}));
    assert_eq!(tenant["longest_start_wait_s"], 0.0);
    assert_eq!(tenant["mean_start_wait_s"], 0.0);
    // After a request it waits for capacity like other jobs.
    history.push(scaled(1, false));
    let row = ask(&history, "job", json!({"job": "ads/line"}));
    assert_eq!(row.get("code"), None);
    let waits = row["reason"].as_str().expect("a reason");
    assert!(waits.starts_with("released; "), "{waits}");
}

#[test]
fn no_other_job_has_a_service() {
    let mut history = slow();
    history.submit("ads/lr");
    let answer = ask(&history, "job", json!({"job": "ads/lr"}));
    assert!(answer.get("service").is_none(), "{answer}");
}

#[test]
fn a_tenant_sees_its_own_service_alone() {
    let history = slow();
    let model = history.fold::<ReadModel>();
    let ask = |tenant: &str, name: &str, request: Value| {
        let tenant = TenantId::new(tenant).expect("a name");
        queries::answer_tenant(&model, &tenant, name, request, history.now())
    };
    let own = ask("ads", "job", json!({"job": "line"})).expect("its own");
    assert_eq!(own["service"]["total"]["requests"], 150);
    let line = json!({"metric": "latency", "job": "line"});
    let line = ask("ads", "timeline", line).expect("its own");
    assert_eq!(line["series"][0]["name"], "p99");
    for (name, request) in [
        ("job", json!({"job": "ads/line"})),
        ("timeline", json!({"metric": "latency", "job": "ads/line"})),
    ] {
        let refused = ask("vision", name, request).expect_err("another's");
        assert_eq!(refused.code, "not_found");
    }
    let all = ask("vision", "timeline", json!({"metric": "latency"}));
    assert_eq!(all.expect_err("of all").code, "bad_request");
}

#[test]
fn timelines_are_of_one_service_or_of_the_busiest() {
    let history = slow();
    let line = |request: Value| -> Timeline {
        serde_json::from_value(ask(&history, "timeline", request)).expect("reads back")
    };
    let names = |line: &Timeline| {
        let names = line.series.iter().map(|it| it.name.clone());
        names.collect::<Vec<_>>()
    };
    let one = line(json!({"metric": "latency", "job": "ads/line"}));
    assert_eq!(names(&one), ["p99", "objective"]);
    assert_eq!(one.unit, "milliseconds");
    assert_eq!(one.series[1].summary.last, 128.0);
    let all = line(json!({"metric": "request-rate"}));
    assert_eq!(names(&all), ["ads/line"]);
    let replicas = line(json!({"metric": "replicas", "job": "ads/line"}));
    assert_eq!(names(&replicas), ["ready", "target"]);
    let model = history.fold::<ReadModel>();
    let none = json!({"metric": "attainment", "job": "ads/none"});
    let refused = queries::answer(&model, "timeline", none, history.now());
    assert_eq!(refused.expect_err("no such job").code, "not_found");
    assert!(model.jobs.get(&job("ads/line")).is_some());
}
