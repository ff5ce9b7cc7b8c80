//! Changes that would have given a job containers: each is let happen on a fork, and the real services
//! decide.
//!
//! Of each kind the grid is tried from its least value on, and the first with which the job gets what
//! it did not get is named; so every smaller value of the grid was tried and is not enough.
//!
//! | kind | grid |
//! |---|---|
//! | `theta1`, `theta2` | hundredths above the present value; where bounds are whole numbers, the least value of each bound |
//! | `min` | one container less at a time |
//! | `max` | one container more (only of a job that has its most) |
//! | `demand` | twentieths of the present amount, one resource at a time |
//! | `checkpoint` | mode `exit` instead of none |
//! | `quota` | the demand of one container more at a time, of every resource it bounds |
//! | `nodes` | one to four nodes like one that is there |
//! | `others_give` | one other job with one container less, then two, and so on; all jobs that do at the least count |

use std::collections::BTreeSet;

use dormouse_messages::events::{ClusterConfigured, JobRevised, NodeJoined, TenantConfigured};
use dormouse_messages::job::CheckpointMode;
use dormouse_messages::policy::{Allocation, FairnessBound, Policy};
use dormouse_messages::{Amounts, JobId, Resource, TenantId, Writer};
use dormouse_optimizer::Optimizer;
use dormouse_state::Job;

use super::answer::{Correction, Gives, VerifiedBy};
use crate::history::fork::Fork;

/// Nodes of one kind that are tried.
const MOST_NODES: u32 = 4;

/// Something that did not happen.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// Another policy.
    Policy(Box<Policy>),
    /// Other bounds of a job.
    Bounds(JobId, u32, u32),
    /// Containers of another demand.
    Demand(JobId, Amounts),
    /// The job can save and end.
    Checkpoint(JobId),
    /// A tenant's quota, by resource.
    Quota(TenantId, Vec<(Resource, u64)>),
    /// So many more nodes of this capacity.
    Nodes(u32, Amounts),
}

impl Change {
    /// Lets it happen.
    pub fn apply(&self, fork: &mut Fork) {
        match self {
            Self::Policy(policy) => {
                let policy = **policy;
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
                    };
                    fork.happen(Writer::Node, event.into());
                }
            }
        }
    }
}

/// A change to try, and how to say it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// What is let happen.
    pub change: Change,
    /// As the command line says it.
    pub says: String,
    /// As it is.
    pub from: String,
    /// As it would be.
    pub to: String,
    /// Who gives.
    pub gives: Vec<Gives>,
}

/// The search for the least changes.
pub struct Search<'a> {
    /// Where the services decide.
    pub base: &'a Fork,
    /// As it decided.
    pub optimizer: Optimizer,
    /// Whose containers are wanted.
    pub job: &'a JobId,
    /// What it has without any change.
    pub has: u32,
    /// Decisions that may still be made.
    pub left: usize,
    /// Kinds that were cut short.
    pub cut: Vec<String>,
}

