//! Finds the reasons against one container more for a job, or against its minimum.

use std::collections::BTreeSet;

use dormouse_messages::JobId;
use dormouse_messages::events::Waiting;
use dormouse_messages::job::Urgency;
use dormouse_messages::sanitize::containers;
use dormouse_optimizer::problem::{Allocation, Problem, ProblemJob};
use dormouse_optimizer::{Conflict, Group, Solution, conflict};

use super::answer::{Explanation, Reason, reason};

fn held_to(posed: &ProblemJob) -> Reason {
    if posed.urgency > Urgency::Training {
        let words = format!(
            "the autoscaler asks for {} of it: it measures no need of more",
            containers(posed.max)
        );
        return reason("replicas", words);
    }
    let words = "its tenant's quota holds no more containers of it".to_owned();
    reason("quota", words)
}

fn without_p2(allocation: Allocation, posed: &ProblemJob) -> Option<Reason> {
    let name = match allocation {
        Allocation::Dorm => return None,
        Allocation::Drf => "drf",
        Allocation::Static => "static",
    };
    let runs = posed.previous.as_ref().is_some_and(|it| !it.is_empty());
    Some(if runs {
        reason(
            "not_resized",
            format!(
                "the policy's allocation is {name}: a job is given containers when it starts, and keeps those"
            ),
        )
    } else {
        reason(
            "resources",
            "when it started, there was no room for one container more".to_owned(),
        )
    })
}

fn weighed(objective: f64, least: u32, solution: &Solution) -> Reason {
    let (had, solver) = (containers(least), &solution.solver);
    let chosen = solver.objective;
    let words = if objective > chosen + solver.gap * chosen.abs() + 1e-9 {
        format!("{had} could be had, but what goes first, by class and release, has the room")
    } else {
        format!(
            "{had} could be had, but the objective would be {objective:.4} instead of {chosen:.4}: it is not worth what it costs others"
        )
    };
    reason("price", words)
}

/// Finds the reasons against one container more, or against the minimum. Returns the kinds of changes
/// that cannot help.
pub fn against(
    id: &JobId,
    problem: &Problem,
    solution: &Solution,
    has: u32,
    answer: &mut Explanation,
) -> BTreeSet<&'static str> {
    let none = BTreeSet::new();
    let Some(posed) = problem.jobs.iter().find(|job| job.job == *id) else {
        return none;
    };
    let least = match has {
        0 => posed.min.max(1),
        has => has + 1,
    };
    let is_most = has >= posed.max;
    let is_said = |it: &Reason| matches!(it.code.as_str(), "own_max" | "not_adjustable");
    if is_most && !answer.all.iter().any(is_said) {
        answer.all.push(held_to(posed));
    }
    if is_most
        || answer
            .all
            .iter()
            .any(|it| Waiting::UNSCHEDULABLE.contains(&it.code.as_str()))
    {
        return none;
    }
    if let Some(reason) = without_p2(problem.policy.allocation, posed) {
        if has > 0 {
            answer.all.push(reason);
        }
        return BTreeSet::from(["theta1", "theta2"]);
    }
    let placed = solution.jobs.iter().filter(|it| it.containers > 0);
    let others: BTreeSet<JobId> = placed.map(|it| it.job.clone()).collect();
    let Some(found) = conflict(problem, id, least, &others) else {
        return none;
    };
    let idle = idle(problem, &found);
    if let Some(objective) = found.feasible {
        // A waiting job that could start alone waits for earlier jobs.
        if has > 0 {
            answer.all.push(weighed(objective, least, solution));
        }
        return idle;
    }
    answer.conflict = found.conflict.iter().map(name).collect();
    answer.relaxations = found
        .corrections
        .iter()
        .map(|set| set.iter().map(name).collect())
        .collect();
    let alone: BTreeSet<&Group> = found
        .corrections
        .iter()
        .filter(|set| set.len() == 1)
        .flatten()
        .collect();
    for group in alone
        .into_iter()
        .chain(&found.conflict)
        .collect::<BTreeSet<_>>()
    {
        let more = words(group, problem, id, least, has, solution);
        if let Some(said) = answer.all.iter_mut().find(|it| it.code == more.code) {
            // The log states the reason, without the quantities.
            if said.resource.is_none() {
                (said.resource, said.short, said.of) = (more.resource, more.short, more.of);
            }
        } else if has > 0 || more.code != "resources" || answer.all.is_empty() {
            answer.all.push(more);
        }
    }
    idle
}

