//! Tests of fold and reconciliation. Random histories: no action twice, no two incarnations at once.

use crate::common::*;
use dormouse_agent_core::Exit;
use dormouse_messages::{Event, Fold};
use dormouse_node_agent::reconcile::{
    Action, Effect, Ending, FENCED, Machine, Observed, ProcessState, apply, reconcile,
};
use dormouse_node_agent::state::{AgentState, Known, Want};
use proptest::prelude::*;

fn fold(events: &[Event]) -> AgentState {
    let mut state = AgentState::new(node());
    for (index, event) in events.iter().enumerate() {
        state.evolve(&recorded(index as u64 + 1, event.clone()));
        state.check_invariants().expect("invariants hold");
    }
    state
}

/// Reconciles until no action remains.
fn settle(state: &AgentState, machine: &mut Machine) -> Vec<Action> {
    let mut all = Vec::new();
    loop {
        let actions = reconcile(state, machine);
        if actions.is_empty() {
            return all;
        }
        for action in actions {
            apply(machine, &action);
            all.push(action);
        }
        assert!(all.len() < 1_000, "it does not settle: {all:?}");
    }
}

fn member(incarnation: u64) -> Machine {
    Machine {
        joined: Some(incarnation),
        ..Machine::default()
    }
}

fn admitted_and_placed() -> Vec<Event> {
    vec![joined(1), admitted(spec(&["true"])), placed(1, 2)]
}

fn with(mut events: Vec<Event>, more: impl IntoIterator<Item = Event>) -> Vec<Event> {
    events.extend(more);
    events
}

fn sequence(at: u64) -> dormouse_messages::Sequence {
    dormouse_messages::Sequence(at)
}

#[test]
fn a_placement_alone_starts_nothing() {
    let state = fold(&admitted_and_placed());
    assert_eq!(settle(&state, &mut member(1)), []);
}

#[test]
fn a_start_request_starts_what_is_here_once() {
    let nodes = placed_on(1, &["n0", "n1", "n0"]);
    let state = fold(&[joined(1), admitted(spec(&["true"])), nodes, start(1, None)]);
    let mut machine = member(1);
    let starts = [0, 2].map(|rank| Action::Do(Effect::Start(id(1, rank), sequence(4))));
    assert_eq!(settle(&state, &mut machine), starts);
    assert_eq!(settle(&state, &mut machine), []);
}

#[test]
fn nothing_starts_before_the_agent_hears_that_it_has_joined() {
    let asked = with(admitted_and_placed(), [start(1, None)]);
    let mut machine = Machine::default();
    let actions = settle(&fold(&asked), &mut machine);
    assert_eq!(actions, [Action::Join(2, vec![])]);
    let heard = with(asked, [joined(2)]);
    let actions = settle(&fold(&heard), &mut machine);
    assert!(
        matches!(actions[0], Action::Do(Effect::Start(..))),
        "{actions:?}"
    );
}

#[test]
fn what_the_log_does_not_know_is_told() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), started(&id(1, 1))],
    ));
    let mut machine = member(1);
    let exit = Exit {
        code: Some(3),
        ..Exit::default()
    };
    let seen = [
        (id(1, 0), ProcessState::Running(77)),
        (id(1, 1), ProcessState::Ended(exit.clone())),
    ];
    machine.containers = seen
        .map(|(id, process)| (id, Observed::new(sequence(4), process)))
        .into();
    let told = [
        Action::TellStarted(id(1, 0), 77),
        Action::TellExited(id(1, 1), sequence(4), exit),
    ];
    assert_eq!(settle(&state, &mut machine), told);
}

#[test]
fn orders_are_passed_on_once_and_again_to_an_agent_that_starts() {
    let given = |tasks| assigned(&[(0, tasks)]);
    let before = with(
        vec![joined(1), admitted(task_set("true")), placed(1, 1)],
        [start(1, None), started(&id(1, 0)), given(0..3)],
    );
    let running = || {
        let mut machine = member(1);
        let seen = Observed::new(sequence(4), ProcessState::Running(77));
        machine.containers.insert(id(1, 0), seen);
        machine
    };
    let mut machine = running();
    let give = |at| Action::Do(Effect::Give(id(1, 0), sequence(at)));
    assert_eq!(settle(&fold(&before), &mut machine), [give(6)]);
    let after = fold(&with(before, [given(3..5)]));
    assert_eq!(settle(&after, &mut machine), [give(7)]);
    assert_eq!(settle(&after, &mut running()), [give(7)]);
    let (_, partition) = after.partition(&id(1, 0)).expect("it is here");
    assert_eq!(partition.orders_of(id(1, 0).rank).len(), 2, "both are open");
}

#[test]
fn what_the_log_saw_start_and_the_machine_lacks_has_vanished() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), started(&id(1, 0)), started(&id(1, 1))],
    ));
    let actions = settle(&state, &mut member(1));
    assert_eq!(actions.len(), 2);
    for action in actions {
        assert!(matches!(action, Action::TellExited(_, _, exit) if exit.evicted));
    }
}

