//! Tests of every refusal: code and advice.

use dormouse_messages::job::JobDocument;
use dormouse_messages::{Event, TenantId, Timestamp};
use serde_json::{Value, json};

use crate::decode::decode;
use crate::parse::parse_job;
use crate::refusal::Refusal;

fn parsed(fields: &Value) -> Result<(), Refusal> {
    let mut document = json!({"command": {"start": ["serve"]}, "demand": {"cpu": 1}});
    let (Some(into), Some(fields)) = (document.as_object_mut(), fields.as_object()) else {
        panic!("maps");
    };
    into.extend(fields.clone());
    let text = document.to_string();
    let Event::SubmissionReceived(received) = crate::intake::received(
        1,
        Timestamp::default(),
        "ads",
        "submit",
        None,
        text.as_bytes(),
    ) else {
        panic!("a submission");
    };
    let document: JobDocument = decode(&received)?;
    let tenant = TenantId::new("ads").expect("valid");
    parse_job(document, &tenant, "a", 0).map(|_| ())
}

fn service(fields: Value) -> Value {
    json!({"kind": "inference", "containers": {"min": 1, "max": 4}, "service": fields})
}

fn notebook(fields: Value) -> Value {
    let mut document = json!({"kind": "notebook"});
    if let (Some(into), Value::Object(fields)) = (document.as_object_mut(), fields) {
        into.extend(fields);
    }
    document
}

fn with(mut document: Value, field: &str, value: Value) -> Value {
    document[field] = value;
    document
}

#[track_caller]
fn refused(rows: Vec<(Value, &str, &str)>) {
    for (fields, code, to_do) in rows {
        let refusal = parsed(&fields).expect_err(&fields.to_string());
        assert_eq!(refusal.code, code, "{fields}: {}", refusal.reason);
        assert!(
            refusal.reason.contains(to_do),
            "{fields}: {}",
            refusal.reason
        );
    }
}

#[test]
fn a_service_that_promises_nonsense_is_told_the_bounds() {
    let objective = |latency_ms: i64, percentile: f64| {
        service(json!({"objective": {"latency_ms": latency_ms, "percentile": percentile}}))
    };
    let latency = "must lie between 1 and 3600000";
    let percentile = "must lie between 1 and 99.999";
    refused(vec![
        (objective(0, 99.0), "bad_objective", latency),
        (objective(3_600_001, 99.0), "bad_objective", latency),
        (
            objective(-1, 99.0),
            "malformed",
            "a whole number, 0 or more",
        ),
        (objective(100, 100.0), "bad_objective", percentile),
        (objective(100, 0.0), "bad_objective", percentile),
        (objective(100, -3.0), "bad_objective", percentile),
        (objective(100, 1e300), "bad_objective", percentile),
        (
            service(json!({"ready": {"path": "healthz"}})),
            "bad_service",
            "a path such as /healthz",
        ),
        (
            service(json!({"ready": {"path": "/a b"}})),
            "bad_service",
            "a path such as /healthz",
        ),
        (
            service(json!({"ready": {"timeout_s": 0}})),
            "bad_service",
            "ready.timeout_s must lie between 1 and 3600",
        ),
        (
            service(json!({"ready": {"timeout_s": 3601}})),
            "bad_service",
            "ready.timeout_s must lie between 1 and 3600",
        ),
        (
            service(json!({"drain_s": 3601})),
            "bad_service",
            "drain_s must be at most 3600",
        ),
        (
            service(json!({"idle_s": 0})),
            "bad_service",
            "idle_s must lie between 1 and 604800",
        ),
        (
            service(json!({"idle_s": 604_801})),
            "bad_service",
            "idle_s must lie between 1 and 604800",
        ),
        (
            service(json!({"concurrency": 0})),
            "bad_service",
            "concurrency must lie between 1 and 10000",
        ),
        (
            service(json!({"concurrency": 10_001})),
            "bad_service",
            "concurrency must lie between 1 and 10000",
        ),
        (
            service(json!({"replicas": 3})),
            "unknown_field",
            "remove it",
        ),
    ]);
    assert_eq!(parsed(&objective(1, 99.999)), Ok(()));
}

