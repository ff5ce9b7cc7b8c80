//! Checks against the operator's bounds, and of dependencies.

use std::collections::BTreeSet;

use dormouse_messages::budget::hours;
use dormouse_messages::classes::PriorityClass;
use dormouse_messages::events::SubmissionReceived;
use dormouse_messages::grants::GrantsRule;
use dormouse_messages::job::{Containers, JobSpec, Kind};
use dormouse_messages::policy::UnknownTenants;
use dormouse_messages::serialized_spec::bytes_of;
use dormouse_messages::{
    Amounts, AuxiliaryRoles, JobClass, JobId, Resource, TenantId, sanitize, suggest,
};
use dormouse_state::{Above, Queues};

use crate::refusal::Refusal;
use crate::state::AdmissionState;

/// Checks that the tenant may submit. With required grants, the key of an unnamed or removed tenant may still
/// be valid.
pub fn check_tenant(queues: &Queues, tenant: &TenantId) -> Result<(), Refusal> {
    let (name, config) = (tenant.as_str(), &queues.cluster.tenants);
    let known = config.get(name).is_some() || config.grants.get(name).is_some();
    let accepts = queues.cluster.policy.unknown_tenants == UnknownTenants::Accept
        && config.grants.rule() == GrantsRule::Open;
    if known || accepts {
        return Ok(());
    }
    let reason = format!(
        "tenant {tenant} is not configured here, or was removed; the operator lets it in with `dormouse tenant set {tenant} --weight 1`"
    );
    Err(Refusal::new("unknown_tenant", reason))
}

/// Checks that the tenant may submit, and that the log has room.
pub fn check_sender(
    state: &AdmissionState,
    tenant: &TenantId,
    submission: &SubmissionReceived,
) -> Result<(), Refusal> {
    check_tenant(&state.queues, tenant)?;
    check_room(state, submission)
}

/// Checks that the log has room for another job. A submission without its document came while it was full.
fn check_room(state: &AdmissionState, submission: &SubmissionReceived) -> Result<(), Refusal> {
    let is_cut = submission.raw.is_empty() && submission.bytes > 0;
    let how = match &state.full {
        Some(full) => format!(
            "{} % of its {} MiB are used",
            full.percent(),
            full.most_bytes >> 20
        ),
        None if is_cut => "it was when this was submitted".to_owned(),
        None => return Ok(()),
    };
    let reason = format!(
        "the cluster's log is full ({how}), and the rest is kept for what runs; submit it again when the operator has made room: `dormouse cluster doctor` says what holds the log"
    );
    Err(Refusal::new("log_full", reason))
}

/// Resolves the job's class. Its value goes into the specification, so a later policy reorders no queue.
pub fn class_of(
    queues: &Queues,
    tenant: &TenantId,
    kind: Kind,
    name: &str,
) -> Result<JobClass, Refusal> {
    if kind.is_served() {
        let reason = "priority_class belongs to training and batch; services and notebooks come before every class: leave it out";
        return Err(Refusal::new("bad_priority_class", reason));
    }
    let classes = &queues.cluster.policy.priority_classes;
    let Some(PriorityClass { value, preempts }) = classes.get(name).copied() else {
        let name = sanitize::shortened(name);
        let known: Vec<&str> = classes.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "there is none yet".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        let reason = format!(
            "priority_class: there is no class {name}; {known}. The operator defines one in the policy (`dormouse policy set FILE` with policy: {{priority_classes: {{{name}: {{value: 100}}}}}}) and grants it with `dormouse tenant grant {tenant} --priority-class {name}`"
        );
        return Err(Refusal::new("unknown_priority_class", reason));
    };
    let granted = queues
        .cluster
        .tenants
        .grants
        .of(tenant.as_str())
        .class(name);
    granted.map_err(|denied| Refusal::new(denied.code, denied.reason))?;
    Ok(JobClass {
        name: name.to_owned(),
        value,
        preempts,
    })
}

/// One tenant's admissions in this decision.
#[derive(Debug, Clone, Copy, Default)]
pub struct Beyond {
    pub jobs: u64,
    pub bytes: u64,
}

