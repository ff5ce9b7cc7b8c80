//! Changes on a fork of a log, in the command line's syntax: `--set policy.theta2=0.2` (several values
//! are a sweep), `--set tenant.ads.weight=3`, `--set job.ads/lr.containers.min=2`, `--add-node
//! NAME:cpu=16`, `--drop-node NAME`, `--drain NAME`, `--drop-job ID`.
//!
//! Policy and tenant settings hold from the fork on, even if the log configures them again. A later job
//! gets its document changed; an existing job gets a revision of its weight and bounds.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use dormouse_messages::events::TenantConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, JobId, NodeId, Resource, TenantId, suggest};
use dormouse_state::ClusterState;
use serde_json::{Value, json};

use crate::scenario::Submission;
use crate::scenario::settings::{Combination, Setting, combinations, put};

/// An invalid change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    #[error(
        "{0:?} is nothing that can be set; write policy.FIELD, tenant.NAME.weight, tenant.NAME.quota.RESOURCE, tenant.NAME.priority or job.TENANT/NAME.FIELD"
    )]
    Path(String),
    #[error("{path}={value}: {what}")]
    Value {
        path: String,
        value: String,
        what: String,
    },
    #[error(
        "{job} was submitted before the fork: only its weight, containers.min and containers.max can be set there, not {field}; choose an earlier --at"
    )]
    TooLate {
        job: JobId,
        /// The dotted path within the document.
        field: String,
    },
    #[error("there is no {0} at the fork or after it")]
    NotThere(String),
    /// The known tenants, and the one that is probably meant.
    #[error("there is no tenant {tenant} at the fork or after it ({there}){hint}")]
    NoTenant {
        tenant: TenantId,
        there: String,
        hint: String,
    },
    #[error("{0} is there already; choose another name")]
    Taken(String),
}

/// A message lists at most as many tenants.
const NAMED: usize = 8;

impl ChangeError {
    /// Returns the error for a tenant that is not among `known`.
    pub(crate) fn no_tenant(tenant: &TenantId, known: &BTreeSet<&str>) -> Self {
        let there = match known.len() {
            0 => "no job and no operator names one".to_owned(),
            count if count <= NAMED => {
                let names: Vec<&str> = known.iter().copied().collect();
                format!("there are {}", names.join(", "))
            }
            count => format!("there are {count} others"),
        };
        let near = suggest::nearest(tenant.as_str(), known.iter().copied());
        Self::NoTenant {
            tenant: tenant.clone(),
            there,
            hint: suggest::hint(near),
        }
    }
}

/// `NAME:cpu=16,memory=64Gi`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewNode {
    pub name: NodeId,
    pub capacity: Amounts,
}

impl FromStr for NewNode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not NAME:CAPACITY, such as n9:cpu=16,memory=64Gi");
        let (name, capacity) = text.split_once(':').ok_or_else(wrong)?;
        let capacity: Amounts = capacity
            .parse()
            .map_err(|error| format!("{}: {error}", wrong()))?;
        if capacity.is_empty() {
            Err(wrong())
        } else {
            Ok(Self {
                name: NodeId::new(name).map_err(|error| error.to_string())?,
                capacity,
            })
        }
    }
}

/// The requested settings with one or several values, and changes common to all combinations.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    pub settings: Vec<Setting>,
    pub add_nodes: Vec<NewNode>,
    pub drop_nodes: Vec<NodeId>,
    pub drain_nodes: Vec<NodeId>,
    /// Jobs that are not submitted, or are cancelled if they exist.
    pub drop_jobs: Vec<JobId>,
    /// Additional submissions, in seconds after the fork.
    pub added: Vec<Submission>,
}

/// One combination of the requested settings.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    pub written: Vec<String>,
    /// The part that differs within the sweep.
    pub label: String,
    pub policy: Vec<(Vec<String>, Value)>,
    pub tenants: BTreeMap<TenantId, Vec<(Vec<String>, Value)>>,
    pub jobs: BTreeMap<JobId, Vec<(Vec<String>, Value)>>,
    pub add_nodes: Vec<NewNode>,
    pub drop_nodes: BTreeSet<NodeId>,
    pub drain_nodes: BTreeSet<NodeId>,
    pub drop_jobs: BTreeSet<JobId>,
    pub added: Vec<Submission>,
}

