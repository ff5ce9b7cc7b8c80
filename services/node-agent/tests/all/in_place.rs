//! Tests of in-place reconciliation. Random histories: starts and stops follow the log, announced generations
//! never decrease.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::*;
use dormouse_agent_core::Exit;
use dormouse_messages::events::ResizeCause;
use dormouse_messages::{ContainerId, Event, Fold, Incarnation, Rank, Sequence};
use dormouse_node_agent::reconcile::{
    Action, Effect, Machine, Observed, ProcessState, apply, reconcile,
};
use dormouse_node_agent::state::{AgentState, Announced, Want};
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

struct World {
    events: Vec<Event>,
    machine: Machine,
}

impl World {
    fn given(spec: dormouse_messages::job::JobSpec) -> Self {
        let machine = Machine {
            joined: Some(1),
            ..Machine::default()
        };
        let events = vec![joined(1), admitted(spec), placed(1, 2), start(1, None)];
        let mut world = Self { events, machine };
        let actions = world.when([]);
        assert_eq!(told(&actions), [(0, vec![0, 1], vec![])]);
        assert_eq!(started_of(&actions), [(0, 4), (1, 4)]);
        assert!(
            matches!(actions[0], Action::Do(Effect::Announce(..))),
            "first of all"
        );
        world.run();
        world
    }

    fn when(&mut self, events: impl IntoIterator<Item = Event>) -> Vec<Action> {
        self.events.extend(events);
        settle(&fold(&self.events), &mut self.machine)
    }

    fn run(&mut self) {
        for (id, seen) in &mut self.machine.containers {
            if seen.process == ProcessState::Starting {
                seen.process = ProcessState::Running(7);
                self.events.push(started(id));
            }
        }
        let told = self.when([]);
        assert_eq!(told, [], "the log knows");
    }

    fn end(&mut self, rank: u32) -> Vec<Action> {
        let seen = self.machine.containers.get_mut(&id(1, rank));
        seen.expect("it is there").process = ProcessState::Ended(Exit::default());
        let mut actions = self.when([]);
        let is_exit = |action: &Action| matches!(action, Action::TellExited(..));
        assert!(actions.iter().any(is_exit), "{actions:?}");
        actions.extend(self.when([exited(&id(1, rank))]));
        actions
    }

    fn next(&self) -> u64 {
        self.events.len() as u64 + 1
    }
}

fn numbers(ranks: &BTreeSet<Rank>) -> Vec<u32> {
    ranks.iter().map(|rank| rank.0).collect()
}

fn told(actions: &[Action]) -> Vec<(u32, Vec<u32>, Vec<u32>)> {
    let told = actions.iter().filter_map(|action| match action {
        Action::Do(Effect::Announce(_, _, it)) => {
            Some((it.generation, numbers(&it.members), numbers(&it.leaving)))
        }
        _ => None,
    });
    told.collect()
}

fn started_of(actions: &[Action]) -> Vec<(u32, u64)> {
    let started = actions.iter().filter_map(|action| match action {
        Action::Do(Effect::Start(id, request)) => Some((id.rank.0, request.0)),
        _ => None,
    });
    started.collect()
}

fn stopped_of(actions: &[Action]) -> Vec<u32> {
    let stopped = actions.iter().filter_map(|action| match action {
        Action::Do(Effect::Stop(id)) => Some(id.rank.0),
        _ => None,
    });
    stopped.collect()
}

const ADJUSTED: ResizeCause = ResizeCause::Adjusted;

#[test]
fn what_is_added_to_a_partition_starts_when_that_is_requested_and_is_told_when_it_has_joined() {
    let mut world = World::given(elastic(&["true"]));
    let added = placed_more(1, &[(2, NODE), (3, "n1")]);
    assert_eq!(world.when([joined_as("n1"), added]), [], "placed alone");
    let request = world.next();
    let actions = world.when([resize(1, &[2, 3], &[], &[0, 1], ADJUSTED)]);
    assert_eq!(
        actions,
        [Action::Do(Effect::Start(id(1, 2), Sequence(request)))]
    );
    world.run();
    let actions = world.when([resized(1, &[0, 1, 2, 3], ADJUSTED)]);
    assert_eq!(told(&actions), [(1, vec![0, 1, 2, 3], vec![])]);
    assert_eq!(actions.len(), 1);
}

