//! Tests of jobs with a parameter server: rank 0 is the coordinator, rank 1 the server.

use super::*;

const STOP: &[&str] = &["dormouse.partition.stop_requested.v1"];
const DONE: &[&str] = &["dormouse.job.completed.v1"];

fn with_server(more: &Value) -> Value {
    let mut fields = json!({
        "roles": {"ps": {"count": 1, "demand": {"cpu_milli": 500}}},
    });
    let map = fields.as_object_mut().expect("a map");
    map.extend(more.as_object().expect("a map").clone());
    fields
}

#[test]
fn the_servers_are_stopped_when_the_workers_have_succeeded() {
    for more in [
        json!({}),
        json!({"resize": {"mode": "in_place"}, "containers": {"min": 1, "max": 4}}),
    ] {
        let mut given = Given::running(with_server(&more));
        given.exit(0, 0);
        given.step(STOP);
        given.exit(1, 143);
        assert_eq!(given.stopped(), (StopReason::Completed, 0), "{more}");
        given.step(&["dormouse.partition.stopped.v1"]);
        given.step(DONE);
    }
}

#[test]
fn a_server_that_succeeds_ends_nothing() {
    let mut given = Given::running(with_server(&json!({})));
    given.exit(1, 0);
    given.step(&[]);
    given.exit(0, 0);
    given.step(DONE);
}

#[test]
fn a_server_that_dies_ends_the_partition() {
    for more in [
        json!({}),
        json!({"resize": {"mode": "in_place"}, "containers": {"min": 1, "max": 4}}),
    ] {
        let mut given = Given::running(with_server(&more));
        given.exit(1, 1);
        given.step(STOP);
        given.exit(0, 143);
        assert_eq!(given.stopped(), (StopReason::GaveUp, 1), "{more}");
    }
}

/// The server is not asked to save.
#[test]
fn the_servers_are_stopped_after_the_workers_have_saved() {
    for is_told in [false, true] {
        let mut given = Given::running(with_server(&json!({"min_run_s": 0})));
        given.progress();
        given.place(2, "n1");
        given.step(&["dormouse.checkpoint.requested.v1"]);
        if is_told {
            given.saved();
        }
        given.exit(0, 0);
        given.step(STOP);
        given.exit(1, 143);
        assert_eq!(given.stopped(), (StopReason::Adjusted, 0));
    }
}
