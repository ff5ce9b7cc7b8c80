//! The operator's fix for each refusal code, with the least amounts, in the command line's syntax.

use dormouse_messages::classes::PriorityClass;
use dormouse_messages::events::{ClusterConfigured, TenantConfigured, TenantGranted};
use dormouse_messages::grants::{Grants, MountGrant};
use dormouse_messages::job::JobSpec;
use dormouse_messages::serialized_spec::bytes_of;
use dormouse_messages::{AuxiliaryRoles, Event, Resource, TenantId};
use serde_json::Value;

use super::super::changes::Change;
use crate::history::fork::Fork;

const CLASS_VALUE: i32 = 100;

/// One fix by the operator.
#[derive(Debug, Clone)]
pub struct Fix {
    /// `quota`, `limit`, `grant`, `class`, `tenant`, `nodes`.
    pub kind: &'static str,
    pub change: Change,
    pub says: String,
    pub from: String,
    pub to: String,
    /// For an amount: the change with one unit less, and that amount.
    pub less: Option<(Change, String)>,
}

/// Returns the operator's fix for a refusal code; `None` if only the submitter can fix it.
pub fn fix(
    fork: &Fork,
    tenant: &TenantId,
    spec: Option<&JobSpec>,
    document: &Value,
    code: &str,
) -> Option<Fix> {
    let of = Of { fork, tenant };
    match code {
        "unknown_tenant" => Some(of.tenant()),
        "unknown_priority_class" => Some(of.class(document["priority_class"].as_str()?, true)),
        "priority_class_not_granted" => Some(of.class(document["priority_class"].as_str()?, false)),
        "above_quota" => of.quota(spec?),
        "weight_above_limit" => Some(of.weight(spec?.weight)),
        "above_max_containers" => {
            let start = AuxiliaryRoles::of(spec?).containers(spec?.containers.start());
            Some(of.limit("--max-containers", start, |it| &mut it.max_containers))
        }
        "too_many_queued" => of.queued(),
        "too_many_queued_bytes" => of.queued_bytes(spec?),
        "larger_than_any_node" => Some(of.node(spec?)),
        "mount_not_granted"
        | "image_not_granted"
        | "network_not_granted"
        | "secret_not_granted" => of.grants(spec?),
        _ => None,
    }
}

struct Of<'a> {
    fork: &'a Fork,
    tenant: &'a TenantId,
}

