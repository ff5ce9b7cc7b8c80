//! Lifting refusals on one node of 8 CPUs and 16 GiB, worked out by hand and tried in the real services.

use dormouse_messages::events::{TenantConfigured, TenantGranted};
use dormouse_messages::grants::{Grants, GrantsRule};
use dormouse_messages::policy::{Policy, UnknownTenants};
use dormouse_messages::{Event, JobId};
use dormouse_replay::engine::{Action, Engine};
use dormouse_replay::history::explain::{Correction, Explanation, Subject};
use dormouse_replay::simulate::{START, seconds_after_start};
use serde_json::{Value, json};

use super::explain;

fn operator(event: impl Into<Event>) -> Action {
    Action::Operator(event.into())
}

fn ads(quota: &str, max_job_weight: Option<u32>) -> TenantConfigured {
    TenantConfigured {
        tenant: "ads".parse().expect("a tenant"),
        weight: 1,
        quota: quota.parse().expect("amounts"),
        max_job_weight,
        priority: None,
    }
}

fn granted(grants: Grants) -> TenantGranted {
    TenantGranted {
        tenant: "ads".parse().expect("a tenant"),
        grants,
    }
}

fn submitted(policy: Policy, said: &[Event], document: &Value) -> Engine {
    let mut engine = Engine::new(START, true);
    let configured = dormouse_messages::events::ClusterConfigured { policy };
    engine.at(START, operator(configured));
    let action = Action::Join {
        node: "n0".parse().expect("a node"),
        capacity: "cpu=8,memory=16Gi".parse().expect("amounts"),
    };
    engine.at(START, action);
    for event in said {
        engine.at(START, Action::Operator(event.clone()));
    }
    submit(&mut engine, 10.0, document);
    engine
}

fn submit(engine: &mut Engine, at_s: f64, document: &Value) {
    let action = Action::Submit {
        tenant: "ads".to_owned(),
        verb: "submit".to_owned(),
        payload: document.to_string().into_bytes(),
    };
    engine.at(seconds_after_start(at_s), action);
    engine
        .run_until(seconds_after_start(at_s + 10.0))
        .expect("a healthy run");
}

fn job(more: &[(&str, Value)]) -> Value {
    let mut document = json!({"name": "x", "command": {"start": ["run"]}, "demand": {"cpu": 1}});
    for (field, value) in more {
        document[*field] = value.clone();
    }
    document
}

fn lifts(engine: &Engine) -> (Explanation, Vec<String>) {
    let id: JobId = "ads/x".parse().expect("a job");
    let answer = explain(engine.log(), Subject::Job(id), None);
    assert_eq!(answer.state, "refused");
    let shown = |it: &Correction| {
        assert!(it.admitted, "{it:?}");
        let not_at = it.not_at.as_deref().unwrap_or("-");
        format!(
            "{} {}→{} gets {} not {not_at}",
            it.kind, it.from, it.to, it.becomes
        )
    };
    let shown = answer.corrections.iter().map(shown).collect();
    (answer, shown)
}

fn is_admitted(engine: &mut Engine, at_s: f64, document: &Value) -> bool {
    submit(engine, at_s, document);
    let admitted = |event: &Event| matches!(event, Event::JobAdmitted(it) if it.job.name() == "x");
    let log = engine.log();
    log.iter().any(|it| it.event().is_some_and(admitted))
}

/// Four containers of 2 CPUs need 8 of a quota of 5. Two of them fit, or 1.2 CPUs each (12/20), or a
/// quota of 8.
#[test]
fn above_a_quota() {
    let document = job(&[
        ("demand", json!({"cpu": 2})),
        ("containers", json!({"min": 4, "max": 4})),
    ]);
    let said = [ads("cpu=5", None).into()];
    let mut engine = submitted(Policy::default(), &said, &document);
    let (answer, lifts) = lifts(&engine);
    let words = &answer.dominant.as_ref().expect("a reason").words;
    assert!(words.starts_with("above_quota"), "{words}");
    assert_eq!(
        lifts,
        [
            "quota cpu=5→cpu=8 gets 4 not cpu=7999m",
            "min 4→2 gets 2 not 3",
            "demand 2→1200m gets 4 not 1300m",
        ]
    );
    let changes: Vec<&str> = answer
        .corrections
        .iter()
        .map(|it| it.change.as_str())
        .collect();
    assert_eq!(
        changes,
        [
            "dormouse tenant set ads --quota cpu=8",
            "--set job.ads/x.containers.min=2",
            "--set job.ads/x.demand.cpu=1200m",
        ]
    );
    for (at_s, cpu, min, admitted) in [
        (100.0, "2", 3, false),
        (150.0, "1.3", 4, false),
        (200.0, "1.2", 4, true),
    ] {
        let mut document = document.clone();
        document["demand"]["cpu"] = json!(cpu);
        document["containers"]["min"] = json!(min);
        let is = is_admitted(&mut engine, at_s, &document);
        assert_eq!(is, admitted, "{cpu} {min}");
    }
}

