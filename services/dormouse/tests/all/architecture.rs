//! Allowed dependencies between crates, and libraries that pure crates may not use.

use std::collections::{BTreeMap, BTreeSet};

use crate::metadata::packages;

const IMPURE: [&str; 8] = [
    "tokio",
    "actix",
    "async-nats",
    "rand",
    "bollard",
    "reqwest",
    "hyper",
    "opentelemetry",
];

const ALLOWED: [(&str, &[&str]); 27] = [
    ("dormouse-messages", &[]),
    ("dormouse-state", &["dormouse-messages"]),
    (
        "dormouse-projections",
        &["dormouse-messages", "dormouse-state"],
    ),
    (
        "dormouse-admission",
        &["dormouse-messages", "dormouse-state"],
    ),
    (
        "dormouse-optimizer",
        &["dormouse-messages", "dormouse-state"],
    ),
    ("dormouse-placer", &["dormouse-messages", "dormouse-state"]),
    (
        "dormouse-autoscaler",
        &["dormouse-messages", "dormouse-state"],
    ),
    (
        "dormouse-checkpointer",
        &["dormouse-messages", "dormouse-state"],
    ),
    ("dormouse-archiver", &["dormouse-messages"]),
    ("dormouse-slurm", &["dormouse-messages", "dormouse-state"]),
    (
        "dormouse-slurm-client",
        &["dormouse-messages", "dormouse-runtime", "dormouse-state"],
    ),
    ("dormouse-bucket", &[]),
    (
        "dormouse-archive",
        &[
            "dormouse-agent-core",
            "dormouse-archiver",
            "dormouse-bucket",
            "dormouse-messages",
            "dormouse-replay",
            "dormouse-runtime",
            "dormouse-state",
        ],
    ),
    ("dormouse-shell", &["dormouse-messages"]),
    ("dormouse-agent-core", &["dormouse-messages"]),
    ("dormouse-runtime", &["dormouse-messages", "dormouse-shell"]),
    (
        "dormouse-node-agent",
        &[
            "dormouse-agent-core",
            "dormouse-bucket",
            "dormouse-gpu-share",
            "dormouse-messages",
            "dormouse-runtime",
            "dormouse-sandbox",
        ],
    ),
    ("dormouse-gpu-share", &[]),
    ("dormouse-sandbox", &[]),
    ("dormouse-gpu-preload", &["dormouse-gpu-share"]),
    ("dormouse-gpu-standin", &[]),
    ("dormouse-gpu-trial", &["dormouse-gpu-share"]),
    (
        "dormouse-gateway",
        &["dormouse-messages", "dormouse-runtime", "dormouse-state"],
    ),
    (
        "dormouse-webhook",
        &[
            "dormouse-messages",
            "dormouse-projections",
            "dormouse-runtime",
            "dormouse-state",
        ],
    ),
    (
        "dormouse-replay",
        &[
            "dormouse-agent-core",
            "dormouse-messages",
            "dormouse-shell",
            "dormouse-state",
            "dormouse-projections",
            "dormouse-admission",
            "dormouse-optimizer",
            "dormouse-placer",
            "dormouse-checkpointer",
            "dormouse-archiver",
            "dormouse-autoscaler",
            "dormouse-slurm",
        ],
    ),
    (
        "dormouse-web",
        &[
            "dormouse-messages",
            "dormouse-projections",
            "dormouse-replay",
        ],
    ),
    (
        "dormouse",
        &[
            "dormouse-messages",
            "dormouse-state",
            "dormouse-projections",
            "dormouse-replay",
            "dormouse-runtime",
            "dormouse-sandbox",
            "dormouse-admission",
            "dormouse-optimizer",
            "dormouse-placer",
            "dormouse-checkpointer",
            "dormouse-archive",
            "dormouse-archiver",
            "dormouse-autoscaler",
            "dormouse-bucket",
            "dormouse-node-agent",
            "dormouse-gateway",
            "dormouse-webhook",
            "dormouse-web",
            "dormouse-slurm",
            "dormouse-slurm-client",
        ],
    ),
];

const PURE: [&str; 13] = [
    "dormouse-slurm",
    "dormouse-archiver",
    "dormouse-messages",
    "dormouse-shell",
    "dormouse-agent-core",
    "dormouse-state",
    "dormouse-projections",
    "dormouse-admission",
    "dormouse-optimizer",
    "dormouse-placer",
    "dormouse-checkpointer",
    "dormouse-autoscaler",
    "dormouse-replay",
];

type Dependencies = BTreeMap<String, BTreeSet<String>>;

fn workspace() -> Dependencies {
    let crates = packages().into_iter();
    crates
        .map(|it| {
            (
                it.name().to_owned(),
                it.dependencies().map(str::to_owned).collect(),
            )
        })
        .collect()
}

fn violations(dependencies: &Dependencies) -> Vec<String> {
    let mut violations = Vec::new();
    for (package, direct) in dependencies {
        let Some((_, allowed)) = ALLOWED.iter().find(|(name, _)| name == package) else {
            violations.push(format!("{package} has no place in the list of rooms"));
            continue;
        };
        for dependency in direct {
            let ours = dependency.starts_with("dormouse");
            if ours && !allowed.contains(&dependency.as_str()) {
                violations.push(format!("{package} may not depend on {dependency}"));
            }
            if PURE.contains(&package.as_str()) && IMPURE.contains(&dependency.as_str()) {
                violations.push(format!(
                    "{package} is pure and may not depend on {dependency}"
                ));
            }
            if dependency == "async-nats" && package != "dormouse-runtime" {
                violations.push(format!(
                    "{package} names the broker; only dormouse-runtime may"
                ));
            }
        }
    }
    violations
}

#[test]
fn the_arrows_hold() {
    assert_eq!(violations(&workspace()), Vec::<String>::new());
}

#[test]
fn a_wrong_arrow_is_found() {
    let mut dependencies = workspace();
    let wrong = |dependencies: &mut Dependencies, from: &str, to: &str| {
        dependencies
            .entry(from.to_owned())
            .or_default()
            .insert(to.to_owned());
    };
    wrong(&mut dependencies, "dormouse-placer", "dormouse-optimizer");
    wrong(&mut dependencies, "dormouse-placer", "tokio");
    wrong(&mut dependencies, "dormouse", "async-nats");
    assert_eq!(violations(&dependencies).len(), 3);
}