#[test]
fn members_are_told_at_once_who_leaves_and_nobody_is_stopped_before_that_is_requested() {
    let mut world = World::given(elastic(&["true"]));
    let actions = world.when([resize(1, &[], &[1], &[0], ADJUSTED)]);
    assert_eq!(told(&actions), [(1, vec![0], vec![1])]);
    assert_eq!(actions.len(), 1, "nobody is stopped");
    let state = fold(&world.events);
    let (_, partition) = state.partition(&id(1, 0)).expect("here");
    let deadline = partition
        .members
        .as_ref()
        .and_then(|it| it.announced.deadline);
    let requested = i64::try_from(world.events.len()).expect("small");
    assert_eq!(
        deadline.map(|at| at.as_micros()),
        Some(requested + 5_000_000)
    );
    assert_eq!(stopped_of(&world.when([leave(1, &[1])])), [1]);
    assert!(
        world
            .end(1)
            .contains(&Action::Do(Effect::Forget(id(1, 1), Sequence(4))))
    );
    let actions = world.when([resized(1, &[0], ADJUSTED)]);
    assert_eq!(told(&actions), [(1, vec![0], vec![])]);
    let state = fold(&world.events);
    let (_, partition) = state.partition(&id(1, 0)).expect("here");
    assert_eq!(partition.gang.len(), 1, "it is forgotten");
    assert_eq!(partition.containers(), 1);
}

#[test]
fn replicas_are_not_told_that_they_leave() {
    let mut world = World::given(service(&["true"]));
    assert_eq!(world.when([resize(1, &[], &[0], &[1], ADJUSTED)]), []);
    assert_eq!(stopped_of(&world.when([leave(1, &[0])])), [0]);
    world.end(0);
    let actions = world.when([resized(1, &[1], ADJUSTED)]);
    assert_eq!(told(&actions), [(1, vec![1], vec![])]);
}

#[test]
fn a_member_that_died_is_taken_out_and_who_was_leaving_leaves() {
    let mut world = World::given(elastic(&["true"]));
    world.when([placed_more(1, &[(2, NODE)])]);
    world.when([resize(1, &[2], &[], &[0, 1], ADJUSTED)]);
    world.run();
    world.when([resized(1, &[0, 1, 2], ADJUSTED)]);
    world.when([resize(2, &[], &[2], &[0, 1], ADJUSTED)]);
    world.end(1);
    let actions = world.when([resized(3, &[0, 2], ResizeCause::Lost)]);
    assert_eq!(told(&actions), [(3, vec![0], vec![2])]);
    assert_eq!(actions.len(), 1);
    world.end(2);
    let actions = world.when([resized(4, &[0], ADJUSTED)]);
    assert_eq!(told(&actions), [(4, vec![0], vec![])]);
}

#[test]
fn an_agent_that_has_no_member_knows_those_of_the_others_when_one_joins() {
    let gang = placed_on(1, &["n1", "n1"]);
    let events = [
        joined(1),
        joined_as("n1"),
        admitted(elastic(&["true"])),
        gang,
    ];
    let machine = Machine {
        joined: Some(1),
        ..Machine::default()
    };
    let mut world = World {
        events: events.into(),
        machine,
    };
    assert_eq!(world.when([start(1, None)]), []);
    world.when([placed_more(1, &[(2, NODE)])]);
    let request = world.next();
    let actions = world.when([resize(1, &[2], &[], &[0, 1], ADJUSTED)]);
    assert_eq!(told(&actions), [(0, vec![0, 1], vec![])], "as it stands");
    assert_eq!(started_of(&actions), [(2, request)]);
    world.run();
    world.when([resized(1, &[0, 1, 2], ADJUSTED)]);
    // The file goes, the incarnation stays.
    world.when([resize(2, &[], &[2], &[0, 1], ADJUSTED), leave(2, &[2])]);
    let actions = world.end(2);
    assert!(
        matches!(actions.last(), Some(Action::Do(Effect::Withdraw(..)))),
        "{actions:?}"
    );
    world.when([resized(2, &[0, 1], ADJUSTED)]);
    let state = fold(&world.events);
    let job = &state.jobs[&job()];
    assert_eq!(job.partitions[&Incarnation(1)].gang.len(), 2);
    let next = [stop(1), placed_on(2, &["n1"]), start(2, None)];
    let state = fold(&[world.events, next.into()].concat());
    let incarnations: Vec<_> = state.jobs[&self::job()].partitions.keys().collect();
    assert_eq!(incarnations, [&Incarnation(2)]);
    let over = [Event::from(dormouse_messages::events::JobCompleted {
        job: self::job(),
        reason: String::new(),
        attempts: 0,
        basis: None,
    })];
    let events = [
        joined(1),
        admitted(elastic(&["true"])),
        placed_on(1, &["n1"]),
        start(1, None),
    ];
    assert!(fold(&[&events[..], &over].concat()).jobs.is_empty());
}

