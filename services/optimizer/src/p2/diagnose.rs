//! Why a job waits, for a tired person: which resource is short by how much, or which bound.

use crate::problem::{Problem, ProblemJob};
use crate::solution::WaitCode;

use super::instance::{Cluster, Instance, State, fits, limits};
use super::pipeline::may_be_feasible;

/// What a diagnosis refers to.
pub(crate) struct Standing<'a> {
    pub problem: &'a Problem,
    pub cluster: &'a Cluster,
}

/// Why a job can never run on these nodes, if so: it then does not hold up the queue.
pub(crate) fn hopeless(cluster: &Cluster, job: &ProblemJob) -> Option<(WaitCode, String)> {
    let Some(demand) = cluster.demand(&job.demand) else {
        let missing = job
            .demand
            .iter()
            .find(|(resource, _)| !cluster.resources.contains(resource));
        let reason = missing.map_or_else(
            || "its containers demand no resource at all; give the job a demand".to_owned(),
            |(resource, amount)| {
                let name = resource.name();
                let amount = resource.display(amount);
                format!("each container demands {name}={amount} and no node has any {name}; add such a node or change the demand")
            },
        );
        return Some((WaitCode::NoSuchResource, reason));
    };
    let (min, _) = limits(job);
    let room: u64 = cluster
        .capacities
        .iter()
        .map(|capacity| fits(&demand, capacity))
        .sum();
    if room >= u64::from(min) {
        return None;
    }
    let reason = if room == 0 {
        format!(
            "one container ({}) is larger than every node; shrink its demand or add a larger node",
            job.demand
        )
    } else {
        format!(
            "its minimum of {min} containers ({} each) is more than the empty cluster holds ({room}); lower the minimum or add nodes",
            job.demand
        )
    };
    Some((WaitCode::NeverFits, reason))
}

/// Why `head`, the last job of `instance`, was not admitted.
pub(crate) fn blocked(standing: &Standing, instance: &Instance, head: usize) -> (WaitCode, String) {
    let job = &standing.problem.jobs[head];
    let mut relaxed = instance.clone();
    relaxed.loss_bound = f64::INFINITY;
    if !may_be_feasible(&relaxed) {
        let bound = relaxed.restart_bound;
        relaxed.restart_bound = u32::MAX;
        return if may_be_feasible(&relaxed) {
            let reason = format!(
                "room for its minimum of {} containers ({} each) could be made only by restarting more jobs than the adjustment bound allows ({bound}); it starts when a job ends, or with a larger theta2",
                limits(job).0,
                job.demand
            );
            (WaitCode::AdjustmentBound, reason)
        } else {
            (WaitCode::Resources, short(standing, instance, head))
        };
    }
    if !may_be_feasible(instance) {
        let reason = format!(
            "with it the fairness loss could not be held to {:.3} while restarting at most {} jobs; it starts when a job ends, or with a larger theta1 or theta2",
            instance.loss_bound, instance.restart_bound
        );
        return (WaitCode::FairnessBound, reason);
    }
    let reason = format!(
        "the amounts for its minimum of {} containers ({} each) exist, but in pieces too small on the nodes, or not within the bounds on restarts ({}) and fairness loss ({:.3})",
        limits(job).0,
        job.demand,
        instance.restart_bound,
        instance.loss_bound
    );
    (WaitCode::Fragmentation, reason)
}

/// Which resource is short, and by how much, when everybody who can is at the minimum.
fn short(standing: &Standing, instance: &Instance, head: usize) -> String {
    let job = &standing.problem.jobs[head];
    let (min, _) = limits(job);
    for (index, resource) in standing.cluster.resources.iter().enumerate() {
        let room: u128 = instance
            .rooms
            .iter()
            .map(|room| u128::from(room[index]))
            .sum();
        let held = |job: &super::instance::Job| {
            let count = if job.state == State::Pinned {
                job.count
            } else {
                job.min
            };
            u128::from(count) * u128::from(instance.types[job.ty].demand[index])
        };
        let others = instance.jobs.iter().filter(|job| job.index != head);
        let taken: u128 = others.map(held).sum();
        let need = u128::from(min) * u128::from(job.demand.get(resource));
        if taken + need > room {
            let amount = |value: u128| resource.display(u64::try_from(value).unwrap_or(u64::MAX));
            let name = resource.name();
            return format!(
                "its minimum of {min} containers needs {name}={}, and with every other job at its minimum {name}={} is left: {name}={} is short",
                amount(need),
                amount(room.saturating_sub(taken)),
                amount(taken + need - room)
            );
        }
    }
    format!(
        "its minimum of {min} containers ({} each) does not fit beside the minimum of every other job on the nodes large enough",
        job.demand
    )
}
