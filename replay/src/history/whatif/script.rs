//! Builds the external events of a fork: those of the log, at their times, and the changes.
//!
//! | kept | decided again |
//! |---|---|
//! | submissions, cancellations and revisions | admissions, releases |
//! | the operator's policy, tenants, grants, drains, labels and taints | allocations, placements |
//! | joins, losses, quarantines, missed leases of nodes | starts, checkpoints, stops, exits, progress |
//! | measurements of gateways and proxies | replicas, ends of jobs |

use std::collections::{BTreeMap, BTreeSet};

use dormouse_admission::received;
use dormouse_agent_core::reconcile::FENCED;
use dormouse_messages::events::{
    ClusterConfigured, NodeDrained, NodeJoined, NodeLost, SubmissionReceived, TenantConfigured,
};
use dormouse_messages::{
    ContainerId, Event, JobId, KeptFact, NodeId, Recorded, TenantId, Timestamp, Writer,
};
use serde_json::{Value, json};

use super::fork::Forked;
use crate::engine::{Action, ModelJob};
use crate::history::changes::{ChangeError, Changes};

/// The actions in order, and the models of new jobs.
#[derive(Debug, Default)]
pub struct Script {
    pub actions: Vec<(Timestamp, Action)>,
    pub models: Vec<(JobId, ModelJob)>,
}

/// Builds the script of a fork under changes.
///
/// # Errors
/// A change does not fit the fork.
pub fn script(forked: &Forked<'_>, changes: &Changes) -> Result<Script, ChangeError> {
    let mut script = Script::default();
    check(forked, changes)?;
    at_the_fork(forked, changes, &mut script)?;
    let names = submitted(forked.after);
    let mut leases = Leases::default();
    for kept in forked.after {
        let (at, recorded) = (kept.at(), kept.recorded());
        if let Some(node) = leases.expired(recorded) {
            script.actions.push((at, Action::Expire(node.clone())));
        }
        if let Some(action) = later(recorded, changes, &names)? {
            script.actions.push((at, action));
        }
    }
    for submission in &changes.added {
        let action = Action::Submit {
            tenant: submission.job.tenant().to_owned(),
            verb: "submit".to_owned(),
            payload: submission.payload.clone(),
        };
        let at = plus_s(forked.now, submission.at_s);
        script.actions.push((at, action));
        script
            .models
            .push((submission.job.clone(), submission.model.clone()));
    }
    Ok(script)
}

fn check(forked: &Forked<'_>, changes: &Changes) -> Result<(), ChangeError> {
    check_tenants(forked, changes)?;
    let live = forked.live();
    for job in changes.drop_jobs.iter().chain(changes.jobs.keys()) {
        if !live.contains(job) {
            return Err(ChangeError::NotThere(format!("job {job}")));
        }
    }
    for submission in &changes.added {
        if live.contains(&submission.job) {
            return Err(ChangeError::Taken(format!("job {}", submission.job)));
        }
    }
    let mut nodes: BTreeSet<&NodeId> = forked
        .cluster()
        .nodes
        .iter()
        .map(|(name, _)| name)
        .collect();
    nodes.extend(forked.after.iter().filter_map(|it| match it.event() {
        Some(Event::NodeJoined(event)) => Some(&event.node),
        _ => None,
    }));
    for node in changes.drop_nodes.iter().chain(&changes.drain_nodes) {
        if !nodes.contains(node) {
            return Err(ChangeError::NotThere(format!("node {node}")));
        }
    }
    match changes.add_nodes.iter().find(|it| nodes.contains(&it.name)) {
        Some(node) => Err(ChangeError::Taken(format!("node {}", node.name))),
        None => Ok(()),
    }
}

/// A setting of an unknown tenant would change nothing. Added jobs may bring tenants.
fn check_tenants(forked: &Forked<'_>, changes: &Changes) -> Result<(), ChangeError> {
    if changes.tenants.is_empty() {
        return Ok(());
    }
    let mut known = forked.tenants();
    known.extend(changes.added.iter().map(|it| it.job.tenant()));
    let mut asked = changes.tenants.keys();
    match asked.find(|tenant| !known.contains(tenant.as_str())) {
        Some(tenant) => Err(ChangeError::no_tenant(tenant, &known)),
        None => Ok(()),
    }
}

