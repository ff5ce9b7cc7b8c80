//! Decides submissions and releases.
//!
//! Folds [`AdmissionState`]. Appends `job.admitted`, `job.refused`, `job.released`, `job.revised`,
//! `job.cancel_requested`, and `job.cancelled` for queued jobs. (The shell appends `submission.received` and
//! mostly `service.measured`: [`crate::measured`].)
//!
//! 1. Parse each undecided submission from its record alone; admit, refuse or carry out.
//! 2. Cancel queued jobs with a failed dependency or past `queue_limit_s`.
//! 3. Report levels of budgets and phases of reservations that time has changed ([`crate::calendar`]).
//! 4. Release queued jobs until nothing fits ([`crate::release`]).
//! 5. Report allocations that differ from plans ([`crate::plan`]).
//!
//! At one instant, completions precede arrivals, and arrivals precede releases.
//!
//! Invariant: every submission gets exactly one decision, and no job is admitted under the id of another that
//! lives, or that ended less than `archive.names_kept_days` ago ([`crate::ended`]).

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    JobAdmitted, JobCancelRequested, JobCancelled, JobRefused, JobRequeued, JobRevised,
    PlanAccepted, PlanMissed, SubmissionReceived,
};
use dormouse_messages::job::{Containers, JobDocument, JobSpec, Urgency};
use dormouse_messages::serialized_spec::bytes_of;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{
    Amounts, AuxiliaryRoles, Decider, Decision, Event, JobId, Proposal, ReviseDocument, Sequence,
    TenantId, Timestamp, Writer,
};
use dormouse_state::{QueueJob, Stand, queue_limit_over};
use serde::Deserialize;

use crate::calendar;
use crate::checks::{check_containers, check_limit, check_priority, check_weight};
use crate::decode::{decode, full_name};
use crate::gpu;
use crate::limits::{
    Beyond, check_budget, check_dependencies, check_grants, check_job_weight, check_partition,
    check_reservations, check_sender, class_of, of_no_node,
};
use crate::measured;
use crate::parse::parse_job;
use crate::plan::{Planned, state_digest};
use crate::refusal::Refusal;
use crate::release::{Changes, releases};
use crate::state::AdmissionState;

/// A broker batch holds a thousand messages.
const MOST_DECISIONS: usize = 900;

/// The decider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Admission;

impl Decider for Admission {
    type State = AdmissionState;

    const WRITER: Writer = Writer::Admission;

    /// Nothing that queues, quotas or free capacity depend on changes with the reports of running containers
    /// and with the steps of a start: the placement took the capacity, and the end or the stop frees it.
    fn concerns(&self, event: &Event) -> bool {
        !matches!(
            event,
            Event::Progress(_)
                | Event::ContainerStarted(_)
                | Event::ContainerReady(_)
                | Event::ContainerUnready(_)
                | Event::ContainerGpuUsed(_)
                | Event::CheckpointRequested(_)
                | Event::CheckpointSaved(_)
                | Event::CheckpointFailed(_)
                | Event::PartitionStartRequested(_)
                | Event::PartitionStarted(_)
                | Event::PartitionWarned(_)
                | Event::TasksAssigned(_)
                | Event::JobSpeedFitted(_)
                | Event::StartsForecast(_)
                | Event::GatewayJoined(_)
                | Event::GatewayLeft(_)
                | Event::GatewayUnrouted(_)
        )
    }

