//! What the tests of the simulator share.
pub mod filling;

use dormouse_replay::scenario::{Scenario, presets, read_value};
use serde_json::Value;

/// A scenario of `deploy/scenarios` as a document.
pub fn document(name: &str) -> Value {
    let path = format!(
        "{}/../deploy/scenarios/{name}.json",
        env!("CARGO_MANIFEST_DIR")
    );
    let text = std::fs::read_to_string(path).expect("the scenario is there");
    serde_json::from_str(&text).expect("JSON")
}

/// A scenario of `deploy/scenarios` under a named policy.
pub fn scenario(name: &str, policy: &str) -> Scenario {
    let mut document = document(name);
    presets::apply(&presets::preset(policy).expect("a policy"), &mut document);
    read_value(document).expect("a scenario")
}
