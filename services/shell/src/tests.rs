//! The machine's effects, in one copy and in two ([`two_copies`]).

mod two_copies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_messages::events::{Budget, NodeDrained, NodeRecovered, TenantRemoved};
use dormouse_messages::{
    Decider, Decision, Envelope, Event, Fold, NodeId, Proposal, Recorded, Sequence, Timestamp,
    Writer,
};
use serde::{Deserialize, Serialize};

use crate::{Effect, Failure, Halt, LogItem, Observation, Outcome, Shell, Snapshot, hurried};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
struct ToyState {
    open: BTreeSet<NodeId>,
    answered: BTreeMap<NodeId, u64>,
    #[serde(skip)]
    contradiction: Option<String>,
}

impl Fold for ToyState {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        if let Some(Event::NodeDrained(event)) = recorded.event() {
            self.open.insert(event.node.clone());
        }
        if let Some(Event::NodeRecovered(event)) = recorded.event() {
            let again = !self.open.remove(&event.node) && self.answered.contains_key(&event.node);
            self.contradiction = again.then(|| format!("{} is answered again", event.node));
            *self.answered.entry(event.node.clone()).or_default() += 1;
        }
    }

    fn contradiction(&self) -> Option<&str> {
        self.contradiction.as_deref()
    }
}

/// Answers all open nodes at once.
struct Toy<const SLOW: bool>;

impl<const SLOW: bool> Decider for Toy<SLOW> {
    type State = ToyState;
    const WRITER: Writer = Writer::Placer;
    const SLOW: bool = SLOW;

    fn concerns(&self, event: &Event) -> bool {
        !matches!(event, Event::TenantRemoved(_))
    }

    fn decide(&self, state: &ToyState, now: Timestamp) -> Decision {
        let answer = |node: &NodeId| {
            let event = NodeRecovered {
                node: node.clone(),
                last_seen: now,
                basis: None,
            };
            Proposal::new(event, Sequence(1))
        };
        Decision {
            proposals: state.open.iter().map(answer).collect(),
            next_wake: Some(now.plus_ms(1_000)),
        }
    }

    fn still_valid(&self, state: &ToyState, decision: &Decision) -> bool {
        decision.proposals.len() == state.open.len()
    }

    fn put_off_until(&self, state: &ToyState) -> Option<Timestamp> {
        let mut open = state.open.iter();
        open.all(|node| node.as_str() == PATIENT).then(|| at(100))
    }
}

const PATIENT: &str = "n77";

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_micros(1_000_000).plus_ms(seconds * 1_000)
}

fn drained(number: u64) -> Event {
    let node = format!("n{number}").parse().expect("a name");
    Event::from(NodeDrained {
        node,
        reason: None,
        deadline_s: None,
    })
}

fn recorded(sequence: u64, writer: Writer, event: Event) -> LogItem {
    LogItem::Event(Arc::new(Recorded {
        sequence: Sequence(sequence),
        stored_at: at(sequence),
        writer,
        envelope: Envelope::new(format!("id-{sequence}"), writer, at(0), None, event),
    }))
}

fn shell<const SLOW: bool>() -> Shell<Toy<SLOW>> {
    let nothing = Snapshot {
        state: ToyState::default(),
        log: "log".to_owned(),
        sequence: Sequence(0),
        stored_at: at(0),
        own_last: Sequence(0),
    };
    Shell::new(Arc::new(Toy), nothing, "test", None)
}

/// An active copy that has folded `events` and the head.
fn given<const SLOW: bool>(events: Vec<LogItem>) -> Shell<Toy<SLOW>> {
    let mut shell = shell();
    shell.activate();
    then_folds(&mut shell, events);
    shell
}

fn then_folds<const SLOW: bool>(shell: &mut Shell<Toy<SLOW>>, mut events: Vec<LogItem>) {
    events.push(LogItem::CaughtUp(Sequence(0)));
    shell.followed(&events).expect("known versions");
}

/// Takes the next step; returns one word per effect.
fn step<const SLOW: bool>(shell: &mut Shell<Toy<SLOW>>) -> Vec<String> {
    shell.advance(at(0), |_| Vec::new());
    let words = shell.take_effects().into_iter().filter_map(|effect| {
        Some(match effect {
            Effect::Append(append) => {
                format!("append {} after {}", append.drafts.len(), append.expected)
            }
            Effect::AskHead => "ask head".to_owned(),
            Effect::Decide(_) => "decide".to_owned(),
            Effect::Pause(pause) => format!("pause {}", pause.as_millis()),
            Effect::Discarded { asof } => format!("discarded {asof}"),
            Effect::Save(snapshot) => format!("save {}", snapshot.sequence),
            Effect::End => "end".to_owned(),
            Effect::WakeAt(_) | Effect::Decided | Effect::Keep(_) => return None,
        })
    });
    words.collect()
}