    fn decide(&self, state: &AdmissionState, now: Timestamp) -> Decision {
        let mut intake = Intake::new(state);
        for (sequence, submission) in state.undecided.iter().take(MOST_DECISIONS / 2) {
            if intake.is_of_a_new_job(submission) {
                break;
            }
            intake.decide(*sequence, submission);
        }
        intake.cancel_dependents(MOST_DECISIONS / 8);
        let expires = intake.cancel_expired(now, MOST_DECISIONS / 8);
        let (due, next) = calendar::changes(&state.queues.cluster, now, MOST_DECISIONS / 8);
        intake.proposals.extend(due);
        let next_wake = expires.into_iter().chain(next).min();
        let Intake {
            mut proposals,
            changes,
            ..
        } = intake;
        let most = MOST_DECISIONS.saturating_sub(proposals.len());
        proposals.extend(releases(state, &changes, now, most));
        let room = MOST_DECISIONS.saturating_sub(proposals.len());
        let missed = state.missed.iter().take(room).map(|(job, missed)| {
            let event = PlanMissed {
                job: job.clone(),
                planned: missed.planned,
                containers: missed.containers,
                decided: missed.decided,
                basis: None,
            };
            Proposal::new(event, missed.decided)
        });
        proposals.extend(missed);
        Decision {
            proposals,
            next_wake,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelDocument {
    job: String,
}

struct Intake<'a> {
    state: &'a AdmissionState,
    proposals: Vec<Proposal>,
    /// Names taken by this decision.
    taken: BTreeSet<JobId>,
    /// Admissions of this decision, by tenant.
    admitted: BTreeMap<TenantId, Beyond>,
    changes: Changes,
}

impl<'a> Intake<'a> {
    fn new(state: &'a AdmissionState) -> Self {
        Self {
            state,
            proposals: Vec::new(),
            taken: BTreeSet::new(),
            admitted: BTreeMap::new(),
            changes: Changes::default(),
        }
    }

    /// Messages about jobs of this decision wait for the next one.
    fn is_of_a_new_job(&self, submission: &SubmissionReceived) -> bool {
        #[derive(Deserialize)]
        struct Named {
            job: String,
        }
        if self.taken.is_empty() || submission.verb == "submit" {
            return false;
        }
        let tenant = TenantId::new(submission.tenant.as_str());
        let (Ok(tenant), Ok(document)) = (tenant, decode::<Named>(submission)) else {
            return false;
        };
        full_name(&tenant, &document.job).is_ok_and(|job| self.taken.contains(&job))
    }

    fn decide(&mut self, sequence: Sequence, submission: &SubmissionReceived) {
        let tenant = TenantId::new(submission.tenant.as_str());
        let decided = match &tenant {
            Err(error) => Err((
                None,
                Refusal::new(
                    "bad_tenant",
                    format!("{error}; publish under your tenant's name"),
                ),
            )),
            Ok(tenant) => match submission.verb.as_str() {
                "submit" => self.submit(sequence, submission, tenant),
                "cancel" => self.cancel(submission, tenant),
                "revise" => self.revise(submission, tenant),
                MEASURED => measured::accept(self.state, submission, tenant).map(Event::from),
                other => Err((
                    None,
                    Refusal::new(
                        "unknown_verb",
                        format!("{other:?} is not submit, cancel, revise or measured"),
                    ),
                )),
            },
        };
        let event = decided.unwrap_or_else(|(job, refusal)| {
            Event::from(JobRefused {
                job,
                tenant: tenant.ok(),
                ingress_sequence: submission.ingress_sequence,
                code: refusal.code.to_owned(),
                reason: refusal.reason,
                by: submission.by.clone(),
                basis: None,
            })
        });
        self.proposals.push(Proposal::new(event, sequence));
    }

    fn submit(
        &mut self,
        sequence: Sequence,
        submission: &SubmissionReceived,
        tenant: &TenantId,
    ) -> Result<Event, (Option<JobId>, Refusal)> {
        let queues = &self.state.queues;
        check_sender(self.state, tenant, submission).map_err(|refusal| (None, refusal))?;
        let document: JobDocument = decode(submission).map_err(|refusal| (None, refusal))?;
        let named = document
            .name
            .as_deref()
            .and_then(|name| JobId::new(tenant, name).ok());
        let mut fallback = format!("job-{}", submission.ingress_sequence);
        // A recreated ingress stream numbers from 1 again.
        if JobId::new(tenant, &fallback).is_ok_and(|job| self.state.is_taken(&job)) {
            fallback = format!("{fallback}-{sequence}");
        }
        let planned = self
            .planned(document.if_plan.as_deref())
            .map_err(|refusal| (named.clone(), refusal))?;
        let priority = queues
            .cluster
            .tenants
            .get(tenant.as_str())
            .map_or(0, |t| t.priority);
        let class = document.priority_class.clone();
        let (job, mut spec) =
            parse_job(document, tenant, &fallback, priority).map_err(|refusal| (named, refusal))?;
        if let Some(class) = class {
            let class = class_of(queues, tenant, spec.kind, class.name());
            spec.priority_class = Some(class.map_err(|refusal| (Some(job.clone()), refusal))?);
        }
        if self.state.is_taken(&job) || self.taken.contains(&job) {
            let reason = format!(
                "{job} exists already; choose another name, or leave it out to have one made"
            );
            return Err((Some(job), Refusal::new("name_in_use", reason)));
        }
        let more = self.admitted.get(tenant).copied().unwrap_or_default();
        let one = (&spec.demand, &AuxiliaryRoles::of(&spec));
        let checked = check_job_weight(queues, job.tenant(), spec.weight)
            .and_then(|()| check_partition(queues, job.tenant(), one, spec.containers))
            .and_then(|()| check_budget(queues, job.tenant(), &spec))
            .and_then(|()| check_grants(queues, tenant, &spec, more))
            .and_then(|()| check_dependencies(self.state, &job, &spec, &self.taken))
            .and_then(|()| self.check_nodes(&spec));
        if let Err(refusal) = checked {
            return Err((Some(job), refusal));
        }
        self.taken.insert(job.clone());
        let admitted = self.admitted.entry(tenant.clone()).or_default();
        admitted.jobs += 1;
        admitted.bytes += bytes_of(&spec);
        if let Some(planned) = planned {
            let accepted = PlanAccepted {
                job: job.clone(),
                ingress_sequence: submission.ingress_sequence,
                containers: planned.containers,
                planned_at: planned.asof,
                basis: None,
            };
            self.proposals.push(Proposal::new(accepted, sequence));
        }
        let admitted = JobAdmitted {
            job,
            spec,
            ingress_sequence: submission.ingress_sequence,
            by: submission.by.clone(),
            basis: None,
        };
        let waits = |id: &JobId| queues.jobs.contains_key(id) || self.taken.contains(id);
        if !admitted.spec.depends_on.iter().any(waits) {
            self.changes.admitted.push((sequence, admitted.clone()));
        }
        Ok(Event::from(admitted))
    }

    /// Returns the plan if the state has not changed.
    fn planned(&self, token: Option<&str>) -> Result<Option<Planned>, Refusal> {
        let Some(token) = token else {
            return Ok(None);
        };
        let planned = token.parse::<Planned>();
        let planned = planned.map_err(|what| Refusal::new("bad_plan", what))?;
        if planned.state != state_digest(&self.state.queues) {
            let reason = format!(
                "what it was planned from after event {} has changed; plan it again",
                planned.asof
            );
            return Err(Refusal::new("plan_stale", reason));
        }
        Ok(Some(planned))
    }

    /// Checks that some node could hold one container when empty.
    fn check_nodes(&self, spec: &JobSpec) -> Result<(), Refusal> {
        let nodes = &self.state.queues.cluster.nodes;
        let auxiliary = AuxiliaryRoles::of(spec);
        let roles = auxiliary.parts().iter();
        let roles = roles.map(|part| (format!(" of roles.{}", part.role), &part.demand));
        let fits = |demand: &Amounts| {
            let mut nodes = nodes.iter();
            nodes.any(|(_, node)| demand.times_in(&node.capacity) >= 1)
        };
        let mut all = std::iter::once((String::new(), &spec.demand)).chain(roles);
        match all.find(|(_, demand)| !fits(demand)) {
            Some((of, demand)) if nodes.iter().next().is_some() => {
                let nowhere = of_no_node(&self.state.queues, demand);
                let reason = nowhere.unwrap_or_else(|| {
                    format!(
                        "one container{of} needs {demand} and no node has that much; ask for less, or for more containers of less"
                    )
                });
                Err(Refusal::new("larger_than_any_node", reason))
            }
            _ => Ok(()),
        }
    }

    fn cancel_dependents(&mut self, most: usize) {
        for (id, cause) in self.state.queues.dependency_failed.iter().take(most) {
            let Some(Stand::DependencyFailed { by, .. }) =
                self.state.queues.jobs.get(id).map(|j| &j.stand)
            else {
                continue;
            };
            if !self.changes.cancelled.insert(id.clone()) {
                continue;
            }
            let event = JobCancelled {
                job: id.clone(),
                reason: format!("it depends on {by}, which did not complete"),
                attempts: 0,
                code: Some("dependency_failed".to_owned()),
                ingress_sequence: None,
                by: None,
                basis: None,
            };
            self.proposals.push(Proposal::new(event, *cause));
        }
    }

    /// Cancels jobs past their queue limit; returns the next deadline.
    fn cancel_expired(&mut self, now: Timestamp, most: usize) -> Option<Timestamp> {
        let queues = &self.state.queues;
        let mut expired = queues.expiring.iter();
        for (until, id) in expired.by_ref().take(most) {
            if *until > now {
                return Some(*until);
            }
            let Some(job) = queues.jobs.get(id) else {
                continue;
            };
            if !self.changes.cancelled.insert(id.clone()) {
                continue;
            }
            let event = JobCancelled {
                job: id.clone(),
                reason: queue_limit_over(job.queue_limit_s.unwrap_or_default()),
                attempts: 0,
                code: Some("queue_limit".to_owned()),
                ingress_sequence: None,
                by: None,
                basis: None,
            };
            self.proposals.push(Proposal::new(event, job.admitted));
        }
        expired.next().map(|(until, _)| *until)
    }

    fn cancel(
        &mut self,
        submission: &SubmissionReceived,
        tenant: &TenantId,
    ) -> Result<Event, (Option<JobId>, Refusal)> {
        let document: CancelDocument = decode(submission).map_err(|refusal| (None, refusal))?;
        let job = self.named(tenant, &document.job)?;
        let ingress_sequence = submission.ingress_sequence;
        let stand = self.state.queues.jobs.get(&job).map(|job| &job.stand);
        match stand {
            Some(Stand::Released { .. }) if !self.state.queues.is_cancelled(&job) => {
                Ok(Event::from(JobCancelRequested {
                    job,
                    ingress_sequence,
                    by: submission.by.clone(),
                    basis: None,
                }))
            }
            Some(Stand::Queued { .. } | Stand::Held { .. } | Stand::DependencyFailed { .. })
                if self.changes.cancelled.insert(job.clone()) =>
            {
                Ok(Event::from(JobCancelled {
                    job,
                    reason: "cancelled while queued".to_owned(),
                    attempts: 0,
                    code: None,
                    ingress_sequence: Some(ingress_sequence),
                    by: submission.by.clone(),
                    basis: None,
                }))
            }
            None => {
                let refusal = Refusal::new("already_ending", ended(&job));
                Err((Some(job), refusal))
            }
            Some(_) => {
                let words = format!("{job} is being cancelled already");
                Err((Some(job), Refusal::new("already_ending", words)))
            }
        }
    }

    fn revise(
        &self,
        submission: &SubmissionReceived,
        tenant: &TenantId,
    ) -> Result<Event, (Option<JobId>, Refusal)> {
        let document: ReviseDocument = decode(submission).map_err(|refusal| (None, refusal))?;
        let job = self.named(tenant, &document.job)?;
        let refuse = |code, reason: &str| Err((Some(job.clone()), Refusal::new(code, reason)));
        let Some(live) = self.state.queues.jobs.get(&job) else {
            return refuse("already_ending", &ended(&job));
        };
        let known = self.state.queues.cluster.jobs.get(&job);
        let runs = known.is_some_and(|known| known.running_since().is_some());
        let may_hold = check_hold(&job, (live, runs), &document);
        if document.requeue {
            return match may_hold.and_then(|()| check_requeue(&job, live, &document)) {
                Ok(()) => Ok(Event::from(JobRequeued {
                    job,
                    ingress_sequence: submission.ingress_sequence,
                    by: submission.by.clone(),
                    basis: None,
                })),
                Err(refusal) => Err((Some(job), refusal)),
            };
        }
        let bounds = document.containers.unwrap_or(live.containers);
        let weight = document.weight.unwrap_or(live.weight);
        let queues = &self.state.queues;
        let one = (&live.demand, &live.auxiliary);
        check_most(bounds, live.most)
            .and_then(|()| {
                let is_service = live.urgency > Urgency::Training;
                check_containers(bounds, live.static_containers, is_service)
            })
            .and_then(|()| check_weight(weight))
            // Unchanged values may exceed present bounds.
            .and_then(|()| match document.weight {
                Some(weight) => check_job_weight(queues, job.tenant(), weight),
                None => Ok(()),
            })
            .and_then(|()| match document.containers {
                Some(bounds) => check_partition(queues, job.tenant(), one, bounds),
                None => Ok(()),
            })
            .and_then(|()| check_priority(document.priority.unwrap_or(0)))
            .and_then(|()| check_limit("time_limit_s", document.time_limit_s))
            .and_then(|()| check_limit("queue_limit_s", document.queue_limit_s))
            .and_then(|()| check_reservations(queues, &job, document.time_limit_s))
            .and(may_hold)
            .map_err(|refusal| (Some(job.clone()), refusal))?;
        let gpu_limit = gpu::revised(document.gpu_limit.as_ref(), &live.demand)
            .map_err(|refusal| (Some(job.clone()), refusal))?;
        Ok(Event::from(JobRevised {
            job: job.clone(),
            ingress_sequence: submission.ingress_sequence,
            weight: document.weight,
            containers: document.containers,
            priority: document.priority,
            held: document.held,
            time_limit_s: document.time_limit_s,
            queue_limit_s: document.queue_limit_s,
            gpu_limit_milli: gpu_limit,
            by: submission.by.clone(),
            basis: None,
        }))
    }

    fn named(&self, tenant: &TenantId, text: &str) -> Result<JobId, (Option<JobId>, Refusal)> {
        let job = full_name(tenant, text)
            .map_err(|error| (None, Refusal::new("bad_name", error.to_string())))?;
        if self.state.is_taken(&job) {
            return Ok(job);
        }
        let refusal = Refusal::new(
            "no_such_job",
            format!("{job} does not exist; see `dormouse jobs`"),
        );
        Err((Some(job), refusal))
    }
}

fn ended(job: &JobId) -> String {
    format!("{job} has ended, and nothing can change it; submit it again under another name")
}

fn check_most(bounds: Containers, most: Option<u32>) -> Result<(), Refusal> {
    match most.filter(|most| bounds.max > *most) {
        None => Ok(()),
        Some(1) => Err(Refusal::new(
            "bad_containers",
            "a batch job has one container; submit a task set for more",
        )),
        Some(most) => Err(Refusal::new(
            "bad_containers",
            format!(
                "containers.max {} is above {most}, the job's tasks.concurrency or batch.max; submit a job with a higher one",
                bounds.max
            ),
        )),
    }
}

fn check_requeue(job: &JobId, live: &QueueJob, document: &ReviseDocument) -> Result<(), Refusal> {
    let alone = ReviseDocument {
        requeue: true,
        force: document.force,
        ..ReviseDocument::nothing(document.job.clone())
    };
    if *document != alone {
        let reason = "a document that requeues a job changes nothing else of it";
        return Err(Refusal::new("bad_document", reason));
    }
    if live.on_hold {
        let reason = format!(
            "{job} is on hold: `dormouse job release {job}` lets it go; nothing is requeued"
        );
        return Err(Refusal::new("on_hold", reason));
    }
    Ok(())
}

/// Checks a requested hold or requeue.
fn check_hold(
    job: &JobId,
    (live, runs): (&QueueJob, bool),
    document: &ReviseDocument,
) -> Result<(), Refusal> {
    if document.held != Some(true) && !document.requeue {
        return Ok(());
    }
    if live.urgency > Urgency::Training {
        let reason = format!("{job} is a service; revise its containers, or cancel it");
        return Err(Refusal::new("cannot_hold", reason));
    }
    if runs && !live.adjustable && !document.force {
        let reason = format!(
            "{job} runs and has no checkpoint, so that it would begin again; say so with --force (force: true in a document)"
        );
        return Err(Refusal::new("no_checkpoint", reason));
    }
    Ok(())
}
