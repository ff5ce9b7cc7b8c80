//! Jobs that wait for others of their tenant.

use dormouse_messages::Event;
use dormouse_messages::policy::Policy;

use super::{assert_refused, cluster, refusals, run, send, submit, when};

#[test]
fn a_bad_dependency_or_priority_is_refused_by_name() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/a", (1, 1), r#","depends_on":["a"]"#);
    submit(
        &mut engine,
        1,
        "ads/b",
        (1, 1),
        r#","depends_on":["nobody"]"#,
    );
    submit(
        &mut engine,
        1,
        "ads/c",
        (1, 1),
        r#","depends_on":["lab/other"]"#,
    );
    let many: Vec<String> = (0..65).map(|n| format!("\"x{n}\"")).collect();
    let many = format!(r#","depends_on":[{}]"#, many.join(","));
    submit(&mut engine, 1, "ads/d", (1, 1), &many);
    submit(&mut engine, 1, "ads/e", (1, 1), r#","priority":1001"#);
    submit(&mut engine, 1, "ads/f", (1, 1), r#","tasks":{"count":0}"#);
    run(&mut engine, 60);
    assert_refused(&engine, "dependency_cycle", &["ads/a depends on itself"]);
    assert_refused(
        &engine,
        "unknown_dependency",
        &["no job ads/nobody", "before ads/b"],
    );
    assert_refused(&engine, "bad_dependency", &["another tenant's"]);
    assert_refused(&engine, "bad_priority", &["-1000 and 1000"]);
    assert_refused(&engine, "missing_field", &["`concurrency`"]);
    assert_eq!(refusals(&engine).len(), 6);
}

#[test]
fn a_job_waits_for_those_it_depends_on() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/first", (1, 1), "");
    submit(
        &mut engine,
        1,
        "ads/second",
        (1, 2),
        r#","depends_on":["first"]"#,
    );
    submit(
        &mut engine,
        1,
        "ads/last",
        (1, 1),
        r#","depends_on":["first","ads/second"]"#,
    );
    run(&mut engine, 600);
    let completed = |id| when(&engine, id, "completed").expect("completed");
    let released = |id| when(&engine, id, "released").expect("released");
    assert!(released("ads/second") >= completed("ads/first"));
    assert!(released("ads/last") >= completed("ads/second"));
    submit(
        &mut engine,
        700,
        "ads/later",
        (1, 1),
        r#","depends_on":["first"]"#,
    );
    run(&mut engine, 900);
    assert!((when(&engine, "ads/later", "released").expect("released") - 700.0).abs() < 1e-9);
}

#[test]
fn what_depends_on_a_job_that_did_not_complete_is_cancelled_with_the_reason() {
    let mut engine = cluster(Policy::default());
    submit(&mut engine, 1, "ads/first", (1, 1), "");
    submit(
        &mut engine,
        1,
        "ads/second",
        (1, 1),
        r#","depends_on":["first"]"#,
    );
    submit(
        &mut engine,
        1,
        "ads/third",
        (1, 1),
        r#","depends_on":["second"]"#,
    );
    send(&mut engine, 10, "ads", "cancel", r#"{"job":"first"}"#);
    submit(
        &mut engine,
        20,
        "ads/fourth",
        (1, 1),
        r#","depends_on":["first"]"#,
    );
    run(&mut engine, 60);
    let cancelled = engine
        .log()
        .iter()
        .filter_map(|recorded| match recorded.event() {
            Some(Event::JobCancelled(event)) => Some((event.job.to_string(), event.reason.clone())),
            _ => None,
        });
    let reasons: Vec<(String, String)> = cancelled.collect();
    let says = |id: &str, part: &str| reasons.iter().any(|(job, r)| job == id && r.contains(part));
    assert!(says("ads/second", "depends on ads/first"), "{reasons:?}");
    assert!(says("ads/third", "depends on ads/second"), "{reasons:?}");
    assert_refused(
        &engine,
        "dependency_failed",
        &["ads/first did not complete"],
    );
}
