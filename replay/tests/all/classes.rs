//! Priority classes through the whole pipeline, with verified decisions.

use std::collections::BTreeMap;

use dormouse_messages::events::{AllocationDecided, ServiceScaled, TenantGranted};
use dormouse_messages::grants::Grants;
use dormouse_messages::policy::Policy;
use dormouse_messages::policy::Preemption;
use dormouse_messages::service::Scaling;
use dormouse_messages::{Event, PriorityClass};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::explain::{Explainer, Subject};

use crate::tenants::{assert_refused, at, cluster, refusals, run, send, submit, when};

const URGENT: &str = r#","priority_class":"urgent""#;
const EARLY: &str = r#","priority_class":"early""#;

fn with_classes(preemption: Preemption) -> Engine {
    let class = |value, preempts| PriorityClass { value, preempts };
    let classes = [
        ("critical", class(200, true)),
        ("urgent", class(100, true)),
        ("early", class(10, false)),
    ];
    let classes = classes.map(|(name, class)| (name.to_owned(), class));
    let mut engine = cluster(Policy {
        preemption,
        priority_classes: BTreeMap::from(classes.clone()),
        ..Policy::default()
    });
    for tenant in ["ads", "lab"] {
        let granted = TenantGranted {
            tenant: tenant.parse().expect("a tenant"),
            grants: Grants {
                priority_classes: classes.clone().map(|(name, _)| name).into(),
                ..Grants::default()
            },
        };
        engine.at(at(0), Action::Operator(granted.into()));
    }
    engine
}

/// Returns the preemptions: time, beneficiary, victim, containers, force.
fn preemptions(engine: &Engine) -> Vec<(f64, String, String, u32, bool)> {
    let mut found = Vec::new();
    for recorded in engine.log() {
        let Some(Event::AllocationDecided(event)) = recorded.event() else {
            continue;
        };
        let event: &AllocationDecided = event;
        for given in &event.jobs {
            if let Some(to) = &given.made_for {
                let after_s = recorded.stored_at.seconds_since(at(0));
                let (who, whom) = (given.job.to_string(), to.to_string());
                found.push((after_s, who, whom, given.containers, event.outcome.forced));
            }
        }
    }
    found
}

fn works(engine: &mut Engine, id: &str, work_container_s: f64) {
    let job = id.parse().expect("a job");
    engine.model(job, ModelJob::linear(work_container_s));
}

fn audited(engine: &Engine) {
    assert_eq!(engine.audit().violations(), []);
}

#[test]
fn a_class_that_is_not_there_or_not_granted_is_refused_with_what_to_do() {
    let mut engine = with_classes(Preemption::default());
    submit(
        &mut engine,
        1,
        "ads/a",
        (1, 1),
        r#","priority_class":"urgnt""#,
    );
    submit(&mut engine, 1, "web/b", (1, 1), URGENT);
    submit(
        &mut engine,
        1,
        "ads/c",
        (1, 1),
        r#","kind":"batch","priority_class":7"#,
    );
    let service = r#"{"name":"s","kind":"inference","priority_class":"urgent",
        "command":{"start":["run"]},"demand":{"cpu":1}}"#;
    send(&mut engine, 1, "ads", "submit", service);
    submit(&mut engine, 1, "ads/good", (1, 1), URGENT);
    // The class as on the log; the value is looked up, not trusted.
    let known = r#","priority_class":{"name":"early","value":999,"preempts":true}"#;
    submit(&mut engine, 1, "lab/known", (1, 1), known);
    run(&mut engine, 300);
    let grant = "dormouse tenant grant ads --priority-class urgnt";
    assert_refused(
        &engine,
        "unknown_priority_class",
        &["critical, early, urgent", grant],
    );
    let grant = "`dormouse tenant grant web --priority-class urgent`";
    assert_refused(&engine, "priority_class_not_granted", &[grant]);
    assert_refused(&engine, "bad_priority_class", &["leave it out"]);
    assert_eq!(refusals(&engine).len(), 4);
    assert!(when(&engine, "ads/good", "completed").is_some());
    let mut classes = engine.log().iter().filter_map(|it| match it.event() {
        Some(Event::JobAdmitted(event)) => event.spec.priority_class.clone(),
        _ => None,
    });
    let values: Vec<(i32, bool)> = classes.by_ref().map(|it| (it.value, it.preempts)).collect();
    assert_eq!(values, [(100, true), (10, false)]);
}

#[test]
fn an_urgent_job_starts_at_once_and_whom_it_took_the_room_from_goes_on_afterwards() {
    let mut engine = with_classes(Preemption::default());
    for name in ["a", "b", "c", "d"] {
        let id = format!("lab/{name}");
        submit(&mut engine, 1, &id, (4, 4), "");
        works(&mut engine, &id, 4.0 * 600.0);
    }
    submit(&mut engine, 60, "ads/now", (6, 6), URGENT);
    run(&mut engine, 3_000);
    audited(&engine);
    let victims = preemptions(&engine);
    assert_eq!(victims.len(), 2, "{victims:?}");
    for (after_s, who, whom, left, forced) in &victims {
        assert!((60.0..61.0).contains(after_s) && who.starts_with("lab/"));
        assert_eq!((whom.as_str(), *left, *forced), ("ads/now", 0, true));
    }
    let now = when(&engine, "ads/now", "completed").expect("completed");
    assert!(now < 150.0, "{now}");
    for name in ["a", "b", "c", "d"] {
        assert!(when(&engine, &format!("lab/{name}"), "completed").is_some());
    }
}

