//! What must hold of every simulated cluster, whatever comes and goes: how soon after its start a
//! job may be resized.

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_messages::events::{ClusterConfigured, StopReason};
use dormouse_messages::policy::{Objective, Policy};
use dormouse_messages::{Event, Incarnation, JobId, NodeId, Recorded, Timestamp};
use dormouse_replay::Verifier;
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::random::Random;

const START: Timestamp = Timestamp::from_micros(1_800_000_000_000_000);

fn at(seconds: f64) -> Timestamp {
    #[expect(clippy::cast_possible_truncation, reason = "a test's few minutes")]
    let micros = (seconds * 1e6) as i64;
    Timestamp::from_micros(START.as_micros() + micros)
}

fn cluster(policy: Policy, capacities: &[&str]) -> Engine {
    let mut engine = Engine::new(START, true);
    let configured = Event::from(ClusterConfigured { policy });
    engine.at(START, Action::Operator(configured));
    for (index, capacity) in capacities.iter().enumerate() {
        let node: NodeId = format!("n{index}").parse().expect("a node");
        let capacity = capacity.parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    engine
}

fn submit(engine: &mut Engine, at_s: f64, name: &str, work_s: f64, fields: &str) {
    let payload = format!(
        r#"{{"name":"{name}","command":{{"start":["train"]}},"checkpoint":{{"mode":"exit"}},{fields}}}"#
    );
    let submit = Action::Submit {
        tenant: "t".to_owned(),
        verb: "submit".to_owned(),
        payload: payload.into_bytes(),
    };
    engine.at(at(at_s), submit);
    let id = format!("t/{name}").parse().expect("a job");
    engine.model(id, ModelJob::linear(work_s));
}

/// Runs to the end; every decision verifies.
fn finish(engine: &mut Engine) {
    engine.run_until(at(100_000.0)).expect("sound");
    let mut verifier = Verifier::default();
    let log = engine.log();
    log.iter().for_each(|recorded| verifier.read(recorded));
    let findings = verifier.finish().findings;
    assert!(findings.is_empty(), "{findings:#?}");
}

fn count(log: &[Arc<Recorded>], wanted: impl Fn(&Event) -> bool) -> usize {
    let events = log.iter().filter_map(|recorded| recorded.event());
    events.filter(|event| wanted(event)).count()
}

/// After every start, how long until the life was asked to save, with the job.
fn lives(log: &[Arc<Recorded>]) -> Vec<(JobId, f64)> {
    let mut since: BTreeMap<(JobId, Incarnation), Timestamp> = BTreeMap::new();
    let mut lives = Vec::new();
    for recorded in log {
        match recorded.event() {
            Some(Event::PartitionStarted(event)) => {
                let life = (event.job.clone(), event.incarnation);
                since.insert(life, recorded.stored_at);
            }
            Some(Event::CheckpointRequested(event)) => {
                let began = since[&(event.job.clone(), event.incarnation)];
                lives.push((event.job.clone(), recorded.stored_at.seconds_since(began)));
            }
            _ => {}
        }
    }
    lives
}

/// Bursts of jobs, the next one a fraction of a second after the one before.
#[test]
fn nobody_is_resized_right_after_its_start_and_everybody_in_the_end() {
    let mut resized = 0;
    for seed in 0..8 {
        let mut random = Random::new(seed);
        let policy = Policy {
            theta1: 0.2,
            theta2: 1.0,
            objective: Objective {
                amortise_s: None,
                ..Objective::default()
            },
            ..Policy::default()
        };
        let mut engine = cluster(policy, &["cpu=8"; 3]);
        let mut at_s = 0.0;
        for index in 0..12 {
            let longest_s = if random.chance(0.5) { 0.5 } else { 40.0 };
            at_s += random.between(0.0, longest_s);
            let own = if index % 4 == 0 {
                r#","min_run_s":40"#
            } else {
                ""
            };
            let fields = format!(r#""demand":{{"cpu":1}},"containers":{{"min":1,"max":24}}{own}"#);
            submit(
                &mut engine,
                at_s,
                &format!("j{index}"),
                random.between(50.0, 900.0),
                &fields,
            );
        }
        finish(&mut engine);
        let log = engine.log();
        for (job, ran_s) in lives(log) {
            let number: u32 = job.name()[1..].parse().expect("a number");
            // The model's jobs are silent: they count as ready after fifteen seconds.
            let least_s = if number.is_multiple_of(4) { 40.0 } else { 15.0 };
            assert!(
                ran_s >= least_s,
                "seed {seed}: {job} was resized after {ran_s} s"
            );
        }
        resized += count(
            log,
            |event| matches!(event, Event::PartitionStopped(it) if it.reason == StopReason::Adjusted),
        );
        assert_eq!(
            count(log, |event| matches!(event, Event::JobCompleted(_))),
            12
        );
    }
    assert!(resized > 40, "{resized} resizes");
}

/// What came within the time is answered at its end, though nothing else happens then.
#[test]
fn a_job_that_was_left_alone_grows_when_its_time_has_come() {
    let mut engine = cluster(Policy::default(), &["cpu=8"]);
    let fields =
        |min, max| format!(r#""demand":{{"cpu":1}},"containers":{{"min":{min},"max":{max}}}"#);
    submit(&mut engine, 0.0, "short", 8.0, &fields(4, 4));
    submit(&mut engine, 1.0, "long", 4_000.0, &fields(2, 8));
    finish(&mut engine);
    let log = engine.log();
    let long: Vec<f64> = lives(log).into_iter().map(|(_, ran_s)| ran_s).collect();
    assert_eq!(long, [15.0], "grown once, fifteen seconds after its start");
}
