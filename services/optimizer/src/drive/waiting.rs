//! Explains why a job waits: the resource and its shortage, or the bound.

use dormouse_messages::needs::NODE_LABEL;
use dormouse_messages::reservation::{is_of_reservations, is_reserved};
use dormouse_messages::sanitize::{containers, listed};
use dormouse_messages::{JobId, Resource, Timestamp};

use crate::drive::ladder::any;
use crate::drive::work::Work;
use crate::milp::type_milp::may_be_feasible;
use crate::model::cluster::{Cluster, limits, roles_of};
use crate::model::instance::{Instance, State};
use crate::problem::{Problem, ProblemJob};
use crate::solution::WaitCode;

const NAMED: usize = 3;

pub(crate) struct WaitContext<'a> {
    pub problem: &'a Problem,
    pub cluster: &'a Cluster,
    /// An allocation may exist though none was found.
    pub open: bool,
}

/// Returns why a job is unschedulable; such a job does not hold up the queue.
pub(crate) fn unschedulable(
    problem: &Problem,
    cluster: &Cluster,
    work: &Work,
    index: usize,
) -> Option<(WaitCode, String)> {
    let job = &problem.jobs[index];
    let alone = unschedulable_alone(problem, cluster, job);
    if alone.is_some() || problem.roles(index).next().is_none() {
        return alone;
    }
    for role in roles_of(problem, index) {
        if let Some((code, reason)) = unschedulable_alone(problem, cluster, role) {
            let name = role.role.as_ref().map_or("", |role| &role.name);
            return Some((code, format!("roles.{name}: {reason}")));
        }
    }
    // Each group fits by itself; all must fit together.
    let mut empty = Instance::new(problem, cluster, &[index]);
    empty.rooms.clone_from(&cluster.capacities);
    empty.classify();
    empty.loss_bound = f64::INFINITY;
    empty
        .jobs
        .iter_mut()
        .for_each(|job| job.state = State::Free);
    let never = any(&empty, &problem.budget, work) == Some(false);
    never.then(|| {
        let reason = format!(
            "its minimum of {} ({} each) and its roles ({}) do not fit the empty cluster together; lower the minimum, shrink a role or add nodes",
            containers(limits(job).0),
            job.demand,
            describe_auxiliary(problem, index)
        );
        (WaitCode::NeverFits, reason)
    })
}

fn describe_auxiliary(problem: &Problem, index: usize) -> String {
    let roles = roles_of(problem, index).into_iter();
    let roles = roles.map(|role| {
        let name = role.role.as_ref().map_or("", |role| &role.name);
        format!("{name}: {} ({} each)", containers(role.min), role.demand)
    });
    roles.collect::<Vec<_>>().join(", ")
}

fn unschedulable_alone(
    problem: &Problem,
    cluster: &Cluster,
    job: &ProblemJob,
) -> Option<(WaitCode, String)> {
    if problem.nodes.iter().all(|node| node.closed) {
        let reason = "no node takes containers: none has joined, or all are drained, quarantined or lost (`dormouse nodes` says which; `dormouse node restore NAME`)";
        return Some((WaitCode::NeverFits, reason.to_owned()));
    }
    let Some(demand) = cluster.demand(job) else {
        let missing = job
            .demand
            .iter()
            .find(|(resource, _)| !cluster.resources.contains(resource));
        let reason = missing.map_or_else(
            || "its containers demand no resource at all; give the job a demand".to_owned(),
            |(resource, amount)| {
                let name = resource.name();
                let amount = resource.display(amount);
                format!("each container demands {name}={amount} and no node that can be used has any {name}; add or restore such a node, or change the demand")
            },
        );
        return Some((WaitCode::NoSuchResource, reason));
    };
    let (min, _) = limits(job);
    let room = cluster.holds(&demand);
    if room >= u64::from(min) {
        return None;
    }
    if cluster.columns.is_bound(job) {
        let mut anywhere = demand;
        anywhere[cluster.columns.counted()..].fill(0);
        if cluster.holds(&anywhere) >= u64::from(min) {
            return Some((
                WaitCode::NoAllowedNodes,
                ruled_out(problem, cluster, job, room),
            ));
        }
    }
    let reason = if room == 0 {
        format!(
            "one container ({}) is larger than every node that can be used (drained and lost ones cannot); shrink its demand, or add or restore a larger node",
            job.demand
        )
    } else {
        format!(
            "its minimum of {} ({} each) is more than the nodes that can be used hold when they are empty ({room}); lower the minimum, or add or restore nodes",
            containers(min),
            job.demand
        )
    };
    Some((WaitCode::NeverFits, reason))
}

