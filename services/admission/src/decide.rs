//! Which submissions are valid, and which queued job is released next.
//!
//! Folds: [`AdmissionState`]. Appends: `job.admitted`, `job.refused`, `job.released`,
//! `job.revised`, `job.cancel_requested`, and `job.cancelled` while a job is queued.
//! (`submission.received` is an observation of the ingress, appended by the shell.)
//!
//! 1. Each submission on the log without a decision, in the order of the ingress: it is parsed
//!    from its record alone, then admitted, refused with a reason, or carried out.
//! 2. Queued jobs are released, first in, first out ([`crate::release`]).
//!
//! Invariant: every submission gets exactly one decision, and a job's id stands for one job for
//! ever. Left to others: everything about containers.

use std::collections::BTreeSet;

use dormouse_messages::events::{
    JobAdmitted, JobCancelRequested, JobCancelled, JobRefused, JobReleased, JobRevised,
    SubmissionReceived,
};
use dormouse_messages::job::{Containers, JobDocument};
use dormouse_messages::{
    Decider, Decision, Event, JobId, Proposal, Sequence, TenantId, Timestamp, Writer,
};
use serde::Deserialize;

use crate::parse::{Refusal, decode, parse_job};
use crate::release::{Releases, releases};
use crate::state::AdmissionState;

/// Decisions in one append: a batch of the broker holds a thousand messages.
const MOST_DECISIONS: usize = 900;

/// Admission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Admission;

impl Decider for Admission {
    type State = AdmissionState;

    const WRITER: Writer = Writer::Admission;

    fn decide(&self, state: &AdmissionState, _now: Timestamp) -> Decision {
        let mut intake = Intake::new(state);
        for (sequence, submission) in state.undecided.values().take(MOST_DECISIONS / 2) {
            intake.decide(*sequence, submission);
        }
        let proposals = intake.release();
        Decision {
            proposals,
            next_wake: None,
        }
    }
}

/// The payload of `cancel`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelDocument {
    job: String,
}

/// The payload of `revise`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReviseDocument {
    job: String,
    #[serde(default)]
    weight: Option<u32>,
    #[serde(default)]
    containers: Option<Containers>,
}

struct Intake<'a> {
    state: &'a AdmissionState,
    proposals: Vec<Proposal>,
    /// Names taken, and jobs ended, by this very decision.
    taken: BTreeSet<JobId>,
    cancelled: BTreeSet<JobId>,
    admitted: Vec<(Sequence, JobAdmitted)>,
}

impl<'a> Intake<'a> {
    fn new(state: &'a AdmissionState) -> Self {
        Self {
            state,
            proposals: Vec::new(),
            taken: BTreeSet::new(),
            cancelled: BTreeSet::new(),
            admitted: Vec::new(),
        }
    }

    /// Step 1 for one submission.
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
                other => Err((
                    None,
                    Refusal::new(
                        "unknown_verb",
                        format!("{other:?} is not submit, cancel or revise"),
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
        let document: JobDocument = decode(submission).map_err(|refusal| (None, refusal))?;
        let named = document
            .name
            .as_deref()
            .and_then(|name| JobId::new(tenant, name).ok());
        let fallback = format!("job-{}", submission.ingress_sequence);
        let (job, spec) =
            parse_job(document, tenant, &fallback).map_err(|refusal| (named, refusal))?;
        if self.state.is_taken(&job) || self.taken.contains(&job) {
            let reason = format!(
                "{job} exists already; choose another name, or leave it out to have one made"
            );
            return Err((Some(job), Refusal::new("name_in_use", reason)));
        }
        let nodes = &self.state.cluster.nodes;
        let fits = |capacity| spec.demand.times_in(capacity) >= 1;
        if nodes.iter().next().is_some() && !nodes.iter().any(|(_, node)| fits(&node.capacity)) {
            let reason = format!(
                "one container needs {} and no node has that much; ask for less, or for more containers of less",
                spec.demand
            );
            return Err((Some(job), Refusal::new("larger_than_any_node", reason)));
        }
        self.taken.insert(job.clone());
        let admitted = JobAdmitted {
            job,
            spec,
            ingress_sequence: submission.ingress_sequence,
            basis: None,
        };
        self.admitted.push((sequence, admitted.clone()));
        Ok(Event::from(admitted))
    }

    fn cancel(
        &mut self,
        submission: &SubmissionReceived,
        tenant: &TenantId,
    ) -> Result<Event, (Option<JobId>, Refusal)> {
        let document: CancelDocument = decode(submission).map_err(|refusal| (None, refusal))?;
        let job = self.named(tenant, &document.job)?;
        let ingress_sequence = submission.ingress_sequence;
        if self.state.cluster.queued.contains_key(&job) && self.cancelled.insert(job.clone()) {
            return Ok(Event::from(JobCancelled {
                job,
                reason: "cancelled while queued".to_owned(),
                attempts: 0,
                ingress_sequence: Some(ingress_sequence),
                basis: None,
            }));
        }
        match self.state.cluster.jobs.get(&job) {
            Some(released) if released.cancel_requested.is_none() => {
                Ok(Event::from(JobCancelRequested {
                    job,
                    ingress_sequence,
                    basis: None,
                }))
            }
            _ => {
                let refusal = Refusal::new(
                    "already_ending",
                    format!("{job} has ended or is being cancelled"),
                );
                Err((Some(job), refusal))
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
        let Some(live) = self.state.cluster.job(&job) else {
            return refuse("already_ending", "it has ended");
        };
        let bounds = document.containers.unwrap_or(live.containers);
        if bounds.min == 0 || bounds.min > bounds.max {
            return refuse("bad_containers", "containers must satisfy 1 ≤ min ≤ max");
        }
        if document.weight == Some(0) {
            return refuse("bad_weight", "weight must be at least 1");
        }
        Ok(Event::from(JobRevised {
            job: job.clone(),
            ingress_sequence: submission.ingress_sequence,
            weight: document.weight,
            containers: document.containers,
            basis: None,
        }))
    }

    /// The tenant's job `text`, with or without the tenant before it.
    fn named(&self, tenant: &TenantId, text: &str) -> Result<JobId, (Option<JobId>, Refusal)> {
        let name = text.strip_prefix(&format!("{tenant}/")).unwrap_or(text);
        let job = JobId::new(tenant, name)
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

    /// Step 2: the queue as it is after step 1.
    fn release(mut self) -> Vec<Proposal> {
        let cluster = &self.state.cluster;
        let mut room = Releases::of(cluster);
        let live = |id: &JobId| cluster.queued.get(id);
        let queue = self
            .state
            .queue
            .iter()
            .filter(|(_, id)| !self.cancelled.contains(*id));
        let most = MOST_DECISIONS.saturating_sub(self.proposals.len());
        let mut released = releases(&mut room, queue.take(most), live);
        for (received, admitted) in &self.admitted {
            let spec = &admitted.spec;
            let all_seen = self.state.queue.len() <= most;
            if !room.is_blocked() && all_seen && room.next(&spec.demand, spec.containers.min) {
                released.push((*received, admitted.job.clone()));
            }
        }
        for (cause, job) in released.into_iter().take(most) {
            self.proposals
                .push(Proposal::new(JobReleased { job, basis: None }, cause));
        }
        self.proposals
    }
}
