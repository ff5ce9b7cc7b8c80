//! Draws a job with parameter servers and at times an evaluator.

use dormouse_messages::{Amounts, NodeId};
use serde_json::json;

use crate::engine::{Engine, ModelJob};
use crate::random::Random;

use super::submission::{Submitted, TENANTS, afterwards, in_place, submit};

/// Draws such a job in half of the trials; it fits any node.
pub fn job(engine: &mut Engine, nodes: &[(NodeId, Amounts)], random: &mut Random) {
    if !random.chance(0.5) {
        return;
    }
    let at_s = random.between(0.0, 300.0);
    let tenant = *random.choose(&TENANTS);
    let room = nodes.len() as u64;
    let servers = 1 + random.below(2);
    let mut roles = json!({"ps": {"count": servers, "demand": {"cpu": "500m", "memory": "512Mi"}}});
    if random.chance(0.3) {
        roles["evaluator"] = json!({"demand": {"cpu": "500m", "memory": "512Mi"}});
    }
    if random.chance(0.3) {
        roles["ps"]["constraints"] = json!({"prefer": {"zone": "b"}});
    }
    let document = json!({
        "name": "r0", "command": {"start": ["x"]}, "roles": roles,
        "demand": {"cpu": 1, "memory": "1Gi"},
        "containers": {"min": 1, "max": 1 + random.below(6)},
        "checkpoint": {
            "mode": random.choose(&["exit", "exit", "continue", "none"]),
            "grace_s": random.choose(&[10, 30]),
        },
        "success": random.choose(&["all", "coordinator"]),
        "retries": random.below(3),
    });
    let document = if random.chance(0.5) {
        in_place(document, room, random)
    } else {
        document
    };
    submit(engine, at_s, tenant, "submit", &document);
    if let Ok(id) = format!("{tenant}/r0").parse() {
        let model = ModelJob {
            save_s: random.between(0.0, 20.0),
            resume_s: random.between(0.0, 20.0),
            start_s: random.between(0.0, 5.0),
            ..ModelJob::linear(random.between(1.0, 1500.0))
        };
        engine.model(id, model);
    }
    let submitted = Submitted {
        at_s,
        tenant,
        name: "r0",
    };
    afterwards(engine, &submitted, &document, room, random);
}
