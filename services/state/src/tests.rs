//! Tests of the shared fold with lagging writers.

use dormouse_messages::Fold;
use dormouse_messages::events::{
    AllocationUnchanged, Basis, JobAdmitted, JobRequeued, JobRevised, NodeDrained, NodeFenced,
    NodeLost, NodeRecovered, PartitionResizeRequested, PlacedContainer, PlacementDecided,
    ResizeCause, StopReason,
};
use dormouse_messages::job::{CheckpointMode, JobSpec};
use dormouse_messages::service::Resize;
use dormouse_messages::{Body, Epoch, Event, Incarnation, Rank, Sequence, Timestamp};

use super::{ClusterState, ContainerPhase, Job, NodePhase, SavedCheckpoint};
use crate::history::{History, job, node, outcome, spec};

fn fold(history: &History) -> ClusterState {
    let mut state = ClusterState::default();
    for recorded in &history.log {
        state.evolve(recorded);
        state.check_invariants().expect("invariants hold");
    }
    state
}

/// A job placed on `n0` and not started.
fn placed() -> History {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.submit("t/a").release("t/a");
    history.allocate(1, &[("t/a", 0, 2)], &[]);
    history.place(1, "t/a", 1, &[("n0", 2)]);
    history
}

fn lose(history: &mut History, name: &str) {
    history.push(NodeLost {
        node: node(name),
        incarnation: 1,
        last_seen: Timestamp::default(),
    });
}

#[test]
fn a_start_that_crossed_a_newer_placement_runs_where_it_was_placed() {
    let mut history = placed();
    history.allocate(2, &[("t/a", 2, 1)], &[]);
    history.place(2, "t/a", 2, &[("n1", 1)]);
    // The checkpointer had not seen the second placement.
    history.request_start(1, "t/a", 1, 2);
    let state = fold(&history);
    let job = &state.jobs[&job("t/a")];
    let partition = job.partition.as_ref().expect("it lives");
    let nodes: Vec<&str> = partition
        .containers
        .values()
        .map(|c| c.place.node.as_str())
        .collect();
    assert_eq!(nodes, ["n0", "n0"]);
    assert_eq!(
        job.assignment.as_ref().expect("assigned").incarnation,
        Incarnation(2)
    );
    assert!(job.in_transit());
}

#[test]
fn a_start_that_crossed_the_loss_of_its_room_is_a_partition_that_must_be_stopped() {
    let mut history = placed();
    history.allocate(2, &[("t/a", 2, 0)], &[("t/a", "waits")]);
    history.place(2, "t/b", 1, &[]);
    history.request_start(1, "t/a", 1, 2);
    let state = fold(&history);
    let job = &state.jobs[&job("t/a")];
    assert!(job.assignment.is_none());
    assert_eq!(
        job.partition.as_ref().map(|it| it.containers.len()),
        Some(2)
    );
}

#[test]
fn a_container_asked_of_a_lost_node_is_lost_at_once() {
    let mut history = placed();
    lose(&mut history, "n0");
    history.request_start(1, "t/a", 1, 2);
    let state = fold(&history);
    assert!(matches!(
        state.nodes.get(&node("n0")).expect("known").phase,
        NodePhase::Lost { .. }
    ));
    let partition = state.jobs[&job("t/a")]
        .partition
        .as_ref()
        .expect("it lives");
    let lost = |c: &super::PartitionContainer| matches!(c.phase, ContainerPhase::Lost { .. });
    assert!(partition.containers.values().all(lost) && partition.is_over());
}

#[test]
fn newcomers_asked_for_when_their_places_were_given_up_hold_their_room() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.push(JobAdmitted {
        job: job("t/a"),
        spec: JobSpec {
            resize: Resize::in_place(),
            ..spec(&job("t/a"))
        },
        ingress_sequence: 1,
        by: None,
        basis: None,
    });
    history.release("t/a").allocate(1, &[("t/a", 0, 1)], &[]);
    history.place(1, "t/a", 1, &[("n0", 1)]);
    history.request_start(1, "t/a", 1, 1);
    history.container_started("t/a", 1, 0, "n0");
    history.started(1, "t/a", 1, 1);
    history.allocate(2, &[("t/a", 1, 2)], &[]);
    history.push(PlacementDecided {
        epoch: Epoch(2),
        create: vec![PlacedContainer {
            job: job("t/a"),
            incarnation: Incarnation(1),
            rank: Rank(1),
            node: node("n1"),
            gpus: Vec::new(),
            port: 0,
        }],
        remove: Vec::new(),
        basis: None,
    });
    history.allocate(3, &[("t/a", 2, 0)], &[("t/a", "waits")]);
    history.place(3, "t/b", 1, &[]);
    // The checkpointer had not seen the removal.
    history.push(PartitionResizeRequested {
        job: job("t/a"),
        epoch: Epoch(2),
        incarnation: Incarnation(1),
        generation: 1,
        join: vec![Rank(1)],
        leave: Vec::new(),
        stay: vec![Rank(0)],
        grace_s: 0,
        cause: ResizeCause::Adjusted,
        made_for: None,
        basis: None,
    });
    let state = fold(&history);
    let job = &state.jobs[&job("t/a")];
    assert!(job.assignment.is_none());
    let held = job.held().filter(|(name, _)| **name == node("n1"));
    assert_eq!(held.count(), 1);
}

