//! Draws changing labels and taints, and jobs with constraints.
//!
//! At the end every node satisfies all constraints, since a job would wait for a missing label without
//! end.

use dormouse_messages::events::NodeLabelled;
use dormouse_messages::{Amounts, Event, NodeId};
use serde_json::{Value, json};

use crate::engine::{Action, Engine};
use crate::random::Random;
use crate::simulate::seconds_after_start;

const SETTLED_S: f64 = 700.0;

/// Draws a job's constraints; most jobs have none.
pub fn constrained(number: u64, random: &mut Random) -> Option<Value> {
    if !random.chance(0.4) {
        return None;
    }
    let constraints = match random.below(8) {
        0 | 1 => json!({"zone": "a"}),
        2 => json!({"zone": ["a", "b"]}),
        3 => json!({"zone": {"not": "b"}}),
        4 => json!({"zone": {"not": ["b", "c"]}, "spread": "node"}),
        5 => json!({"prefer": {"zone": "b"}, "pack": "zone"}),
        6 => json!({"exclusive": true}),
        _ => json!({"zone": {"not": "c"}, "exclusive": number.is_multiple_of(2)}),
    };
    Some(constraints)
}

/// Adds constraints so that one container of any job fits every node.
pub fn with(mut document: Value, constraints: Value) -> Value {
    if constraints["exclusive"] == true && document["containers"].is_object() {
        let least = document["containers"]["min"].as_u64().unwrap_or(1).min(1);
        document["containers"]["min"] = json!(least);
        if let Some(bounds) = document["containers"].as_object_mut() {
            bounds.remove("start");
        }
    }
    document["constraints"] = constraints;
    document
}

pub fn change(engine: &mut Engine, nodes: &[(NodeId, Amounts)], random: &mut Random) {
    for (node, _) in nodes {
        for _ in 0..random.below(6) {
            let zone = random.choose(&[Some("a"), Some("b"), Some("c"), None]);
            labelled(engine, node, random.between(0.0, SETTLED_S), *zone, None);
        }
        if random.chance(0.3) {
            let at_s = random.between(0.0, SETTLED_S);
            labelled(engine, node, at_s, Some("a"), Some(true));
            labelled(
                engine,
                node,
                at_s + random.between(0.0, 100.0),
                Some("a"),
                Some(false),
            );
        }
        labelled(engine, node, SETTLED_S + 200.0, Some("a"), None);
    }
}

fn labelled(
    engine: &mut Engine,
    node: &NodeId,
    at_s: f64,
    zone: Option<&str>,
    taint: Option<bool>,
) {
    let event = Event::from(NodeLabelled {
        node: node.clone(),
        labels: [("zone".to_owned(), zone.map(str::to_owned))].into(),
        taints: taint
            .map(|is_put| ("old".to_owned(), is_put))
            .into_iter()
            .collect(),
    });
    engine.at(seconds_after_start(at_s), Action::Operator(event));
}