/// Checks the grants, and the bounds on queued jobs with `more` from this decision.
pub fn check_grants(
    queues: &Queues,
    tenant: &TenantId,
    spec: &JobSpec,
    more: Beyond,
) -> Result<(), Refusal> {
    let grants = &queues.cluster.tenants.grants;
    let denied = grants.of(tenant.as_str()).check(spec);
    denied.map_err(|denied| Refusal::new(denied.code, denied.reason))?;
    let queue = queues.tenants.get(tenant);
    let queued = queue.map_or(0, |queue| queue.order.len() as u64 + queue.held) + more.jobs;
    if let Some(most) = grants.max_queued(tenant.as_str()).map(u64::from)
        && queued >= most
    {
        let reason = format!(
            "{tenant} has {queued} jobs queued and may have {most}; submit it again when some have started, cancel others, or have the operator raise it with `dormouse tenant grant {tenant} --max-queued {}`",
            most.saturating_mul(2)
        );
        return Err(Refusal::new("too_many_queued", reason));
    }
    let queued = queue.map_or(0, |queue| queue.queued_bytes) + more.bytes;
    let with = queued.saturating_add(bytes_of(spec));
    match grants.max_queued_bytes(tenant.as_str()) {
        Some(most) if with > most => {
            let size = |bytes: u64| Resource::Memory.display(bytes.next_multiple_of(1 << 10));
            let reason = format!(
                "the specifications of the queued jobs of {tenant} would take {} together and may take {}; submit it again when some have started, cancel others, keep data in files instead of in env, or have the operator raise it with `dormouse tenant grant {tenant} --max-queued-bytes {}`",
                size(with),
                Resource::Memory.display(most),
                size(with.max(most.saturating_mul(2)))
            );
            Err(Refusal::new("too_many_queued_bytes", reason))
        }
        _ => Ok(()),
    }
}

/// Checks a job's weight.
pub fn check_job_weight(queues: &Queues, tenant: &str, weight: u32) -> Result<(), Refusal> {
    let most = queues
        .cluster
        .tenants
        .get(tenant)
        .and_then(|t| t.max_job_weight);
    match most.filter(|most| weight > *most) {
        None => Ok(()),
        Some(most) => {
            let reason = format!(
                "weight {weight} is above {most}, the largest that a job of {tenant} may have; ask for at most {most}"
            );
            Err(Refusal::new("weight_above_limit", reason))
        }
    }
}

/// Checks the smallest partition.
pub fn check_partition(
    queues: &Queues,
    tenant: &str,
    one: (&Amounts, &AuxiliaryRoles),
    containers: Containers,
) -> Result<(), Refusal> {
    let Some(above) = queues
        .cluster
        .tenants
        .above(tenant, one, containers.start())
    else {
        return Ok(());
    };
    let advice = match above {
        Above::Containers { needs, .. } => format!(
            "ask for fewer, or have the operator raise it with `dormouse tenant grant {tenant} --max-containers {needs}`"
        ),
        Above::Quota { .. } => "ask for less, or have the quota raised".to_owned(),
    };
    let reason = format!("{}; {advice}", above.words(tenant));
    Err(Refusal::new(above.code(), reason))
}

/// Checks that a job which cannot move does not get a time limit beyond a reservation of its nodes.
pub fn check_reservations(
    queues: &Queues,
    id: &JobId,
    time_limit_s: Option<u32>,
) -> Result<(), Refusal> {
    let Some((job, limit_s)) = queues.cluster.jobs.get(id).zip(time_limit_s) else {
        return Ok(());
    };
    let limit_ms = u64::from(limit_s) * 1000;
    let since = job.running_since().filter(|_| limit_s > 0);
    let ends = since.map(|since| since.plus_ms(limit_ms.saturating_sub(job.limits.ran_ms)));
    let into = queues.cluster.reservations.runs_into(id, job, ends);
    match into.filter(|_| !job.is_adjustable()) {
        None => Ok(()),
        Some(name) => {
            let reason = format!(
                "time_limit_s: it runs on nodes that the reservation {name} takes before that, and cannot move; choose a limit that ends before (`dormouse reservation list`)"
            );
            Err(Refusal::new("reserved", reason))
        }
    }
}

