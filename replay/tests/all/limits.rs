//! Limits, holds and changes of queued jobs through the whole pipeline, with verified decisions.

use dormouse_messages::Event;
use dormouse_messages::policy::Policy;
use dormouse_replay::engine::Engine;

use crate::tenants::{at, cluster, refusals, run, send, submit};

fn when(engine: &Engine, wanted: impl Fn(&Event) -> bool) -> Option<f64> {
    let mut log = engine.log().iter();
    let found = log.find(|it| it.event().is_some_and(&wanted))?;
    Some(found.stored_at.seconds_since(at(0)))
}

fn released(engine: &Engine, name: &str) -> Option<f64> {
    when(
        engine,
        |event| matches!(event, Event::JobReleased(it) if it.job.name() == name),
    )
}

fn completed(engine: &Engine, name: &str) -> Option<f64> {
    when(
        engine,
        |event| matches!(event, Event::JobCompleted(it) if it.job.name() == name),
    )
}

#[track_caller]
fn about(time: Option<f64>, expected: f64, within: f64) {
    let time = time.expect("it happened");
    assert!(
        (time - expected).abs() <= within,
        "{time} is not about {expected}"
    );
}

#[test]
fn a_job_is_warned_and_stopped_when_its_time_is_over() {
    let mut engine = cluster(Policy::default());
    let limits = r#","time_limit_s":40,"warning":{"before_s":10}"#;
    submit(&mut engine, 1, "ads/long", (4, 4), limits);
    submit(
        &mut engine,
        1,
        "ads/short",
        (4, 4),
        r#","time_limit_s":600"#,
    );
    run(&mut engine, 600);
    let warned = when(&engine, |event| {
        matches!(event, Event::PartitionWarned(it)
            if it.job.name() == "long" && it.signal == "SIGUSR1" && it.left_s == 10)
    });
    about(warned, 31.0, 2.0);
    let failed = when(&engine, |event| {
        matches!(event, Event::JobFailed(it)
            if it.job.name() == "long" && it.reason.contains("time_limit_s of 40 s"))
    });
    about(failed, 41.0, 5.0);
    assert!(completed(&engine, "short").is_some());
}

#[test]
fn a_job_that_waits_for_too_long_is_cancelled() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/full", (16, 16), "");
    submit(
        &mut engine,
        2,
        "ads/late",
        (16, 16),
        r#","queue_limit_s":20"#,
    );
    submit(
        &mut engine,
        3,
        "ads/patient",
        (16, 16),
        r#","queue_limit_s":20"#,
    );
    send(
        &mut engine,
        10,
        "ads",
        "revise",
        r#"{"job":"patient","queue_limit_s":0}"#,
    );
    run(&mut engine, 600);
    let cancelled = when(&engine, |event| {
        matches!(event, Event::JobCancelled(it)
            if it.job.name() == "late" && it.code.as_deref() == Some("queue_limit"))
    });
    about(cancelled, 22.0, 1.0);
    assert!(
        completed(&engine, "patient").is_some(),
        "its limit was lifted"
    );
}

#[test]
fn a_job_on_hold_is_passed_by_and_keeps_its_place() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/full", (16, 16), "");
    submit(&mut engine, 2, "ads/first", (16, 16), "");
    submit(&mut engine, 3, "ads/second", (16, 16), "");
    submit(&mut engine, 4, "ads/third", (16, 16), "");
    send(
        &mut engine,
        5,
        "ads",
        "revise",
        r#"{"job":"first","held":true}"#,
    );
    send(
        &mut engine,
        6,
        "ads",
        "revise",
        r#"{"job":"third","priority":5}"#,
    );
    send(
        &mut engine,
        100,
        "ads",
        "revise",
        r#"{"job":"first","held":false}"#,
    );
    run(&mut engine, 900);
    let mut order = ["first", "second", "third"];
    order.sort_by(|a, b| {
        let (a, b) = (released(&engine, a), released(&engine, b));
        a.partial_cmp(&b).expect("released")
    });
    assert_eq!(order, ["third", "first", "second"]);
    assert!(released(&engine, "first").is_some_and(|at| at >= 100.0));
}

#[test]
fn a_running_job_on_hold_saves_and_gives_its_room_back_and_goes_on_later() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/held", (8, 16), r#","min_run_s":0"#);
    submit(&mut engine, 20, "ads/other", (16, 16), "");
    send(
        &mut engine,
        30,
        "ads",
        "revise",
        r#"{"job":"held","held":true}"#,
    );
    send(
        &mut engine,
        200,
        "ads",
        "revise",
        r#"{"job":"held","held":false}"#,
    );
    run(&mut engine, 900);
    let saved = when(
        &engine,
        |event| matches!(event, Event::CheckpointSaved(it) if it.job.name() == "held"),
    );
    about(saved, 31.0, 10.0);
    let done = completed(&engine, "other").expect("it had the room");
    assert!(done < 200.0, "{done}");
    let again = when(&engine, |event| {
        matches!(event, Event::PartitionStarted(it)
            if it.job.name() == "held" && it.resumed_from.is_some())
    });
    assert!(again.is_some_and(|at| at >= 200.0), "{again:?}");
    assert!(completed(&engine, "held").is_some());
}

#[test]
fn what_cannot_be_is_refused() {
    let mut engine = cluster(Policy::default());
    submit(
        &mut engine,
        1,
        "ads/a",
        (1, 1),
        r#","warning":{"before_s":10}"#,
    );
    submit(
        &mut engine,
        1,
        "ads/b",
        (1, 1),
        r#","time_limit_s":10,"warning":{"before_s":10}"#,
    );
    submit(
        &mut engine,
        1,
        "ads/c",
        (1, 1),
        r#","time_limit_s":400000000"#,
    );
    let plain = r#"{"name":"d","command":{"start":["a"]},"demand":{"cpu":1}}"#;
    send(&mut engine, 1, "ads", "submit", plain);
    send(
        &mut engine,
        30,
        "ads",
        "revise",
        r#"{"job":"d","held":true}"#,
    );
    send(
        &mut engine,
        31,
        "ads",
        "revise",
        r#"{"job":"d","priority":2000000000}"#,
    );
    engine.model(
        "ads/d".parse().expect("a job"),
        dormouse_replay::engine::ModelJob::linear(500.0),
    );
    run(&mut engine, 100);
    let codes: Vec<String> = refusals(&engine)
        .into_iter()
        .map(|(code, _)| code)
        .collect();
    assert_eq!(
        codes,
        [
            "bad_limit",
            "bad_limit",
            "bad_limit",
            "no_checkpoint",
            "bad_priority"
        ]
    );
}
