//! A submitted job, and its tenant's later messages about it.

use serde_json::json;

use crate::engine::{Action, Engine};
use crate::random::Random;
use crate::simulate::seconds_after_start;

pub const TENANTS: [&str; 3] = ["t", "u", "v"];

pub fn submit(
    engine: &mut Engine,
    at_s: f64,
    tenant: &str,
    verb: &str,
    document: &serde_json::Value,
) {
    let action = Action::Submit {
        tenant: tenant.to_owned(),
        verb: verb.to_owned(),
        payload: document.to_string().into_bytes(),
    };
    engine.at(seconds_after_start(at_s), action);
}

/// A job's submission, and its time.
pub struct Submitted<'a> {
    pub at_s: f64,
    pub tenant: &'a str,
    pub name: &'a str,
}

pub fn afterwards(
    engine: &mut Engine,
    submitted: &Submitted<'_>,
    document: &serde_json::Value,
    room: u64,
    random: &mut Random,
) {
    let Submitted { at_s, tenant, name } = *submitted;
    if random.chance(0.15) {
        let after_s = random.between(0.0, 200.0);
        submit(
            engine,
            at_s + after_s,
            tenant,
            "cancel",
            &json!({"job": name}),
        );
    }
    if random.chance(0.2) {
        let after_s = random.between(0.0, 200.0);
        let min = 1 + random.below(room.clamp(1, 3));
        let revised = json!({
            "job": name, "weight": 1 + random.below(5),
            "containers": {"min": min, "max": min + random.below(6)},
        });
        submit(engine, at_s + after_s, tenant, "revise", &revised);
    }
    if random.chance(0.15) {
        // Refused for services, and without force for running jobs without a checkpoint.
        let held_s = at_s + random.between(0.0, 200.0);
        let held = json!({"job": name, "held": true, "force": random.chance(0.5)});
        submit(engine, held_s, tenant, "revise", &held);
        let let_go_s = held_s + random.between(0.0, 200.0);
        let let_go = json!({"job": name, "held": false, "priority": random.below(3)});
        submit(engine, let_go_s, tenant, "revise", &let_go);
    }
    if random.chance(0.05) {
        submit(engine, at_s + 1.0, tenant, "submit", document);
        submit(engine, at_s, tenant, "submit", &json!({"name": 7}));
        submit(engine, at_s, tenant, "cancel", &json!({"job": "nobody"}));
    }
}

pub fn in_place(
    mut document: serde_json::Value,
    room: u64,
    random: &mut Random,
) -> serde_json::Value {
    document["resize"] = json!("in_place");
    let bounds = &document["containers"];
    let (min, max) = (bounds["min"].as_u64(), bounds["max"].as_u64());
    if let (Some(min), Some(max)) = (min, max)
        && random.chance(0.5)
    {
        let start = min + random.below(max - min + 1);
        // The start must fit on the nodes that stay.
        document["containers"]["start"] = json!(start.min(room).max(min));
    }
    document
}