impl Search<'_> {
    /// What the job has if this happens, how well that is proven, and what those who give would keep.
    pub fn attempt(&self, change: &Change, gives: &mut [Gives]) -> (u32, VerifiedBy) {
        let mut fork = self.base.clone();
        change.apply(&mut fork);
        let outcome = fork.settle(&self.optimizer);
        let solver = outcome.figures().map(|figures| figures.solver.clone());
        let solver = solver.unwrap_or_default();
        let proof = match (solver.status.as_str(), solver.stopped_by.as_str()) {
            ("optimal" | "none", _) => "proven",
            (_, "gap") => "within_gap",
            _ if solver.gap <= self.optimizer.gap => "within_gap",
            _ => "limit",
        };
        let verified = VerifiedBy {
            objective: solver.objective,
            gap: solver.gap,
            proof: proof.to_owned(),
        };
        for gives in gives {
            if let Ok(job) = gives.job.parse() {
                gives.to = outcome.containers(&fork, &job);
            }
        }
        (outcome.containers(&fork, self.job), verified)
    }

    /// The first candidate of a grid, in its order, with which the job gets more.
    pub fn least(
        &mut self,
        kind: &str,
        grid: impl IntoIterator<Item = Candidate>,
    ) -> Option<Correction> {
        let mut not_at = None;
        for mut candidate in grid {
            if self.left == 0 {
                self.cut.push(kind.to_owned());
                return None;
            }
            self.left -= 1;
            let (becomes, verified_by) = self.attempt(&candidate.change, &mut candidate.gives);
            if becomes > self.has {
                return Some(Correction {
                    kind: kind.to_owned(),
                    change: candidate.says,
                    from: candidate.from,
                    to: candidate.to,
                    admitted: self.has == 0,
                    becomes,
                    verified_by,
                    not_at,
                    gives: candidate.gives,
                });
            }
            not_at = Some(candidate.to);
        }
        None
    }

    /// The least change of every kind that has one.
    pub fn all(&mut self, policy: &Policy) -> Vec<Correction> {
        let mut found = Vec::new();
        if policy.allocation == Allocation::Dorm {
            found.extend(self.least("theta1", theta1(self.base, policy)));
            found.extend(self.least("theta2", theta2(self.base, policy)));
        }
        if let Some(job) = self.base.cluster.job(self.job).cloned() {
            found.extend(self.least("min", min(self.job, &job, self.has)));
            found.extend(self.least("max", max(self.job, &job, self.has)));
            for (resource, _) in job.demand.iter() {
                found.extend(self.least("demand", demand(self.job, &job, resource)));
            }
            found.extend(self.least("checkpoint", checkpoint(self.job, &job)));
            found.extend(self.least("quota", quota(self.base, self.job, &job)));
        }
        let classes: BTreeSet<String> = self
            .base
            .cluster
            .nodes
            .usable()
            .map(|(_, node)| node.capacity.to_string())
            .collect();
        for class in classes {
            if let Ok(capacity) = class.parse::<Amounts>() {
                found.extend(self.least("nodes", nodes(&capacity)));
            }
        }
        found.extend(self.others_give());
        found
    }

    /// The other jobs that would have to keep less, one at a time; all that do at the least count.
    fn others_give(&mut self) -> Vec<Correction> {
        let others: Vec<(JobId, u32)> = self
            .base
            .cluster
            .jobs
            .iter()
            .filter(|(id, job)| *id != self.job && job.assignment.is_some())
            .map(|(id, _)| (id.clone(), self.base.containers(id)))
            .collect();
        let most = others.iter().map(|(_, has)| *has).max().unwrap_or(0);
        for count in 1..most {
            let mut found = Vec::new();
            for (id, has) in others.iter().filter(|(_, has)| *has > count) {
                let Some(job) = self.base.cluster.jobs.get(id) else {
                    continue;
                };
                found.extend(self.least("others_give", gives(id, job, *has, count)));
            }
            if !found.is_empty() {
                return found;
            }
            if self.left == 0 {
                break;
            }
        }
        Vec::new()
    }
}

/// Hundredths above `theta` up to 1, as texts and values: the first of each bound.
fn hundredths(theta: f64, bound: impl Fn(f64) -> f64) -> Vec<f64> {
    let mut last = bound(theta);
    let mut values = Vec::new();
    for step in 1..=100_u32 {
        let value = f64::from(step) / 100.0;
        if value > theta && bound(value) > last {
            last = bound(value);
            values.push(value);
        }
    }
    values
}

/// ⌈x⌉, where x is a product of a decimal number of two places: what floats add is cut off.
fn ceil(value: f64) -> f64 {
    (value - 1e-9).ceil()
}

fn theta1(base: &Fork, policy: &Policy) -> Vec<Candidate> {
    let usable = base.cluster.nodes.usable();
    let resources: BTreeSet<&Resource> = usable
        .flat_map(|(_, node)| node.capacity.iter().map(|(resource, _)| resource))
        .collect();
    let twice = 2.0 * f64::from(u32::try_from(resources.len()).unwrap_or(0));
    let paper = policy.fairness_bound == FairnessBound::Paper;
    let bound = |theta: f64| match paper {
        true => ceil(theta * twice),
        false => theta * twice,
    };
    let candidate = |theta1: f64| Candidate {
        change: Change::Policy(Box::new(Policy { theta1, ..*policy })),
        says: format!("--set policy.theta1={theta1}"),
        from: policy.theta1.to_string(),
        to: theta1.to_string(),
        gives: Vec::new(),
    };
    let values = hundredths(policy.theta1, bound);
    values.into_iter().map(candidate).collect()
}

fn theta2(base: &Fork, policy: &Policy) -> Vec<Candidate> {
    let jobs = base.cluster.jobs.values();
    let running = jobs.filter(|job| {
        let stays = job.assignment.as_ref().filter(|to| !to.displaced);
        stays.is_some() && job.cancel_requested.is_none()
    });
    let running = f64::from(u32::try_from(running.count()).unwrap_or(0));
    let candidate = |theta2: f64| Candidate {
        change: Change::Policy(Box::new(Policy { theta2, ..*policy })),
        says: format!("--set policy.theta2={theta2}"),
        from: policy.theta2.to_string(),
        to: theta2.to_string(),
        gives: Vec::new(),
    };
    let values = hundredths(policy.theta2, |theta| ceil(theta * running));
    values.into_iter().map(candidate).collect()
}

