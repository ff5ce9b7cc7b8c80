//! Notes and refusals about names that the cluster does not know.

use std::collections::BTreeSet;

use dormouse_messages::Shares;
use dormouse_messages::events::NodeLabelled;
use dormouse_messages::job::JobSpec;
use dormouse_messages::needs::Labels;
use dormouse_messages::policy::{Policy, Queue};
use dormouse_messages::{Amounts, JobId, NodeId, Quota, Resource, TenantId, sanitize, suggest};
use dormouse_projections::queries::{NodeRow, TenantRow};

use crate::error::Coded;

const NAMED: usize = 8;

/// Returns the error for an unknown job.
pub fn not_found(id: &JobId) -> anyhow::Error {
    Coded::new(
        "not_found",
        format!("there is no job {id}; `dormouse jobs` lists them"),
    )
    .into()
}

/// Returns a note on an unknown tenant.
#[must_use]
pub fn new_tenant(name: &TenantId, known: &[TenantRow]) -> Option<String> {
    if known.iter().any(|row| row.tenant == *name) {
        return None;
    }
    let near = suggest::nearest(name.as_str(), known.iter().map(|row| row.tenant.as_str()));
    Some(format!(
        "{name} is new here: no job and no operator has named this tenant before{}",
        suggest::hint(near)
    ))
}

/// Explains why a job must wait for new nodes: the allowed nodes, even empty and undrained, hold fewer than
/// `least` containers. Ignores taints and roles other than workers.
pub fn never_fits<'a>(
    nodes: impl Iterator<Item = (&'a Amounts, &'a Labels)>,
    spec: &JobSpec,
    least: u32,
) -> Option<String> {
    let demand = &spec.demand;
    let allowed = nodes.filter(|(_, labels)| spec.constraints.broken_by(labels).is_none());
    let hold =
        |most: u64, (capacity, _): (&Amounts, _)| most.saturating_add(demand.times_in(capacity));
    let most = allowed.fold(0, hold);
    (most < u64::from(least)).then(|| {
        let hold = sanitize::containers(u32::try_from(most).unwrap_or(u32::MAX));
        let which = if spec.constraints.is_empty() { "there are".to_owned() } else { format!("its constraints allow ({})", spec.constraints) };
        format!(
            "it would wait until nodes are added: it starts with {} of {demand}, and the nodes that {which} hold {hold}, were they empty",
            sanitize::containers(least)
        )
    })
}

/// Returns a note on a node that has not joined.
#[must_use]
pub fn new_node(name: &NodeId, nodes: &[NodeRow]) -> Option<String> {
    let joined = || nodes.iter().filter(|row| row.joined_at.is_some());
    if joined().any(|row| row.node == *name) {
        return None;
    }
    let names: Vec<&str> = joined().map(|row| row.node.as_str()).collect();
    let near = suggest::nearest(name.as_str(), names.iter().copied());
    let there = match names.len() {
        0 => "no node has joined yet".to_owned(),
        count if count <= NAMED => format!("there are {}", names.join(", ")),
        count => format!("there are {count} others"),
    };
    Some(format!(
        "no node {name} has joined ({there}){}; it holds when one of that name joins",
        suggest::hint(near)
    ))
}

/// Returns a note per removed label or taint that the node lacks.
#[must_use]
pub fn not_there(said: &NodeLabelled, row: &NodeRow) -> Vec<String> {
    let without = |what: &str, word: &str, there: Vec<&str>| {
        let near = suggest::hint(suggest::nearest(word, there.iter().copied()));
        let has = if there.is_empty() {
            "none".to_owned()
        } else {
            there.join(", ")
        };
        format!("{} has no {what} {word} (it has {has}){near}", said.node)
    };
    let labels = said.labels.iter();
    let labels = labels.filter(|(name, value)| value.is_none() && !row.labels.contains_key(*name));
    let there = || row.labels.keys().map(String::as_str).collect();
    let labels = labels.map(|(name, _)| without("label", name, there()));
    let taints = said.taints.iter();
    let taints = taints.filter(|(taint, is_put)| !**is_put && !row.taints.contains(*taint));
    let there = || row.taints.iter().map(String::as_str).collect();
    let taints = taints.map(|(taint, _)| without("taint", taint, there()));
    labels.chain(taints).collect()
}