#[test]
fn what_contradicts_a_service_is_to_be_left_out() {
    let bare = || service(json!({}));
    let tasks = json!({"count": 3, "concurrency": 1});
    refused(vec![
        (
            with(bare(), "resize", json!("restart")),
            "bad_resize",
            "leave resize out",
        ),
        (with(bare(), "tasks", tasks), "bad_tasks", "add kind: batch"),
        (
            with(bare(), "executor", json!("torch")),
            "bad_service",
            "leave executor out",
        ),
        (
            with(bare(), "checkpoint", json!({"mode": "exit"})),
            "bad_checkpoint",
            "leave checkpoint out",
        ),
        (
            with(bare(), "success", json!("coordinator")),
            "bad_service",
            "leave success out",
        ),
        (
            with(
                bare(),
                "containers",
                json!({"min": 1, "start": 2, "max": 4}),
            ),
            "bad_containers",
            "give min and max",
        ),
        (
            with(bare(), "kind", json!("training")),
            "bad_service",
            "add the kind, or leave service out",
        ),
        (
            json!({"kind": "batch", "service": {}}),
            "bad_service",
            "add the kind, or leave service out",
        ),
    ]);
    assert_eq!(parsed(&bare()), Ok(()));
}

#[test]
fn a_notebook_has_one_container_and_a_token_of_its_own() {
    let token = "the node's agent makes";
    let plain = json!({"env": {"JUPYTER_TOKEN": "secret"}});
    let argument =
        |word: &str| notebook(json!({"command": {"start": ["jupyter", "server", word]}}));
    refused(vec![
        (
            notebook(json!({"containers": {"min": 0, "max": 2}})),
            "bad_containers",
            "give {min: 0, max: 1}",
        ),
        (
            notebook(json!({"service": {"objective": {"latency_ms": 100, "percentile": 99}}})),
            "bad_objective",
            "leave service.objective out",
        ),
        (notebook(plain), "bad_token", token),
        (argument("--token=secret"), "bad_token", token),
        (argument("--IdentityProvider.token="), "bad_token", token),
        (argument("--ServerApp.password=x"), "bad_token", token),
    ]);
    let secret = json!({"env": {"JUPYTER_TOKEN": {"from": {"file": "token"}}}});
    assert_eq!(parsed(&notebook(secret)), Ok(()));
}

#[test]
fn what_cannot_be_resized_in_place_is_told_the_other_way() {
    let in_place = |fields: Value| with(fields, "resize", json!("in_place"));
    let bounds = |start: u32| json!({"containers": {"min": 2, "start": start, "max": 4}});
    refused(vec![
        (
            in_place(json!({"executor": "mxnet"})),
            "bad_resize",
            "give a checkpoint instead",
        ),
        (
            in_place(json!({"executor": "mpi"})),
            "bad_resize",
            "give a checkpoint instead",
        ),
        (
            in_place(json!({"kind": "batch"})),
            "bad_resize",
            "or use kind: training",
        ),
        (
            in_place(bounds(1)),
            "bad_containers",
            "between containers.min 2 and .max 4",
        ),
        (
            in_place(bounds(5)),
            "bad_containers",
            "between containers.min 2 and .max 4",
        ),
        (bounds(3), "bad_containers", "belongs to resize: in_place"),
        (
            json!({"resize": {"mode": "in_place", "signal": "SIGKILL"}}),
            "bad_resize",
            "must be one of SIGTERM",
        ),
        (
            json!({"resize": {"mode": "restart", "signal": "SIGHUP"}}),
            "bad_resize",
            "belongs to mode: in_place",
        ),
        (
            json!({"resize": "sometimes"}),
            "malformed",
            "restart, in_place",
        ),
    ]);
    assert_eq!(parsed(&in_place(bounds(3))), Ok(()));
}
