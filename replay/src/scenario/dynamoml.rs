//! The experiment of DynamoML (Chiang, Chou: DynamoML, CLOSER 2021): training, a service and notebooks
//! on two nodes of eight GPUs, in the paper's four configurations.
//!
//! | configuration | policy | notebooks | replicas | training |
//! |---|---|---|---|---|
//! | `all` | `dorm`, in place, crossing nodes has its price | a quarter of a GPU | follow the clients | a gang of 2, 1 to 4 |
//! | `sharing` | `static`, no gangs, spread | a quarter of a GPU | one | 2 |
//! | `scaling` | as `sharing` | a GPU each | follow the clients | 2 |
//! | `none` | as `sharing` | a GPU each | one | 2 |
//!
//! Clients, arrivals and speed-ups are the paper's. The unpublished constants come from an independent
//! model fitted to its figures: the work on one GPU, the speed across two nodes, 30 s to start a job,
//! 15 s to start a replica, 5 s without progress per resize in place, 4 ms per request.
//!
//! Service and notebooks start [`BEFORE_S`] before training, with the first number of clients.

use serde_json::{Value, json};

use crate::serving::traces::DYNAMOML_CLIENTS;

/// The paper's configurations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Configuration {
    All,
    Sharing,
    Scaling,
    None,
}

impl Configuration {
    /// All configurations in the paper's order.
    pub const ALL: [Self; 4] = [Self::All, Self::Sharing, Self::Scaling, Self::None];

    /// Returns the configuration's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Sharing => "sharing",
            Self::Scaling => "scaling",
            Self::None => "none",
        }
    }

    const fn shares(self) -> bool {
        matches!(self, Self::All | Self::Sharing)
    }
}

impl std::str::FromStr for Configuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|it| it.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is not all, sharing, scaling or none"))
    }
}

/// Seconds before the first training job, in which replicas and notebooks start.
pub const BEFORE_S: u32 = 120;

/// The service's response-time objective in milliseconds.
pub const OBJECTIVE_MS: u32 = 128;

const MOST_REPLICAS: u32 = 12;

/// A twelfth replica would requeue a coordinator, since services come first.
const MOST_REPLICAS_WITH_COORDINATORS: u32 = 11;

const NOTEBOOKS: u32 = 4;

struct Program {
    name: &'static str,
    /// Seconds on one GPU.
    work_s: f64,
    speed: [f64; 4],
    /// Speed on two nodes as a fraction of that on one.
    crossing: f64,
}

const MNIST: Program = Program {
    name: "mnist",
    work_s: 600.0,
    speed: [1.0, 1.6, 1.9, 2.0],
    crossing: 0.238,
};

const RESNET: Program = Program {
    name: "resnet",
    work_s: 450.0,
    speed: [1.0, 1.93, 2.85, 3.75],
    crossing: 0.3,
};

/// Seconds since the first arrival, number of jobs, and program.
const ARRIVALS: [(u32, u32, &Program); 4] = [
    (0, 4, &MNIST),
    (600, 4, &RESNET),
    (1200, 2, &MNIST),
    (1200, 2, &RESNET),
];

/// Returns the scenario of one configuration.
#[must_use]
pub fn dynamoml(configuration: Configuration) -> Value {
    let mut jobs = vec![service(configuration)];
    jobs.extend((1..=NOTEBOOKS).map(|number| notebook(configuration, number)));
    let mut number = 0;
    for (at_s, count, program) in ARRIVALS {
        for _ in 0..count {
            number += 1;
            jobs.push(training(configuration, at_s, number, program));
        }
    }
    let node = |name: &str, notebooks: &str| json!({"name": name, "capacity": {"gpu": 8}, "labels": {"notebooks": notebooks}});
    json!({
        "scenario": format!("dynamoml-{}", configuration.as_str()),
        "horizon_s": 6_000,
        "policy": policy(configuration),
        "nodes": [node("n0", "yes"), node("n1", "no")],
        "jobs": jobs,
    })
}

fn policy(configuration: Configuration) -> Value {
    match configuration {
        // The fraction of the program that loses more.
        Configuration::All => json!({"objective": {"crossing": 0.762}}),
        _ => json!({"allocation": "static", "gang": false, "placement": "spread"}),
    }
}

fn service(configuration: Configuration) -> Value {
    let most = match configuration {
        Configuration::All => MOST_REPLICAS_WITH_COORDINATORS,
        Configuration::Scaling => MOST_REPLICAS,
        Configuration::Sharing | Configuration::None => 1,
    };
    let first = DYNAMOML_CLIENTS[0];
    let before = std::iter::repeat_n(first, (BEFORE_S / 60) as usize);
    let clients: Vec<u32> = before.chain(DYNAMOML_CLIENTS).collect();
    json!({
        "at_s": 0,
        "spec": {
            "name": "model", "tenant": "serving", "kind": "inference",
            "command": {"start": ["serve"]}, "demand": {"gpu": 1},
            "containers": {"min": 1, "max": most},
            "service": {"objective": {"latency_ms": OBJECTIVE_MS, "percentile": 99.99}},
        },
        "model": {
            "clients": {"clients": clients, "every_s": 60, "work_ms": 4},
            "costs": {"ready_s": 15},
        },
    })
}

fn notebook(configuration: Configuration, number: u32) -> Value {
    let mut spec = json!({
        "name": format!("notebook-{number}"), "tenant": "people", "kind": "notebook",
        "command": {"start": ["jupyter", "server"]}, "demand": {"gpu": 1},
        "containers": {"min": 1, "max": 1},
    });
    if configuration.shares() {
        spec["demand"] = json!({"gpu": 0.25});
        spec["constraints"] = json!({"notebooks": "yes"});
    }
    json!({"at_s": 0, "spec": spec, "model": {}})
}

fn training(configuration: Configuration, at_s: u32, number: u32, program: &Program) -> Value {
    let [_, two, ..] = program.speed;
    // Without the techniques a job needs both of its workers.
    let (containers, speed, join_s) = match configuration {
        Configuration::All => (
            json!({"min": 1, "start": 2, "max": 4}),
            program.speed.to_vec(),
            0.0,
        ),
        _ => (json!({"min": 1, "max": 2}), vec![0.0, two], 30.0),
    };
    let resize_s = if configuration == Configuration::All {
        5.0
    } else {
        0.0
    };
    json!({
        "at_s": at_s + BEFORE_S,
        "spec": {
            "name": format!("{}-{number:02}", program.name), "tenant": "training",
            "command": {"start": ["train"]}, "demand": {"gpu": 1},
            "containers": containers, "resize": "in_place",
        },
        "model": {
            "work_container_s": program.work_s,
            "scaling": {"kind": "table", "speed": speed},
            "crossing": program.crossing,
            "costs": {"start_s": 30, "join_s": join_s, "resize_s": resize_s},
        },
    })
}