#[test]
fn a_loss_of_the_node_takes_what_ran_here_and_not_what_comes_later() {
    let mut world = World::given(elastic(&["true"]));
    let gang = placed_on(2, &["n1", NODE]);
    world.events.truncate(2);
    world.machine.containers.clear();
    world.when([joined_as("n1"), gang, start(2, None)]);
    world.run();
    world.when([lost(1)]);
    let wanted = fold(&world.events).wanted();
    assert!(matches!(wanted[&id(2, 1)].want, Want::Gone(_)));
    world.machine.containers.clear();
    world.when([
        exited(&id(2, 1)),
        joined(2),
        resized(1, &[0], ResizeCause::Lost),
    ]);
    world.machine.joined = Some(2);
    world.when([placed_more(2, &[(2, NODE)])]);
    let mut join = resize(2, &[2], &[], &[0], ADJUSTED);
    if let Event::PartitionResizeRequested(event) = &mut join {
        event.incarnation = Incarnation(2);
    }
    let request = world.next();
    assert_eq!(started_of(&world.when([join])), [(2, request)]);
}

/// Otherwise the job would never end (fault trials, seed 2).
#[test]
fn a_request_that_crossed_the_taking_back_of_a_place_counts() {
    let mut world = World::given(elastic(&["true"]));
    world.when([placed_more(1, &[(2, NODE)]), taken_back(1, &[2])]);
    let request = world.next();
    let done = world.when([resize(1, &[2], &[], &[0, 1], ADJUSTED)]);
    assert_eq!(started_of(&done), [(2, request)]);
}

#[test]
fn what_was_placed_and_taken_back_never_starts_on_a_later_request() {
    let mut world = World::given(elastic(&["true"]));
    world.when([placed_more(1, &[(2, NODE)]), taken_back(1, &[2])]);
    world.when([placed_more(1, &[(4, NODE)])]);
    world.when([resize(1, &[4], &[], &[0, 1], ADJUSTED)]);
    assert_eq!(world.when([resize(2, &[2], &[], &[0, 1], ADJUSTED)]), []);
    // A placement does not revoke a requested start.
    world.when([placed_more(1, &[(3, NODE)])]);
    world.when([resize(3, &[3], &[], &[0, 1], ADJUSTED)]);
    assert_eq!(world.when([taken_back(1, &[3])]), []);
}

#[test]
fn a_stop_stops_everybody_and_one_that_joined_as_well() {
    let mut world = World::given(elastic(&["true"]));
    world.when([placed_more(1, &[(2, NODE)])]);
    world.when([resize(1, &[2], &[], &[0, 1], ADJUSTED)]);
    world.run();
    assert_eq!(stopped_of(&world.when([stop(1)])), [0, 1, 2]);
    for rank in [0, 1, 2] {
        world.end(rank);
    }
    assert!(world.machine.told.is_empty(), "the file goes");
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

fn ranks() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::btree_set(0..6_u32, 0..4).prop_map(|ranks| ranks.into_iter().collect())
}

fn step() -> impl Strategy<Value = Step> {
    let (generation, incarnation) = (1..7_u32, 1..3_u32);
    let place = (0..6_u32, prop::bool::ANY);
    let change = (generation.clone(), ranks(), ranks(), ranks());
    prop_oneof![
        2 => incarnation.clone().prop_map(|it| Step::Log(placed(it, 2))),
        3 => incarnation.clone().prop_map(|it| Step::Log(start(it, None))),
        1 => incarnation.clone().prop_map(|it| Step::Log(stop(it))),
        4 => (incarnation.clone(), place).prop_map(|(it, (rank, here))| {
            Step::Log(placed_more(it, &[(rank, if here { NODE } else { "n1" })]))
        }),
        1 => (incarnation, ranks()).prop_map(|(it, ranks)| Step::Log(taken_back(it, &ranks))),
        6 => change.prop_map(|(it, join, leave, stay)| {
            Step::Log(resize(it, &join, &leave, &stay, ADJUSTED))
        }),
        3 => (generation.clone(), ranks()).prop_map(|(it, ranks)| Step::Log(leave(it, &ranks))),
        4 => (generation, ranks(), prop::bool::ANY).prop_map(|(it, ranks, died)| {
            Step::Log(resized(it, &ranks, if died { ResizeCause::Lost } else { ADJUSTED }))
        }),
        1 => (1..4_u64).prop_map(|it| Step::Log(lost(it))),
        6 => (0..8_usize).prop_map(Step::Up),
        4 => (0..8_usize).prop_map(Step::Down),
        1 => Just(Step::Fence),
        1 => Just(Step::Lease),
        1 => Just(Step::Crash),
    ]
}

#[derive(Default)]
struct Asked {
    starts: BTreeSet<ContainerId>,
    stops: BTreeSet<ContainerId>,
}

