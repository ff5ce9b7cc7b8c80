//! The job table after given histories.

use dormouse_messages::events::{
    AllocationUnchanged, ContainerExited, ContainerUnready, JobCancelRequested, JobCancelled,
    JobFailed, JobRefused, JobRevised, Outcome, PartitionLeaveRequested, PartitionResized,
    PartitionStopRequested, ResizeAbandoned, ResizeCause, StopReason, Waiting,
};
use dormouse_messages::ids::ContainerId;
use dormouse_messages::job::Containers;
use dormouse_messages::{Body, Epoch, Event, Fold as _, Incarnation, Rank, Writer};

use super::reason::{failed_container, of_row};
use super::room::Room;
use super::*;
use crate::ReadModel;
use dormouse_state::ClusterState;
use dormouse_state::history::{History, at, job, node};

#[track_caller]
fn then(history: &History, id: &str, phase: Phase, why: &str) -> Job {
    let model = history.fold::<ReadModel>();
    let found = model.jobs.get(&job(id)).expect("the job is in the table");
    let room = Room::new(&model.queues, &model.jobs);
    let text = of_row(&room, &job(id), found, Some(1), history.now());
    assert_eq!((found.phase, text.as_str()), (phase, why));
    found.clone()
}

#[test]
fn a_partition_that_is_resized_in_place_has_what_it_has() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .submit("ads/lr")
        .release("ads/lr")
        .allocate(1, &[("ads/lr", 0, 4)], &[])
        .place(1, "ads/lr", 1, &[("n0", 4)])
        .request_start(1, "ads/lr", 1, 4)
        .started(1, "ads/lr", 1, 4)
        .allocate(2, &[("ads/lr", 4, 1)], &[]);
    history.push(PartitionLeaveRequested {
        job: job("ads/lr"),
        incarnation: Incarnation(1),
        generation: 1,
        ranks: vec![Rank(3)],
        grace_s: 10,
        basis: None,
    });
    history.push(ContainerExited {
        container: ContainerId {
            job: job("ads/lr"),
            incarnation: Incarnation(1),
            rank: Rank(3),
        },
        node: "n0".parse().expect("a name"),
        exit_code: None,
        signal: Some(15),
        out_of_memory: false,
        reason: None,
        evicted: false,
    });
    history.push(PartitionResized {
        job: job("ads/lr"),
        epoch: Epoch(2),
        incarnation: Incarnation(1),
        generation: 1,
        containers: 1,
        members: Vec::new(),
        cause: ResizeCause::Adjusted,
        basis: None,
    });
    let text = "running since 10:00:08Z; resized once";
    let running = then(&history, "ads/lr", Phase::Running, text);
    assert_eq!((running.now, running.resizes), (1, 1));
    let model = history.fold::<ReadModel>();
    assert_eq!(model.check_invariants(), Ok(()));
    history.complete("ads/lr");
    let ended = then(
        &history,
        "ads/lr",
        Phase::Completed,
        "every container exited with 0",
    );
    // Four for four seconds, then one for a second.
    assert_eq!(ended.container_ms, 17_000);
}

/// Joining containers count at once, leaving ones until they exit.
#[test]
fn nodes_of_a_partition_that_is_resized_in_place() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .join("n1", 1)
        .admit_in_place("ads/lr")
        .release("ads/lr")
        .allocate(1, &[("ads/lr", 0, 2)], &[])
        .place(1, "ads/lr", 1, &[("n0", 2)])
        .request_start(1, "ads/lr", 1, 2)
        .started(1, "ads/lr", 1, 2);
    let on = |history: &History| {
        let model = history.fold::<ReadModel>();
        let found = model.state().job(&job("ads/lr")).expect("it is there");
        nodes_of(&job("ads/lr"), found)
            .into_iter()
            .map(|(name, count)| format!("{name}: {count}"))
            .collect::<Vec<_>>()
            .join(", ")
    };
    history.place_more(2, "ads/lr", 1, &[(2, "n1"), (3, "n1")], &[]);
    assert_eq!(on(&history), "n0: 2, n1: 2");
    history
        .request_resize(2, "ads/lr", 1, &[2, 3], &[])
        .resized(2, "ads/lr", 1, &[0, 1, 2, 3]);
    assert_eq!(on(&history), "n0: 2, n1: 2");
    history.place_more(3, "ads/lr", 1, &[(4, "n0")], &[(1, "n0"), (2, "n1")]);
    assert_eq!(on(&history), "n0: 3, n1: 2");
    history
        .container_exited("ads/lr", 1, 1, "n0", Some(0))
        .container_exited("ads/lr", 1, 2, "n1", Some(0))
        .resized(3, "ads/lr", 1, &[0, 3]);
    assert_eq!(on(&history), "n0: 2, n1: 1", "one of n0 is still to come");
    history.resized(3, "ads/lr", 1, &[0, 3, 4]);
    assert_eq!(on(&history), "n0: 2, n1: 1");
    history.place_more(4, "ads/lr", 1, &[(5, "n1")], &[]);
    assert_eq!(on(&history), "n0: 2, n1: 2");
    history.request_resize(4, "ads/lr", 1, &[5], &[]);
    history.container_exited("ads/lr", 1, 5, "n1", Some(1));
    assert_eq!(on(&history), "n0: 2, n1: 1");
}