fn at_the_fork(
    forked: &Forked<'_>,
    changes: &Changes,
    script: &mut Script,
) -> Result<(), ChangeError> {
    let cluster = forked.cluster();
    let mut happens = |action: Action| script.actions.push((forked.now, action));
    let operator = |event: Event| Action::Operator(event);
    // A log begins with the event that configures the cluster.
    let configured_later =
        forked.after.iter().take(1).any(|it| {
            matches!(it.event(), Some(Event::ClusterConfigured(_))) && it.at() == forked.now
        });
    if !changes.policy.is_empty() && !configured_later {
        let policy = changes.policy(&cluster.policy)?;
        happens(operator(ClusterConfigured { policy }.into()));
    }
    for tenant in changes.tenants.keys() {
        happens(operator(changes.tenant_at(cluster, tenant)?.into()));
    }
    for node in &changes.add_nodes {
        happens(Action::Join {
            node: node.name.clone(),
            capacity: node.capacity.clone(),
        });
    }
    for node in &changes.drain_nodes {
        let drained = NodeDrained {
            node: node.clone(),
            reason: None,
            deadline_s: None,
        };
        happens(operator(drained.into()));
    }
    for name in &changes.drop_nodes {
        if let Some(node) = cluster
            .nodes
            .get(name)
            .filter(|_| !cluster.nodes.is_lost(name))
        {
            let lost = NodeLost {
                node: name.clone(),
                incarnation: node.incarnation,
                last_seen: forked.now,
            };
            happens(Action::Recorded(Writer::Placer, lost.into()));
        }
    }
    let said = |job: &JobId, verb: &str, document: &Value| Action::Submit {
        tenant: job.tenant().to_owned(),
        verb: verb.to_owned(),
        payload: document.to_string().into_bytes(),
    };
    for job in changes.jobs.keys() {
        if cluster.job(job).is_some() {
            happens(said(job, "revise", &changes.revision(cluster, job)?));
        }
    }
    for job in &changes.drop_jobs {
        if cluster.job(job).is_some() {
            happens(said(job, "cancel", &json!({"job": job.name()})));
        }
    }
    Ok(())
}

struct Submitted {
    of: BTreeMap<u64, JobId>,
    /// A refused submission may have come again under the same name.
    admitted: BTreeSet<u64>,
}

fn submitted(after: &[KeptFact]) -> Submitted {
    let decided = after.iter().filter_map(|it| match it.event()? {
        Event::JobAdmitted(event) => Some((event.ingress_sequence, event.job.clone())),
        Event::JobRevised(event) => Some((event.ingress_sequence, event.job.clone())),
        Event::JobRequeued(event) => Some((event.ingress_sequence, event.job.clone())),
        Event::JobCancelRequested(event) => Some((event.ingress_sequence, event.job.clone())),
        Event::JobCancelled(event) => Some((event.ingress_sequence?, event.job.clone())),
        Event::JobRefused(event) => Some((event.ingress_sequence, event.job.clone()?)),
        _ => None,
    });
    let admitted = after.iter().filter_map(|it| match it.event()? {
        Event::JobAdmitted(event) => Some(event.ingress_sequence),
        _ => None,
    });
    Submitted {
        of: decided.collect(),
        admitted: admitted.collect(),
    }
}