impl Asked {
    /// Returns every combination of the settings' values.
    ///
    /// # Errors
    /// A path names nothing.
    pub fn variants(&self) -> Result<Vec<Changes>, ChangeError> {
        let all = combinations(&self.settings);
        all.iter().map(|it| self.variant(it)).collect()
    }

    fn variant(&self, combination: &Combination) -> Result<Changes, ChangeError> {
        let mut changes = Changes {
            add_nodes: self.add_nodes.clone(),
            drop_nodes: self.drop_nodes.iter().cloned().collect(),
            drain_nodes: self.drain_nodes.iter().cloned().collect(),
            drop_jobs: self.drop_jobs.iter().cloned().collect(),
            added: self.added.clone(),
            ..Changes::default()
        };
        for (path, value) in combination.values() {
            let written = path.join(".");
            let unknown = || ChangeError::Path(written.clone());
            changes.written.push(format!("--set {written}={value}"));
            let (first, rest) = path.split_first().ok_or_else(unknown)?;
            let named = |rest: &[String]| {
                let (name, field) = rest.split_first().ok_or_else(unknown)?;
                if field.is_empty() {
                    Err(unknown())
                } else {
                    Ok((name.clone(), field.to_vec()))
                }
            };
            match first.as_str() {
                "policy" if !rest.is_empty() => {
                    changes.policy.push((rest.to_vec(), value.clone()));
                }
                "tenant" => {
                    let (name, field) = named(rest)?;
                    let tenant = TenantId::new(name.as_str()).map_err(|_| unknown())?;
                    let fields = changes.tenants.entry(tenant).or_default();
                    fields.push((field, value.clone()));
                }
                "job" => {
                    let (name, field) = named(rest)?;
                    let job = name.parse().map_err(|_| unknown())?;
                    let fields: &mut Vec<_> = changes.jobs.entry(job).or_default();
                    fields.push((field, value.clone()));
                }
                _ => return Err(unknown()),
            }
        }
        let others = [
            self.add_nodes
                .iter()
                .map(|it| format!("--add-node {}:{}", it.name, it.capacity))
                .collect::<Vec<_>>(),
            listed("--drop-node", &self.drop_nodes),
            listed("--drain", &self.drain_nodes),
            listed("--drop-job", &self.drop_jobs),
            match self.added.len() {
                0 => Vec::new(),
                count => vec![format!("{count} jobs added")],
            },
        ];
        changes.written.extend(others.into_iter().flatten());
        changes.label = match combination.label() {
            label if label.is_empty() => changes.written.join(" "),
            label => label,
        };
        Ok(changes)
    }
}

fn listed(flag: &str, names: &[impl ToString]) -> Vec<String> {
    let names = names.iter();
    names
        .map(|name| format!("{flag} {}", name.to_string()))
        .collect()
}

impl Changes {
    /// Reports whether the policy is set to value speed.
    #[must_use]
    pub fn values_speed(&self) -> bool {
        self.policy.iter().any(|(path, value)| {
            let path: Vec<&str> = path.iter().map(String::as_str).collect();
            match path.as_slice() {
                ["objective", "value"] => value == "speed",
                ["objective"] => value.get("value").is_some_and(|it| it == "speed"),
                _ => false,
            }
        })
    }

    /// True if nothing is changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Applies the settings to a policy.
    ///
    /// # Errors
    /// A field does not exist or its value does not fit.
    pub fn policy(&self, policy: &Policy) -> Result<Policy, ChangeError> {
        let mut document = json!(policy);
        for (path, value) in &self.policy {
            let wrong = |what: String| wrong("policy", path, value, what);
            // A memory replaces the plain names.
            if matches!(path.as_slice(), [first, _, ..] if first == "shares")
                && !document["shares"].is_object()
            {
                document["shares"] = json!({});
            }
            put(&mut document, path, value).map_err(wrong)?;
            let read: Result<Policy, _> = serde_json::from_value(document.clone());
            let read = read.map_err(|error| wrong(error.to_string()))?;
            if let Some(problem) = read.problem() {
                return Err(wrong(problem));
            }
        }
        let read = serde_json::from_value(document);
        read.map_err(|error| ChangeError::Path(format!("policy: {error}")))
    }