#[test]
fn a_service_whose_replicas_do_not_get_ready_says_why() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .admit_in_place("ads/s")
        .release("ads/s")
        .allocate(1, &[("ads/s", 0, 1)], &[])
        .place(1, "ads/s", 1, &[("n0", 1)])
        .request_start(1, "ads/s", 1, 1)
        .container_started("ads/s", 1, 0, "n0");
    history.push(ContainerUnready {
        container: "ads/s/1/0".parse().expect("a container"),
        node: node("n0"),
        reason: "not ready within 3 s: connection refused".to_owned(),
    });
    let why = "starting 1 of 1 container; the one before: not ready within 3 s: connection refused";
    then(&history, "ads/s", Phase::Starting, why);
}

#[test]
fn a_preempted_incarnation_and_one_that_was_put_on_hold_are_told_apart() {
    let ended = |made_for: Option<&str>, held: bool| {
        let mut history = History::default();
        history.join("n0", 1).run("ads/lr", 4);
        if held {
            history.push(JobRevised {
                held: Some(true),
                ..JobRevised::nothing(job("ads/lr"), 5)
            });
        }
        history.allocate(2, &[("ads/lr", 4, 0)], &[("ads/lr", "held")]);
        let last = history.log.last_mut().expect("just pushed");
        if let Body::Event(Event::AllocationDecided(event)) = &mut last.envelope.body {
            event.jobs[0].made_for = made_for.map(job);
        }
        history.stopped(2, "ads/lr", 1, StopReason::Adjusted);
        let model = history.fold::<ReadModel>();
        model.jobs.get(&job("ads/lr")).expect("there").incarnations[0].stopped_for
    };
    assert_eq!(ended(Some("web/site"), false), Some(StoppedFor::Preemption));
    assert_eq!(ended(None, true), Some(StoppedFor::Hold));
    assert_eq!(ended(None, false), None);
}

#[test]
fn what_a_job_waits_in_the_queue_is_no_cost_of_a_resize() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/lr").release("ads/lr");
    history
        .allocate(1, &[("ads/lr", 0, 4)], &[])
        .place(1, "ads/lr", 1, &[("n0", 4)])
        .request_start(1, "ads/lr", 1, 4)
        .started(1, "ads/lr", 1, 4)
        .allocate(2, &[("ads/lr", 4, 0)], &[("ads/lr", "held")])
        .request_checkpoint(2, "ads/lr", 1)
        .saved("ads/lr", 1, 7)
        .stopped(2, "ads/lr", 1, StopReason::Adjusted);
    for number in 1..60 {
        history.join(&format!("m{number}"), 1);
    }
    history
        .allocate(3, &[("ads/lr", 0, 4)], &[])
        .place(3, "ads/lr", 2, &[("n0", 4)])
        .request_start(3, "ads/lr", 2, 4)
        .started(3, "ads/lr", 2, 4);
    let model = history.fold::<ReadModel>();
    let found = model.jobs.get(&job("ads/lr")).expect("there");
    assert_eq!((found.resizes, found.resize_ms), (0, 2_000));
    let state = history.fold::<ClusterState>();
    let known = state.jobs.get(&job("ads/lr")).expect("there");
    assert_eq!((known.stall_ms, state.stalls.count), (None, 0));
}