fn name(group: &Group) -> String {
    match group {
        Group::Capacity(resource) => format!("capacity {}", resource.name()),
        Group::Constraints => "constraints".to_owned(),
        Group::Packing => "packing".to_owned(),
        Group::Reserved => "reserved".to_owned(),
        Group::Pins => "pins".to_owned(),
        Group::Adjustments => "theta2".to_owned(),
        Group::Fairness => "theta1".to_owned(),
    }
}

fn words(
    group: &Group,
    problem: &Problem,
    id: &JobId,
    least: u32,
    has: u32,
    solution: &Solution,
) -> Reason {
    let more = containers(least - has);
    match group {
        Group::Capacity(resource) => {
            let total: u64 = problem.nodes.iter().map(|node| node.capacity.get(resource)).sum();
            let reserved: u64 = problem.nodes.iter().map(|node| node.reserved.get(resource)).sum();
            let each = |job: &JobId| {
                let posed = problem.jobs.iter().find(|it| it.job == *job);
                posed.map_or(0, |it| it.demand.get(resource))
            };
            let used: u64 = solution.jobs.iter().map(|it| each(&it.job) * u64::from(it.containers)).sum();
            let free = total.saturating_sub(reserved + used);
            let need = each(id) * u64::from(least - has);
            let short = need.saturating_sub(free);
            if short == 0 {
                let words = format!("as much {} is free as {more} more would need, but not where they may run, or in pieces", resource.name());
                return reason("fragmentation", words);
            }
            Reason {
                code: "resources".to_owned(),
                resource: Some(resource.name().to_owned()),
                short: Some(short),
                of: Some(total),
                words: format!(
                    "{more} more would need {} {}, and {} of {} is free",
                    resource.name(),
                    resource.display(need),
                    resource.display(free),
                    resource.display(total)
                ),
            }
        }
        Group::Constraints => reason(
            "constraints",
            format!("there is no room for {more} more on the nodes that its constraints and tolerations allow"),
        ),
        Group::Packing => reason("fragmentation", format!("room for {more} more is there, but in pieces on several nodes")),
        Group::Reserved => reason("reserved", format!("room for {more} more is still held by containers on their way out")),
        Group::Pins => reason("not_adjustable", "jobs that may not be changed now hold the room: in transit, just started, or without a checkpoint".to_owned()),
        Group::Adjustments => reason(
            "adjustment_bound",
            format!(
                "{more} more would take more restarts than theta2 {} allows: {} of the jobs that run",
                problem.policy.theta2, solution.adjustment_bound
            ),
        ),
        Group::Fairness => reason(
            "fairness_bound",
            format!(
                "with {more} more the fairness loss would be above what theta1 {} allows: {:.3}",
                problem.policy.theta1, solution.fairness_loss_bound
            ),
        ),
    }
}

/// P2 has no solution without the bound, hence none with any value. Services and preempting classes use
/// steps of their own, so they allow no conclusion.
fn idle(problem: &Problem, found: &Conflict) -> BTreeSet<&'static str> {
    let mut idle = BTreeSet::new();
    let served = problem
        .jobs
        .iter()
        .any(|job| job.urgency > Urgency::Training || job.precedence.preempts);
    if found.feasible.is_some() || found.limit || served {
        return idle;
    }
    for (group, kind) in [(Group::Fairness, "theta1"), (Group::Adjustments, "theta2")] {
        if !found.corrections.iter().any(|set| *set == [group.clone()]) {
            idle.insert(kind);
        }
    }
    // Fewer containers of another job restart that job uncounted, and move the fair shares.
    if found.beyond_bounds {
        idle.insert("others_give");
    }
    idle
}