    /// Applies the settings to a tenant's configuration.
    ///
    /// # Errors
    /// A field does not exist or its value does not fit.
    pub fn tenant(&self, event: &TenantConfigured) -> Result<TenantConfigured, ChangeError> {
        let mut event = event.clone();
        for (path, value) in self.tenants.get(&event.tenant).into_iter().flatten() {
            let place = format!("tenant.{}", event.tenant);
            let wrong = |what: String| wrong(&place, path, value, what);
            let fields: Vec<&str> = path.iter().map(String::as_str).collect();
            match fields.as_slice() {
                ["weight"] => event.weight = whole(value).map_err(wrong)?,
                ["priority"] => {
                    let number = value.as_i64().and_then(|it| i32::try_from(it).ok());
                    event.priority =
                        Some(number.ok_or_else(|| wrong("not a whole number".to_owned()))?);
                }
                ["max_job_weight"] => event.max_job_weight = Some(whole(value).map_err(wrong)?),
                ["quota", resource] => {
                    let resource =
                        Resource::from_name(resource).map_err(|it| wrong(it.to_string()))?;
                    let most = resource.parse(&text(value));
                    let most = most.map_err(|error| wrong(error.to_string()))?;
                    event.quota.set(resource, most);
                }
                _ => {
                    let what = "a tenant has weight, priority, max_job_weight and quota.RESOURCE";
                    return Err(wrong(what.to_owned()));
                }
            }
        }
        Ok(event)
    }

    /// Returns a changed tenant's configuration at the fork.
    ///
    /// # Errors
    /// Those of [`Self::tenant`].
    pub fn tenant_at(
        &self,
        cluster: &ClusterState,
        tenant: &TenantId,
    ) -> Result<TenantConfigured, ChangeError> {
        let is = cluster.tenants.get(tenant.as_str());
        self.tenant(&TenantConfigured {
            tenant: tenant.clone(),
            weight: cluster.tenants.weight(tenant.as_str(), &cluster.policy),
            quota: is.map(|it| it.quota.clone()).unwrap_or_default(),
            max_job_weight: is.and_then(|it| it.max_job_weight),
            priority: is.map(|it| it.priority),
        })
    }

    /// Returns the revision that changes an existing job at the fork.
    ///
    /// # Errors
    /// A field cannot be changed any more.
    pub fn revision(&self, cluster: &ClusterState, job: &JobId) -> Result<Value, ChangeError> {
        let is = cluster
            .job(job)
            .ok_or_else(|| ChangeError::NotThere(format!("job {job}")))?;
        let mut revised = json!({"job": job.name()});
        let mut containers = is.containers;
        for (path, value) in self.jobs.get(job).into_iter().flatten() {
            let place = format!("job.{job}");
            let wrong = |what: String| wrong(&place, path, value, what);
            let fields: Vec<&str> = path.iter().map(String::as_str).collect();
            match fields.as_slice() {
                ["weight"] => revised["weight"] = json!(whole(value).map_err(wrong)?),
                ["containers", "min"] => containers.min = whole(value).map_err(wrong)?,
                ["containers", "max"] => containers.max = whole(value).map_err(wrong)?,
                _ => {
                    let (job, field) = (job.clone(), path.join("."));
                    return Err(ChangeError::TooLate { job, field });
                }
            }
            revised["containers"] = json!(containers);
        }
        Ok(revised)
    }

    /// Applies the settings to a job's document.
    ///
    /// # Errors
    /// A path leads through a value without fields.
    pub fn document(&self, job: &JobId, document: &mut Value) -> Result<(), ChangeError> {
        for (path, value) in self.jobs.get(job).into_iter().flatten() {
            let place = format!("job.{job}");
            put(document, path, value).map_err(|what| wrong(&place, path, value, what))?;
        }
        Ok(())
    }
}

fn wrong(place: &str, path: &[String], value: &Value, what: String) -> ChangeError {
    let meant = suggest::hint(suggest::of_error(&what).as_deref());
    ChangeError::Value {
        path: format!("{place}.{}", path.join(".")),
        value: value.to_string(),
        what: what + &meant,
    }
}

fn whole(value: &Value) -> Result<u32, String> {
    let number = value.as_u64().and_then(|it| u32::try_from(it).ok());
    number.ok_or_else(|| "not a whole number".to_owned())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
