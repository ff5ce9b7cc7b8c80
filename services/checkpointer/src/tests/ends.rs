//! Tests of ends, reasons and retries.

use dormouse_state::history::History;

use super::*;

const STOPPED: &[&str] = &["dormouse.partition.stopped.v1"];
const START: &[&str] = &["dormouse.partition.start_requested.v1"];
const FAILED: &[&str] = &["dormouse.job.failed.v1"];
const DONE: &[&str] = &["dormouse.job.completed.v1"];

impl Given {
    #[track_caller]
    fn reason(&self) -> String {
        match self.decide().proposals.remove(0).event {
            Event::JobCompleted(it) => it.reason,
            Event::JobFailed(it) => it.reason,
            Event::JobCancelled(it) => it.reason,
            other => panic!("{other:?}"),
        }
    }

    fn fails(&mut self, code: i32) {
        self.exit(0, code);
        self.exit(1, code);
        self.step(STOPPED);
    }
}

#[test]
fn who_has_succeeded_is_said() {
    let mut given = Given::running(json!({}));
    given.exit(0, 0);
    given.exit(1, 0);
    assert_eq!(given.reason(), "every container that counts succeeded");
    let mut given = Given::running(json!({"success": "coordinator"}));
    given.exit(0, 0);
    given.step(STOP);
    given.exit(1, 143);
    given.step(STOPPED);
    assert_eq!(given.reason(), "the coordinator succeeded");
    given.step(DONE);
    // The server stops after its workers succeed.
    let server = json!({"roles": {"ps": {"count": 1, "demand": {"cpu_milli": 500}}}});
    let mut given = Given::running(server);
    given.exit(0, 0);
    given.step(STOP);
    given.exit(1, 143);
    given.step(STOPPED);
    assert_eq!(given.reason(), "every container that counts succeeded");
}

/// The container exits with 0, as after a save request.
#[test]
fn a_container_that_is_taken_away_has_not_succeeded() {
    let mut given = Given::running(json!({}));
    given.evict_with(0, Some(0));
    given.step(STOP);
    given.evict_with(1, Some(0));
    assert_eq!(given.stopped(), (StopReason::Failed, 0));
}

#[test]
fn the_success_of_another_than_the_coordinator_ends_nothing() {
    let mut given = Given::running(json!({"success": "coordinator"}));
    given.exit(1, 0);
    given.step(&[]);
    given.exit(0, 0);
    given.step(DONE);
    let mut given = Given::running(json!({"success": "all"}));
    given.exit(0, 0);
    given.step(&[]);
}

#[test]
fn a_failed_job_says_why_and_where_its_output_is() {
    let mut given = Given::running(json!({}));
    given.fails(3);
    let reason = given.reason();
    assert!(reason.contains("exited with 3"), "{reason}");
    let end = ", after 1 attempt; see `dormouse job logs t/a`";
    assert!(reason.ends_with(end), "{reason}");
    given.step(FAILED);
    let mut given = Given::starting(json!({}));
    given.waits(120);
    given.step(STOP);
    given.evict(0);
    given.evict(1);
    given.step(STOPPED);
    let reason = given.reason();
    assert!(reason.ends_with(", after 1 attempt"), "{reason}");
}

#[test]
fn a_job_that_ran_out_of_memory_says_what_it_had() {
    for (demand, had) in [
        (
            json!({"cpu_milli": 1000, "memory_bytes": 1 << 30}),
            "demand.memory is 1Gi",
        ),
        (json!({"cpu_milli": 1000}), "it has no demand.memory"),
    ] {
        let mut given = Given::running(json!({"demand": demand}));
        given.runs_out_of_memory(0);
        given.step(STOP);
        given.evict(1);
        given.step(STOPPED);
        let reason = given.reason();
        let said = format!("rank 0 on n0 ran out of memory ({had}), after 1 attempt");
        assert!(reason.starts_with(&said), "{reason}");
    }
}

#[test]
fn a_job_is_tried_again_after_one_second_then_two() {
    let mut given = Given::running(json!({"retries": 2}));
    given.fails(1);
    given.place(2, "n1");
    given.waits(1);
    given.step(START);
    for rank in [0, 1] {
        given.fold(ContainerExited {
            container: ContainerId {
                incarnation: Incarnation(2),
                ..container(rank)
            },
            node: node("n1"),
            exit_code: Some(1),
            signal: None,
            out_of_memory: false,
            reason: None,
            evicted: false,
        });
    }
    given.step(STOPPED);
    given.place(3, "n1");
    given.waits(2);
    given.step(START);
}

#[test]
fn a_container_of_a_task_set_that_leaves_unasked_has_failed() {
    let tasks = json!({"tasks": {"count": 9, "concurrency": 2}, "checkpoint": {"mode": "none"}});
    let mut given = Given::running(tasks);
    given.exit(0, 0);
    given.exit(1, 0);
    given.step(STOPPED);
}

#[test]
fn an_eviction_costs_no_attempt_and_a_failure_before_it_does() {
    let mut given = Given::running(json!({"retries": 1}));
    given.evict(1);
    given.step(STOP);
    given.exit(0, 143);
    assert_eq!(given.stopped(), (StopReason::Failed, 0));
    let mut given = Given::running(json!({"retries": 1}));
    given.exit(0, 1);
    given.step(STOP);
    given.evict(1);
    assert_eq!(given.stopped(), (StopReason::Failed, 1));
}