fn asked(events: &[Event]) -> Asked {
    let mut asked = Asked::default();
    let mut placed: BTreeSet<ContainerId> = BTreeSet::new();
    let of = |incarnation: Incarnation, ranks: &[Rank]| -> Vec<ContainerId> {
        ranks.iter().map(|rank| id(incarnation.0, rank.0)).collect()
    };
    for event in events {
        match event {
            Event::PlacementDecided(it) => placed.extend(it.create.iter().map(|it| it.container())),
            Event::PartitionStartRequested(it) => {
                let own = placed.iter().filter(|id| id.incarnation == it.incarnation);
                asked.starts.extend(own.cloned());
            }
            Event::PartitionResizeRequested(it) => {
                asked.starts.extend(of(it.incarnation, &it.join));
            }
            Event::PartitionLeaveRequested(it) => {
                asked.stops.extend(of(it.incarnation, &it.ranks));
            }
            Event::PartitionStopRequested(it) => {
                let own = asked
                    .starts
                    .iter()
                    .filter(|id| id.incarnation == it.incarnation);
                asked.stops.extend(own.cloned().collect::<Vec<_>>());
            }
            _ => {}
        }
    }
    asked
}

#[derive(Default)]
struct Done {
    starts: BTreeSet<ContainerId>,
    told: BTreeMap<Incarnation, Announced>,
}

fn gives_again(event: &Event, done: &Done) -> bool {
    let Event::PlacementDecided(event) = event else {
        return false;
    };
    let mut created = event.create.iter();
    created.any(|it| done.starts.contains(&it.container()))
}

fn act(events: &mut Vec<Event>, machine: &mut Machine, done: &mut Done) {
    for _ in 0..30 {
        let actions = reconcile(&fold(events), machine);
        if actions.is_empty() {
            return;
        }
        let asked = asked(events);
        for action in actions {
            apply(machine, &action);
            match action {
                Action::Do(Effect::Start(id, _)) => {
                    assert!(asked.starts.contains(&id), "{id} starts unasked");
                    assert!(done.starts.insert(id.clone()), "{id} is started twice");
                    let told = machine.told.contains_key(&(id.job.clone(), id.incarnation));
                    assert!(told, "{id} starts without its members' file");
                }
                Action::Do(Effect::Stop(id)) => {
                    assert!(asked.stops.contains(&id), "{id} is stopped unasked");
                }
                Action::Do(Effect::Announce(_, incarnation, it)) => {
                    let before = done.told.insert(incarnation, it.clone());
                    let before = before.map_or(0, |before| before.generation);
                    assert!(it.generation >= before, "generation {before}, then {it:?}");
                }
                Action::TellStarted(id, _) => events.push(started(&id)),
                Action::TellExited(id, ..) => events.push(exited(&id)),
                Action::Join(incarnation, _) => events.push(joined(incarnation)),
                _ => {}
            }
        }
    }
    panic!("it does not settle");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: Some(Box::new(prop::test_runner::FileFailurePersistence::Direct("tests/in_place.regressions"))), ..ProptestConfig::with_cases(384) })]
    #[test]
    fn nothing_runs_or_leaves_that_the_log_does_not_ask_for(steps in prop::collection::vec(step(), 1..60), is_service in prop::bool::ANY) {
        let spec = if is_service { service(&["true"]) } else { elastic(&["true"]) };
        let mut events = vec![admitted(spec), joined_as("n1")];
        let (mut machine, mut done) = (Machine::default(), Done::default());
        act(&mut events, &mut machine, &mut done);
        for step in steps {
            let live: Vec<_> = machine.containers.iter()
                .filter(|(_, seen)| seen.is_live()).map(|(id, _)| id.clone()).collect();
            let at = |at: usize| live.get(at % live.len().max(1));
            match step {
                // The placer never reuses a number.
                Step::Log(event) if gives_again(&event, &done) => {}
                Step::Log(event) => events.push(event),
                Step::Up(place) => {
                    if let Some(seen) = at(place).and_then(|id| machine.containers.get_mut(id))
                        && seen.process == ProcessState::Starting { seen.process = ProcessState::Running(1); }
                }
                Step::Down(place) => {
                    if let Some(seen) = at(place).and_then(|id| machine.containers.get_mut(id)) {
                        seen.process = ProcessState::Ended(Exit::default());
                    }
                }
                Step::Fence => machine.fenced = true,
                Step::Lease => {
                    if machine.fenced { (machine.fenced, machine.joined) = (false, None); }
                }
                Step::Crash => {
                    let found = machine.containers.iter().map(|(id, seen)| {
                        let process = if seen.process == ProcessState::Starting { ProcessState::Running(1) } else { seen.process.clone() };
                        (id.clone(), Observed::new(seen.request, process))
                    });
                    machine = Machine { containers: found.collect(), ..Machine::default() };
                }
            }
            act(&mut events, &mut machine, &mut done);
            let asked = asked(&events);
            for (id, seen) in &machine.containers {
                prop_assert!(!seen.is_live() || asked.starts.contains(id), "{id} runs unasked");
            }
        }
    }
}
