//! Bisection: a hundred changes at random places, in blocks and after a slice's states.

use std::sync::Arc;

use dormouse_messages::events::{ClusterConfigured, JobCancelled, NodeDrained, NodeRestored};
use dormouse_messages::{Envelope, Event, NodeId, Recorded, Sequence, Writer};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::bisect::{BLOCK, Bisect, Found, Looked};
use dormouse_replay::history::slice::States;
use dormouse_replay::random::Random;
use dormouse_replay::simulate::{START, seconds_after_start};

type Log = Vec<Arc<Recorded>>;

fn admitted() -> Event {
    let mut engine = Engine::new(START, true);
    let policy = dormouse_messages::policy::Policy::default();
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    engine.model("ads/planted".parse().expect("a job"), ModelJob::linear(1e6));
    let payload = br#"{"name":"planted","command":{"start":["run"]},"demand":{"cpu":1},"containers":{"min":1,"max":1}}"#;
    let action = Action::Submit {
        tenant: "ads".to_owned(),
        verb: "submit".to_owned(),
        payload: payload.to_vec(),
    };
    engine.at(seconds_after_start(1.0), action);
    engine
        .run_until(seconds_after_start(10.0))
        .expect("a healthy run");
    let events = engine.log().iter().filter_map(|it| it.event());
    let mut admitted = events.filter(|it| matches!(it, Event::JobAdmitted(_)));
    admitted.next().expect("it was admitted").clone()
}

fn cancelled() -> Event {
    JobCancelled {
        job: "ads/planted".parse().expect("a job"),
        reason: "planted".to_owned(),
        attempts: 0,
        code: None,
        ingress_sequence: None,
        by: None,
        basis: None,
    }
    .into()
}

fn drained(node: NodeId) -> Event {
    NodeDrained {
        node,
        reason: None,
        deadline_s: None,
    }
    .into()
}

fn planted(count: usize, at: &[(usize, Event)]) -> Log {
    let mut log = Log::new();
    for place in 0..count {
        let node: NodeId = "n0".parse().expect("a node");
        let event: (Writer, Event) = match at.iter().find(|(planted, _)| *planted == place) {
            Some((_, event)) => (Writer::Admission, event.clone()),
            None if place % 2 == 0 => (Writer::Operator, drained(node)),
            None => (Writer::Operator, NodeRestored { node }.into()),
        };
        let sequence = Sequence(place as u64 + 1);
        let stored_at = seconds_after_start(f64::from(u32::try_from(place).expect("small")));
        let (writer, event) = event;
        let envelope = Envelope::new(format!("e-{sequence}"), writer, stored_at, None, event);
        log.push(Arc::new(Recorded {
            sequence,
            stored_at,
            writer,
            envelope,
        }));
    }
    log
}

fn find(mut bisect: Bisect, log: &[Arc<Recorded>]) -> (Option<Found>, u64) {
    for recorded in log {
        if bisect.read(recorded) {
            break;
        }
    }
    bisect.finish()
}

fn looked_for(predicate: &str) -> Bisect {
    Bisect::new(predicate.parse().expect("a predicate"))
}

#[test]
fn of_a_hundred_planted_changes_a_hundred_are_found() {
    let (admitted, cancelled) = (admitted(), cancelled());
    let mut random = Random::new(7);
    let mut found = 0;
    for change in 0..100 {
        let count = 3 * BLOCK + 17;
        let first = usize::try_from(random.below(count as u64 - 1)).expect("small");
        let after = random.below((count - first) as u64 - 1);
        let second = first + 1 + usize::try_from(after).expect("small");
        let log = planted(
            count,
            &[(first, admitted.clone()), (second, cancelled.clone())],
        );
        let (predicate, place) = match change % 3 {
            0 => ("ads/planted=seen", first),
            1 => ("ads/planted=cancelled", second),
            _ => ("waiting>0", first),
        };
        let (it, read) = find(looked_for(predicate), &log);
        let it = it.unwrap_or_else(|| panic!("{change}: {predicate} at {place}"));
        assert_eq!(
            (it.sequence.0, it.exact),
            (place as u64 + 1, true),
            "{predicate}"
        );
        found += 1;
        match it.looked {
            Looked::OneByOne => assert_eq!((read, it.halves), (it.sequence.0, 0)),
            Looked::Halving => {
                assert!(read < it.sequence.0 + BLOCK as u64);
                assert!(it.halves <= 12, "{} halves", it.halves);
                assert!(it.folds <= read + BLOCK as u64 + 1, "{} folds", it.folds);
            }
            Looked::Before => panic!("there is no slice"),
        }
        assert_eq!(it.looked == Looked::OneByOne, predicate == "waiting>0");
    }
    assert_eq!(found, 100);
}

/// `waiting>0` holds at 10 and at 5,000, not between: halving finds the second, inexactly.
#[test]
fn of_two_crossings_halving_finds_some() {
    let (admitted, cancelled) = (admitted(), cancelled());
    let at = [(9, admitted.clone()), (19, cancelled), (4999, admitted)];
    let log = planted(9000, &at);
    let (some, _) = find(looked_for("waiting>0").some(), &log);
    let some = some.expect("some place");
    assert_eq!((some.sequence, some.exact), (Sequence(5000), false));
    let (first, read) = find(looked_for("waiting>0"), &log);
    let first = first.expect("the first place");
    assert_eq!(
        (first.sequence, first.exact, read),
        (Sequence(10), true, 10)
    );
    // A reused name hides the first end from the block's end, so the place is inexact.
    let at = [
        (9, self::admitted()),
        (19, self::cancelled()),
        (29, self::admitted()),
        (6000, self::cancelled()),
    ];
    let (end, _) = find(looked_for("ads/planted=cancelled"), &planted(9000, &at));
    let end = end.expect("an end");
    assert_eq!((end.sequence, end.exact), (Sequence(6001), false));
}

#[test]
fn a_slice_is_looked_through_from_its_states_on() {
    let log = planted(9000, &[(4099, admitted()), (8000, cancelled())]);
    let sliced = |asof: usize| {
        let mut states = States::default();
        log[..asof].iter().for_each(|it| states.read(it));
        states
    };
    let from = |asof: usize, predicate: &str| {
        let bisect = looked_for(predicate).starting_from(sliced(asof));
        find(bisect, &log[asof..]).0.expect("it is so")
    };
    let end = from(4500, "ads/planted=cancelled");
    assert_eq!((end.sequence, end.exact), (Sequence(8001), true));
    let waits = from(2000, "waiting>0");
    assert_eq!((waits.sequence, waits.exact), (Sequence(4100), false));
    let before = from(4500, "ads/planted=seen");
    assert_eq!(
        (before.sequence, before.looked),
        (Sequence(4500), Looked::Before)
    );
    assert!(!before.exact && before.before.contains("before the slice"));
}