#[test]
fn each_phase_has_its_reason() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1).submit("ads/lr");
    then(&history, "ads/lr", Phase::Queued, "next in the queue");
    history.release("ads/lr");
    then(
        &history,
        "ads/lr",
        Phase::Waiting,
        "released; the next allocation decides whether it has room",
    );
    history.allocate(1, &[], &[("ads/lr", "needs 2 cpu; 1 is free")]);
    let waiting = then(&history, "ads/lr", Phase::Waiting, "needs 2 cpu; 1 is free");
    assert_eq!(waiting.code, "no_room");
    history.allocate(2, &[("ads/lr", 0, 3)], &[]);
    let text = "gets 3 containers in epoch 2; the placement comes next";
    then(&history, "ads/lr", Phase::Placed, text);
    history.place(2, "ads/lr", 1, &[("n0", 2), ("n1", 1)]);
    let text = "placed on n0 (2), n1 (1); starts when its room is free";
    then(&history, "ads/lr", Phase::Placed, text);
    history
        .request_start(2, "ads/lr", 1, 3)
        .container_started("ads/lr", 1, 0, "n0");
    then(
        &history,
        "ads/lr",
        Phase::Starting,
        "starting 1 of 3 containers",
    );
    history.started(2, "ads/lr", 1, 3);
    let running = then(
        &history,
        "ads/lr",
        Phase::Running,
        "running since 10:00:11Z",
    );
    assert_eq!(running.now, 3);
    let state = history.fold::<ClusterState>();
    let present = state.job(&job("ads/lr")).expect("there");
    assert_eq!(nodes_of(&job("ads/lr"), present).len(), 2);
    history.complete("ads/lr");
    let ended = then(
        &history,
        "ads/lr",
        Phase::Completed,
        "every container exited with 0",
    );
    assert!(ended.now == 0 && ended.live.is_none());
    assert_eq!(
        ended.times.submitted,
        at(3),
        "the receipt, not the admission"
    );
    assert_eq!(ended.jct_s(), Some(9.0));
    assert_eq!(ended.container_ms, 3_000);
}

#[test]
fn a_resize_is_told_step_by_step_and_its_loss_counted() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .run("ads/lr", 3)
        .allocate(2, &[("ads/lr", 3, 5)], &[]);
    let text = "running since 10:00:11Z; to be resized 3 → 5";
    then(&history, "ads/lr", Phase::Running, text);
    history
        .place(2, "ads/lr", 2, &[("n0", 5)])
        .request_checkpoint(2, "ads/lr", 1);
    then(
        &history,
        "ads/lr",
        Phase::Checkpointing,
        "resizing 3 → 5: saving",
    );
    history.saved("ads/lr", 1, 120);
    then(
        &history,
        "ads/lr",
        Phase::Checkpointing,
        "resizing 3 → 5: saved at step 120",
    );
    history.push(PartitionStopRequested {
        job: job("ads/lr"),
        epoch: Epoch(2),
        incarnation: Incarnation(1),
        containers: 3,
        reason: StopReason::Adjusted,
        grace_s: None,
        basis: None,
    });
    then(
        &history,
        "ads/lr",
        Phase::Stopping,
        "resizing 3 → 5: stopping",
    );
    history.stopped(2, "ads/lr", 1, StopReason::Adjusted);
    let text = "resizing 3 → 5: stopped; starts when its room is free";
    then(&history, "ads/lr", Phase::Placed, text);
    history.request_start(2, "ads/lr", 2, 5);
    let text = "resizing 3 → 5: starting 0 of 5 containers";
    then(&history, "ads/lr", Phase::Starting, text);
    history.started(2, "ads/lr", 2, 5);
    let text = "running since 10:00:19Z; resized once";
    let resized = then(&history, "ads/lr", Phase::Running, text);
    assert_eq!((resized.resizes, resized.restarts), (1, 0));
    assert_eq!(
        resized.resize_ms, 5_000,
        "from the request to save to the start"
    );
    assert_eq!(resized.incarnations.len(), 2);
    assert_eq!(resized.incarnations[1].resumed_step, Some(120));
    assert_eq!(
        resized.incarnations[0].stop_reason,
        Some(StopReason::Adjusted)
    );
}

#[test]
fn a_kept_partition_runs_on_and_loses_nothing() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .run("ads/lr", 3)
        .allocate(2, &[("ads/lr", 3, 5)], &[]);
    history
        .place(2, "ads/lr", 2, &[("n0", 5)])
        .request_checkpoint(2, "ads/lr", 1);
    history.push(ResizeAbandoned {
        job: job("ads/lr"),
        epoch: Epoch(2),
        incarnation: Incarnation(1),
        reason: "the checkpoint failed".to_owned(),
        basis: None,
    });
    let kept = then(
        &history,
        "ads/lr",
        Phase::Running,
        "running since 10:00:11Z",
    );
    assert_eq!((kept.target, kept.resizes, kept.resize_ms), (3, 0, 0));
}

