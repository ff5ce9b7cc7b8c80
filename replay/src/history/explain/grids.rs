//! The values to try for each kind of change, the least first.
//!
//! | kind | grid |
//! |---|---|
//! | `theta1`, `theta2` | hundredths above the present value; for integer bounds, the least value of each |
//! | `min` | one container less at a time |
//! | `max` | one container more (only for a job at its maximum) |
//! | `demand` | twentieths of the present amount, one resource at a time |
//! | `checkpoint` | mode `exit` instead of none |
//! | `quota` | one container's demand more at a time, of every bounded resource |
//! | `nodes` | one to four nodes like an existing one |
//! | `others_give` | one other job with one container less, then two, …; or several jobs, by the allocation that changes the fewest jobs; up to three times, with different jobs |

use std::collections::BTreeSet;

use dormouse_messages::job::CheckpointMode;
use dormouse_messages::policy::{FairnessBound, Policy};
use dormouse_messages::{Amounts, JobId, Resource, TenantId};
use dormouse_state::Job;

use super::answer::Gives;
use super::changes::{Candidate, Change};
use crate::history::fork::Fork;

const MOST_NODES: u32 = 4;

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

/// Returns ⌈x⌉ without the floating-point error of a product with a two-place decimal.
fn ceil(value: f64) -> f64 {
    (value - 1e-9).ceil()
}

pub fn theta1(base: &Fork, policy: &Policy) -> Vec<Candidate> {
    let usable = base.cluster.nodes.usable();
    let resources: BTreeSet<&Resource> = usable
        .flat_map(|(_, node)| node.capacity.iter().map(|(resource, _)| resource))
        .collect();
    let twice = 2.0 * f64::from(u32::try_from(resources.len()).unwrap_or(0));
    let paper = policy.fairness_bound == FairnessBound::Paper;
    let bound = |theta: f64| {
        if paper {
            ceil(theta * twice)
        } else {
            theta * twice
        }
    };
    let candidate = |theta1: f64| Candidate {
        change: Change::Policy(Box::new(Policy {
            theta1,
            ..policy.clone()
        })),
        says: format!("--set policy.theta1={theta1}"),
        from: policy.theta1.to_string(),
        to: theta1.to_string(),
        gives: Vec::new(),
    };
    let values = hundredths(policy.theta1, bound);
    values.into_iter().map(candidate).collect()
}

pub fn theta2(base: &Fork, policy: &Policy) -> Vec<Candidate> {
    let jobs = base.cluster.jobs.values();
    let running = jobs.filter(|job| {
        let stays = job.assignment.as_ref().filter(|to| !to.displaced);
        stays.is_some() && job.cancel_requested.is_none()
    });
    let running = f64::from(u32::try_from(running.count()).unwrap_or(0));
    let candidate = |theta2: f64| Candidate {
        change: Change::Policy(Box::new(Policy {
            theta2,
            ..policy.clone()
        })),
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

pub fn min(id: &JobId, job: &Job, has: u32) -> Vec<Candidate> {
    let less = (1..job.containers.min).rev().filter(|_| has == 0);
    less.map(|min| bounds(id, job, "min", min, job.containers.max))
        .collect()
}

pub fn max(id: &JobId, job: &Job, has: u32) -> Vec<Candidate> {
    let more = (has > 0 && has >= job.containers.max).then_some(has + 1);
    more.map(|max| bounds(id, job, "max", job.containers.min, max))
        .into_iter()
        .collect()
}

pub fn demand(id: &JobId, job: &Job, resource: &Resource) -> Vec<Candidate> {
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
    // A running job would have to replace all its containers.
    let waits = job.assignment.is_none();
    lower
        .filter(|amount| waits && *amount > 0)
        .map(candidate)
        .collect()
}

pub fn checkpoint(id: &JobId, job: &Job) -> Option<Candidate> {
    (job.mode == CheckpointMode::None).then(|| Candidate {
        change: Change::Checkpoint(id.clone()),
        says: format!("--set job.{id}.checkpoint.mode=exit"),
        from: "none".to_owned(),
        to: "exit".to_owned(),
        gives: Vec::new(),
    })
}

pub fn quota(base: &Fork, id: &JobId, job: &Job) -> Vec<Candidate> {
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
        let named = bounded.iter().map(|(resource, most, each)| {
            let amount = resource.display(most + more * each);
            format!("--set tenant.{tenant}.quota.{}={amount}", resource.name())
        });
        let amounts = bounded.iter();
        let amounts = amounts.map(|(resource, most, each)| (resource.clone(), most + more * each));
        Candidate {
            change: Change::Quota(tenant.clone(), amounts.collect()),
            says: named.collect::<Vec<_>>().join(" "),
            from: said(0),
            to: said(more),
            gives: Vec::new(),
        }
    };
    (1..=u64::from(job.containers.max)).map(candidate).collect()
}

pub fn nodes(capacity: &Amounts) -> Vec<Candidate> {
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

/// Limits the job `id` to `to` of its `has` containers.
pub fn gives(id: &JobId, job: &Job, has: u32, to: u32) -> Candidate {
    let stall_ms = job
        .stall_ms
        .map(|ms| std::time::Duration::from_millis(ms).as_secs_f64());
    Candidate {
        change: Change::Bounds(id.clone(), job.containers.min.min(to), to),
        says: format!("--set job.{id}.containers.max={to}"),
        from: has.to_string(),
        to: to.to_string(),
        gives: vec![Gives {
            job: id.to_string(),
            from: has,
            to,
            loses_s: stall_ms,
        }],
    }
}
