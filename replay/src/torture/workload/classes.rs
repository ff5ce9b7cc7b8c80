//! Draws jobs of priority classes, and a bound on preemption.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{ClusterConfigured, TenantGranted};
use dormouse_messages::grants::Grants;
use dormouse_messages::policy::Policy;
use dormouse_messages::policy::Preemption;
use dormouse_messages::{Event, PriorityClass};
use serde_json::json;

use crate::engine::{Action, Engine, ModelJob};
use crate::random::Random;
use crate::simulate::seconds_after_start;

use super::submission::{Submitted, TENANTS, afterwards, in_place, submit};

/// Two classes that preempt, one that only goes first, and one that all preempt.
const CLASSES: [(&str, i32, bool); 4] = [
    ("critical", 100, true),
    ("urgent", 50, true),
    ("early", 10, false),
    ("idle", -10, false),
];

/// Draws, in half of the trials, a policy with classes and up to four jobs that name them.
pub fn jobs(engine: &mut Engine, policy: &Policy, room: u64, random: &mut Random) {
    if !random.chance(0.5) {
        return;
    }
    let class = |(name, value, preempts): (&str, i32, bool)| {
        (name.to_owned(), PriorityClass { value, preempts })
    };
    let preemption = Preemption {
        max_per_hour: *random.choose(&[None, None, Some(0), Some(1), Some(3)]),
        min_run_s: *random.choose(&[None, None, Some(10), Some(120)]),
    };
    let policy = Policy {
        preemption,
        priority_classes: CLASSES.map(class).into_iter().collect::<BTreeMap<_, _>>(),
        ..policy.clone()
    };
    let configured = Event::from(ClusterConfigured { policy });
    engine.at(seconds_after_start(0.0), Action::Operator(configured));
    let names: BTreeSet<String> = CLASSES.map(|(name, ..)| name.to_owned()).into();
    // The last tenant has no grant, so its classes are refused.
    for tenant in TENANTS.iter().take(2).filter_map(|name| name.parse().ok()) {
        let grants = Grants {
            priority_classes: names.clone(),
            ..Grants::default()
        };
        let granted = Event::from(TenantGranted { tenant, grants });
        engine.at(seconds_after_start(0.0), Action::Operator(granted));
    }
    for number in 0..1 + random.below(4) {
        job(engine, number, room, random);
    }
}

fn job(engine: &mut Engine, number: u64, room: u64, random: &mut Random) {
    let at_s = random.between(0.0, 400.0);
    let tenant = *random.choose(&TENANTS[..2]);
    let tenant = if random.chance(0.05) {
        TENANTS[2]
    } else {
        tenant
    };
    let name = format!("c{number}");
    let (class, ..) = *random.choose(&CLASSES);
    let min = 1 + random.below(room.clamp(1, 4));
    let document = json!({
        "name": name, "command": {"start": ["x"]}, "priority_class": class,
        "demand": {"cpu": 1 + random.below(2), "memory": "1Gi"},
        "containers": {"min": min, "max": min + random.below(4)},
        "checkpoint": {
            "mode": random.choose(&["exit", "exit", "continue", "none"]),
            "grace_s": random.choose(&[10, 30]),
        },
        "retries": random.below(3),
    });
    let document = if random.chance(0.3) {
        in_place(document, room, random)
    } else {
        document
    };
    submit(engine, at_s, tenant, "submit", &document);
    if let Ok(id) = format!("{tenant}/{name}").parse() {
        let model = ModelJob {
            save_s: random.between(0.0, 20.0),
            resume_s: random.between(0.0, 20.0),
            start_s: random.between(0.0, 5.0),
            ..ModelJob::linear(random.between(1.0, 600.0))
        };
        engine.model(id, model);
    }
    let submitted = Submitted {
        at_s,
        tenant,
        name: &name,
    };
    afterwards(engine, &submitted, &document, room, random);
}