#[test]
fn a_stop_stops_and_one_that_never_started_has_exited() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), started(&id(1, 0)), stop(1)],
    ));
    let mut machine = member(1);
    machine.containers.insert(
        id(1, 0),
        Observed::new(sequence(4), ProcessState::Running(7)),
    );
    let actions = settle(&state, &mut machine);
    assert_eq!(actions[0], Action::Do(Effect::Stop(id(1, 0))));
    assert!(matches!(&actions[1], Action::TellExited(it, _, _) if *it == id(1, 1)));
}

#[test]
fn every_member_is_asked_to_save_once() {
    let events = with(admitted_and_placed(), [start(1, None), save(1)]);
    let state = fold(&events);
    let mut machine = member(1);
    for rank in [0, 1] {
        machine.containers.insert(
            id(1, rank),
            Observed::new(sequence(4), ProcessState::Running(7)),
        );
    }
    let actions = settle(&state, &mut machine);
    let saves = actions
        .iter()
        .filter(|action| matches!(action, Action::Do(Effect::Save(_, at)) if *at == sequence(5)));
    assert_eq!(saves.count(), 2);
    let again = fold(&with(events, [save(1)]));
    assert_eq!(settle(&again, &mut machine).len(), 2);
}

#[test]
fn an_older_incarnation_goes_before_the_newer_comes() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), placed(2, 1), start(2, None)],
    ));
    let mut machine = member(1);
    machine.containers.insert(
        id(1, 0),
        Observed::new(sequence(4), ProcessState::Running(7)),
    );
    let actions = settle(&state, &mut machine);
    assert!(
        actions
            .iter()
            .any(|action| matches!(action, Action::Do(Effect::Evict(it, _)) if *it == id(1, 0)))
    );
    assert!(
        !actions
            .iter()
            .any(|action| matches!(action, Action::Do(Effect::Start(..))))
    );
    machine
        .containers
        .get_mut(&id(1, 0))
        .expect("there")
        .process = ProcessState::Ended(Exit::default());
    let actions = settle(&state, &mut machine);
    assert!(actions.contains(&Action::Do(Effect::Start(id(2, 0), sequence(6)))));
}

#[test]
fn a_fenced_agent_ends_everything_and_joins_when_it_is_gone() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), started(&id(1, 0)), started(&id(1, 1))],
    ));
    let mut machine = member(1);
    for rank in [0, 1] {
        machine.containers.insert(
            id(1, rank),
            Observed::new(sequence(4), ProcessState::Running(7)),
        );
    }
    machine.fenced = true;
    let evictions = [0, 1].map(|rank| Action::Do(Effect::Evict(id(1, rank), FENCED.to_owned())));
    assert_eq!(settle(&state, &mut machine), evictions);
    (machine.fenced, machine.joined) = (false, None);
    assert_eq!(settle(&state, &mut machine), []);
    for seen in machine.containers.values_mut() {
        assert_eq!(seen.ending, Ending::Evicting);
        seen.process = ProcessState::Ended(Exit::evicted(FENCED.to_owned()));
    }
    let actions = settle(&state, &mut machine);
    assert_eq!(actions.last(), Some(&Action::Join(2, vec![])));
    assert_eq!(actions.len(), 3);
}

#[test]
fn a_loss_of_a_former_incarnation_concerns_nobody() {
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), joined(2), lost(1)],
    ));
    assert!(
        state
            .wanted()
            .values()
            .all(|wanted| wanted.want == Want::Run)
    );
    let state = fold(&with(
        admitted_and_placed(),
        [start(1, None), joined(2), lost(2)],
    ));
    assert!(
        state
            .wanted()
            .values()
            .all(|wanted| matches!(wanted.want, Want::Gone(_)))
    );
}

#[test]
fn a_start_asked_of_a_lost_node_is_not_made_up_for_later() {
    // The checkpointer lagged; all count the incarnation as lost.
    let events = with(admitted_and_placed(), [lost(1), start(1, None), joined(2)]);
    let wanted = fold(&events).wanted();
    let gone = |want: &Want| matches!(want, Want::Gone(_));
    assert!(wanted.values().all(|wanted| gone(&wanted.want)));
    let mut machine = member(2);
    let actions = settle(&fold(&events), &mut machine);
    let starts = |action: &Action| matches!(action, Action::Do(Effect::Start(..)));
    assert!(!actions.iter().any(starts), "{actions:?}");
}

#[test]
fn what_is_over_is_forgotten() {
    let ended = dormouse_messages::events::JobCompleted {
        job: job(),
        reason: String::new(),
        attempts: 0,
        basis: None,
    };
    let events = [
        start(1, None),
        started(&id(1, 0)),
        exited(&id(1, 0)),
        exited(&id(1, 1)),
        ended.into(),
    ];
    let state = fold(&with(admitted_and_placed(), events));
    assert!(state.jobs.is_empty());
}

