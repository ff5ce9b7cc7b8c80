//! Jobs, nodes and faults through the whole pipeline.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_messages::events::{
    ContainerExited, PartitionStartRequested, PlacedContainer, PlacementDecided, Progress,
    StopReason,
};
use dormouse_messages::ids::Rank;
use dormouse_messages::{
    Envelope, Epoch, Event, Incarnation, JobId, NodeId, Recorded, Sequence, Timestamp,
};

use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::{Report, Verifier};

fn cluster(nodes: usize) -> Engine {
    let mut engine = Engine::new(Timestamp::from_micros(1_800_000_000_000_000), true);
    for index in 0..nodes {
        let node = node(index);
        let capacity = "cpu=8,memory=16Gi".parse().expect("valid");
        engine.at(at(0.0), Action::Join { node, capacity });
    }
    engine
}

fn node(index: usize) -> NodeId {
    format!("n{index}").parse().expect("valid")
}

fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "a test's few minutes")]
    let micros = (seconds * 1e6) as i64;
    Timestamp::from_micros(1_800_000_000_000_000 + micros)
}

fn id(text: &str) -> JobId {
    text.parse().expect("valid")
}

fn job(
    engine: &mut Engine,
    submit_s: f64,
    name: &str,
    bounds: (u32, u32),
    work_s: f64,
    extra: &str,
) {
    let (min, max) = bounds;
    let mode = if extra.contains("mode") {
        ""
    } else {
        r#","checkpoint":{"mode":"exit"}"#
    };
    let payload = format!(
        r#"{{"name":"{name}","command":{{"start":["train"],"resume":["train"]}},"demand":{{"cpu":1,"memory":"1Gi"}},"containers":{{"min":{min},"max":{max}}}{mode}{extra}}}"#
    );
    submit(engine, submit_s, "submit", &payload);
    engine.model(id(&format!("t/{name}")), ModelJob::linear(work_s));
}

fn submit(engine: &mut Engine, at_s: f64, verb: &str, payload: &str) {
    let action = Action::Submit {
        tenant: "t".to_owned(),
        verb: verb.to_owned(),
        payload: payload.as_bytes().to_vec(),
    };
    engine.at(at(at_s), action);
}

fn run(engine: &mut Engine, seconds: f64) {
    if let Err(error) = engine.run_until(at(seconds)) {
        print_log(engine.log());
        panic!("{error}");
    }
}

fn print_log(log: &[Arc<Recorded>]) {
    for recorded in log {
        let line = recorded.to_json("test").expect("encodes");
        println!("{}", line.chars().take(400).collect::<String>());
    }
}

fn verify(engine: &Engine) -> Report {
    let mut verifier = Verifier::default();
    for recorded in engine.log() {
        verifier.read(recorded);
    }
    let report = verifier.finish();
    if !report.findings.is_empty() {
        print_log(engine.log());
        panic!("{:#?}", report.findings);
    }
    report
}

fn count(engine: &Engine, wanted: impl Fn(&Event) -> bool) -> usize {
    let events = engine.log().iter().filter_map(|recorded| recorded.event());
    events.filter(|event| wanted(event)).count()
}

fn completed(engine: &Engine, name: &str) -> bool {
    let name = id(&format!("t/{name}"));
    count(
        engine,
        |event| matches!(event, Event::JobCompleted(done) if done.job == name),
    ) == 1
}

#[test]
fn a_job_runs_from_submission_to_completion() {
    let mut engine = cluster(2);
    job(&mut engine, 1.0, "a", (1, 4), 40.0, "");
    run(&mut engine, 100.0);
    assert!(completed(&engine, "a"), "{:?}", print_log(engine.log()));
    assert!(verify(&engine).decisions > 5);
}