fn failed(failure: Failure) -> Outcome {
    Outcome {
        last: None,
        failure: Some(failure),
    }
}

fn stored(last: u64) -> Outcome {
    Outcome {
        last: Some(Sequence(last)),
        failure: None,
    }
}

fn answer(sequence: u64, number: u64) -> LogItem {
    let node = format!("n{number}").parse().expect("a name");
    let event = NodeRecovered {
        node,
        last_seen: at(0),
        basis: None,
    };
    recorded(sequence, Writer::Placer, event.into())
}

#[test]
fn nothing_is_decided_before_the_last_own_append_is_folded() {
    let mut shell = given::<false>(vec![recorded(1, Writer::Operator, drained(1))]);
    assert_eq!(step(&mut shell), ["append 1 after 0"]);
    then_folds(&mut shell, vec![recorded(2, Writer::Operator, drained(2))]);
    assert!(step(&mut shell).is_empty(), "one is in flight");
    shell.answered(stored(3));
    assert!(step(&mut shell).is_empty(), "acknowledged, not folded");
    then_folds(&mut shell, vec![answer(3, 1)]);
    assert_eq!(step(&mut shell), ["append 1 after 3"]);
}

#[test]
fn a_refusal_for_good_is_told_until_an_append_succeeds() {
    let mut shell = given::<false>(vec![recorded(1, Writer::Operator, drained(1))]);
    step(&mut shell);
    assert_eq!(shell.refused(), None);
    shell.answered(failed(Failure::Refused("too large".to_owned())));
    assert_eq!(shell.refused(), Some("too large"));
    step(&mut shell);
    shell.head(Sequence(1));
    shell.resumed();
    assert_eq!(step(&mut shell), ["append 1 after 0"]);
    shell.answered(failed(Failure::Doubt("lost".to_owned())));
    assert_eq!(shell.refused(), Some("too large"), "nothing was taken");
    step(&mut shell);
    shell.head(Sequence(1));
    shell.resumed();
    step(&mut shell);
    shell.answered(stored(2));
    assert_eq!(shell.refused(), None);
}

#[test]
fn a_conflict_and_a_doubt_fold_to_the_head_and_decide_again() {
    for (failure, pause) in [
        (Failure::Conflict, "pause 10"),
        (Failure::Doubt("lost".to_owned()), "pause 50"),
        (Failure::Refused("denied".to_owned()), "pause 5000"),
    ] {
        let mut shell = given::<false>(vec![recorded(1, Writer::Operator, drained(1))]);
        assert_eq!(step(&mut shell), ["append 1 after 0"]);
        shell.answered(failed(failure));
        assert_eq!(step(&mut shell), [pause, "ask head"]);
        shell.head(Sequence(2));
        shell.resumed();
        assert!(step(&mut shell).is_empty(), "the head is not folded");
        then_folds(&mut shell, vec![recorded(2, Writer::Operator, drained(2))]);
        assert_eq!(step(&mut shell), ["append 2 after 0"]);
    }
}

#[test]
fn pauses_grow_with_the_failures_in_a_row_up_to_a_bound() {
    let mut shell = given::<false>(vec![recorded(1, Writer::Operator, drained(1))]);
    let mut pauses = Vec::new();
    for _ in 0..25 {
        assert_eq!(step(&mut shell), ["append 1 after 0"]);
        shell.answered(failed(Failure::Conflict));
        let effects = step(&mut shell);
        pauses.push(effects[0].clone());
        shell.head(Sequence(1));
        shell.resumed();
    }
    assert_eq!(pauses[1], "pause 20");
    assert_eq!(pauses[24], "pause 200");
}

#[test]
fn a_copy_that_stands_by_folds_and_appends_only_when_it_has_the_lease() {
    let mut shell = shell::<false>();
    then_folds(&mut shell, vec![recorded(1, Writer::Operator, drained(1))]);
    assert!(step(&mut shell).is_empty());
    shell.lease(true);
    assert_eq!(step(&mut shell), ["ask head"]);
    shell.head(Sequence(1));
    assert_eq!(step(&mut shell), ["append 1 after 0"]);
    shell.answered(stored(2));
    shell.lease(false);
    then_folds(
        &mut shell,
        vec![answer(2, 1), recorded(3, Writer::Operator, drained(2))],
    );
    assert!(step(&mut shell).is_empty());
}

#[test]
fn an_event_that_cannot_change_the_decision_is_only_folded() {
    let mut shell = given::<false>(Vec::new());
    assert!(step(&mut shell).is_empty());
    let mut decides_after = |sequence, event| {
        then_folds(
            &mut shell,
            vec![recorded(sequence, Writer::Operator, event)],
        );
        shell.advance(at(0), |_| Vec::new());
        let effects = shell.take_effects();
        effects.iter().any(|it| matches!(it, Effect::Decided))
    };
    let removed = TenantRemoved {
        tenant: "ads".parse().expect("a name"),
        reason: None,
    };
    assert!(!decides_after(1, removed.into()));
    assert!(decides_after(2, drained(1)));
}