#[test]
fn a_job_that_has_run_waits_without_a_limit() {
    let mut given = Given::running(json!({"queue_limit_s": 60, "retries": 1}));
    given.fails(1);
    given.pass(3_600);
    given.step(&[]);
    given.place(2, "n1");
    given.step(START);
}

#[test]
fn a_server_whose_node_is_lost_ends_the_partition() {
    let server = json!({"roles": {"ps": {"count": 1, "demand": {"cpu_milli": 500}}}});
    let mut given = Given::running(json!({}));
    given.run_other("b", server, &[(0, "n0", None), (1, "n1", None)]);
    given.fold(NodeLost {
        node: node("n1"),
        incarnation: 1,
        last_seen: given.now,
    });
    assert_eq!(given.goes_on("b"), STOP);
    let partition = given.state.jobs[&"t/b".parse().expect("a job")]
        .partition
        .as_ref();
    let phase = format!("{:?}", partition.expect("alive").phase);
    assert!(phase.contains("NodeLost"), "{phase}");
}

#[test]
fn limits_do_not_count_for_what_has_ended_or_is_to_end() {
    let limits = json!({"time_limit_s": 100, "warning": {"signal": "SIGUSR2", "before_s": 30}});
    let mut given = Given::running(limits.clone());
    given.exit(1, 1);
    given.pass(70);
    given.step(STOP);
    let mut given = Given::running(limits);
    given.cancel();
    given.pass(70);
    given.step(STOP);
}

#[test]
fn a_gang_for_which_there_is_no_room_any_more_saves_and_stops() {
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.progress();
    // No capacity is free.
    let mut history = History::default();
    history.allocate(2, &[("t/a", 2, 0)], &[("t/a", "waits")]);
    let allocated = history.log.pop().expect("an allocation");
    given.fold(allocated.event().expect("an event").clone());
    given.fold(PlacementDecided {
        epoch: Epoch(2),
        create: Vec::new(),
        remove: Vec::new(),
        basis: None,
    });
    given.step(SAVE);
}

fn saves_and_goes_on() -> Given {
    let checkpoint = json!({"mode": "continue", "signal": "SIGUSR1", "grace_s": 30});
    let mut given = Given::running(json!({"checkpoint": checkpoint, "min_run_s": 0}));
    given.progress();
    given.place(2, "n1");
    given.step(SAVE);
    given
}

#[test]
fn what_goes_on_while_it_saves_is_stopped_once_it_has_saved() {
    let mut given = saves_and_goes_on();
    given.pass(1);
    given.step(&[]);
    given.saved();
    given.step(STOP);
}

#[test]
fn what_goes_on_and_cannot_save_stays_as_it_was() {
    const KEPT: &[&str] = &["dormouse.resize.abandoned.v1"];
    let mut given = saves_and_goes_on();
    given.not_saved();
    given.step(KEPT);
    let mut given = saves_and_goes_on();
    given.waits(30);
    given.step(KEPT);
}

#[test]
fn what_is_to_end_by_saving_and_cannot_is_stopped() {
    let mut given = Given::running(json!({"min_run_s": 0}));
    given.progress();
    given.place(2, "n1");
    given.step(SAVE);
    given.not_saved();
    given.step(STOP);
}

#[test]
fn what_goes_on_and_cannot_save_is_stopped_where_it_cannot_stay() {
    let mut given = saves_and_goes_on();
    given.exit(1, 143);
    given.not_saved();
    given.step(STOP);
    let mut given = saves_and_goes_on();
    given.fold(NodeDrained {
        node: node("n0"),
        reason: None,
        deadline_s: None,
    });
    given.not_saved();
    given.step(STOP);
}

#[test]
fn who_may_still_save_has_its_grace() {
    let grace = |given: &Given| match &given.decide().proposals[0].event {
        Event::PartitionStopRequested(it) => it.grace_s,
        other => panic!("{other:?}"),
    };
    let saving = |more: Value| {
        let mut given = Given::running(more);
        given.place(2, "n1");
        given.step(SAVE);
        given
    };
    let mut dies = saving(json!({"min_run_s": 0}));
    dies.exit(1, 1);
    assert_eq!(grace(&dies), Some(0));
    // Rank 0, which reports saves, has ended.
    let mut saved = saving(json!({"min_run_s": 0}));
    saved.progress();
    saved.exit(0, 0);
    assert_eq!(grace(&saved), Some(0));
    // No save is under way.
    let mut dies = Given::running(json!({}));
    dies.exit(1, 1);
    assert_eq!(grace(&dies), None);
    let mut cancelled = saving(json!({"min_run_s": 0}));
    cancelled.cancel();
    assert_eq!(grace(&cancelled), None);
    // The job runs on after the save.
    let checkpoint = json!({"mode": "continue", "signal": "SIGUSR1", "grace_s": 30});
    let mut dies = saving(json!({"checkpoint": checkpoint, "min_run_s": 0}));
    dies.exit(1, 1);
    dies.saved();
    assert_eq!(grace(&dies), None);
    // Only a server remains.
    let server = json!({"ps": {"count": 1, "demand": {"cpu_milli": 500}}});
    let mut saved = saving(json!({"min_run_s": 0, "roles": server}));
    saved.exit(0, 0);
    assert_eq!(grace(&saved), None);
}
