//! Named policies for comparisons.

use serde_json::{Value, json};

use dormouse_messages::policy::Policy;

/// The policies' names.
pub const NAMES: [&str; 7] = [
    "scenario", "default", "static", "drf", "dorm-1", "dorm-2", "dorm-3",
];

/// Returns the fields that a named policy sets; `None` for an unknown name. The Dorm paper's settings
/// maximise utilization alone, admit the longest prefix of the queue, and resize at any time.
#[must_use]
pub fn preset(name: &str) -> Option<Value> {
    let dorm = |theta1: f64, theta2: f64| {
        json!({
            "allocation": "dorm", "theta1": theta1, "theta2": theta2, "fairness_bound": "paper",
            "objective": {"utilization": 1.0, "loss": 0.0, "amortise_s": null}, "admit": "prefix", "min_run_s": 0,
        })
    };
    match name {
        "scenario" => Some(json!({})),
        "default" => serde_json::to_value(Policy::default()).ok(),
        "static" => Some(json!({"allocation": "static"})),
        "drf" => Some(json!({"allocation": "drf"})),
        "dorm-1" => Some(dorm(0.2, 0.1)),
        "dorm-2" => Some(dorm(0.1, 0.2)),
        "dorm-3" => Some(dorm(0.1, 0.1)),
        _ => None,
    }
}

/// Overwrites a scenario's policy fields.
pub fn apply(fields: &Value, scenario: &mut Value) {
    let Value::Object(fields) = fields else {
        return;
    };
    let Some(scenario) = scenario.as_object_mut() else {
        return;
    };
    let policy = scenario.entry("policy").or_insert_with(|| json!({}));
    if let Some(policy) = policy.as_object_mut() {
        policy.extend(fields.clone());
    }
}