#[test]
fn a_slow_decision_that_the_log_overtook_is_made_again() {
    let mut shell = given::<true>(vec![recorded(1, Writer::Operator, drained(1))]);
    let made = decide(&mut shell);
    then_folds(&mut shell, vec![recorded(2, Writer::Operator, drained(2))]);
    shell.made(made, false);
    assert_eq!(step(&mut shell), ["ask head"]);
    shell.head(Sequence(2));
    assert_eq!(step(&mut shell), ["discarded 1", "decide"]);
}

#[test]
fn a_slow_decision_is_put_off_until_its_time_or_something_else() {
    let mut shell = given::<true>(vec![recorded(1, Writer::Operator, drained(77))]);
    shell.advance(at(0), |_| Vec::new());
    let effects = shell.take_effects();
    assert!(matches!(effects[..], [Effect::WakeAt(Some(until))] if until == at(99)));
    shell.woken();
    shell.advance(at(99), |_| Vec::new());
    assert!(matches!(shell.take_effects()[..], [Effect::Decide(_)]));
    let mut shell = given::<true>(vec![recorded(1, Writer::Operator, drained(77))]);
    assert!(step(&mut shell).is_empty());
    then_folds(&mut shell, vec![recorded(2, Writer::Operator, drained(2))]);
    assert_eq!(step(&mut shell), ["decide"]);
}

#[test]
fn a_slow_decision_that_did_not_know_of_another_copys_is_made_again() {
    let mut shell = given::<true>(vec![recorded(1, Writer::Operator, drained(1))]);
    let made = decide(&mut shell);
    then_folds(&mut shell, vec![answer(2, 9)]);
    shell.made(made, false);
    shell.head(Sequence(2));
    let effects = step(&mut shell);
    assert!(effects.contains(&"discarded 1".to_owned()), "{effects:?}");
    assert!(effects.contains(&"decide".to_owned()), "{effects:?}");
}

#[test]
fn a_slow_decision_that_holds_keeps_its_basis() {
    let mut shell = given::<true>(vec![recorded(1, Writer::Operator, drained(1))]);
    let made = decide(&mut shell);
    shell.made(made, false);
    shell.head(Sequence(2));
    let unrelated = Event::from(NodeRecovered {
        node: "n9".parse().expect("a name"),
        last_seen: at(0),
        basis: None,
    });
    then_folds(
        &mut shell,
        vec![recorded(2, Writer::Checkpointer, unrelated)],
    );
    shell.advance(at(0), |_| Vec::new());
    let append = shell.take_effects().into_iter().find_map(|it| match it {
        Effect::Append(append) => Some(append),
        _ => None,
    });
    let append = append.expect("an append");
    let basis = append.drafts[0].event.basis().expect("a basis");
    assert_eq!((basis.asof, basis.build.as_str()), (Sequence(1), "test"));
}

#[track_caller]
fn decide(shell: &mut Shell<Toy<true>>) -> crate::Made {
    shell.advance(at(0), |_| Vec::new());
    let task = shell.take_effects().into_iter().find_map(|it| match it {
        Effect::Decide(task) => Some(task),
        _ => None,
    });
    task.expect("a slow decision is asked for").run()
}

#[test]
fn a_decision_that_is_overtaken_again_and_again_may_work_less() {
    let budget = Budget {
        gap: 0.0,
        work: 8_000,
    };
    let work = |discarded| hurried(budget, discarded).work;
    assert_eq!(work(1), 8_000);
    assert_eq!(work(2), 4_000);
    assert_eq!(work(4), 1_000);
}

#[test]
fn what_is_observed_goes_behind_what_is_decided_and_is_asked_for_again() {
    let mut shell = given::<false>(vec![recorded(1, Writer::Operator, drained(1))]);
    let seen = |_: &ToyState| {
        vec![Observation {
            event: drained(7),
            traceparent: None,
        }]
    };
    shell.advance(at(0), seen);
    let appended = |effects: Vec<Effect<Toy<false>>>| {
        effects.into_iter().find_map(|it| match it {
            Effect::Append(append) => Some(append),
            _ => None,
        })
    };
    let append = appended(shell.take_effects()).expect("an append");
    assert_eq!(append.drafts.len(), 2);
    assert_eq!(append.drafts[1].event, drained(7));
    assert!(append.drafts[1].event.basis().is_none());
    shell.answered(failed(Failure::Doubt("lost".to_owned())));
    shell.head(Sequence(1));
    shell.resumed();
    shell.advance(at(0), seen);
    let again = appended(shell.take_effects()).expect("named again");
    assert_eq!(again.drafts[1].event, drained(7));
}