#[test]
fn a_failed_gang_says_who_failed_and_counts_as_a_restart() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2);
    history.container_exited("ads/lr", 1, 1, "n0", Some(3));
    let text = "running since 10:00:10Z; container 1 on n0: exited with 3";
    then(&history, "ads/lr", Phase::Running, text);
    let model = history.fold::<ReadModel>();
    let failed = model.jobs.get(&job("ads/lr")).and_then(failed_container);
    assert_eq!(failed.as_deref(), Some("container 1 on n0: exited with 3"));
    history.stopped(1, "ads/lr", 1, StopReason::Failed);
    let text = "container 1 on n0: exited with 3: stopped; starts when its room is free";
    then(&history, "ads/lr", Phase::Placed, text);
    history
        .place(1, "ads/lr", 2, &[("n0", 2)])
        .request_start(1, "ads/lr", 2, 2)
        .started(1, "ads/lr", 2, 2);
    let retried = then(
        &history,
        "ads/lr",
        Phase::Running,
        "running since 10:00:15Z",
    );
    assert_eq!(
        (retried.resizes, retried.restarts, retried.attempts),
        (0, 1, 1)
    );
    assert_eq!(retried.recovery_ms, 3_000);
    history.push(JobFailed {
        job: job("ads/lr"),
        reason: "container 0 exited with 3; no retries are left".to_owned(),
        attempts: 3,
        basis: None,
    });
    let text = "container 0 exited with 3; no retries are left";
    assert_eq!(then(&history, "ads/lr", Phase::Failed, text).attempts, 3);
}

#[test]
fn a_lost_node_without_room_elsewhere_waits_with_both_reasons() {
    let mut history = History::default();
    history
        .join("n0", 1)
        .run("ads/lr", 2)
        .stopped(1, "ads/lr", 1, StopReason::NodeLost);
    history.allocate(2, &[("ads/lr", 2, 0)], &[("ads/lr", "no node is up")]);
    let text = "a node was lost: stopped; no node is up";
    then(&history, "ads/lr", Phase::Waiting, text);
}

#[test]
fn a_queued_job_says_what_can_be_had() {
    let mut history = History::default();
    history.join_with("n0", 1, "cpu=3,memory=32Gi");
    history.run("ads/lr", 1).submit("ads/next");
    let text =
        "first of ads; waits for 1 x cpu=2,memory=8Gi: of cpu 3 it can have 1; ads/lr keeps 2";
    then(&history, "ads/next", Phase::Queued, text);
}

#[test]
fn a_job_that_waits_for_room_says_who_holds_it() {
    let mut history = History::default();
    history.join_with("n0", 1, "cpu=9,memory=64Gi");
    for (id, min) in [("ads/a", 1), ("t/big", 2), ("ads/c", 1)] {
        history.submit(id).push(JobRevised {
            containers: Some(Containers::between(min, 8)),
            ..JobRevised::nothing(job(id), 5)
        });
        history.release(id);
    }
    history.submit("ads/next");
    let text = "first of ads; waits for 1 x cpu=2,memory=8Gi: of cpu 9 it can have 1; t/big is to have 4, ads/a 2 and 1 more job 2";
    then(&history, "ads/next", Phase::Queued, text);
    // A time limit counts the run time of all incarnations.
    history
        .allocate(1, &[("ads/c", 0, 1)], &[])
        .place(1, "ads/c", 1, &[("n0", 1)])
        .request_start(1, "ads/c", 1, 1)
        .started(1, "ads/c", 1, 1);
    history.push(JobRevised {
        time_limit_s: Some(660),
        ..JobRevised::nothing(job("ads/c"), 6)
    });
    let limited = "first of ads; waits for 1 x cpu=2,memory=8Gi: of cpu 9 it can have 1; ads/c keeps 2, t/big is to have 4 and 1 more job 2, ads/c ends by its time limit in 10 min";
    then(&history, "ads/next", Phase::Queued, limited);
    history.release("ads/next");
    history.push(AllocationUnchanged {
        outcome: Outcome {
            waiting: vec![Waiting {
                job: job("ads/next"),
                code: "resources".to_owned(),
                reason: "its minimum of 1 container needs cpu 2".to_owned(),
            }],
            ..Outcome::default()
        },
        reason: "nothing fits".to_owned(),
        basis: None,
    });
    let waits = limited.replace("first of ads; ", "");
    then(&history, "ads/next", Phase::Waiting, &waits);
    let model = history.fold::<ReadModel>();
    let room = Room::new(&model.queues, &model.jobs);
    let short = room.short(&job("ads/next")).expect("short of cpu");
    let holders = room.holders(&job("ads/next"), &short);
    let holders: Vec<_> = holders
        .iter()
        .map(|it| (it.job.to_string(), it.keeps))
        .collect();
    let expected = [("ads/c", 2_000), ("t/big", 4_000), ("ads/a", 2_000)];
    assert_eq!(
        holders,
        expected.map(|(job, keeps)| (job.to_owned(), keeps))
    );
}