fn started() -> History {
    let mut history = placed();
    history.request_start(1, "t/a", 1, 2);
    history
        .container_started("t/a", 1, 0, "n0")
        .container_started("t/a", 1, 1, "n0");
    history.started(1, "t/a", 1, 2);
    history
}

#[test]
fn room_that_was_given_up_asks_for_another_allocation() {
    let mut history = started();
    history.allocate(2, &[("t/a", 2, 0)], &[("t/a", "waits")]);
    history.place(2, "t/b", 1, &[]);
    let before = fold(&history).last_trigger;
    history.container_exited("t/a", 1, 0, "n0", Some(143));
    history.container_exited("t/a", 1, 1, "n0", Some(143));
    history.stopped(1, "t/a", 1, StopReason::Adjusted);
    let after = fold(&history);
    assert!(after.last_trigger > before);
    assert_eq!(after.last_trigger, after.sequence);
}

#[test]
fn the_wait_for_a_lost_node_is_no_cost_of_a_resize() {
    let resized = |is_lost: bool| {
        let mut history = started();
        history.allocate(2, &[("t/a", 2, 1)], &[]);
        history.place(2, "t/a", 2, &[("n1", 1)]);
        history.request_checkpoint(2, "t/a", 1);
        history.container_exited("t/a", 1, 0, "n0", Some(0));
        if is_lost {
            lose(&mut history, "n0")
        } else {
            _ = history.container_exited("t/a", 1, 1, "n0", Some(0));
        }
        history.stopped(2, "t/a", 1, StopReason::Adjusted);
        history.request_start(2, "t/a", 2, 1);
        history.container_started("t/a", 2, 0, "n1");
        history.started(2, "t/a", 2, 1);
        let state = fold(&history);
        (
            state.jobs[&job("t/a")].stall_ms.is_some(),
            state.stalls.count,
        )
    };
    assert_eq!(resized(false), (true, 1));
    assert_eq!(resized(true), (false, 0));
}

/// Capacity on the other node stays taken during the move, so the decision may give too little.
#[test]
fn where_a_job_has_moved_off_a_drained_node_it_is_decided_again() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.submit("t/a");
    let admitted = history.log.last_mut().expect("just pushed");
    if let Body::Event(Event::JobAdmitted(event)) = &mut admitted.envelope.body {
        event.spec.checkpoint.mode = CheckpointMode::Exit;
    }
    history.release("t/a");
    history.allocate(1, &[("t/a", 0, 2)], &[]);
    history.place(1, "t/a", 1, &[("n0", 1), ("n1", 1)]);
    history.request_start(1, "t/a", 1, 2);
    history
        .container_started("t/a", 1, 0, "n0")
        .container_started("t/a", 1, 1, "n1");
    history.started(1, "t/a", 1, 2);
    history.push(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    history.allocate(2, &[("t/a", 2, 1)], &[]);
    history.place(2, "t/a", 2, &[("n1", 1)]);
    history.request_checkpoint(2, "t/a", 1);
    history.container_exited("t/a", 1, 0, "n0", Some(0));
    history.container_exited("t/a", 1, 1, "n1", Some(0));
    history.stopped(2, "t/a", 1, StopReason::Adjusted);
    history.request_start(2, "t/a", 2, 1);
    history.container_started("t/a", 2, 0, "n1");
    let before = fold(&history).last_trigger;
    history.started(2, "t/a", 2, 1);
    let after = fold(&history);
    assert!(before < after.sequence);
    assert_eq!(after.last_trigger, after.sequence);
}

