//! Clusters that stop for hours: a silence of the log is no step of a clock.

use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Event, NodeId, Timestamp};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::torture::night;

const START: i64 = 1_800_000_000_000_000;
const HOUR: i64 = 3_600_000_000;

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(START + micros)
}

fn passed_s(reboot: Option<i64>) -> i64 {
    let mut engine = Engine::new(at(0), true);
    let node = "n0".parse().expect("valid");
    let capacity = "cpu=8,memory=16Gi".parse().expect("valid");
    engine.at(at(0), Action::Join { node, capacity });
    for (second, name) in [(1, "one"), (20, "two")] {
        let payload = format!(
            r#"{{"name":"{name}","command":{{"start":["train"]}},"demand":{{"cpu":1}},"containers":{{"min":1,"max":1}}}}"#
        );
        let submit = Action::Submit {
            tenant: "t".to_owned(),
            verb: "submit".to_owned(),
            payload: payload.into_bytes(),
        };
        engine.at(at(second * 1_000_000), submit);
        let job = format!("t/{name}").parse().expect("valid");
        engine.model(job, ModelJob::linear(5.0));
    }
    let stop = Action::Stop(at(20_000_000 + 8 * HOUR), reboot);
    engine.at(at(20_000_000), stop);
    engine.run_until(at(9 * HOUR)).expect("nothing is broken");
    let log = engine.log();
    let first = log.iter().find(|it| it.stored_at > at(HOUR));
    let first = first.expect("they go on").writer;
    assert_eq!(first, dormouse_messages::Writer::Admission);
    let passed_ms = engine.log_time().ms_since(at(0));
    i64::try_from(passed_ms / 1_000).expect("hours")
}

/// All power fails while a job starts, for longer than a start may take; the services return before the
/// agent.
#[test]
fn a_start_that_a_blackout_has_cut_short_is_no_failure_of_the_job() {
    let mut engine = Engine::new(at(0), true);
    let node: NodeId = "n0".parse().expect("valid");
    let join = Action::Join {
        node: node.clone(),
        capacity: "cpu=8,memory=16Gi".parse().expect("valid"),
    };
    let policy = Policy {
        lease_s: 7_200,
        ..Policy::default()
    };
    engine.at(at(0), Action::Operator(ClusterConfigured { policy }.into()));
    engine.at(at(0), join);
    let document = r#"{"name":"a","command":{"start":["train"]},"demand":{"cpu":1},"containers":{"min":1,"max":1},"retries":0}"#;
    let submit = Action::Submit {
        tenant: "t".to_owned(),
        verb: "submit".to_owned(),
        payload: document.as_bytes().to_vec(),
    };
    engine.at(at(20_000_000), submit);
    let model = ModelJob {
        start_s: 2.0,
        ..ModelJob::linear(5.0)
    };
    engine.model("t/a".parse().expect("valid"), model);
    let (out, on) = (at(21_000_000), at(21_000_000 + HOUR));
    engine.at(out, Action::Stop(on, Some(0)));
    engine.at(out, Action::Reboot(node.clone()));
    engine.at(on.plus_ms(3_000), Action::Mend(node));
    engine.run_until(at(3 * HOUR)).expect("nothing is broken");
    let ends = engine.log().iter().filter_map(|it| match it.event()? {
        Event::JobCompleted(_) => Some("completed".to_owned()),
        Event::JobFailed(event) => Some(event.reason.clone()),
        _ => None,
    });
    assert_eq!(ends.collect::<Vec<_>>(), ["completed"]);
}

#[test]
fn the_time_of_the_log_is_true_after_a_night() {
    let whole = 8 * 3_600 + 20;
    for reboot in [None, Some(0)] {
        let passed = passed_s(reboot);
        assert!((whole..whole + 60).contains(&passed), "{passed} s");
    }
    // A reboot with a changed clock leaves clock against clock.
    for day in [24 * HOUR, -24 * HOUR] {
        let passed = passed_s(Some(day));
        assert!((20..120).contains(&passed), "{passed} s");
    }
}

#[test]
fn nights_end_well_under_faults() {
    let mut late = Vec::new();
    for seed in 1..=40 {
        match night(seed) {
            Ok(behind_ms) if behind_ms < 600_000 => {}
            Ok(behind_ms) => late.push((seed, behind_ms / 1_000)),
            Err(failure) => panic!("{failure}"),
        }
    }
    // A service stopped before it saved a clock anchor cannot tell its absence.
    assert!(late.len() <= 1, "behind by seconds, by seed: {late:?}");
}