#[test]
fn cancellation_while_queued_and_while_running() {
    let mut history = History::default();
    let cancelled = |id: &str| JobCancelled {
        job: job(id),
        reason: "cancelled by ads".to_owned(),
        attempts: 0,
        code: None,
        ingress_sequence: None,
        by: None,
        basis: None,
    };
    history.join("n0", 1).submit("ads/q");
    history.push_by(Writer::Admission, cancelled("ads/q"));
    then(&history, "ads/q", Phase::Cancelled, "cancelled by ads");
    history.run("ads/r", 1).push(JobCancelRequested {
        job: job("ads/r"),
        ingress_sequence: 9,
        by: None,
        basis: None,
    });
    let text = "cancellation requested; running since 10:00:12Z";
    then(&history, "ads/r", Phase::Running, text);
    history.push(cancelled("ads/r"));
    then(&history, "ads/r", Phase::Cancelled, "cancelled by ads");
    let counts = *history.fold::<ReadModel>().jobs.counts();
    assert_eq!(counts.get(Phase::Cancelled), 2);
    assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 2);
}

#[test]
fn refusals_are_kept_bounded_and_counted() {
    let mut history = History::default();
    for sequence in 0..REFUSED_LIMIT as u64 + 5 {
        history.push(JobRefused {
            job: None,
            tenant: None,
            ingress_sequence: sequence,
            code: "unknown_field".to_owned(),
            reason: "unknown field `replicas`".to_owned(),
            by: None,
            basis: None,
        });
    }
    let table = history.fold::<ReadModel>().jobs;
    assert_eq!(table.refused().count(), REFUSED_LIMIT);
    assert_eq!(table.refused_total(), REFUSED_LIMIT as u64 + 5);
    assert_eq!(table.refused().next().map(|r| r.ingress_sequence), Some(5));
}

#[test]
fn a_revision_changes_weight_and_bounds() {
    let mut history = History::default();
    history.join("n0", 1).submit("ads/lr").push(JobRevised {
        job: job("ads/lr"),
        ingress_sequence: 5,
        weight: Some(4),
        containers: Some(Containers::between(2, 3)),
        priority: None,
        held: None,
        time_limit_s: None,
        queue_limit_s: None,
        gpu_limit_milli: Some(750),
        by: None,
        basis: None,
    });
    let revised = then(&history, "ads/lr", Phase::Queued, "next in the queue");
    let model = history.fold::<ReadModel>();
    let request = revised.request(&job("ads/lr"), model.state());
    let request = request.map(|it| (it.weight, it.bounds.min));
    assert_eq!(request, Some((4, 2)));
    let spec = revised.live.as_ref().and_then(|it| it.spec.get());
    assert_eq!(spec.map(|spec| spec.gpu_limit_milli), Some(Some(750)));
}

#[test]
fn incarnations_are_bounded() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 1);
    for incarnation in 2..INCARNATIONS_LIMIT as u32 + 10 {
        history
            .stopped(1, "ads/lr", incarnation - 1, StopReason::NodeLost)
            .request_start(1, "ads/lr", incarnation, 1)
            .started(1, "ads/lr", incarnation, 1);
    }
    let model = history.fold::<ReadModel>();
    let found = model.jobs.get(&job("ads/lr")).expect("there");
    assert_eq!(found.incarnations.len(), INCARNATIONS_LIMIT);
    assert_eq!(
        found.incarnations_dropped as usize,
        INCARNATIONS_LIMIT + 9 - INCARNATIONS_LIMIT
    );
}

#[test]
fn a_late_checkpoint_of_an_earlier_incarnation_is_not_the_newest() {
    let mut history = History::default();
    history.join("n0", 1).join("n1", 1);
    history.run("t/a", 2);
    history.saved("t/a", 1, 100);
    history.stopped(1, "t/a", 1, StopReason::NodeLost);
    history.allocate(2, &[("t/a", 2, 1)], &[]);
    history.place(2, "t/a", 2, &[("n0", 1)]);
    history.request_start(2, "t/a", 2, 1).saved("t/a", 2, 300);
    history.saved("t/a", 1, 200);
    let model = history.fold::<ReadModel>();
    let job = model.jobs.get(&job("t/a")).expect("the job");
    let saved = job.checkpoint.as_ref().expect("a checkpoint");
    assert_eq!(saved.step, 300);
}
