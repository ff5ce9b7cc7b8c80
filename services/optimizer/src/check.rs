//! Checks a solution against its problem without the search's code.

use std::collections::BTreeMap;

use dormouse_messages::ids::{JobId, NodeId};
use dormouse_messages::job::Urgency;
use dormouse_messages::needs::GPU_PARTS;
use dormouse_messages::quantity::{Amounts, Resource};

use crate::problem::{Allocation, Problem, ProblemJob, ProblemNode};
use crate::solution::{JobShare, Solution};

const SLACK: f64 = 1e-6;

/// The first error found in a solution.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Violation {
    #[error("{0} is unknown, missing or listed twice")]
    Name(String),
    #[error("node {node} holds more {resource} than it has room for")]
    Capacity {
        /// The overfull node.
        node: NodeId,
        resource: String,
    },
    #[error("{job} starts on {node}, which its constraints or the taints of the node rule out")]
    Constraint {
        job: JobId,
        /// The ineligible node.
        node: NodeId,
    },
    #[error("{0} is to be held by one container alone, and is not")]
    Exclusivity(NodeId),
    #[error("the GPUs of node {0} cannot be shared so")]
    Devices(NodeId),
    #[error("{job}: {containers} containers, but {placed} on its nodes")]
    Count {
        job: JobId,
        /// The job's own count.
        containers: u32,
        placed: u32,
    },
    #[error("{job}: {containers} containers is outside its limits")]
    Limits {
        job: JobId,
        /// The count in the solution.
        containers: u32,
    },
    /// A job without a checkpoint moved, or a running job was requeued.
    #[error("{0} may not be changed")]
    Fixed(JobId),
    #[error("fairness loss {loss} above its bound {bound}")]
    Loss {
        loss: f64,
        /// The loss bound F of P2.
        bound: f64,
    },
    /// Misreported, or above the bound.
    #[error("{adjusted} adjusted jobs, {reported} reported, bound {bound}")]
    Adjusted {
        adjusted: u32,
        reported: u32,
        bound: u32,
    },
}

/// Checks every constraint of P2 and that the solution's parts agree.
///
/// # Errors
/// The first violation.
pub fn check(problem: &Problem, solution: &Solution) -> Result<(), Violation> {
    let shares = names(problem, solution)?;
    let mut rooms: BTreeMap<&NodeId, Amounts> = BTreeMap::new();
    for node in &problem.nodes {
        let mut room = node.capacity.clone();
        room.subtract(&node.reserved, 1);
        rooms.insert(&node.name, room);
    }
    let mut adjusted = 0;
    // Unchanged containers may overfill a node, so they come first and only new ones must fit.
    for fresh in [false, true] {
        for job in &problem.jobs {
            let Some(share) = shares.get(&job.job) else {
                continue;
            };
            if is_unchanged(job, share) == fresh {
                continue;
            }
            take(&mut rooms, job, share, fresh)?;
            if fresh {
                eligible(problem, job, share)?;
                adjusted += u32::from(limits(problem, job, share)?);
            }
        }
    }
    exclusivity(problem, &shares)?;
    devices(problem, &shares)?;
    bounds(problem, solution, adjusted)
}

type Shares<'a> = BTreeMap<&'a JobId, &'a JobShare>;

fn names<'a>(problem: &Problem, solution: &'a Solution) -> Result<Shares<'a>, Violation> {
    let mut shares: Shares<'a> = BTreeMap::new();
    for share in &solution.jobs {
        if shares.insert(&share.job, share).is_some() {
            return Err(Violation::Name(share.job.to_string()));
        }
    }
    for (index, job) in problem.jobs.iter().enumerate() {
        let count = |job: &ProblemJob| shares.get(&job.job).map_or(0, |share| share.containers);
        let runs = count(job) > 0;
        if let Some(role) = problem
            .roles(index)
            .map(|it| &problem.jobs[it])
            .find(|role| {
                let all = if runs { role.min } else { 0 };
                count(role) != all
            })
        {
            let containers = count(role);
            let job = role.job.clone();
            return Err(Violation::Limits { job, containers });
        }
        if job.role.is_some() {
            continue;
        }
        let waits = solution
            .waiting
            .iter()
            .any(|waiting| waiting.job == job.job);
        if runs == waits {
            return Err(Violation::Name(job.job.to_string()));
        }
    }
    match shares
        .keys()
        .find(|id| !problem.jobs.iter().any(|job| job.job == ***id))
    {
        Some(unknown) => Err(Violation::Name(unknown.to_string())),
        None => Ok(shares),
    }
}

fn had(job: &ProblemJob) -> BTreeMap<&NodeId, u32> {
    let previous = job.previous.iter().flatten();
    previous
        .filter(|(_, count)| **count > 0)
        .map(|(node, count)| (node, *count))
        .collect()
}

fn is_unchanged(job: &ProblemJob, share: &JobShare) -> bool {
    had(job)
        == share
            .nodes
            .iter()
            .map(|(node, count)| (node, *count))
            .collect()
}

fn take(
    rooms: &mut BTreeMap<&NodeId, Amounts>,
    job: &ProblemJob,
    share: &JobShare,
    fresh: bool,
) -> Result<(), Violation> {
    let placed = share.nodes.values().sum();
    if placed != share.containers {
        return Err(Violation::Count {
            job: job.job.clone(),
            containers: share.containers,
            placed,
        });
    }
    for (node, count) in &share.nodes {
        let room = rooms
            .get_mut(node)
            .ok_or_else(|| Violation::Name(node.to_string()))?;
        if let Some(resource) = job
            .demand
            .first_short(room, u64::from(*count))
            .filter(|_| fresh)
        {
            let resource = resource.name().to_owned();
            return Err(Violation::Capacity {
                node: node.clone(),
                resource,
            });
        }
        room.subtract(&job.demand, u64::from(*count));
    }
    Ok(())
}