fn ruled_out(problem: &Problem, cluster: &Cluster, job: &ProblemJob, room: u64) -> String {
    let constraints = &job.needs.constraints;
    let no_node = constraints.require.iter().find(|(label, rule)| {
        let mut values = problem.nodes.iter().map(|node| node.labels.get(*label));
        !values.any(|value| rule.allows(value.map(String::as_str)))
    });
    if let Some((label, rule)) = no_node {
        if label.as_str() == NODE_LABEL {
            return format!(
                "its constraint {label}: {rule} names no node that can be used (drained and lost ones cannot); restore that node (`dormouse node restore NAME`) or change the job's constraints"
            );
        }
        return format!(
            "its constraint {label}: {rule} holds on no node that can be used (drained and lost ones cannot); restore or label one (`dormouse node label NAME {label}=…`) or change the job's constraints"
        );
    }
    let labelled = problem.nodes.iter();
    let labelled = labelled.filter(|node| constraints.broken_by(&node.labels).is_none());
    let away = labelled.filter_map(|node| Some((node, job.needs.kept_away_by(&node.taints)?)));
    let away: Vec<_> = away.collect();
    if let (Some((node, taint)), 0) = (away.first(), eligible(cluster, job)) {
        if is_of_reservations(taint) {
            return format!(
                "every node that its constraints allow is kept for others, such as {}: {}",
                node.name,
                kept_for(taint)
            );
        }
        return format!(
            "every node that its constraints allow is tainted, such as {} with {taint}; add it to the job's tolerations, or take the taint away",
            node.name
        );
    }
    if constraints.is_empty() && tainted(problem, job).is_none() {
        let memory = match job.needs.gpu_memory_bytes {
            0 => String::new(),
            bytes => format!(", gpu_memory={}", Resource::Memory.display(bytes)),
        };
        return format!(
            "its minimum of {} ({}{} each) is more than the GPUs of the nodes that can be used hold when they are empty ({room}); lower the minimum or what a container asks of a GPU, or add or restore nodes",
            containers(limits(job).0),
            job.demand,
            memory
        );
    }
    format!(
        "its minimum of {} ({} each) is more than the nodes hold empty that {} ({room}); lower the minimum, or change the job's constraints or tolerations",
        containers(limits(job).0),
        job.demand,
        allowed(problem, cluster, job)
    )
}

fn eligible(cluster: &Cluster, job: &ProblemJob) -> usize {
    let nodes = 0..cluster.names.len();
    nodes
        .filter(|node| cluster.columns.allows(job, *node))
        .count()
}

/// Example: `its constraints allow (zone: a; 3 of 20)`.
fn allowed(problem: &Problem, cluster: &Cluster, job: &ProblemJob) -> String {
    let constraints = job.needs.constraints.to_string();
    let (some, all) = (eligible(cluster, job), cluster.names.len());
    let tainted = tainted(problem, job);
    match (constraints.is_empty(), tainted) {
        (true, None) => format!("have no taint that it does not tolerate ({some} of {all})"),
        (true, Some(taint)) => {
            format!("have no taint that it does not tolerate ({some} of {all}; {taint})")
        }
        (false, None) => format!("its constraints allow ({constraints}; {some} of {all})"),
        (false, Some(taint)) => format!(
            "its constraints and tolerations allow ({constraints}; {some} of {all}; {taint})"
        ),
    }
}

/// Example: `n3 and 2 more are tainted with maintenance`. Covers nodes excluded by a taint alone.
fn tainted(problem: &Problem, job: &ProblemJob) -> Option<String> {
    let constraints = &job.needs.constraints;
    let nodes = problem.nodes.iter();
    let allowed = nodes.filter(|node| constraints.broken_by(&node.labels).is_none());
    let mut away = allowed.filter_map(|node| Some((node, job.needs.kept_away_by(&node.taints)?)));
    let (node, taint) = away.next()?;
    let name = &node.name;
    Some(match away.filter(|(_, other)| *other == taint).count() {
        0 if is_of_reservations(taint) => format!("{name}: {}", kept_for(taint)),
        more if is_of_reservations(taint) => {
            format!("{name} and {more} more: {}", kept_for(taint))
        }
        0 => format!("{name} is tainted with {taint}"),
        more => format!("{name} and {more} more are tainted with {taint}"),
    })
}