#[test]
fn a_decision_that_was_overtaken_by_a_stop_is_made_again() {
    let mut history = started();
    lose(&mut history, "n1");
    let asof = fold(&history).sequence;
    history.container_exited("t/a", 1, 0, "n0", Some(143));
    history.container_exited("t/a", 1, 1, "n0", Some(143));
    history.stopped(1, "t/a", 1, StopReason::NodeLost);
    let stopped = fold(&history).sequence;
    // Decided with the old containers in place.
    history.push(AllocationUnchanged {
        reason: "nothing fits".to_owned(),
        outcome: outcome(&[("t/a", "waits")]),
        basis: Some(Basis {
            asof,
            ..Basis::default()
        }),
    });
    let state = fold(&history);
    assert_eq!((state.decided_asof, state.last_trigger), (asof, stopped));
}

#[test]
fn a_node_that_is_lost_again_is_not_recovered_by_a_placer_that_has_not_seen_it() {
    let mut history = placed();
    lose(&mut history, "n1");
    history.join("n1", 2);
    history.push(NodeLost {
        node: node("n1"),
        incarnation: 2,
        last_seen: Timestamp::default(),
    });
    history.push(NodeRecovered {
        node: node("n1"),
        last_seen: Timestamp::default(),
        basis: None,
    });
    assert!(fold(&history).nodes.is_lost(&node("n1")));
}

#[test]
fn the_late_loss_of_an_earlier_incarnation_leaves_the_later_one_alone() {
    let mut history = started();
    history.join("n0", 2);
    lose(&mut history, "n0");
    let state = fold(&history);
    let job = &state.jobs[&job("t/a")];
    assert!(!job.assignment.as_ref().expect("assigned").displaced);
    let partition = job.partition.as_ref().expect("it lives");
    assert!(
        partition
            .containers
            .values()
            .all(super::PartitionContainer::holds_room)
    );
}

#[test]
fn a_late_checkpoint_of_an_earlier_incarnation_is_not_the_newest() {
    let mut history = started();
    history.saved("t/a", 1, 100);
    history.stopped(1, "t/a", 1, StopReason::NodeLost);
    history.allocate(2, &[("t/a", 2, 1)], &[]);
    history.place(2, "t/a", 2, &[("n0", 1)]);
    history.request_start(2, "t/a", 2, 1).saved("t/a", 2, 300);
    history.saved("t/a", 1, 200);
    let state = fold(&history);
    let saved = state.jobs[&job("t/a")].checkpoint.as_ref();
    assert_eq!(saved.map(|saved| saved.step), Some(300));
}

#[test]
fn what_ran_when_its_node_shrank_breaks_no_invariant_and_more_does() {
    let mut history = started();
    history.join_with("n0", 2, "cpu=2,memory=32Gi");
    assert_eq!(fold(&history).overfull.len(), 1);
    history.container_exited("t/a", 1, 0, "n0", Some(143));
    assert!(fold(&history).overfull.is_empty());
    history.submit("t/b").release("t/b");
    history.place(2, "t/b", 1, &[("n0", 1)]);
    history.request_start(2, "t/b", 1, 1);
    let mut state = ClusterState::default();
    let mut states = Vec::new();
    for recorded in &history.log {
        state.evolve(recorded);
        states.push(state.clone());
    }
    assert!(state.check_invariants().is_err());
    let whole = states.iter().filter(|it| it.check_invariants().is_ok());
    for before in whole {
        assert!(state.check_since(before).is_err());
    }
}

#[test]
fn a_checkpoint_that_cannot_be_read_gives_way_to_the_one_before() {
    let mut job = Job::admitted(&spec(&job("ads/lr")), Sequence(1), Timestamp::default());
    let saved = |incarnation, uri: &str| SavedCheckpoint {
        uri: uri.to_owned(),
        step: 1,
        incarnation: Incarnation(incarnation),
    };
    for (incarnation, uri) in [(1, "a"), (2, "b"), (2, "c"), (2, "c"), (1, "late")] {
        job.saved(saved(incarnation, uri));
    }
    let newest = |job: &Job| job.checkpoint.as_ref().map(|it| it.uri.clone());
    assert_eq!(newest(&job).as_deref(), Some("c"));
    job.rejected("c");
    assert_eq!(newest(&job).as_deref(), Some("b"));
    job.rejected("b");
    assert_eq!(newest(&job), None, "the oldest is no longer known");
}

fn fenced(history: &mut History, incarnation: u64) {
    history.push(NodeFenced {
        node: node("n0"),
        incarnation,
        reason: "its power is off".to_owned(),
    });
}