#[test]
fn running_jobs_shrink_for_arrivals_and_grow_when_jobs_end() {
    let mut engine = cluster(2);
    job(&mut engine, 0.0, "a", (1, 16), 2000.0, "");
    job(&mut engine, 20.0, "b", (2, 16), 300.0, "");
    job(&mut engine, 40.0, "c", (2, 16), 300.0, "");
    run(&mut engine, 4000.0);
    for name in ["a", "b", "c"] {
        if !completed(&engine, name) {
            print_log(engine.log());
            panic!("{name} did not complete");
        }
    }
    let resizes = count(
        &engine,
        |event| matches!(event, Event::PartitionStopped(stopped) if stopped.reason == StopReason::Adjusted),
    );
    assert!(resizes >= 2, "{resizes} resizes");
    verify(&engine);
}

#[test]
fn jobs_of_a_lost_node_go_on_elsewhere() {
    let mut engine = cluster(3);
    job(&mut engine, 0.0, "a", (2, 12), 600.0, "");
    job(&mut engine, 1.0, "b", (2, 12), 600.0, "");
    engine.at(at(30.0), Action::Lose(node(0)));
    let capacity = "cpu=8,memory=16Gi".parse().expect("valid");
    engine.at(
        at(60.0),
        Action::Join {
            node: node(0),
            capacity,
        },
    );
    run(&mut engine, 4000.0);
    assert!(completed(&engine, "a") && completed(&engine, "b"));
    assert_eq!(
        count(&engine, |event| matches!(event, Event::NodeRecovered(_))),
        1
    );
    verify(&engine);
}

#[test]
fn a_drained_node_is_emptied_and_used_again() {
    let mut engine = cluster(2);
    job(&mut engine, 0.0, "a", (1, 8), 800.0, "");
    job(&mut engine, 0.0, "b", (1, 8), 800.0, "");
    engine.at(at(30.0), Action::Drain(node(0)));
    engine.at(at(90.0), Action::Restore(node(0)));
    run(&mut engine, 4000.0);
    assert!(completed(&engine, "a") && completed(&engine, "b"));
    verify(&engine);
}

#[test]
fn a_drained_node_is_emptied_though_there_is_no_other() {
    let mut engine = cluster(1);
    job(&mut engine, 0.0, "a", (2, 8), 400.0, "");
    engine.at(at(30.0), Action::Drain(node(0)));
    run(&mut engine, 60.0);
    let stopped = |event: &Event| matches!(event, Event::PartitionStopped(_));
    let saved = |event: &Event| matches!(event, Event::CheckpointSaved(_));
    assert_eq!((count(&engine, stopped), count(&engine, saved)), (1, 1));
    engine.at(at(60.0), Action::Restore(node(0)));
    run(&mut engine, 200.0);
    assert!(completed(&engine, "a"));
    verify(&engine);
}

/// Its share is unchanged, so only the drain asks it to move.
#[test]
fn a_partition_in_place_leaves_a_drained_node() {
    for coordinator_leaves in [false, true] {
        let mut engine = cluster(2);
        job(
            &mut engine,
            0.0,
            "a",
            (1, 16),
            16_000.0,
            r#","resize":"in_place""#,
        );
        run(&mut engine, 30.0);
        let coordinator = engine.log().iter().find_map(|it| match it.event()? {
            Event::ContainerStarted(it) if it.container.rank == Rank(0) => Some(it.node.clone()),
            _ => None,
        });
        let coordinator = coordinator.expect("it runs");
        let drained = match coordinator_leaves {
            true => coordinator,
            false if coordinator == node(0) => node(1),
            false => node(0),
        };
        engine.at(at(30.0), Action::Drain(drained.clone()));
        run(&mut engine, 300.0);
        let started =
            |event: &Event| matches!(event, Event::ContainerStarted(it) if it.node == drained);
        let exited =
            |event: &Event| matches!(event, Event::ContainerExited(it) if it.node == drained);
        assert_eq!((count(&engine, started), count(&engine, exited)), (8, 8));
        engine.at(at(300.0), Action::Restore(drained));
        run(&mut engine, 4_000.0);
        assert!(completed(&engine, "a"));
        verify(&engine);
    }
}