impl Of<'_> {
    fn configured(&self) -> TenantConfigured {
        let known = self.fork.cluster.tenants.get(self.tenant.as_str());
        TenantConfigured {
            tenant: self.tenant.clone(),
            weight: known.map_or(1, |it| it.weight),
            quota: known.map(|it| it.quota.clone()).unwrap_or_default(),
            max_job_weight: known.and_then(|it| it.max_job_weight),
            priority: known.map(|it| it.priority),
        }
    }

    fn granted(&self) -> Grants {
        let grants = &self.fork.admission.queues.cluster.tenants.grants;
        grants
            .get(self.tenant.as_str())
            .cloned()
            .unwrap_or_default()
    }

    fn grant(&self, grants: Grants) -> Change {
        let tenant = self.tenant.clone();
        Change::Operator(Box::new(TenantGranted { tenant, grants }.into()))
    }

    fn says(&self, verb: &str, flags: &str) -> String {
        format!("dormouse tenant {verb} {} {flags}", self.tenant)
    }

    fn tenant(&self) -> Fix {
        let event: Event = TenantConfigured {
            weight: 1,
            ..self.configured()
        }
        .into();
        Fix {
            kind: "tenant",
            change: Change::Operator(Box::new(event)),
            says: self.says("set", "--weight 1"),
            from: "not configured".to_owned(),
            to: "weight 1".to_owned(),
            less: None,
        }
    }

    fn class(&self, name: &str, define: bool) -> Fix {
        let mut grants = self.granted();
        grants.priority_classes.insert(name.to_owned());
        let mut changes = Vec::new();
        let mut says = self.says("grant", &format!("--priority-class {name}"));
        if define {
            let mut policy = self.fork.cluster.policy.clone();
            let class = PriorityClass {
                value: CLASS_VALUE,
                preempts: false,
            };
            policy.priority_classes.insert(name.to_owned(), class);
            changes.push(Change::Operator(Box::new(
                ClusterConfigured { policy }.into(),
            )));
            says = format!(
                "dormouse policy set FILE with policy: {{priority_classes: {{{name}: {{value: {CLASS_VALUE}}}}}}} && {says}"
            );
        }
        changes.push(self.grant(grants));
        Fix {
            kind: "class",
            change: Change::All(changes),
            says,
            from: if define { "not there" } else { "not granted" }.to_owned(),
            to: name.to_owned(),
            less: None,
        }
    }

    fn quota(&self, spec: &JobSpec) -> Option<Fix> {
        let is = self.configured();
        let auxiliary = AuxiliaryRoles::of(spec);
        let smallest = auxiliary.partition(&spec.demand, spec.containers.start());
        let short = is
            .quota
            .iter()
            .filter(|(resource, most)| smallest.get(resource) > *most);
        let short: Vec<_> = short.map(|(resource, _)| resource.clone()).collect();
        let with = |less: u64| {
            let mut quota = is.quota.clone();
            for (index, resource) in short.iter().enumerate() {
                let less = if index == 0 { less } else { 0 };
                quota.set(
                    resource.clone(),
                    smallest.get(resource).saturating_sub(less),
                );
            }
            quota
        };
        let set = |less: u64| {
            let quota = with(less);
            let event = TenantConfigured {
                quota,
                ..is.clone()
            };
            Change::Operator(Box::new(event.into()))
        };
        let first = short.first()?;
        let below = smallest.get(first).saturating_sub(1);
        Some(Fix {
            kind: "quota",
            change: set(0),
            says: self.says("set", &format!("--quota {}", with(0))),
            from: is.quota.to_string(),
            to: with(0).to_string(),
            less: Some((set(1), format!("{}={}", first.name(), first.display(below)))),
        })
    }

    fn weight(&self, weight: u32) -> Fix {
        let is = self.configured();
        let set = |weight: u32| {
            let event = TenantConfigured {
                max_job_weight: Some(weight),
                ..is.clone()
            };
            Change::Operator(Box::new(event.into()))
        };
        let less = weight.saturating_sub(1);
        Fix {
            kind: "limit",
            change: set(weight),
            says: self.says("set", &format!("--max-job-weight {weight}")),
            from: is
                .max_job_weight
                .map_or_else(String::new, |it| it.to_string()),
            to: weight.to_string(),
            less: Some((set(less), less.to_string())),
        }
    }

    fn size(&self, flag: &str, to: u64, field: fn(&mut Grants) -> &mut Option<u64>) -> Fix {
        let mut grants = self.granted();
        let says = |bytes: u64| Resource::Memory.display(bytes);
        let from = field(&mut grants).map_or_else(|| "the default".to_owned(), says);
        let mut set = |most: u64| {
            *field(&mut grants) = Some(most);
            self.grant(grants.clone())
        };
        let less = to.saturating_sub(1);
        Fix {
            kind: "limit",
            change: set(to),
            says: self.says("grant", &format!("{flag} {}", says(to))),
            from,
            to: says(to),
            less: Some((set(less), says(less))),
        }
    }

    fn limit(&self, flag: &str, to: u32, field: fn(&mut Grants) -> &mut Option<u32>) -> Fix {
        let mut grants = self.granted();
        let from = *field(&mut grants);
        let mut set = |most: u32| {
            *field(&mut grants) = Some(most);
            self.grant(grants.clone())
        };
        let less = to.saturating_sub(1);
        Fix {
            kind: "limit",
            change: set(to),
            says: self.says("grant", &format!("{flag} {to}")),
            from: from.map_or_else(|| "the default".to_owned(), |it| it.to_string()),
            to: to.to_string(),
            less: Some((set(less), less.to_string())),
        }
    }

    fn queued(&self) -> Option<Fix> {
        let queue = self
            .fork
            .admission
            .queues
            .tenants
            .get(self.tenant.as_str())?;
        let queued = queue.order.len() as u64 + queue.held;
        let most = u32::try_from(queued).ok()?.checked_add(1)?;
        Some(self.limit("--max-queued", most, |it| &mut it.max_queued))
    }

    fn queued_bytes(&self, spec: &JobSpec) -> Option<Fix> {
        let queues = &self.fork.admission.queues;
        let queue = queues.tenants.get(self.tenant.as_str());
        let queued = queue.map_or(0, |queue| queue.queued_bytes);
        let most = queued.checked_add(bytes_of(spec))?;
        Some(self.size("--max-queued-bytes", most, |it| &mut it.max_queued_bytes))
    }

    fn node(&self, spec: &JobSpec) -> Fix {
        let auxiliary = AuxiliaryRoles::of(spec);
        // Any role may be the one that fits nowhere, so the maxima count.
        let mut capacity = spec.demand.clone();
        for part in auxiliary.parts() {
            for (resource, amount) in part.demand.iter() {
                let most = amount.max(capacity.get(resource));
                capacity.set(resource.clone(), most);
            }
        }
        let first = capacity
            .iter()
            .next()
            .map(|(resource, amount)| (resource.clone(), amount));
        let less = first.map(|(resource, amount)| {
            let mut less = capacity.clone();
            less.set(resource.clone(), amount.saturating_sub(1));
            let says = format!(
                "{}={}",
                resource.name(),
                resource.display(amount.saturating_sub(1))
            );
            (Change::Nodes(1, less), says)
        });
        Fix {
            kind: "nodes",
            says: format!("--add-node new-node-1:{capacity}"),
            from: "0".to_owned(),
            to: format!("1 of {capacity}"),
            change: Change::Nodes(1, capacity),
            less,
        }
    }

    fn grants(&self, spec: &JobSpec) -> Option<Fix> {
        let book = &self.fork.admission.queues.cluster.tenants.grants;
        let mut granted = book.of(self.tenant.as_str());
        let mut flags = Vec::new();
        for mount in &spec.mounts {
            if granted.mount(mount).is_err() {
                granted.grants.mounts.push(MountGrant {
                    path: mount.source.clone(),
                    read_only: mount.read_only,
                });
                let end = if mount.read_only { ":ro" } else { "" };
                flags.push(format!("--mount '{}{end}'", mount.source));
            }
        }
        if let Some(image) = spec.image.as_ref().filter(|it| granted.image(it).is_err()) {
            granted.grants.images.push(image.clone());
            flags.push(format!("--image '{image}'"));
        }
        if let Some(network) = spec.network.filter(|it| granted.may_reach(*it).is_err()) {
            granted.grants.network = Some(network);
            flags.push(format!("--network {network}"));
        }
        if granted.check(spec).is_err() && granted.grants.secrets.is_none() {
            let folder = format!("/etc/dormouse/secrets/{}", self.tenant);
            flags.push(format!("--secrets {folder}"));
            granted.grants.secrets = Some(folder);
        }
        // Only the submitter can fix the rest.
        if flags.is_empty() || granted.check(spec).is_err() {
            return None;
        }
        Some(Fix {
            kind: "grant",
            change: self.grant(granted.grants),
            says: self.says("grant", &flags.join(" ")),
            from: "not granted".to_owned(),
            to: flags.join(" "),
            less: None,
        })
    }
}