fn bounds(id: &JobId, job: &Job, field: &str, min: u32, max: u32) -> Candidate {
    let (from, to) = match field {
        "min" => (job.containers.min, min),
        _ => (job.containers.max, max),
    };
    Candidate {
        change: Change::Bounds(id.clone(), min, max),
        says: format!("--set job.{id}.containers.{field}={to}"),
        from: from.to_string(),
        to: to.to_string(),
        gives: Vec::new(),
    }
}

/// Of a job without containers.
fn min(id: &JobId, job: &Job, has: u32) -> Vec<Candidate> {
    let less = (1..job.containers.min).rev().filter(|_| has == 0);
    less.map(|min| bounds(id, job, "min", min, job.containers.max))
        .collect()
}

/// Of a job that has all it may have.
fn max(id: &JobId, job: &Job, has: u32) -> Vec<Candidate> {
    let more = (has > 0 && has >= job.containers.max).then_some(has + 1);
    more.map(|max| bounds(id, job, "max", job.containers.min, max))
        .into_iter()
        .collect()
}

fn demand(id: &JobId, job: &Job, resource: &Resource) -> Vec<Candidate> {
    let present = job.demand.get(resource);
    let lower = (1..20_u64).map(|step| present * (20 - step) / 20);
    let candidate = |amount: u64| {
        let mut demand = job.demand.clone();
        demand.set(resource.clone(), amount);
        let to = resource.display(amount);
        Candidate {
            change: Change::Demand(id.clone(), demand),
            says: format!("--set job.{id}.demand.{}={to}", resource.name()),
            from: resource.display(present),
            to,
            gives: Vec::new(),
        }
    };
    // Of a job that runs all containers would change.
    let waits = job.assignment.is_none();
    lower
        .filter(|amount| waits && *amount > 0)
        .map(candidate)
        .collect()
}

fn checkpoint(id: &JobId, job: &Job) -> Option<Candidate> {
    (job.mode == CheckpointMode::None).then(|| Candidate {
        change: Change::Checkpoint(id.clone()),
        says: format!("--set job.{id}.checkpoint.mode=exit"),
        from: "none".to_owned(),
        to: "exit".to_owned(),
        gives: Vec::new(),
    })
}

fn quota(base: &Fork, id: &JobId, job: &Job) -> Vec<Candidate> {
    let Ok(tenant) = TenantId::new(id.tenant()) else {
        return Vec::new();
    };
    let Some(quota) = base.cluster.tenants.quota(id.tenant()) else {
        return Vec::new();
    };
    let bounded: Vec<(Resource, u64, u64)> = quota
        .iter()
        .map(|(resource, most)| (resource.clone(), most, job.demand.get(resource)))
        .filter(|(_, _, each)| *each > 0)
        .collect();
    if bounded.is_empty() {
        return Vec::new();
    }
    let said = |more: u64| {
        let amounts = bounded.iter().map(|(resource, most, each)| {
            format!(
                "{}={}",
                resource.name(),
                resource.display(most + more * each)
            )
        });
        amounts.collect::<Vec<_>>().join(",")
    };
    let candidate = |more: u64| {
        let amounts = bounded.iter();
        let amounts = amounts.map(|(resource, most, each)| (resource.clone(), most + more * each));
        Candidate {
            change: Change::Quota(tenant.clone(), amounts.collect()),
            says: format!("--set tenant.{tenant}.quota={}", said(more)),
            from: said(0),
            to: said(more),
            gives: Vec::new(),
        }
    };
    (1..=u64::from(job.containers.max)).map(candidate).collect()
}

fn nodes(capacity: &Amounts) -> Vec<Candidate> {
    let candidate = |count: u32| Candidate {
        change: Change::Nodes(count, capacity.clone()),
        says: (1..=count)
            .map(|number| format!("--add-node new-node-{number}:{capacity}"))
            .collect::<Vec<_>>()
            .join(" "),
        from: "0".to_owned(),
        to: format!("{count} of {capacity}"),
        gives: Vec::new(),
    };
    (1..=MOST_NODES).map(candidate).collect()
}

/// The job `id` with `count` containers less, at the most.
fn gives(id: &JobId, job: &Job, has: u32, count: u32) -> Option<Candidate> {
    let to = has - count;
    let stall_ms = job
        .stall_ms
        .map(|ms| std::time::Duration::from_millis(ms).as_secs_f64());
    (job.containers.min <= to).then(|| Candidate {
        change: Change::Bounds(id.clone(), job.containers.min, to),
        says: format!("--set job.{id}.containers.max={to}"),
        from: has.to_string(),
        to: to.to_string(),
        gives: vec![Gives {
            job: id.to_string(),
            from: has,
            to,
            loses_s: stall_ms,
        }],
    })
}
