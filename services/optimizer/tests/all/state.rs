//! The problem posed by a folded log.

use dormouse_messages::events::{
    AllocationDecided, Basis, NodeDrained, NodeFenced, PlacementDecided, TenantConfigured,
};
use dormouse_messages::job::{CheckpointMode, Kind};
use dormouse_messages::{
    Body, Decider as _, Envelope, Epoch, Event, Fold, Incarnation, JobId, Rank, Recorded, Sequence,
    Timestamp, Writer,
};
use dormouse_optimizer::problem::Budget;
use dormouse_optimizer::{Optimizer, problem_of};
use dormouse_state::history::{History, at, job, node, spec};
use dormouse_state::{Assignment, ClusterState, Job, Place};

fn folded(log: &str) -> ClusterState {
    let mut state = ClusterState::default();
    for line in log.lines() {
        let (_, recorded) = Recorded::from_json(line).expect("a record");
        state.evolve(&recorded);
    }
    state
}

fn begins(history: &mut History) {
    history.allocate(1, &[("ads/a", 0, 1)], &[]);
    history.place(1, "ads/a", 1, &[("n0", 1)]);
    history.request_start(1, "ads/a", 1, 1);
    history.container_started("ads/a", 1, 0, "n0");
    history.started(1, "ads/a", 1, 1);
}

/// The placer keeps the cancelled job's places on n1 until the job has ended; an allocation that used them
/// would be refused again and again.
#[test]
fn a_cancelled_job_keeps_its_places_until_it_has_ended() {
    let state = folded(include_str!("../data/cancelled-in-transit.jsonl"));
    let problem = problem_of(&state, Timestamp::default(), Budget::default());
    assert_eq!(problem.jobs.len(), 1, "the cancelled one takes no part");
    let node = |name: &str| problem.nodes.iter().find(|node| node.name.as_str() == name);
    assert!(node("n0").is_none(), "n0 is drained");
    let reserved = &node("n1").expect("n1").reserved;
    assert_eq!(reserved.to_string(), "cpu=8,memory=4Gi");
    assert!(node("n2").expect("n2").reserved.is_empty());
}

/// A lost node held a service's replica and part of a gang. Nothing would trigger another decision if one
/// were left out.
#[test]
fn a_service_that_lacks_a_replica_and_a_job_start_together() {
    let log = include_str!("../data/service-and-training-after-a-loss.jsonl");
    let state = folded(log);
    let problem = problem_of(&state, state.now, Budget::default());
    let solution = dormouse_optimizer::solve(&problem);
    let containers = |name: &str| {
        let share = solution.jobs.iter().find(|it| it.job.name() == name);
        share.map(|it| it.containers)
    };
    assert_eq!((containers("sv2"), containers("ck8")), (Some(1), Some(7)));
    assert_eq!(solution.waiting, []);
}

/// A member died and its capacity is not given back: all counts must see the smaller partition.
#[test]
fn what_is_left_of_a_partition_in_place_is_said() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/a")
        .release("ads/a");
    history.allocate(1, &[("ads/a", 0, 2)], &[]);
    history.place(1, "ads/a", 1, &[("n0", 2)]);
    history.request_start(1, "ads/a", 1, 2);
    for rank in 0..2 {
        history.container_started("ads/a", 1, rank, "n0");
    }
    history.started(1, "ads/a", 1, 2);
    let one = history.fold::<ClusterState>().jobs[&job("ads/a")]
        .demand
        .clone();
    history.push_by(
        Writer::Operator,
        TenantConfigured {
            tenant: "ads".parse().expect("a tenant"),
            weight: 1,
            quota: one.to_string().parse().expect("a quota"),
            max_job_weight: None,
            priority: None,
        },
    );
    history.container_exited("ads/a", 1, 1, "n0", Some(1));
    history.resized(1, "ads/a", 1, &[0]);
    let decides = |history: &History| {
        let state = history.fold::<ClusterState>();
        let decision = Optimizer::default().decide(&state, history.now());
        decision.proposals.into_iter().next().map(|it| it.event)
    };
    let Some(Event::AllocationDecided(decided)) = decides(&history) else {
        panic!("nothing is said");
    };
    let said: Vec<_> = decided
        .jobs
        .iter()
        .map(|it| (it.previous, it.containers))
        .collect();
    assert_eq!(said, [(2, 1)]);
    history.push(*decided);
    let state = history.fold::<ClusterState>();
    let again = Optimizer::default().make(&state, history.now()).event;
    assert!(
        matches!(again, Event::AllocationUnchanged(_)),
        "it is said once"
    );
}