/// 10 CPUs fit no node of 8, which is 16/20.
#[test]
fn larger_than_any_node() {
    let document = job(&[("demand", json!({"cpu": 10, "memory": "4Gi"}))]);
    let engine = submitted(Policy::default(), &[], &document);
    let (answer, found) = lifts(&engine);
    assert_eq!(
        found,
        [
            "nodes 0→1 of cpu=10,memory=4Gi gets 1 not cpu=9999m",
            "demand 10→8 gets 1 not 8500m",
        ]
    );
    assert_eq!(
        answer.corrections[0].change,
        "--add-node new-node-1:cpu=10,memory=4Gi"
    );
    let document = job(&[("demand", json!({"cpu": 10, "memory": "32Gi"}))]);
    let engine = submitted(Policy::default(), &[], &document);
    let (_, lifts) = lifts(&engine);
    assert_eq!(
        lifts[1],
        "demand cpu=10,memory=32Gi→cpu=8,memory=16Gi gets 1 not -"
    );
}

#[test]
fn a_class_that_is_not_there() {
    let document = job(&[("priority_class", json!("urgent"))]);
    let mut engine = submitted(Policy::default(), &[], &document);
    let (answer, lifts) = lifts(&engine);
    assert_eq!(
        lifts,
        [
            "class not there→urgent gets 1 not -",
            "class urgent→none gets 1 not -"
        ]
    );
    let says = &answer.corrections[0].change;
    assert!(
        says.ends_with("&& dormouse tenant grant ads --priority-class urgent"),
        "{says}"
    );
    assert!(is_admitted(&mut engine, 100.0, &job(&[])));
}

#[test]
fn limits_and_grants() {
    let open = Policy::default;
    let required = || Policy {
        grants: Some(GrantsRule::Required),
        ..Policy::default()
    };
    let most = |max_containers| Grants {
        max_containers: Some(max_containers),
        ..Grants::default()
    };
    let mount = json!([{"source": "/data/a", "target": "/data"}]);
    for (policy, said, document, expected) in [
        (
            open(),
            vec![ads("", Some(3)).into()],
            job(&[("weight", json!(5))]),
            vec!["limit 3→5 gets 1 not 4", "weight 5→3 gets 1 not 4"],
        ),
        (
            open(),
            vec![granted(most(2)).into()],
            job(&[("containers", json!({"min": 4, "max": 4}))]),
            vec!["limit 2→4 gets 4 not 3", "min 4→2 gets 2 not 3"],
        ),
        (
            required(),
            vec![ads("", None).into()],
            job(&[("mounts", mount)]),
            vec!["grant not granted→--mount '/data/a' gets 1 not -"],
        ),
        (
            Policy {
                unknown_tenants: UnknownTenants::Refuse,
                ..open()
            },
            vec![],
            job(&[]),
            vec!["tenant not configured→weight 1 gets 1 not -"],
        ),
        (
            Policy {
                unknown_tenants: UnknownTenants::Refuse,
                ..open()
            },
            vec![],
            job(&[("demand", json!({"cpu": 10}))]),
            vec!["tenant not configured, 0→weight 1, 1 of cpu=10 gets 1 not -"],
        ),
    ] {
        let engine = submitted(policy, &said, &document);
        let (answer, lifts) = lifts(&engine);
        assert_eq!(lifts, expected, "{answer:?}");
    }
}

#[test]
fn nothing_is_named_that_lifts_nothing() {
    let document = job(&[("containers", json!({"min": 4, "max": 2}))]);
    let engine = submitted(Policy::default(), &[], &document);
    let (answer, found) = lifts(&engine);
    assert_eq!(found, Vec::<String>::new());
    assert!(
        answer
            .words
            .iter()
            .any(|it| it.contains("has to be mended"))
    );

    let document = job(&[("demand", json!({"cpu": 10}))]);
    let mut engine = submitted(Policy::default(), &[], &document);
    let action = Action::Join {
        node: "n1".parse().expect("a node"),
        capacity: "cpu=16".parse().expect("amounts"),
    };
    engine.at(seconds_after_start(50.0), action);
    engine
        .run_until(seconds_after_start(60.0))
        .expect("a healthy run");
    let (answer, lifts) = lifts(&engine);
    assert_eq!(lifts, Vec::<String>::new());
    let last = answer.words.last().expect("words");
    assert!(
        last.ends_with("it would be admitted, with 1 container"),
        "{last}"
    );
}