#[test]
fn by_class_then_as_they_came_and_a_class_that_does_not_preempt_takes_nothing() {
    let mut engine = with_classes(Preemption::default());
    submit(&mut engine, 1, "lab/runs", (16, 16), "");
    submit(&mut engine, 10, "lab/first", (16, 16), "");
    submit(&mut engine, 20, "ads/second", (16, 16), EARLY);
    submit(&mut engine, 30, "lab/third", (16, 16), EARLY);
    run(&mut engine, 3_000);
    audited(&engine);
    assert_eq!(preemptions(&engine), []);
    let ended = |id: &str| when(&engine, id, "completed").expect("completed");
    let order = ["lab/runs", "ads/second", "lab/third", "lab/first"].map(ended);
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn a_preempted_job_is_told_whom_it_made_room_for() {
    let mut engine = with_classes(Preemption::default());
    submit(&mut engine, 1, "lab/long", (16, 16), "");
    submit(&mut engine, 60, "ads/one", (16, 16), URGENT);
    run(&mut engine, 62);
    let subject = Subject::Job("lab/long".parse().expect("a job"));
    let mut explainer = Explainer::new(subject, None, 0);
    engine.log().iter().for_each(|it| explainer.read(it));
    let answer = explainer.explain().expect("it is there");
    let resize = answer.resizes.last().expect("a resize");
    assert_eq!((resize.from, resize.to), (16, 0));
    assert_eq!(resize.made_for.as_deref(), Some("ads/one"));
    let words = answer.words.join("\n");
    let said = "resized it 16→0, to make room for ads/one; it was decided upon";
    assert!(words.contains(said), "{words}");
    // Keeping the job in place would still stop it, so that is no alternative.
    let subject = Subject::Epoch(dormouse_messages::Epoch(resize.epoch));
    let mut explainer = Explainer::new(subject, None, 600);
    engine.log().iter().for_each(|it| explainer.read(it));
    let answer = explainer.explain().expect("it is there");
    let kept = answer
        .alternatives
        .iter()
        .find(|it| it.what == "lab/long keeps 16");
    assert_eq!(kept.map(|it| it.code.as_str()), Some("preempted"));
}

#[test]
fn a_job_is_preempted_no_more_often_than_the_bound_and_the_waiting_one_says_so() {
    let mut engine = with_classes(Preemption {
        max_per_hour: Some(1),
        min_run_s: Some(30),
    });
    submit(&mut engine, 1, "lab/long", (16, 16), "");
    // Not before 30 s of running; then once within the hour.
    submit(&mut engine, 10, "ads/one", (16, 16), URGENT);
    submit(
        &mut engine,
        200,
        "ads/two",
        (16, 16),
        r#","priority_class":"critical""#,
    );
    works(&mut engine, "lab/long", 16.0 * 2_000.0);
    run(&mut engine, 8_000);
    audited(&engine);
    let victims = preemptions(&engine);
    assert_eq!(victims.len(), 1, "{victims:?}");
    assert!(victims[0].0 >= 31.0, "{victims:?}");
    let codes: Vec<&str> = engine
        .log()
        .iter()
        .filter_map(|it| it.event())
        .flat_map(|event| match event {
            Event::AllocationDecided(event) => &event.outcome.waiting[..],
            Event::AllocationUnchanged(event) => &event.outcome.waiting[..],
            _ => &[],
        })
        .map(|waiting| waiting.code.as_str())
        .collect();
    assert!(codes.contains(&"preemption_bound"), "{codes:?}");
    let two = when(&engine, "ads/two", "completed").expect("completed");
    let long = when(&engine, "lab/long", "completed").expect("completed");
    assert!(long < two, "the second one waits: {long} {two}");
}

#[test]
fn the_bound_ends_by_time_alone() {
    let mut engine = with_classes(Preemption {
        max_per_hour: Some(1),
        min_run_s: None,
    });
    submit(&mut engine, 1, "lab/long", (16, 16), "");
    submit(&mut engine, 60, "ads/one", (16, 16), URGENT);
    submit(&mut engine, 400, "ads/two", (16, 16), URGENT);
    works(&mut engine, "lab/long", 16.0 * 20_000.0);
    run(&mut engine, 30_000);
    audited(&engine);
    let victims = preemptions(&engine);
    let times: Vec<f64> = victims.iter().map(|it| it.0).collect();
    assert_eq!(times.len(), 2, "{victims:?}");
    assert!(
        (3_600.0..3_605.0).contains(&(times[1] - times[0])),
        "{times:?}"
    );
}

#[test]
fn beyond_the_bound_a_service_gets_its_room_by_force() {
    let mut engine = with_classes(Preemption {
        max_per_hour: Some(1),
        min_run_s: None,
    });
    submit(&mut engine, 1, "lab/long", (16, 16), "");
    works(&mut engine, "lab/long", 16.0 * 2_000.0);
    let service = r#"{"name":"s","kind":"inference","containers":{"min":0,"max":4},
        "command":{"start":["run"]},"demand":{"cpu":1}}"#;
    send(&mut engine, 2, "ads", "submit", service);
    for (second, replicas) in [(100, 4), (200, 0), (400, 4), (500, 0)] {
        let scaled = ServiceScaled {
            job: "ads/s".parse().expect("a job"),
            replicas,
            previous: 0,
            scaling: Scaling::Objective,
            observed: Default::default(),
            forecast: 0.0,
            capacity_per_replica: 0.0,
            reason: "by the test".to_owned(),
            saturated: false,
            basis: None,
        };
        engine.at(at(second), Action::Autoscaler(scaled.into()));
    }
    run(&mut engine, 1_000);
    audited(&engine);
    let victims = preemptions(&engine);
    assert_eq!(victims.len(), 2, "{victims:?}");
    assert!(victims.iter().all(|it| it.4), "{victims:?}");
    assert_eq!(engine.audit().preemptions(), [2, 0, 1]);
}