#[test]
fn the_end_waits_for_what_is_in_flight_and_keeps_a_snapshot() {
    let nothing = Snapshot {
        state: ToyState::default(),
        log: "log".to_owned(),
        sequence: Sequence(0),
        stored_at: at(0),
        own_last: Sequence(0),
    };
    let mut shell = Shell::new(Arc::new(Toy::<false>), nothing, "test", Some(100));
    shell.activate();
    then_folds(&mut shell, vec![recorded(1, Writer::Operator, drained(1))]);
    assert_eq!(step(&mut shell), ["append 1 after 0"]);
    shell.stop();
    assert!(step(&mut shell).is_empty());
    shell.answered(stored(2));
    assert_eq!(step(&mut shell), ["save 1"]);
    shell.saved();
    assert_eq!(step(&mut shell), ["end"]);
    assert!(step(&mut shell).is_empty());
}

#[test]
fn a_version_that_is_not_known_is_not_passed() {
    let mut shell = given::<false>(Vec::new());
    let event = recorded(4, Writer::Operator, drained(1));
    let LogItem::Event(known) = event else {
        unreachable!("an event")
    };
    let mut unknown = (*known).clone();
    unknown.envelope.body = dormouse_messages::Body::Unknown {
        type_name: "dormouse.node.drained.v2".into(),
    };
    let halt = shell
        .followed(&[LogItem::Event(Arc::new(unknown))])
        .expect_err("it stops");
    let Halt::UnknownVersion(unknown) = halt else {
        panic!("{halt:?}")
    };
    assert_eq!(unknown.sequence, Sequence(4));
    assert_eq!(shell.folded(), Sequence(0));
}

#[test]
fn a_contradiction_stops_the_service_where_it_is_and_is_neither_kept_nor_decided_on() {
    let nothing = Snapshot {
        state: ToyState::default(),
        log: "log".to_owned(),
        sequence: Sequence(0),
        stored_at: at(0),
        own_last: Sequence(0),
    };
    let mut shell = Shell::new(Arc::new(Toy::<false>), nothing, "test", Some(1));
    shell.activate();
    let last = Sequence(0);
    let answered = |number: u64| {
        Event::from(NodeRecovered {
            node: format!("n{number}").parse().expect("a name"),
            last_seen: at(0),
            basis: None,
        })
    };
    let halt = shell
        .followed(&[
            recorded(1, Writer::Operator, drained(1)),
            recorded(2, Writer::Placer, answered(1)),
            recorded(3, Writer::Placer, answered(1)),
            recorded(4, Writer::Operator, drained(4)),
            LogItem::CaughtUp(last),
        ])
        .expect_err("it stops");
    let expected = Halt::Contradiction {
        sequence: Sequence(3),
        what: "n1 is answered again".to_owned(),
    };
    assert_eq!(halt, expected);
    assert!(step(&mut shell).is_empty());
}

#[test]
fn a_wake_up_is_set_with_every_decision() {
    let mut shell = given::<false>(Vec::new());
    shell.advance(at(0), |_| Vec::new());
    let wakes: Vec<_> = shell
        .take_effects()
        .into_iter()
        .filter_map(|it| match it {
            Effect::WakeAt(at) => at,
            _ => None,
        })
        .collect();
    assert_eq!(wakes, [at(0).plus_ms(1_000)]);
}

/// Returns the wake-up and the decision's time.
fn decides(folded_at: u64, decided_at: u64) -> (Timestamp, Timestamp) {
    let mut shell = given::<false>(vec![recorded(5, Writer::Operator, drained(1))]);
    shell.lease(false);
    shell.advance(at(folded_at), |_| Vec::new());
    shell.activate();
    shell.advance(at(decided_at), |_| Vec::new());
    let (mut given, mut wakes) = (at(0), at(0));
    for effect in shell.take_effects() {
        match effect {
            Effect::Append(append) => {
                let basis = append.drafts[0].event.basis();
                given = basis.expect("a basis").now;
            }
            Effect::WakeAt(Some(at)) => wakes = at,
            _ => {}
        }
    }
    (given, wakes)
}

#[test]
fn only_what_a_clock_has_moved_counts_whatever_it_shows() {
    for off in [0, 86_400, 30] {
        let (given, wakes) = decides(off, off + 7);
        assert_eq!(given, at(5 + 7), "the log's time and what has passed");
        let asked = given.plus_ms(1_000);
        let shown = asked.as_micros() - at(5).as_micros() + at(off).as_micros();
        assert_eq!(
            wakes.as_micros(),
            shown,
            "by the clock that is off by {off}"
        );
    }
}