#[derive(Debug, Clone)]
enum Step {
    Log(Event),
    Up(usize),
    Down(usize),
    Fence,
    Lease,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let incarnation = 1..5_u32;
    prop_oneof![
        3 => (incarnation.clone(), 1..4_u32).prop_map(|(it, ranks)| Step::Log(placed(it, ranks))),
        4 => incarnation.clone().prop_map(|it| Step::Log(start(it, None))),
        2 => incarnation.clone().prop_map(|it| Step::Log(stop(it))),
        2 => incarnation.prop_map(|it| Step::Log(save(it))),
        1 => (1..4_u64).prop_map(|it| Step::Log(lost(it))),
        6 => (0..8_usize).prop_map(Step::Up),
        4 => (0..8_usize).prop_map(Step::Down),
        1 => Just(Step::Fence),
        1 => Just(Step::Lease),
        1 => Just(Step::Crash),
    ]
}

fn act(
    events: &mut Vec<Event>,
    machine: &mut Machine,
    starts: &mut Vec<dormouse_messages::ContainerId>,
) {
    for _ in 0..20 {
        let state = fold(events);
        let before = machine.clone();
        let actions = reconcile(&state, machine);
        if actions.is_empty() {
            return;
        }
        for action in actions {
            apply(machine, &action);
            match action {
                Action::Do(Effect::Start(id, _)) => {
                    assert!(!starts.contains(&id), "{id} is started twice");
                    let others = before.containers.iter().filter(|(other, seen)| {
                        other.job == id.job && other.incarnation != id.incarnation && seen.is_live()
                    });
                    assert_eq!(
                        others.count(),
                        0,
                        "{id} is started beside another incarnation"
                    );
                    assert!(!before.fenced && before.joined.is_some());
                    starts.push(id);
                }
                Action::TellStarted(id, _) => events.push(started(&id)),
                Action::TellExited(id, ..) => {
                    let told = events.iter().any(
                        |event| matches!(event, Event::ContainerExited(it) if it.container == id),
                    );
                    assert!(!told, "the exit of {id} is told twice");
                    events.push(exited(&id));
                }
                Action::Join(incarnation, _) => events.push(joined(incarnation)),
                _ => {}
            }
        }
        let mut again = machine.clone();
        assert_eq!(
            settle_count(&state, &mut again),
            0,
            "deciding again on the same state does more"
        );
    }
    panic!("it does not settle");
}

/// A forgotten container or a join may permit starts.
fn settle_count(state: &AgentState, machine: &mut Machine) -> usize {
    let actions = reconcile(state, machine);
    actions
        .iter()
        .filter(|action| !matches!(action, Action::Do(Effect::Start(..))))
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(prop::test_runner::FileFailurePersistence::Direct("tests/reconcile.regressions"))), ..ProptestConfig::with_cases(256) })]
    #[test]
    fn nothing_runs_twice_or_beside_another_incarnation(steps in prop::collection::vec(step(), 1..60)) {
        let mut events = vec![admitted(spec(&["true"]))];
        let mut machine = Machine::default();
        let mut starts = Vec::new();
        act(&mut events, &mut machine, &mut starts);
        for step in steps {
            let live: Vec<_> = machine.containers.iter()
                .filter(|(_, seen)| seen.is_live()).map(|(id, _)| id.clone()).collect();
            match step {
                Step::Log(event) => events.push(event),
                Step::Up(at) | Step::Down(at) if live.is_empty() => { let _ = at; }
                Step::Up(at) => {
                    let seen = machine.containers.get_mut(&live[at % live.len()]).expect("live");
                    if seen.process == ProcessState::Starting { seen.process = ProcessState::Running(1); }
                }
                Step::Down(at) => {
                    let seen = machine.containers.get_mut(&live[at % live.len()]).expect("live");
                    seen.process = ProcessState::Ended(Exit::default());
                }
                Step::Fence => machine.fenced = true,
                Step::Lease => {
                    if machine.fenced { (machine.fenced, machine.joined) = (false, None); }
                }
                // A successor finds unforgotten containers.
                Step::Crash => {
                    let found = machine.containers.iter().map(|(id, seen)| {
                        let process = if seen.process == ProcessState::Starting { ProcessState::Running(1) } else { seen.process.clone() };
                        (id.clone(), Observed::new(seen.request, process))
                    });
                    machine = Machine { containers: found.collect(), ..Machine::default() };
                }
            }
            act(&mut events, &mut machine, &mut starts);
            let running: std::collections::BTreeSet<_> = machine.containers.iter()
                .filter(|(_, seen)| seen.is_live() && seen.ending == Ending::No)
                .map(|(id, _)| id.incarnation).collect();
            prop_assert!(running.len() <= 1, "{running:?} run at once");
        }
        for seen in machine.containers.values_mut() { seen.process = ProcessState::Ended(Exit::default()); }
        (machine.fenced, machine.joined) = (false, None);
        act(&mut events, &mut machine, &mut starts);
        let state = fold(&events);
        prop_assert!(state.wanted().values().all(|wanted| wanted.want == Want::Run || wanted.known == Known::Exited));
    }
}
