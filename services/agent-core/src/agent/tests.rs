//! Tests of the agent's effects and reports.

use dormouse_messages::events::{
    JobAdmitted, NodeLost, PartitionStartRequested, PlacedContainer, PlacementDecided,
};
use dormouse_messages::{Envelope, Incarnation, Rank, Timestamp, Writer};

use super::*;

const NODE: &str = "n0";

fn id() -> ContainerId {
    "t/j/1/0".parse().expect("a container")
}

struct World {
    agent: Agent,
    last: Sequence,
}

impl World {
    fn new() -> Self {
        let node: NodeId = NODE.parse().expect("a node");
        let capacity = "cpu=4".parse().expect("amounts");
        let offer = Offer::plain(node.clone(), capacity, "test");
        Self {
            agent: Agent::new(offer, AgentState::new(node), false),
            last: Sequence(0),
        }
    }

    fn hear(&mut self, writer: Writer, event: impl Into<Event>) {
        self.last = self.last.next();
        let envelope = Envelope::new("x", writer, Timestamp::default(), None, event.into());
        let recorded = Recorded {
            sequence: self.last,
            stored_at: Timestamp::default(),
            writer,
            envelope,
        };
        assert_eq!(self.agent.hear(&recorded), None);
    }

    fn admit(&mut self, job: JobId) {
        let spec = serde_json::json!({
            "name": job.name(), "tenant": "t", "command": {"start": ["run"]},
            "demand": {"cpu": 1}, "weight": 1, "containers": {"min": 1, "max": 1},
            "checkpoint": {},
        });
        let admitted = JobAdmitted {
            job,
            spec: serde_json::from_value(spec).expect("a job"),
            ingress_sequence: 1,
            by: None,
            basis: None,
        };
        self.hear(Writer::Admission, admitted);
    }

    /// Requests the start of a job and returns the request's sequence.
    fn start(&mut self) -> Sequence {
        self.admit(id().job);
        let place = PlacedContainer {
            job: id().job,
            incarnation: Incarnation(1),
            rank: Rank(0),
            node: NODE.parse().expect("a node"),
            gpus: Vec::new(),
            port: 1,
        };
        let placed = PlacementDecided {
            epoch: Default::default(),
            create: vec![place],
            remove: Vec::new(),
            basis: None,
        };
        self.hear(Writer::Placer, placed);
        let start = PartitionStartRequested {
            job: id().job,
            epoch: Default::default(),
            incarnation: Incarnation(1),
            containers: 1,
            resumed_from: None,
            basis: None,
        };
        self.hear(Writer::Checkpointer, start);
        self.last
    }

    fn effects(&mut self) -> Vec<Effect> {
        self.agent.turn();
        std::iter::from_fn(|| self.agent.next_effect()).collect()
    }

    /// Stores the next report and returns its type.
    fn said(&mut self) -> Option<&'static str> {
        let report = self.agent.to_append()?;
        self.agent.stored();
        Some(report.event.type_name())
    }

    fn live() -> Self {
        let mut world = Self::new();
        world.agent.caught_up();
        world.agent.lease(Lease::Held);
        assert_eq!(world.effects(), [Effect::List]);
        world.agent.listed([]);
        assert_eq!(world.effects(), []);
        assert_eq!(world.joins(), 1);
        world
    }

    /// Confirms the agent's join and returns its incarnation.
    fn joins(&mut self) -> u64 {
        let report = self.agent.to_append().expect("a report");
        self.agent.stored();
        let Event::NodeJoined(joined) = report.event else {
            panic!("{:?}", report.event);
        };
        let incarnation = joined.incarnation;
        self.hear(Writer::Node, *joined);
        incarnation
    }

    fn lost(&mut self, incarnation: u64) {
        let lost = NodeLost {
            node: NODE.parse().expect("a node"),
            incarnation,
            last_seen: Timestamp::default(),
        };
        self.hear(Writer::Placer, lost);
    }
}

#[test]
fn what_a_job_runs_is_open_while_it_is_here_and_packed_else() {
    let mut world = World::live();
    let queued: JobId = "t/queued".parse().expect("a job");
    world.admit(queued.clone());
    world.start();
    let opened = |world: &World, job: &JobId| {
        let state = world.agent.state();
        state.check_invariants().expect("sound");
        let job = state.jobs.get(job).expect("it is live");
        assert_eq!(job.kept.get().expect("it reads").command.start, ["run"]);
        job.spec().is_some()
    };
    assert!(opened(&world, &id().job) && !opened(&world, &queued));
    let node = NODE.parse().expect("a node");
    let exited = crate::report::exited(&id(), &node, crate::Exit::default());
    world.hear(Writer::Node, exited);
    assert!(!opened(&world, &id().job), "its only container is over");
}

#[test]
fn nothing_is_touched_before_the_log_is_heard_and_the_lease_held() {
    let mut world = World::new();
    let request = world.start();
    world.agent.lease(Lease::Held);
    assert_eq!(world.effects(), []);
    world.agent.caught_up();
    assert_eq!(world.effects(), [Effect::List]);
    assert_eq!(world.said(), None, "what runs is not known yet");
    world.agent.listed([]);
    assert_eq!(world.effects(), [], "it joins first");
    assert_eq!(world.joins(), 1);
    assert_eq!(world.effects(), [Effect::Start(id(), request)]);
}

