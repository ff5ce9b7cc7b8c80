//! Describes bounds: on preemptions, and of a tenant.

use dormouse_messages::Resource;
use dormouse_messages::grants::Grants;
use dormouse_messages::policy::Policy;

/// Describes the bound on preemptions and the priority classes.
#[must_use]
pub fn preemption(policy: &Policy) -> String {
    let bound = policy.preemption;
    let mut said = match bound.max_per_hour {
        None => "a job as often as it comes".to_owned(),
        Some(most) => format!("a job at most {most} times an hour"),
    };
    if let Some(min_run_s) = bound.min_run_s {
        said.push_str(&format!(", none before it has run {min_run_s} s"));
    }
    let classes = policy.priority_classes.iter().map(|(name, class)| {
        let preempts = if class.preempts { " preempts" } else { "" };
        format!("{name} ({}{preempts})", class.value)
    });
    let classes: Vec<String> = classes.collect();
    if classes.is_empty() {
        said + "; no priority classes"
    } else {
        format!("{said}; priority classes {}", classes.join(", "))
    }
}

/// Describes a tenant's grants.
#[must_use]
pub fn grants(grants: &Grants) -> String {
    let mut said = Vec::new();
    let mut say = |name: &str, value: Option<String>| {
        said.extend(value.map(|value| format!("{name} {value}")));
    };
    say("run as", grants.run_as.map(|ids| ids.to_string()));
    let words = |all: Vec<String>| Some(all.join(" ")).filter(|all| !all.is_empty());
    let mounts = grants.mounts.iter().map(ToString::to_string).collect();
    say("mounts", words(mounts));
    say("secrets in", grants.secrets.clone());
    say("images", words(grants.images.clone()));
    let classes = grants.priority_classes.iter().cloned().collect();
    say("priority classes", words(classes));
    say("network", grants.network.map(|network| network.to_string()));
    say(
        "queued jobs",
        grants.max_queued.map(|most| most.to_string()),
    );
    let size = |bytes: u64| Resource::Memory.display(bytes);
    say("their specifications", grants.max_queued_bytes.map(size));
    say(
        "submissions/s",
        grants.max_rate.map(|most| most.to_string()),
    );
    say(
        "containers",
        grants.max_containers.map(|most| most.to_string()),
    );
    say("of a node's disk", grants.max_storage.map(size));
    say("exec", grants.exec.map(|exec| exec.to_string()));
    if said.is_empty() {
        "nothing".to_owned()
    } else {
        said.join(", ")
    }
}