#[test]
fn events_that_are_not_there_are_named() {
    let mut engine = cluster(1);
    job(&mut engine, 0.0, "a", (1, 2), 10.0, "");
    run(&mut engine, 300.0);
    assert_eq!(verify(&engine).first_missing, None);
    let mut verifier = Verifier::default();
    let taken_out = |recorded: &&Arc<Recorded>| ![4, 6].contains(&recorded.sequence.0);
    engine
        .log()
        .iter()
        .filter(taken_out)
        .for_each(|it| verifier.read(it));
    let report = verifier.finish();
    assert_eq!(
        (report.missing, report.first_missing),
        (2, Some(Sequence(4)))
    );
}

#[test]
fn more_jobs_than_room_wait_and_all_complete() {
    let mut engine = cluster(2);
    for index in 0..60 {
        job(
            &mut engine,
            f64::from(index) * 0.5,
            &format!("j{index}"),
            (1, 4),
            30.0,
            "",
        );
    }
    run(&mut engine, 4000.0);
    for index in 0..60 {
        assert!(completed(&engine, &format!("j{index}")), "j{index}");
    }
    verify(&engine);
}

#[test]
fn a_failing_job_is_retried_then_failed() {
    let mut engine = cluster(1);
    job(&mut engine, 0.0, "a", (1, 4), 100.0, r#","retries":2"#);
    let model = ModelJob {
        fails_after_s: Some(1.0),
        ..ModelJob::linear(100.0)
    };
    engine.model(id("t/a"), model);
    run(&mut engine, 1000.0);
    let failed = count(&engine, |event| {
        let says = "rank 0 on n0 exited with 1, after 3 attempts";
        matches!(event, Event::JobFailed(failed) if failed.attempts == 3 && failed.reason.starts_with(says))
    });
    if failed != 1 {
        print_log(engine.log());
        panic!("not failed after three attempts");
    }
    verify(&engine);
}

#[test]
fn cancelling_ends_queued_and_running_jobs() {
    let mut engine = cluster(1);
    job(&mut engine, 0.0, "a", (8, 8), 10_000.0, "");
    job(&mut engine, 1.0, "b", (8, 8), 10.0, "");
    submit(&mut engine, 5.0, "cancel", r#"{"job":"b"}"#);
    submit(&mut engine, 9.0, "cancel", r#"{"job":"t/a"}"#);
    submit(&mut engine, 9.5, "cancel", r#"{"job":"none"}"#);
    run(&mut engine, 100.0);
    assert_eq!(
        count(&engine, |event| matches!(event, Event::JobCancelled(_))),
        2
    );
    assert_eq!(
        count(&engine, |event| matches!(event, Event::JobRefused(_))),
        1
    );
    verify(&engine);
}

#[test]
fn beside_a_job_that_is_ending_another_of_its_shape_is_placed_at_once() {
    let mut engine = cluster(1);
    job(&mut engine, 0.0, "a", (4, 4), 10_000.0, "");
    submit(&mut engine, 20.0, "cancel", r#"{"job":"a"}"#);
    job(&mut engine, 20.0, "b", (2, 2), 20.0, "");
    run(&mut engine, 100.0);
    assert!(completed(&engine, "b"));
    let refused = |event: &Event| matches!(event, Event::PlacementRefused(_));
    assert_eq!(count(&engine, refused), 0);
    verify(&engine);
}

#[test]
fn a_job_without_a_checkpoint_is_never_adjusted() {
    let mut engine = cluster(2);
    job(
        &mut engine,
        0.0,
        "a",
        (1, 16),
        3000.0,
        r#","checkpoint":{"mode":"none"}"#,
    );
    job(&mut engine, 20.0, "b", (1, 16), 300.0, "");
    engine.at(at(30.0), Action::Drain(node(0)));
    run(&mut engine, 9000.0);
    assert!(completed(&engine, "a") && completed(&engine, "b"));
    let asked = count(
        &engine,
        |event| matches!(event, Event::CheckpointRequested(asked) if asked.job == id("t/a")),
    );
    assert_eq!(asked, 0);
    verify(&engine);
}

#[test]
fn bad_submissions_are_refused_with_a_reason() {
    let mut engine = cluster(1);
    let good = r#"{"name":"x","command":{"start":["a"]},"demand":{"cpu":1}}"#;
    let bad = [
        "not json at all",
        "[1,2]",
        "{}",
        r#"{"command":{"start":["a"]},"demand":{"cpu":1},"colour":"red"}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":1},"priority":3000}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":1},"tasks":{"count":3}}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":1},"executor":"petuum"}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":0}}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":-1}}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":"many"}}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":1},"containers":{"min":3,"max":2}}"#,
        r#"{"command":{"start":["a"]},"demand":{"cpu":64}}"#,
        r#"{"command":{"start":["a"]},"demand":{"gpu":1}}"#,
        r#"{"command":{"start":[]},"demand":{"cpu":1}}"#,
        r#"{"tenant":"other","command":{"start":["a"]},"demand":{"cpu":1}}"#,
        r#"{"name":"Bad Name","command":{"start":["a"]},"demand":{"cpu":1}}"#,
        good,
    ];
    submit(&mut engine, 0.5, "submit", good);
    for payload in bad {
        submit(&mut engine, 1.0, "submit", payload);
    }
    run(&mut engine, 10.0);
    let refused: Vec<&Event> = engine.log().iter().filter_map(|r| r.event()).collect();
    let refused: Vec<String> = refused
        .iter()
        .filter_map(|event| match event {
            Event::JobRefused(event) => Some(format!("{}: {}", event.code, event.reason)),
            _ => None,
        })
        .collect();
    assert_eq!(refused.len(), bad.len(), "{refused:#?}");
    verify(&engine);
}

fn overfilled(more: impl IntoIterator<Item = Event>) -> (Sequence, Report) {
    let mut engine = cluster(1);
    job(&mut engine, 1.0, "a", (1, 4), 400.0, "");
    run(&mut engine, 60.0);
    let (epoch, incarnation) = (Epoch(99), Incarnation(99));
    let create = (0..9).map(|rank| PlacedContainer {
        job: id("t/a"),
        incarnation,
        rank: Rank(rank),
        node: node(0),
        gpus: Vec::new(),
        port: 0,
    });
    let placed = PlacementDecided {
        epoch,
        create: create.collect(),
        remove: Vec::new(),
        basis: None,
    };
    let started = PartitionStartRequested {
        job: id("t/a"),
        epoch,
        incarnation,
        containers: 9,
        resumed_from: None,
        basis: None,
    };
    let mut log = engine.log().to_vec();
    let started_at = Sequence(log.last().expect("events").sequence.0 + 2);
    for event in [placed.into(), started.into()].into_iter().chain(more) {
        let last = log.last().expect("events");
        let (sequence, stored_at) = (last.sequence.next(), last.stored_at);
        let writer = event.writers()[0];
        log.push(Arc::new(Recorded {
            sequence,
            stored_at,
            writer,
            envelope: Envelope::new(sequence.to_string(), writer, stored_at, None, event),
        }));
    }
    let mut verifier = Verifier::default();
    log.iter().for_each(|recorded| verifier.read(recorded));
    (started_at, verifier.finish())
}

#[test]
fn what_is_wrong_at_the_very_end_of_a_log_is_found() {
    let (started_at, report) = overfilled([]);
    let [finding] = &report.findings[..] else {
        panic!("{report:?}");
    };
    assert!(finding.what.contains("n0 holds more cpu"), "{finding:?}");
    assert_eq!(finding.sequence, started_at);
}

#[test]
fn what_is_wrong_for_one_event_is_found() {
    let exited = ContainerExited {
        container: "t/a/99/0".parse().expect("valid"),
        node: node(0),
        exit_code: Some(0),
        signal: None,
        out_of_memory: false,
        reason: None,
        evicted: false,
    };
    let progress = Progress {
        job: id("t/a"),
        incarnation: Incarnation(1),
        node: node(0),
        step: 1,
        steps_total: 0,
        containers: 1,
        metrics: BTreeMap::new(),
    };
    let more = std::iter::repeat_n(Event::from(progress), 200);
    let (started_at, report) = overfilled([exited.into()].into_iter().chain(more));
    let found = report.findings.iter().map(|finding| finding.sequence);
    assert_eq!(found.collect::<Vec<_>>(), [started_at], "{report:?}");
}