/// Describes a reservation's taint.
fn kept_for(taint: &str) -> String {
    let name = taint.split_once('=').map_or(taint, |(_, name)| name);
    if is_reserved(taint) {
        format!("they are reserved as {name} (`dormouse reservation list`)")
    } else {
        format!(
            "the reservation {name} comes, and the job can neither save nor surely end before it; give it a checkpoint or a time_limit_s (`dormouse reservation list`)"
        )
    }
}

/// Empty for an unconstrained job.
pub(crate) fn on_those(problem: &Problem, cluster: &Cluster, job: &ProblemJob) -> String {
    if cluster.columns.is_bound(job) {
        format!(" on the nodes that {}", allowed(problem, cluster, job))
    } else {
        String::new()
    }
}

fn by_constraints(context: &WaitContext, instance: &Instance, head: usize) -> Option<String> {
    let job = &context.problem.jobs[head];
    if !context.cluster.columns.is_bound(job) {
        return None;
    }
    let anywhere = instance.without_constraints(head)?;
    may_be_feasible(&anywhere).then(|| {
        format!(
            "there is room for its minimum of {} ({} each), but not on the nodes that {}; it starts when there is room on those",
            containers(limits(job).0),
            job.demand,
            allowed(context.problem, context.cluster, job)
        )
    })
}

pub(crate) fn blocked(
    context: &WaitContext,
    instance: &Instance,
    head: usize,
) -> (WaitCode, String) {
    let job = &context.problem.jobs[head];
    let mut relaxed = instance.clone();
    relaxed.loss_bound = f64::INFINITY;
    if !may_be_feasible(&relaxed) {
        if let Some(reason) = by_constraints(context, &relaxed, head) {
            return (WaitCode::Constraints, reason);
        }
        let bound = relaxed.restart_bound;
        relaxed.restart_bound = u32::MAX;
        return if may_be_feasible(&relaxed) {
            let reason = format!(
                "room for its minimum of {} ({} each) could be made only by restarting more jobs than the adjustment bound allows ({bound}); it starts when a job ends, or with a larger theta2",
                containers(limits(job).0),
                job.demand
            );
            (WaitCode::AdjustmentBound, reason)
        } else {
            (WaitCode::Resources, short(context, instance, head))
        };
    }
    if !may_be_feasible(instance) {
        let reason = format!(
            "with it the fairness loss could not be held to {:.3} while restarting at most {} jobs; it starts when a job ends, or with a larger theta1 or theta2",
            instance.loss_bound, instance.restart_bound
        );
        return (WaitCode::FairnessBound, reason);
    }
    if context.open {
        let reason = format!(
            "no room for its minimum of {} ({} each) was found, and it is not proven that there is none; it is looked for again when something changes",
            containers(limits(job).0),
            job.demand
        );
        return (WaitCode::Fragmentation, reason);
    }
    let reason = format!(
        "the amounts for its minimum of {} ({} each) exist, but in pieces too small on the nodes, or not within the bounds on restarts ({}) and fairness loss ({:.3})",
        containers(limits(job).0),
        job.demand,
        instance.restart_bound,
        instance.loss_bound
    );
    (WaitCode::Fragmentation, reason)
}

struct Kept<'a> {
    reserved: u128,
    pinned: u128,
    by: Vec<&'a ProblemJob>,
    minimums: u128,
}

impl Kept<'_> {
    fn in_words(&self, amount: impl Fn(u128) -> String) -> String {
        let by = self.by.iter().map(|job| {
            let id = job.role.as_ref().map_or(&job.job, |role| &role.of);
            (id, job.left_until)
        });
        let pinned = format!("is of jobs that cannot be changed now ({})", named(by));
        let parts = [
            (self.pinned, pinned.as_str()),
            (
                self.reserved,
                "is still taken by containers that are to stop, beside what their jobs get instead",
            ),
            (self.minimums, "is the minimum of the jobs that may shrink"),
        ];
        let parts = parts.into_iter().filter(|(value, _)| *value > 0);
        let parts: Vec<String> = parts
            .map(|(value, what)| format!("{} {what}", amount(value)))
            .collect();
        parts.join(", ")
    }
}