#[test]
fn what_ran_on_a_fenced_node_is_replaced_at_once() {
    let mut history = started();
    fenced(&mut history, 1);
    let state = fold(&history);
    let phase = &state.nodes.get(&node("n0")).expect("known").phase;
    assert!(matches!(phase, NodePhase::Lost { .. }), "{phase:?}");
    assert_eq!(state.last_trigger, state.sequence, "it is decided again");
    let job = &state.jobs[&job("t/a")];
    let partition = job.partition.as_ref().expect("it lives");
    let lost = partition.containers.values();
    let lost = lost.filter(|it| matches!(it.phase, ContainerPhase::Lost { .. }));
    assert_eq!(lost.count(), 2);
}

#[test]
fn a_fence_of_an_earlier_incarnation_changes_nothing() {
    let mut history = started();
    history.join("n0", 2);
    fenced(&mut history, 1);
    assert!(fold(&history).nodes.is_usable(&node("n0")));
}

#[test]
fn a_decision_whose_number_goes_back_is_a_contradiction() {
    let mut history = placed();
    history.allocate(2, &[("t/a", 2, 0)], &[("t/a", "waits")]);
    assert_eq!(fold(&history).contradiction(), None);
    history.allocate(1, &[("t/a", 0, 2)], &[]);
    let mut state = ClusterState::default();
    history.log.iter().for_each(|it| state.evolve(it));
    assert_eq!(
        state.contradiction(),
        Some("an allocation of epoch 1 comes after that of epoch 2")
    );
    assert!(state.check_invariants().is_err());
}

#[test]
fn what_starts_and_cannot_be_changed_asks_for_nothing_when_it_runs() {
    let asks = |mode: CheckpointMode, waiting: &[(&str, &str)], held: bool| {
        let mut history = History::default();
        history.join("n0", 1).submit("t/a");
        let admitted = history.log.last_mut().expect("just pushed");
        if let Body::Event(Event::JobAdmitted(event)) = &mut admitted.envelope.body {
            event.spec.checkpoint.mode = mode;
        }
        history
            .release("t/a")
            .allocate(1, &[("t/a", 0, 1)], waiting);
        history.place(1, "t/a", 1, &[("n0", 1)]);
        history.request_start(1, "t/a", 1, 1);
        if held {
            history.push(JobRevised {
                held: Some(true),
                ..JobRevised::nothing(job("t/a"), 2)
            });
        }
        history.push(AllocationUnchanged {
            reason: "it is as it is to be".to_owned(),
            outcome: outcome(waiting),
            basis: None,
        });
        let before = history.fold::<ClusterState>().last_trigger;
        history.container_started("t/a", 1, 0, "n0");
        history.started(1, "t/a", 1, 1);
        history.fold::<ClusterState>().last_trigger > before
    };
    assert!(!asks(CheckpointMode::None, &[], false));
    assert!(
        asks(CheckpointMode::Exit, &[], false),
        "it may be resized now"
    );
    assert!(asks(CheckpointMode::None, &[], true), "it is to leave");
    let waiting = [("t/b", "there is no room")];
    assert!(asks(CheckpointMode::None, &waiting, false));
}

/// The fold alone ends the hold.
#[test]
fn what_is_requeued_is_on_hold_until_its_containers_have_ended() {
    let requeued = JobRequeued {
        job: job("t/a"),
        ingress_sequence: 2,
        by: None,
        basis: None,
    };
    let state = |history: &History| {
        let state = history.fold::<ClusterState>();
        let it = state.job(&job("t/a")).expect("there");
        (it.on_hold, state.last_trigger)
    };
    let mut history = History::default();
    history.join("n0", 1).run("t/a", 2).push(requeued.clone());
    let (on_hold, trigger) = state(&history);
    assert!(on_hold && trigger == history.log.last().expect("one").sequence);
    history.allocate(2, &[("t/a", 2, 0)], &[("t/a", "on hold")]);
    assert!(state(&history).0);
    history.stopped(2, "t/a", 1, StopReason::Adjusted);
    let (on_hold, trigger) = state(&history);
    assert!(!on_hold && trigger == history.log.last().expect("one").sequence);

    let mut waits = History::default();
    waits.join("n0", 1).submit("t/a").release("t/a");
    waits.push(requeued.clone());
    assert!(!state(&waits).0);

    // A hold set meanwhile stays.
    let mut held = History::default();
    held.join("n0", 1).run("t/a", 2).push(requeued);
    held.push(JobRevised {
        held: Some(true),
        ..JobRevised::nothing(job("t/a"), 3)
    });
    held.stopped(1, "t/a", 1, StopReason::Adjusted);
    assert!(state(&held).0);
}
