//! A simulated service's health in read model and explanation, compared with its clients' view.

use std::sync::Arc;

use dormouse_messages::{Event, Fold as _, Recorded};
use dormouse_projections::ReadModel;
use dormouse_projections::services::health::Health;
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};
use serde_json::json;

/// 24 requests per second exceed two replicas.
fn scenario() -> serde_json::Value {
    json!({
        "scenario": "rising", "horizon_s": 1800,
        "nodes": [{"name": "n0", "capacity": {"cpu": 4}}],
        "jobs": [
            {"at_s": 0, "spec": {
                "name": "model", "kind": "inference", "command": {"start": ["serve"]},
                "demand": {"cpu": 1}, "containers": {"min": 1, "max": 3},
                "service": {"objective": {"latency_ms": 400, "percentile": 99}}},
             "model": {
                "clients": {"rate": [5, 24], "every_s": 300, "work_ms": 100},
                "costs": {"ready_s": 20}}},
        ],
    })
}

#[test]
fn what_the_read_model_says_of_a_service_is_what_its_clients_saw() {
    let mut log: Vec<Arc<Recorded>> = Vec::new();
    let keep = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    let scenario = read_value(scenario()).expect("a scenario");
    let outcome = simulate(&scenario, &Options::default(), keep, |_| ()).expect("simulates");
    let figures = outcome.figures.mixed.as_ref().expect("a service");
    let requests = log.iter().filter_map(|it| match it.event() {
        Some(Event::ServiceMeasured(it)) => Some(it.requests),
        _ => None,
    });
    let requests: u64 = requests.sum();
    let last = |it: &Arc<Recorded>| matches!(it.event(), Some(Event::ServiceMeasured(_)));
    let last = log.iter().rposition(last).expect("it was measured");
    let seen = &log[..=last];
    let mut model = ReadModel::default();
    seen.iter().for_each(|it| model.evolve(it));
    let services: Vec<_> = model.services.live().collect();
    let [(id, service)] = services[..] else {
        panic!("{services:?}");
    };
    let health: Health = service.health(model.cluster.now);
    assert_eq!(health.total.requests, requests);
    let in_time = health.total.attainment.expect("it was asked");
    let told = figures.services[0].in_time;
    assert!((in_time - told).abs() < 0.02, "{in_time} of {told}");
    assert_eq!((health.ready, health.target), (3, 3), "{health:?}");
    let rate = health.last_minute.and_then(|it| it.requests_per_s);
    assert!((rate.expect("a rate") - 24.0).abs() < 0.5, "{health:?}");
    let mut explainer = Explainer::new(Subject::Job(id.clone()), None, 10);
    seen.iter().for_each(|it| explainer.read(it));
    let words = explainer.explain().expect("it is there").words;
    let line = format!("its clients see: {}", health.words);
    assert!(words.contains(&line), "{words:?}");
}