/// Refuses a quota of a resource that no node has, unless `ahead`.
///
/// # Errors
/// Names the resource.
pub fn check_quota(quota: &Quota, nodes: &[NodeRow], ahead: bool) -> Result<(), Coded> {
    let usual = [Resource::Cpu, Resource::Gpu, Resource::Memory];
    let mut there: BTreeSet<&str> = BTreeSet::new();
    for row in nodes {
        there.extend(row.capacity.iter().map(|(resource, _)| resource.name()));
    }
    let of_none =
        |resource: &&Resource| !usual.contains(resource) && !there.contains(resource.name());
    let mut named = quota.iter().map(|(resource, _)| resource);
    let Some(resource) = named.find(of_none) else {
        return Ok(());
    };
    let name = resource.name();
    let known = there
        .iter()
        .copied()
        .chain(usual.iter().map(Resource::name));
    let meant = suggest::resource(name, known);
    if ahead || (there.is_empty() && meant.is_none()) {
        return Ok(());
    }
    let there: Vec<&str> = there.into_iter().collect();
    let has = if there.is_empty() {
        "no node has joined yet".to_owned()
    } else {
        format!("the nodes have {}", there.join(", "))
    };
    let message = format!(
        "--quota: no node has {name} ({has}){}; of a resource of nodes to come it is set with --ahead",
        suggest::hint(meant)
    );
    Err(Coded::new("unknown_resource", message))
}

/// Returns a note on a quota below the tenant's current use.
#[must_use]
pub fn quota_below_use(quota: &Quota, row: &TenantRow) -> Option<String> {
    let (resource, most) = quota.exceeded_by(&row.runs)?;
    let (name, tenant) = (resource.name(), &row.tenant);
    Some(format!(
        "{tenant} has {name}={}, more than the quota's {name}={}: what runs keeps what it cannot run without, and nothing else of {tenant} starts until it has less (`dormouse jobs --tenant {tenant}`)",
        resource.display(row.runs.get(resource)),
        resource.display(most),
    ))
}

/// Returns a note if the policy ignores or barely uses weights.
#[must_use]
pub fn weight_without_effect(policy: &Policy) -> Option<String> {
    if policy.shares != Shares::Job {
        return None;
    }
    let queue = policy.queue.as_str();
    let counts = match policy.queue {
        Queue::Fifo | Queue::Demand => {
            format!("has no effect (nor in the queue, which is {queue})")
        }
        Queue::Drf | Queue::DemandDrf | Queue::ProjectedWait | Queue::BalancedWait => {
            format!("counts only for whose job goes next (the queue is {queue})")
        }
    };
    Some(format!(
        "by the policy in force shares are among jobs, so that a tenant's weight {counts}; with `shares: tenant` it counts for what its jobs get (`dormouse policy set`)"
    ))
}