fn later(
    recorded: &Recorded,
    changes: &Changes,
    names: &Submitted,
) -> Result<Option<Action>, ChangeError> {
    let Some(event) = recorded.event() else {
        return Ok(None);
    };
    if node_of(event).is_some_and(|node| changes.drop_nodes.contains(node)) {
        return Ok(None);
    }
    let event = match event {
        Event::ClusterConfigured(event) => {
            let policy = changes.policy(&event.policy)?;
            Some(ClusterConfigured { policy }.into())
        }
        Event::TenantConfigured(event) => {
            let event: TenantConfigured = changes.tenant(event)?;
            Some(event.into())
        }
        Event::SubmissionReceived(event) => submission(event, changes, names)?,
        Event::NodeJoined(event) => {
            // The fork has its own containers.
            let event = NodeJoined {
                running: Vec::new(),
                ..(**event).clone()
            };
            Some(event.into())
        }
        Event::NodeRestored(it) if changes.drain_nodes.contains(&it.node) => None,
        Event::NodeLost(_)
        | Event::NodeFenced(_)
        | Event::BuildJoined(_)
        | Event::BuildLeft(_)
        | Event::SubmissionsRateLimited(_) => Some(event.clone()),
        Event::NodeQuarantined(_) => {
            let mut event = event.clone();
            event.set_basis(None);
            Some(event)
        }
        Event::ServiceMeasured(it) if it.basis.is_none() => Some(event.clone()),
        Event::ServiceScaled(it) if it.basis.is_none() => Some(event.clone()),
        _ if recorded.writer == Writer::Operator => Some(event.clone()),
        _ => None,
    };
    Ok(event.map(|event| Action::Recorded(recorded.writer, event)))
}

#[derive(Debug, Default)]
struct Leases<'a>(BTreeMap<&'a NodeId, BTreeSet<&'a ContainerId>>);

impl<'a> Leases<'a> {
    /// Returns the node whose missed lease ended a container. The node joins again, so its further
    /// reports are ignored.
    fn expired(&mut self, recorded: &'a Recorded) -> Option<&'a NodeId> {
        match recorded.event()? {
            Event::NodeJoined(it) => {
                self.0.insert(&it.node, it.running.iter().collect());
            }
            Event::ContainerStarted(it) => {
                if let Some(running) = self.0.get_mut(&it.node) {
                    running.insert(&it.container);
                }
            }
            Event::ContainerExited(it) if it.reason.as_deref() == Some(FENCED) => {
                let running = self.0.get(&it.node);
                let is_news = running.is_none_or(|running| running.contains(&it.container));
                return is_news.then_some(&it.node);
            }
            _ => {}
        }
        None
    }
}

fn node_of(event: &Event) -> Option<&NodeId> {
    match event {
        Event::NodeJoined(it) => Some(&it.node),
        Event::NodeLost(it) => Some(&it.node),
        Event::NodeFenced(it) => Some(&it.node),
        Event::NodeDrained(it) => Some(&it.node),
        Event::NodeRestored(it) => Some(&it.node),
        Event::NodeQuarantined(it) => Some(&it.node),
        Event::NodeLabelled(it) => Some(&it.node),
        Event::NodeRemoved(it) => Some(&it.node),
        _ => None,
    }
}

fn submission(
    event: &SubmissionReceived,
    changes: &Changes,
    names: &Submitted,
) -> Result<Option<Event>, ChangeError> {
    let same = || Ok(Some(event.clone().into()));
    let Some(job) = names.of.get(&event.ingress_sequence) else {
        return same();
    };
    if changes.drop_jobs.contains(job) {
        return Ok(None);
    }
    if event.verb != "submit" {
        return same();
    }
    let changed = changes.jobs.contains_key(job);
    let document = dormouse_admission::document(event);
    // A submission that kept to its plan on the log is submitted here under any plan.
    let planned = document.as_ref().filter(|it| it.get("if_plan").is_some());
    if !changed && (planned.is_none() || !names.admitted.contains(&event.ingress_sequence)) {
        return same();
    }
    let mut document =
        document.ok_or_else(|| ChangeError::NotThere(format!("a readable document of {job}")))?;
    if let Some(fields) = document.as_object_mut() {
        fields.remove("if_plan");
    }
    if changed {
        changes.document(job, &mut document)?;
    }
    let payload = document.to_string();
    let json = Some("application/json");
    let tenant: &str = TenantId::new(event.tenant.as_str())
        .map_or_else(|_| job.tenant(), |_| event.tenant.as_str());
    Ok(Some(received(
        event.ingress_sequence,
        event.published_at,
        tenant,
        &event.verb,
        json,
        payload.as_bytes(),
    )))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "years of seconds in microseconds fit"
)]
fn plus_s(at: Timestamp, seconds: f64) -> Timestamp {
    Timestamp::from_micros(at.as_micros() + (seconds * 1e6).round() as i64)
}
