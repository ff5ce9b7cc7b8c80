//! Hypothetical changes, applied to a fork.

use dormouse_messages::events::{ClusterConfigured, JobRevised, NodeJoined, TenantConfigured};
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, Event, JobId, Resource, TenantId, Writer};

use super::answer::Gives;
use crate::history::fork::Fork;

/// A hypothetical change.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    Policy(Box<Policy>),
    Bounds(JobId, u32, u32),
    Demand(JobId, Amounts),
    /// Lets the job save and end.
    Checkpoint(JobId),
    Quota(TenantId, Vec<(Resource, u64)>),
    /// A number of additional nodes of this capacity.
    Nodes(u32, Amounts),
    Operator(Box<Event>),
    All(Vec<Change>),
}

impl Change {
    /// Applies the change to a fork.
    pub fn apply(&self, fork: &mut Fork) {
        match self {
            Self::Policy(policy) => {
                let policy = (**policy).clone();
                fork.happen(Writer::Operator, ClusterConfigured { policy }.into());
            }
            Self::Bounds(job, min, max) => {
                let Some(mut containers) = fork.cluster.job(job).map(|it| it.containers) else {
                    return;
                };
                (containers.min, containers.max) = (*min, *max);
                let event = JobRevised {
                    containers: Some(containers),
                    ..JobRevised::nothing(job.clone(), 0)
                };
                fork.happen(Writer::Admission, event.into());
            }
            Self::Demand(job, demand) => {
                if let Some(job) = fork.cluster.jobs.get_mut(job) {
                    job.demand = demand.clone();
                }
            }
            Self::Checkpoint(job) => {
                if let Some(job) = fork.cluster.jobs.get_mut(job) {
                    job.mode = CheckpointMode::Exit;
                }
            }
            Self::Quota(tenant, amounts) => {
                let Some(is) = fork.cluster.tenants.get(tenant.as_str()) else {
                    return;
                };
                let mut quota = is.quota.clone();
                for (resource, amount) in amounts {
                    quota.set(resource.clone(), *amount);
                }
                let event = TenantConfigured {
                    tenant: tenant.clone(),
                    weight: is.weight,
                    quota,
                    max_job_weight: is.max_job_weight,
                    priority: Some(is.priority),
                };
                fork.happen(Writer::Operator, event.into());
            }
            Self::Operator(event) => fork.happen(Writer::Operator, (**event).clone()),
            Self::All(changes) => changes.iter().for_each(|change| change.apply(fork)),
            Self::Nodes(count, capacity) => {
                for number in 1..=*count {
                    let Ok(node) = format!("new-node-{number}").parse() else {
                        continue;
                    };
                    let event = NodeJoined {
                        node,
                        capacity: capacity.clone(),
                        labels: std::collections::BTreeMap::new(),
                        gpus: Vec::new(),
                        incarnation: 1,
                        running: Vec::new(),
                        address: String::new(),
                        runtime: String::new(),
                        taints: Default::default(),
                    };
                    fork.happen(Writer::Node, event.into());
                }
            }
        }
    }
}

/// A change to try, with its description.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub change: Change,
    /// In the command line's syntax.
    pub says: String,
    pub from: String,
    pub to: String,
    pub gives: Vec<Gives>,
}

impl Candidate {
    /// Combines candidates into one.
    #[must_use]
    pub fn all(candidates: Vec<Self>) -> Self {
        let joined = |of: fn(&Self) -> &str, with: &str| {
            let texts: Vec<&str> = candidates.iter().map(of).collect();
            texts.join(with)
        };
        Self {
            says: joined(|it| &it.says, " "),
            from: joined(|it| &it.from, ", "),
            to: joined(|it| &it.to, ", "),
            change: Change::All(candidates.iter().map(|it| it.change.clone()).collect()),
            gives: candidates.into_iter().flat_map(|it| it.gives).collect(),
        }
    }
}
