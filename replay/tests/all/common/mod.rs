//! Helpers shared by the tests.
pub mod filling;

use dormouse_replay::engine::{Action, Engine, Faults, ModelJob, Rates};
use dormouse_replay::random::Random;
use dormouse_replay::scenario::{Scenario, presets, read_value};
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_replay::torture::workload;
use serde_json::Value;

pub fn document(name: &str) -> Value {
    let path = format!(
        "{}/../deploy/scenarios/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect("the scenario is there");
    serde_json::from_str(&text).expect("JSON")
}

pub fn scenario(name: &str, policy: &str) -> Scenario {
    let mut document = document(name);
    presets::apply(&presets::preset(policy).expect("a policy"), &mut document);
    read_value(document).expect("a scenario")
}

pub fn small_cluster(seed: u64, rates: Option<Rates>) -> (Engine, Random) {
    let mut random = Random::new(seed);
    let faults = rates.map(|rates| Faults::new(random.next(), rates));
    let mut engine = Engine::with_faults(START, false, faults.unwrap_or_else(Faults::none));
    let _ = workload::small_cluster(&mut engine, &mut random);
    engine
        .run_until(seconds_after_start(200_000.0))
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    (engine, random)
}

pub fn submit(engine: &mut Engine, at_s: f64, id: &str, payload: &str, model: ModelJob) {
    let (tenant, name) = id.split_once('/').expect("tenant/name");
    engine.model(id.parse().expect("a job"), model);
    let action = Action::Submit {
        tenant: tenant.to_owned(),
        verb: "submit".to_owned(),
        payload: format!(r#"{{"name":"{name}","command":{{"start":["run"]}},{payload}}}"#)
            .into_bytes(),
    };
    engine.at(seconds_after_start(at_s), action);
}