/// A notebook's kernels live in its server's memory; replicas of a service are interchangeable.
#[test]
fn a_notebooks_server_stays_where_it_is() {
    let stays = |kind: Kind| {
        let mut history = History::default();
        history.join("n0", 1).admit_in_place("ads/a");
        let admitted = history.log.last_mut().expect("just pushed");
        if let Body::Event(Event::JobAdmitted(event)) = &mut admitted.envelope.body {
            event.spec.kind = kind;
        }
        history.release("ads/a");
        begins(&mut history);
        let state = history.fold::<ClusterState>();
        let problem = problem_of(&state, history.now(), Budget::default());
        let in_place = problem.jobs[0].in_place.clone();
        in_place.expect("it is resized in place").coordinator
    };
    assert_eq!(stays(Kind::Notebook), Some(node("n0")));
    assert_eq!(stays(Kind::Training), Some(node("n0")));
    assert_eq!(stays(Kind::Inference), None);
}

/// The moved job is stopped anyway; without its own capacity it would start smaller and restart once more.
#[test]
fn a_job_that_leaves_a_drained_node_gets_its_own_room_on_the_others() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1).submit("ads/a");
    let admitted = history.log.last_mut().expect("just pushed");
    if let Body::Event(Event::JobAdmitted(event)) = &mut admitted.envelope.body {
        event.spec.checkpoint.mode = CheckpointMode::Exit;
    }
    history.release("ads/a");
    history.allocate(1, &[("ads/a", 0, 7)], &[]);
    history.place(1, "ads/a", 1, &[("n0", 4), ("n1", 3)]);
    history.request_start(1, "ads/a", 1, 7);
    for rank in 0..7 {
        let name = if rank < 4 { "n0" } else { "n1" };
        history.container_started("ads/a", 1, rank, name);
    }
    history.started(1, "ads/a", 1, 7);
    history.push(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    let state = history.fold::<ClusterState>();
    let problem = problem_of(&state, history.now(), Budget::default());
    assert!(problem.jobs[0].displaced);
    let solution = dormouse_optimizer::solve(&problem);
    assert_eq!(solution.jobs[0].containers, 4);
}

/// A recorded decision without a trigger is still remade.
#[test]
fn what_nothing_asks_for_any_more_is_made_again() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/a");
    let admitted = history.log.last_mut().expect("just pushed");
    if let Body::Event(Event::JobAdmitted(event)) = &mut admitted.envelope.body {
        event.spec.checkpoint.mode = CheckpointMode::None;
    }
    history.release("ads/a");
    begins(&mut history);
    let (state, now) = (history.fold::<ClusterState>(), history.now());
    let optimizer = Optimizer::default();
    assert_eq!(optimizer.decide(&state, now).proposals, []);
    let again = optimizer.decide_again(&state, now, optimizer.budget());
    let again = again.proposals.first().map(|it| it.event.type_name());
    assert_eq!(again, Some("dormouse.allocation.unchanged.v1"));
}