#[test]
fn reports_leave_one_after_the_other() {
    let mut world = World::live();
    let request = world.start();
    assert_eq!(world.effects(), [Effect::Start(id(), request)]);
    world.agent.running(&id(), 7);
    world.effects();
    world.agent.ended(&id(), Exit::default());
    world.effects();
    let first = world.agent.to_append().expect("a report");
    assert_eq!(first.event.type_name(), "dormouse.container.started.v1");
    assert_eq!(first.causes, [request]);
    assert_eq!(world.agent.to_append(), None, "the first is not stored yet");
    assert_eq!(world.agent.unsettled(), 3);
    world.agent.stored();
    assert_eq!(world.said(), Some("dormouse.container.exited.v1"));
    assert_eq!(world.said(), None);
}

#[test]
fn a_container_that_could_not_start_is_told_in_the_same_turn() {
    let mut world = World::live();
    world.start();
    world.agent.turn();
    assert!(matches!(world.agent.next_effect(), Some(Effect::Start(..))));
    let why = crate::NotStarted::from("no such program");
    world.agent.ended(&id(), Exit::cannot_start(&why));
    assert_eq!(world.agent.next_effect(), None);
    assert_eq!(world.said(), Some("dormouse.container.exited.v1"));
}

#[test]
fn a_fence_takes_everything_away_and_the_lease_lets_it_join_again() {
    let mut world = World::live();
    world.start();
    world.effects();
    world.agent.running(&id(), 7);
    world.agent.lease(Lease::Fence);
    let evicted = world.effects();
    assert!(matches!(&evicted[..], [Effect::Evict(of, _)] if *of == id()));
    assert!(world.agent.lease(Lease::Held));
    assert_eq!(world.effects(), [], "it joins when nothing runs any more");
    world.agent.ended(&id(), Exit::evicted("fenced".to_owned()));
    world.effects();
    let said: Vec<_> = std::iter::from_fn(|| world.said()).collect();
    let expected = [
        "dormouse.container.started.v1",
        "dormouse.container.exited.v1",
        "dormouse.node.joined.v1",
    ];
    assert_eq!(said, expected);
}

/// The request precedes the fence.
#[test]
fn after_a_fence_nothing_starts_before_all_is_heard_that_happened_meanwhile() {
    let mut world = World::live();
    world.agent.lease(Lease::Fence);
    assert_eq!(world.effects(), []);
    assert!(world.agent.lease(Lease::Held));
    assert_eq!(world.effects(), []);
    let joined = world.agent.to_append().expect("a report");
    assert_eq!(joined.event.type_name(), "dormouse.node.joined.v1");
    world.agent.stored();
    world.start();
    assert_eq!(world.effects(), [], "another node may run it by now");
    world.lost(1);
    assert_eq!(world.effects(), []);
    assert_eq!(world.said(), Some("dormouse.container.exited.v1"));
}

#[test]
fn an_agent_whose_node_was_lost_ends_what_it_adopts() {
    let mut before = World::live();
    let request = before.start();
    before.lost(1);
    let offer = before.agent.offer().clone();
    let mut agent = Agent::new(offer, before.agent.into_state(), true);
    agent.caught_up();
    assert_eq!(agent.next_effect(), Some(Effect::List));
    agent.listed([Adopted {
        container: id(),
        request,
        status: Ok(7),
        evicting: false,
    }]);
    agent.turn();
    let effects: Vec<_> = std::iter::from_fn(|| agent.next_effect()).collect();
    assert!(matches!(&effects[..], [Effect::Evict(of, _)] if *of == id()));
}

/// Returns effects and reports of an agent after a rollback to the start of a container, which loses `later`.
/// `found`: the container still runs.
fn set_back(later: impl FnOnce(&mut World), found: bool) -> (Vec<Effect>, Vec<Event>) {
    let mut before = World::live();
    let request = before.start();
    let kept = before.agent.state().clone();
    later(&mut before);
    let offer = before.agent.offer().clone();
    let mut agent = Agent::new(offer, kept, true).after(Some(before.agent.into_state()));
    agent.caught_up();
    assert_eq!(agent.next_effect(), Some(Effect::List));
    agent.listed(found.then(|| Adopted {
        container: id(),
        request,
        status: Ok(7),
        evicting: false,
    }));
    agent.turn();
    let effects = std::iter::from_fn(|| agent.next_effect()).collect();
    let mut said = Vec::new();
    while let Some(report) = agent.to_append() {
        said.push(report.event);
        agent.stored();
    }
    (effects, said)
}

#[test]
fn what_the_log_went_back_behind_ends_and_does_not_start_again() {
    assert_eq!(set_back(|_| {}, true).0, []);
    let stopped = |world: &mut World| world.lost(1);
    let (effects, _) = set_back(stopped, true);
    assert!(
        matches!(&effects[..], [Effect::Evict(of, why)] if *of == id() && why.contains("went back"))
    );
    let (effects, said) = set_back(stopped, false);
    assert_eq!(effects, []);
    let exited = said.iter().find_map(|event| match event {
        Event::ContainerExited(event) => Some(event),
        _ => None,
    });
    let exited = exited.expect("its end is told");
    assert!(
        exited.evicted
            && exited
                .reason
                .as_ref()
                .is_some_and(|it| it.contains("went back"))
    );
}