/// Returns a note per class that the policy does not define.
pub fn undefined_classes<'a>(
    granted: &'a [String],
    policy: &'a Policy,
) -> impl Iterator<Item = String> + 'a {
    let known: Vec<&str> = policy.priority_classes.keys().map(String::as_str).collect();
    let granted = granted.iter().map(String::as_str);
    let undefined =
        granted.filter(|class| *class != "none" && !policy.priority_classes.contains_key(*class));
    undefined.map(move |class| {
        let there = if known.is_empty() { "there are none".to_owned() } else { format!("there are {}", known.join(", ")) };
        let near = suggest::hint(suggest::nearest(class, known.iter().copied()));
        format!(
            "the policy defines no priority class {class} ({there}){near}; no job may name it before it is defined (`priority_classes` of `dormouse policy set`). `--priority-class none` takes granted classes back"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, capacity: Value) -> NodeRow {
        serde_json::from_value(json!({
            "node": name, "state": "up", "reason": "", "capacity": capacity, "used": {},
            "containers": 0, "running": 0, "reserved": 0, "runtime": "process", "address": "",
            "joined_at": "2026-11-21T10:00:00Z",
        }))
        .expect("a node")
    }

    #[test]
    fn a_quota_of_nothing_is_refused_with_what_may_be_meant() {
        let nodes = [node("n0", json!({"cpu_milli": 4000, "fpga_milli": 1000}))];
        let check = |quota: &str, nodes: &[NodeRow], ahead| {
            let quota: Quota = quota.parse().expect("a quota");
            check_quota(&quota, nodes, ahead).map_err(|error| error.message)
        };
        for fine in ["cpu=2", "gpu=0,memory=1Gi", "fpga=1"] {
            assert_eq!(check(fine, &nodes, false), Ok(()), "{fine}");
        }
        let typo = check("cpus=2", &nodes, false).expect_err("of no node");
        assert!(
            typo.contains("no node has cpus (the nodes have cpu, fpga); did you mean cpu?"),
            "{typo}"
        );
        assert!(check("licence=2", &nodes, false).is_err());
        assert_eq!(check("licence=2", &nodes, true), Ok(()));
        assert_eq!(check("licence=2", &[], false), Ok(()));
        assert!(check("gpus=2", &[], false).is_err());
    }

    #[test]
    fn a_name_that_is_new_is_said_with_the_nearest() {
        let nodes = [node("node-1", json!({})), node("node-2", json!({}))];
        let name = |name: &str| name.parse::<NodeId>().expect("a node");
        assert_eq!(new_node(&name("node-1"), &nodes), None);
        let said = new_node(&name("nod-1"), &nodes).expect("new");
        assert!(said.contains("did you mean node-1?"), "{said}");
        let far = new_node(&name("gpu7"), &nodes).expect("new");
        assert!(
            far.contains("there are node-1, node-2") && !far.contains("mean"),
            "{far}"
        );
        let tenant = new_tenant(&"ads".parse().expect("a tenant"), &[]).expect("new");
        assert!(tenant.starts_with("ads is new here"), "{tenant}");
    }

    #[test]
    fn what_is_taken_from_a_node_that_does_not_have_it_is_said() {
        let mut row = node("n0", json!({}));
        row.taints.insert("spot".to_owned());
        row.labels.insert("zone".to_owned(), "a".to_owned());
        let said: NodeLabelled = serde_json::from_value(json!({
            "node": "n0", "labels": {"zone": null, "zne": null}, "taints": {"spt": false, "spot": false},
        }))
        .expect("an event");
        assert_eq!(
            not_there(&said, &row),
            [
                "n0 has no label zne (it has zone); did you mean zone?",
                "n0 has no taint spt (it has spot); did you mean spot?",
            ]
        );
    }

    #[test]
    fn a_granted_class_that_nothing_defines_is_said() {
        let document = json!({"priority_classes": {"urgent": {"value": 10}}});
        let policy: Policy = serde_json::from_value(document).expect("a policy");
        let granted = ["urgnt", "urgent", "none"].map(str::to_owned);
        let said: Vec<String> = undefined_classes(&granted, &policy).collect();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(
            said[0].contains("no priority class urgnt (there are urgent); did you mean urgent?"),
            "{said:?}"
        );
    }

    #[test]
    fn a_quota_below_what_its_tenant_has_is_said() {
        let mut row: TenantRow = serde_json::from_value(json!({
            "tenant": "ads", "configured": true, "weight": 1, "quota": {}, "priority": 0,
            "entitled": 1.0, "share": 0.5, "demand_share": 0.0, "runs": {}, "queued": {},
            "released_jobs": 1, "queued_jobs": 0, "held_jobs": 0, "mean_wait_s": 0.0,
            "longest_wait_s": 0.0, "fairness_loss": 0.0, "reason": "",
        }))
        .expect("a tenant");
        row.runs = "cpu=4,memory=2Gi".parse().expect("amounts");
        let said = |quota: &str| quota_below_use(&quota.parse().expect("a quota"), &row);
        assert_eq!(said("cpu=4,gpu=0"), None);
        let less = said("cpu=500m").expect("said");
        assert!(
            less.starts_with("ads has cpu=4, more than the quota's cpu=500m:"),
            "{less}"
        );
    }

    #[test]
    fn a_weight_that_counts_for_nothing_is_said() {
        let policy = |shares, queue| Policy {
            shares,
            queue,
            ..Policy::default()
        };
        let said = |policy: &Policy| weight_without_effect(policy).unwrap_or_default();
        assert!(said(&policy(Shares::Job, Queue::Fifo)).contains("no effect"));
        assert!(said(&policy(Shares::Job, Queue::Drf)).contains("goes next"));
        assert_eq!(said(&policy(Shares::Tenant, Queue::Fifo)), "");
    }
}