/// Checks that a period of the tenant's budget may hold the job.
pub fn check_budget(queues: &Queues, tenant: &str, spec: &JobSpec) -> Result<(), Refusal> {
    let Some(spending) = queues.cluster.budgets.get(tenant) else {
        return Ok(());
    };
    let roles = AuxiliaryRoles::of(spec);
    let needs = roles.partition(&spec.demand, spec.containers.start());
    let limit_ms = spec.time_limit_s.map(|limit_s| u64::from(limit_s) * 1000);
    match spending.never_allows(&needs, limit_ms) {
        None => Ok(()),
        Some((resource, needs)) => {
            let reason = format!(
                "its smallest partition needs {} {} hours within its time limit, and the budget of {tenant} is {}; ask for less, lower time_limit_s, or have the operator raise it with `dormouse tenant set {tenant} --budget …`",
                hours(&resource, needs),
                resource.name(),
                spending.budget
            );
            Err(Refusal::new("above_budget", reason))
        }
    }
}

/// Checks that dependencies can complete. `taken`: this decision's jobs.
pub fn check_dependencies(
    state: &AdmissionState,
    job: &JobId,
    spec: &JobSpec,
    taken: &BTreeSet<JobId>,
) -> Result<(), Refusal> {
    for dependency in &spec.depends_on {
        if dependency == job {
            let reason = format!("depends_on: {job} depends on itself; leave it out");
            return Err(Refusal::new("dependency_cycle", reason));
        }
        let live = state.queues.jobs.contains_key(dependency) || taken.contains(dependency);
        match state.ended.completed(dependency) {
            Some(true) => {}
            Some(false) => {
                let reason = format!(
                    "depends_on: {dependency} did not complete, so {job} could never run; submit it again first, under another name"
                );
                return Err(Refusal::new("dependency_failed", reason));
            }
            None if live => {}
            None => {
                let kept_days = state.queues.cluster.policy.archive.names_kept_days;
                let ended = kept_days.map_or(String::new(), |days| {
                    format!("; leave out one that ended over {days} days ago")
                });
                let reason = format!(
                    "depends_on: there is no job {dependency}; submit it before {job} (jobs that depend on each other in a circle cannot be submitted){ended}"
                );
                return Err(Refusal::new("unknown_dependency", reason));
            }
        }
    }
    Ok(())
}

/// Names a resource of the demand that no node has, with a suggestion.
pub fn of_no_node(queues: &Queues, demand: &Amounts) -> Option<String> {
    let nodes = queues.cluster.nodes.iter();
    let there = nodes.flat_map(|(_, node)| node.capacity.iter());
    let there: BTreeSet<&str> = there.map(|(resource, _)| resource.name()).collect();
    let mut needed = demand.iter().map(|(resource, _)| resource.name());
    let name = needed.find(|name| !there.contains(name))?;
    let meant = suggest::hint(suggest::resource(name, there.iter().copied()));
    let there: Vec<&str> = there.into_iter().collect();
    let there = there.join(", ");
    Some(format!(
        "no node has {name} (the nodes have {there}){meant}"
    ))
}

#[cfg(test)]
mod tests {
    use dormouse_state::history::History;

    use super::*;

    #[test]
    fn a_resource_of_no_node_is_named_with_what_may_be_meant() {
        let mut history = History::default();
        history.join_with("n0", 1, "cpu=8,memory=32Gi");
        history.join_with("n1", 1, "cpu=8,gpu=2");
        let queues: Queues = history.fold();
        let said = |demand: &str| of_no_node(&queues, &demand.parse().expect("amounts"));
        assert_eq!(said("cpu=100,gpu=3"), None);
        let gpus = said("cpu=1,gpus=1").expect("of no node");
        assert_eq!(
            gpus,
            "no node has gpus (the nodes have cpu, gpu, memory); did you mean gpu?"
        );
        let licence = said("licence=1").expect("of no node");
        assert!(licence.ends_with("memory)"), "{licence}");
    }
}