/// Example: `ads/lr until 2026-11-21 10:05:12Z, ads/mnist and 3 more`.
fn named<'a>(jobs: impl Iterator<Item = (&'a JobId, Option<Timestamp>)>) -> String {
    let name = |(id, until): (&JobId, Option<Timestamp>)| match until {
        Some(until) => format!("{id} until {}", until.to_words()),
        None => id.to_string(),
    };
    let mut names: Vec<String> = jobs.map(name).collect();
    // A job and its roles share one name.
    names.dedup();
    listed(names, NAMED)
}

/// Assumes every shrinkable job at its minimum.
fn short(context: &WaitContext, instance: &Instance, head: usize) -> String {
    let job = &context.problem.jobs[head];
    let (min, _) = limits(job);
    for (index, resource) in context.cluster.resources.iter().enumerate() {
        let room: u128 = instance
            .rooms
            .iter()
            .map(|room| u128::from(room[index]))
            .sum();
        let total = u128::from(context.cluster.totals[index]);
        let mut kept = Kept {
            reserved: total.saturating_sub(room),
            pinned: 0,
            by: Vec::new(),
            minimums: 0,
        };
        let roles = || roles_of(context.problem, head).into_iter();
        let own: Vec<usize> = context.problem.roles(head).chain([head]).collect();
        for other in instance.jobs.iter().filter(|job| !own.contains(&job.index)) {
            let each = u128::from(instance.types[other.ty].demand[index]);
            match other.state {
                State::Pinned => {
                    let taken = each * u128::from(other.count);
                    kept.pinned += taken;
                    if taken > 0 {
                        kept.by.push(&context.problem.jobs[other.index]);
                    }
                }
                State::Running | State::Free => kept.minimums += each * u128::from(other.min),
            }
        }
        let taken = kept.pinned + kept.minimums;
        let auxiliary =
            roles().map(|role| u128::from(role.min) * u128::from(role.demand.get(resource)));
        let auxiliary: u128 = auxiliary.sum();
        let need = u128::from(min) * u128::from(job.demand.get(resource)) + auxiliary;
        if taken + need > room {
            let amount = |value: u128| resource.display(u64::try_from(value).unwrap_or(u64::MAX));
            let name = resource.name();
            return format!(
                "its minimum of {}{} needs {name} {}, and {} can be had now: of {} in all, {}; {} more is needed",
                containers(min),
                if auxiliary > 0 { " with its roles" } else { "" },
                amount(need),
                amount(room.saturating_sub(taken)),
                amount(total),
                kept.in_words(amount),
                amount(taken + need - room)
            );
        }
    }
    format!(
        "its minimum of {} ({} each) does not fit{} beside what the other jobs keep; it starts when a job ends or has moved",
        containers(min),
        job.demand,
        match on_those(context.problem, context.cluster, job) {
            nodes if nodes.is_empty() => " on the nodes".to_owned(),
            nodes => nodes,
        }
    )
}

#[cfg(test)]
mod tests {
    use dormouse_messages::{JobId, Timestamp};
    use serde_json::json;

    #[test]
    fn jobs_that_cannot_be_changed_are_named_with_the_time_until_then() {
        let ids: Vec<JobId> = ["ads/a", "ads/a", "ads/b", "ads/c", "ads/d", "ads/e"]
            .iter()
            .map(|id| id.parse().expect("an id"))
            .collect();
        let until: Timestamp = "2026-11-21T10:05:12Z".parse().expect("a time");
        let first = ids[..2].iter().map(|id| (id, Some(until)));
        let named = super::named(first.chain(ids[2..].iter().map(|id| (id, None))));
        assert_eq!(
            named,
            "ads/a until 2026-11-21 10:05:12Z, ads/b, ads/c and 2 more"
        );
    }

    #[test]
    fn what_is_short_says_who_keeps_the_rest() {
        let document = json!({
            "nodes": [{"name": "n0", "capacity": {"cpu": 16}, "reserved": {"cpu": 6}}],
            "jobs": [
                {"job": "ads/fixed", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 4},
                 "previous": {"n0": 4}, "adjustable": false},
                {"job": "ads/new", "demand": {"cpu": 2}, "containers": {"min": 4, "max": 4}},
            ],
        });
        let solved = crate::solve_document(&document.to_string()).expect("a problem");
        let reason = solved["waiting"][0]["reason"].as_str().expect("it waits");
        for part in [
            "its minimum of 4 containers needs cpu 8, and 6 can be had now",
            "of 16 in all, 4 is of jobs that cannot be changed now (ads/fixed), 6 is still taken",
            "; 2 more is needed",
        ] {
            assert!(reason.contains(part), "{part:?} in {reason:?}");
        }
    }
}