fn has_memory(node: &ProblemNode, job: &ProblemJob) -> bool {
    let least = node.gpus.iter().map(|gpu| gpu.memory_bytes).min();
    job.needs.gpu_memory_bytes <= least.unwrap_or(0)
}

/// Checks all containers of a restarted job, and those added in place.
fn eligible(problem: &Problem, job: &ProblemJob, share: &JobShare) -> Result<(), Violation> {
    let had = had(job);
    let stays = |node: &NodeId| match (&job.in_place, job.displaced) {
        (Some(_), false) => had.get(node).copied().unwrap_or(0),
        _ => 0,
    };
    for node in &problem.nodes {
        let count = share.nodes.get(&node.name).copied().unwrap_or(0);
        let allowed = job.needs.allow(&node.labels, &node.taints) && has_memory(node, job);
        if count > stays(&node.name) && !allowed {
            return Err(Violation::Constraint {
                job: job.job.clone(),
                node: node.name.clone(),
            });
        }
    }
    Ok(())
}

fn exclusivity(problem: &Problem, shares: &Shares) -> Result<(), Violation> {
    let mut alone: BTreeMap<&NodeId, (bool, u32)> = BTreeMap::new();
    for job in &problem.jobs {
        let nodes = shares.get(&job.job).map(|share| &share.nodes);
        for (node, count) in nodes.into_iter().flatten() {
            let (exclusive, all) = alone.entry(node).or_default();
            *exclusive |= job.needs.constraints.exclusive;
            *all += count;
        }
    }
    match alone
        .into_iter()
        .find(|(_, (exclusive, all))| *exclusive && *all > 1)
    {
        Some((node, _)) => Err(Violation::Exclusivity(node.clone())),
        None => Ok(()),
    }
}

/// Sizes divide one another, so comparing sums is enough.
fn devices(problem: &Problem, shares: &Shares) -> Result<(), Violation> {
    for node in &problem.nodes {
        let mut jobs = problem.jobs.iter();
        let starts = jobs.any(|job| {
            let share = shares.get(&job.job);
            let count = share.and_then(|share| share.nodes.get(&node.name));
            count.copied().unwrap_or(0) > had(job).get(&node.name).copied().unwrap_or(0)
        });
        if !starts {
            continue;
        }
        let offered = node.capacity.get(&Resource::Gpu) / 1000;
        let devices = match node.gpus.len() as u64 {
            0 => offered,
            named => named.min(offered),
        };
        let (mut taken, mut is_shared) = (0, false);
        for job in &problem.jobs {
            let share = shares.get(&job.job);
            let count = share.and_then(|share| share.nodes.get(&node.name));
            let Some(count) = count else { continue };
            taken += u64::from(*count) * job.gpu_parts;
            is_shared |= (1..1000).contains(&job.demand.get(&Resource::Gpu));
        }
        if is_shared && taken > devices * GPU_PARTS {
            return Err(Violation::Devices(node.name.clone()));
        }
    }
    Ok(())
}

/// Reports whether a changed job counts as adjusted.
pub(crate) fn limits(
    problem: &Problem,
    job: &ProblemJob,
    share: &JobShare,
) -> Result<bool, Violation> {
    let (min, max) = (job.min.max(1), job.max.max(job.min).max(1));
    let bounded = problem.policy.allocation != Allocation::Static;
    let least = if job.urgency > Urgency::Training {
        1
    } else {
        min
    };
    if share.containers > 0 && bounded && !(least..=max).contains(&share.containers) {
        return Err(Violation::Limits {
            job: job.job.clone(),
            containers: share.containers,
        });
    }
    let had = had(job);
    let stood = had
        .keys()
        .all(|node| problem.nodes.iter().any(|known| known.name == **node));
    if had.is_empty() || job.displaced || !stood {
        return Ok(false);
    }
    let gives_way = problem.jobs.iter().any(|other| {
        let class = other.precedence;
        other.urgency > job.urgency || (class.preempts && class.class > job.precedence.class)
    });
    if share.containers == 0 && !gives_way || share.containers > 0 && !job.adjustable {
        return Err(Violation::Fixed(job.job.clone()));
    }
    if let Some(in_place) = &job.in_place {
        let coordinator = in_place.coordinator.as_ref();
        let stays = coordinator.is_none_or(|coordinator| share.nodes.contains_key(coordinator));
        return if stays || share.containers == 0 {
            Ok(false)
        } else {
            Err(Violation::Fixed(job.job.clone()))
        };
    }
    Ok(share.containers > 0 && (min..=max).contains(&had.values().sum()))
}

fn bounds(problem: &Problem, solution: &Solution, adjusted: u32) -> Result<(), Violation> {
    let (reported, bound) = (solution.adjusted_jobs, solution.adjustment_bound);
    let forced = solution.forced;
    if adjusted != reported || (adjusted > bound && !forced) {
        return Err(Violation::Adjusted {
            adjusted,
            reported,
            bound,
        });
    }
    let sum: f64 = solution
        .jobs
        .iter()
        .filter(|share| share.containers > 0)
        .map(|share| (share.share - share.fair_share).abs())
        .sum();
    // The loss bound does not apply to an unchanged allocation or to an admission into an idle cluster.
    let bounded = problem.policy.allocation == Allocation::Dorm
        && !solution.unbounded
        && !forced
        && solution.changed
        && solution.solver.status != "infeasible";
    let (loss, bound) = (solution.fairness_loss, solution.fairness_loss_bound);
    if (sum - loss).abs() > SLACK || (bounded && loss > bound + SLACK) {
        return Err(Violation::Loss { loss: sum, bound });
    }
    Ok(())
}