#[test]
fn an_end_waits_a_moment_for_the_release_that_follows() {
    let optimizer = Optimizer::default();
    let mut history = History::default();
    history.join("n0", 1);
    for job in ["ads/a", "ads/b"] {
        history.submit(job).release(job);
    }
    history.allocate(1, &[("ads/a", 0, 1), ("ads/b", 0, 1)], &[]);
    history.place(1, "ads/a", 1, &[("n0", 1)]);
    history.place(1, "ads/b", 1, &[("n0", 1)]);
    let put_off = |history: &History| optimizer.put_off_until(&history.fold::<ClusterState>());
    let mut alone = history.clone();
    alone.complete("ads/a");
    assert_eq!(put_off(&alone), None, "nobody is queued");
    history.submit("ads/c");
    assert_eq!(put_off(&history), None);
    history.complete("ads/a");
    let until = history.now().plus_ms(20);
    assert_eq!(put_off(&history), Some(until));
    history.complete("ads/b");
    assert_eq!(
        put_off(&history),
        Some(until),
        "not put off again and again"
    );
    history.release("ads/c");
    assert_eq!(put_off(&history), None);
}

/// Jobs with long names whose node is fenced.
fn fenced(jobs: u32, name_bytes: usize) -> ClusterState {
    let mut history = History::default();
    history.join_with("n0", 1, "cpu=100000,memory=100000Gi");
    history.join_with("n1", 1, "cpu=1,memory=1Gi");
    let mut state: ClusterState = history.fold();
    let filler = "x".repeat(name_bytes);
    for number in 0..jobs {
        let name = format!("{filler}{number}");
        let id: JobId = format!("t/{}", &name[name.len() - name_bytes..])
            .parse()
            .expect("an id");
        let mut job = Job::admitted(&spec(&id), Sequence(1), at(0));
        job.released = Some(Sequence(1));
        let place = Place {
            node: node("n0"),
            gpus: Vec::new(),
            port: 0,
        };
        job.assignment = Some(Assignment {
            epoch: Epoch(1),
            incarnation: Incarnation(1),
            placed: Sequence(2),
            places: [(Rank(0), place)].into(),
            next: Rank(1),
            dropped: Default::default(),
            lost: 0,
            displaced: false,
        });
        state.jobs.insert(id, job);
    }
    let fenced = NodeFenced {
        node: node("n0"),
        incarnation: 1,
        reason: "its supervisor ended its containers".to_owned(),
    };
    fold(&mut state, fenced.into());
    state
}

fn fold(state: &mut ClusterState, event: Event) {
    let writer = event.writers()[0];
    let sequence = state.sequence.next();
    let now = state.now.plus_ms(1_000);
    state.evolve(&Recorded {
        sequence,
        stored_at: now,
        writer,
        envelope: Envelope::new(sequence.to_string(), writer, now, None, event),
    });
}

/// One decision about all of them would exceed the log's message limit.
#[test]
fn a_decision_about_20_000_jobs_is_several_that_the_log_takes() {
    let mut state = fenced(20_000, 60);
    let mut named = std::collections::BTreeSet::new();
    for decisions in 1.. {
        assert!(decisions < 20, "{} jobs are told", named.len());
        let decision = Optimizer::default().decide(&state, state.now);
        let Some(proposal) = decision.proposals.into_iter().next() else {
            break;
        };
        // JSON is longer than the log's form.
        let bytes = serde_json::to_vec(&proposal.event).expect("encodes").len();
        assert!(bytes < 4 << 20, "decision {decisions} has {bytes} bytes");
        let mut event = proposal.event;
        event.set_basis(Some(Basis {
            asof: state.sequence,
            now: state.now,
            ..Basis::default()
        }));
        let allocation = match &event {
            Event::AllocationDecided(allocation) => Some(AllocationDecided::clone(allocation)),
            _ => None,
        };
        fold(&mut state, event);
        if let Some(allocation) = allocation {
            named.extend(allocation.jobs.iter().map(|job| job.job.clone()));
            let placed = PlacementDecided {
                epoch: allocation.epoch,
                create: Vec::new(),
                remove: Vec::new(),
                basis: None,
            };
            fold(&mut state, placed.into());
        }
    }
    assert_eq!(named.len(), 20_000);
    assert!(state.jobs.values().all(|job| job.assignment.is_none()));
}
