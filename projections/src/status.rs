//! Each tenant's view of the log: events of its jobs, and the fate of its messages. The runtime publishes it.
//!
//! 1. An event of one job is shown unchanged, under the job's name.
//! 2. The fate of a message is also shown under `_in.<ingress sequence>`, as refused documents may have no
//!    valid name.
//! 3. An event of many jobs is split by job. A reason to wait is shown once.
//! 4. No event shown names another tenant's job.

use std::borrow::Cow;
use std::collections::BTreeMap;

use dormouse_messages::envelope::Body;
use dormouse_messages::events::{
    AllocationDecided, AllocationUnchanged, JobAllocation, JobRefused, JobReleased, Outcome,
    PartitionResizeRequested, PlacementDecided, PlacementRefused, SubmissionReceived, Waiting,
};
use dormouse_messages::{CodecError, Envelope, Event, JobId, Recorded, TenantId};

const PENDING_LIMIT: usize = 10_000;

/// The capacity of the ingress.
const RATE_LIMITED_SHOWN: usize = 4_096;

/// An event as a tenant sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown<'a> {
    /// Without prefix and `status`: `<tenant>.<job>.<event>`.
    pub subjects: Vec<String>,
    pub envelope: Cow<'a, Envelope>,
}

impl Shown<'_> {
    /// Encodes as JSON, with the position on `log`.
    ///
    /// # Errors
    /// When it cannot be encoded.
    pub fn to_json(&self, recorded: &Recorded, log: &str) -> Result<String, CodecError> {
        let seen = Recorded {
            envelope: self.envelope.clone().into_owned(),
            ..recorded.clone()
        };
        seen.to_json(log)
    }
}

/// The state between events.
#[derive(Debug, Clone, Default)]
pub struct StatusView {
    /// Undecided submissions of tenants without a valid name; decisions do not repeat the name.
    unnamed: BTreeMap<u64, String>,
    waiting: BTreeMap<JobId, String>,
}

impl StatusView {
    /// Returns an event's views. Events come in order.
    pub fn show<'a>(&mut self, recorded: &'a Recorded) -> Vec<Shown<'a>> {
        let Some(event) = recorded.event() else {
            return Vec::new();
        };
        let whole = |subjects: Vec<String>| Shown {
            subjects,
            envelope: Cow::Borrowed(&recorded.envelope),
        };
        let part = |job: &JobId, event: Event| Shown {
            subjects: vec![of_job(job, &event)],
            envelope: Cow::Owned(part(&recorded.envelope, job, event)),
        };
        let parts = |parts: BTreeMap<&JobId, Event>| -> Vec<Shown<'a>> {
            let parts = parts.into_iter();
            parts.map(|(job, event)| part(job, event)).collect()
        };
        match event {
            Event::SubmissionReceived(e) => vec![self.received(e, &recorded.envelope)],
            Event::SubmissionsRateLimited(e) => {
                let messages = (e.first..=e.last).take(RATE_LIMITED_SHOWN);
                let subjects = messages.map(|it| of_message(&e.tenant, it, event));
                vec![whole(subjects.collect())]
            }
            Event::JobRefused(e) => Vec::from_iter(self.refused(e, event).map(whole)),
            Event::JobReleased(e) => {
                let passed_over = e.passed_over.iter();
                let own = passed_over.filter(|other| other.tenant() == e.job.tenant());
                let event = Event::from(JobReleased {
                    passed_over: own.cloned().collect(),
                    ..(**e).clone()
                });
                vec![part(&e.job, event)]
            }
            Event::PartitionResizeRequested(e) if for_another(e) => {
                let event = Event::from(PartitionResizeRequested {
                    made_for: None,
                    ..(**e).clone()
                });
                vec![part(&e.job, event)]
            }
            Event::AllocationDecided(e) => parts(self.allocated(e)),
            Event::AllocationUnchanged(e) => {
                let waiting = self.waiting(&e.outcome.waiting).into_iter();
                let own = waiting.map(|wait| (&wait.job, Event::from(kept(e, wait))));
                parts(own.collect())
            }
            Event::PlacementDecided(e) => parts(placed(e)),
            Event::PlacementRefused(e) => parts(not_placed(e)),
            event => {
                let Some(job) = job_of(event) else {
                    return Vec::new();
                };
                self.ended(event, job);
                let mut subjects = vec![of_job(job, event)];
                let message = ingress_of(event);
                subjects.extend(message.map(|message| of_message(job.tenant(), message, event)));
                vec![whole(subjects)]
            }
        }
    }

    /// The hash identifies the payload.
    fn received<'a>(&mut self, event: &SubmissionReceived, envelope: &Envelope) -> Shown<'a> {
        if TenantId::new(event.tenant.as_str()).is_err() {
            self.unnamed
                .insert(event.ingress_sequence, event.tenant.clone());
            if self.unnamed.len() > PENDING_LIMIT {
                self.unnamed.pop_first();
            }
        }
        let shown = Event::from(SubmissionReceived {
            ingress_sequence: event.ingress_sequence,
            tenant: event.tenant.clone(),
            verb: event.verb.clone(),
            content_type: event.content_type.clone(),
            bytes: event.bytes,
            sha256: event.sha256.clone(),
            raw: String::new(),
            raw_encoding: event.raw_encoding,
            published_at: event.published_at,
            by: event.by.clone(),
        });
        Shown {
            subjects: vec![of_message(&event.tenant, event.ingress_sequence, &shown)],
            envelope: Cow::Owned(Envelope {
                body: Body::Event(shown),
                ..envelope.clone()
            }),
        }
    }

    fn refused(&mut self, refused: &JobRefused, event: &Event) -> Option<Vec<String>> {
        let unnamed = self.unnamed.remove(&refused.ingress_sequence);
        let named = refused.tenant.as_ref().map(ToString::to_string);
        let message = of_message(&named.or(unnamed)?, refused.ingress_sequence, event);
        let job = refused.job.as_ref().map(|job| of_job(job, event));
        Some(std::iter::once(message).chain(job).collect())
    }

    fn ended(&mut self, event: &Event, job: &JobId) {
        if matches!(
            event,
            Event::JobCompleted(_) | Event::JobFailed(_) | Event::JobCancelled(_)
        ) {
            self.waiting.remove(job);
        }
    }

    /// Splits an allocation by job, for changed jobs and those with a new reason to wait.
    fn allocated<'a>(&mut self, event: &'a AllocationDecided) -> BTreeMap<&'a JobId, Event> {
        let waiting = self.waiting(&event.outcome.waiting);
        let empty = AllocationDecided {
            epoch: event.epoch,
            jobs: Vec::new(),
            outcome: without_waiting(&event.outcome),
            basis: event.basis.clone(),
        };
        let mut parts: BTreeMap<&JobId, AllocationDecided> = BTreeMap::new();
        for wait in waiting {
            let part = parts.entry(&wait.job).or_insert_with(|| empty.clone());
            part.outcome.waiting.push(own_wait(wait));
        }
        for allocated in &event.jobs {
            if allocated.containers > 0 {
                self.waiting.remove(&allocated.job);
            }
            // A job that keeps waiting is no news.
            let changes = allocated.containers > 0 || allocated.previous > 0;
            if changes || parts.contains_key(&allocated.job) {
                let part = parts.entry(&allocated.job).or_insert_with(|| empty.clone());
                let own = |other: &JobId| other.tenant() == allocated.job.tenant();
                part.jobs.push(JobAllocation {
                    // Hide another tenant's service.
                    made_for: allocated.made_for.clone().filter(own),
                    ..allocated.clone()
                });
            }
        }
        let parts = parts.into_iter();
        parts.map(|(job, part)| (job, Event::from(part))).collect()
    }

    fn waiting<'a>(&mut self, waiting: &'a [Waiting]) -> Vec<&'a Waiting> {
        let mut new = Vec::new();
        for wait in waiting {
            // Amounts change often; only a new code is news.
            let shown = self.waiting.get(&wait.job);
            if shown.is_none_or(|shown| *shown != wait.code) {
                self.waiting.insert(wait.job.clone(), wait.code.clone());
                new.push(wait);
            }
        }
        new
    }
}

fn kept(event: &AllocationUnchanged, wait: &Waiting) -> AllocationUnchanged {
    AllocationUnchanged {
        reason: own_words(&event.reason, wait.job.tenant()),
        outcome: Outcome {
            waiting: vec![own_wait(wait)],
            ..without_waiting(&event.outcome)
        },
        basis: event.basis.clone(),
    }
}

/// The cluster's figures name nobody.
fn without_waiting(outcome: &Outcome) -> Outcome {
    Outcome {
        waiting: Vec::new(),
        utilization: outcome.utilization.clone(),
        fairness_loss: outcome.fairness_loss,
        fairness_loss_all: outcome.fairness_loss_all,
        fairness_loss_bound: outcome.fairness_loss_bound,
        adjusted_jobs: outcome.adjusted_jobs,
        adjustment_bound: outcome.adjustment_bound,
        forced_jobs: outcome.forced_jobs,
        unbounded: outcome.unbounded,
        forced: outcome.forced,
        solver: outcome.solver.clone(),
    }
}

fn own_wait(wait: &Waiting) -> Waiting {
    Waiting {
        reason: own_words(&wait.reason, wait.job.tenant()),
        ..wait.clone()
    }
}

fn placed(event: &PlacementDecided) -> BTreeMap<&JobId, Event> {
    let mut parts: BTreeMap<&JobId, PlacementDecided> = BTreeMap::new();
    let empty = PlacementDecided {
        epoch: event.epoch,
        create: Vec::new(),
        remove: Vec::new(),
        basis: event.basis.clone(),
    };
    for created in &event.create {
        let part = parts.entry(&created.job).or_insert_with(|| empty.clone());
        part.create.push(created.clone());
    }
    for removed in &event.remove {
        let part = parts.entry(&removed.job).or_insert_with(|| empty.clone());
        part.remove.push(removed.clone());
    }
    let parts = parts.into_iter();
    parts.map(|(job, part)| (job, Event::from(part))).collect()
}

fn for_another(event: &PartitionResizeRequested) -> bool {
    let service = event.made_for.as_ref();
    service.is_some_and(|service| service.tenant() != event.job.tenant())
}

fn not_placed(event: &PlacementRefused) -> BTreeMap<&JobId, Event> {
    let mut parts: BTreeMap<&JobId, PlacementRefused> = BTreeMap::new();
    for unplaceable in &event.unplaceable {
        let part = parts
            .entry(&unplaceable.job)
            .or_insert_with(|| PlacementRefused {
                epoch: event.epoch,
                unplaceable: Vec::new(),
                basis: event.basis.clone(),
            });
        part.unplaceable.push(unplaceable.clone());
    }
    let parts = parts.into_iter();
    parts.map(|(job, part)| (job, Event::from(part))).collect()
}

/// A part's own id keeps readers from taking the part for a repetition.
fn part(envelope: &Envelope, job: &JobId, event: Event) -> Envelope {
    Envelope {
        id: format!("{}/{job}", envelope.id).into(),
        subject: job.to_string().into(),
        body: Body::Event(event),
        ..envelope.clone()
    }
}

fn of_job(job: &JobId, event: &Event) -> String {
    format!("{}.{}.{}", job.tenant(), job.name(), event.subject_name())
}

fn of_message(tenant: &str, ingress_sequence: u64, event: &Event) -> String {
    format!("{tenant}._in.{ingress_sequence}.{}", event.subject_name())
}

fn ingress_of(event: &Event) -> Option<u64> {
    match event {
        Event::JobAdmitted(e) => Some(e.ingress_sequence),
        Event::JobRevised(e) => Some(e.ingress_sequence),
        Event::JobRequeued(e) => Some(e.ingress_sequence),
        Event::JobCancelRequested(e) => Some(e.ingress_sequence),
        Event::JobCancelled(e) => e.ingress_sequence,
        Event::ServiceMeasured(e) => e.ingress_sequence,
        _ => None,
    }
}

/// Returns the job that the event is about. The match has no wildcard, so that no type is forgotten.
#[must_use]
#[expect(clippy::too_many_lines, reason = "one line an event")]
pub fn job_of(event: &Event) -> Option<&JobId> {
    match event {
        Event::JobAdmitted(e) => Some(&e.job),
        Event::JobRefused(e) => e.job.as_ref(),
        Event::JobReleased(e) => Some(&e.job),
        Event::JobSpeedFitted(e) => Some(&e.job),
        Event::PlanAccepted(e) => Some(&e.job),
        Event::PlanMissed(e) => Some(&e.job),
        Event::JobRevised(e) => Some(&e.job),
        Event::JobRequeued(e) => Some(&e.job),
        Event::JobCancelRequested(e) => Some(&e.job),
        Event::CheckpointRequested(e) => Some(&e.job),
        Event::PartitionStartRequested(e) => Some(&e.job),
        Event::PartitionStopRequested(e) => Some(&e.job),
        Event::PartitionStarted(e) => Some(&e.job),
        Event::PartitionStopped(e) => Some(&e.job),
        Event::ResizeAbandoned(e) => Some(&e.job),
        Event::PartitionWarned(e) => Some(&e.job),
        Event::JobCompleted(e) => Some(&e.job),
        Event::JobFailed(e) => Some(&e.job),
        Event::JobCancelled(e) => Some(&e.job),
        Event::ContainerStarted(e) => Some(&e.container.job),
        Event::ContainerExited(e) => Some(&e.container.job),
        Event::CheckpointSaved(e) => Some(&e.job),
        Event::CheckpointFailed(e) => Some(&e.job),
        Event::CheckpointRejected(e) => Some(&e.job),
        Event::Progress(e) => Some(&e.job),
        Event::TasksAssigned(e) => Some(&e.job),
        Event::TasksEnded(e) => Some(&e.job),
        Event::NodeFaulted(e) => Some(&e.job),
        Event::PartitionResizeRequested(e) => Some(&e.job),
        Event::PartitionLeaveRequested(e) => Some(&e.job),
        Event::PartitionResized(e) => Some(&e.job),
        Event::ContainerReady(e) => Some(&e.container.job),
        Event::ContainerUnready(e) => Some(&e.container.job),
        Event::MemberAcknowledged(e) => Some(&e.container.job),
        Event::GatewayUnrouted(e) => Some(&e.container.job),
        Event::ServiceMeasured(e) => Some(&e.job),
        Event::ServiceScaled(e) => Some(&e.job),
        Event::NotebookWarned(e) => Some(&e.job),
        Event::NotebookObserved(e) => Some(&e.container.job),
        Event::ContainerExecStarted(e) => Some(&e.container.job),
        Event::ContainerExecEnded(e) => Some(&e.container.job),
        Event::ContainerGpuUsed(e) => Some(&e.container.job),
        Event::SubmissionReceived(_)
        | Event::SubmissionsRateLimited(_)
        | Event::AllocationDecided(_)
        | Event::AllocationUnchanged(_)
        | Event::StartsForecast(_)
        | Event::PlacementDecided(_)
        | Event::PlacementRefused(_)
        | Event::ClusterConfigured(_)
        | Event::TenantConfigured(_)
        | Event::WebhookConfigured(_)
        | Event::KeyCreated(_)
        | Event::KeyRotated(_)
        | Event::KeyRevoked(_)
        | Event::UpgradeApproved(_)
        | Event::BuildJoined(_)
        | Event::BuildLeft(_)
        | Event::ClusterUpgraded(_)
        | Event::TenantGranted(_)
        | Event::TenantRemoved(_)
        | Event::NodeDrained(_)
        | Event::NodeRestored(_)
        | Event::NodeLabelled(_)
        | Event::NodeRemoved(_)
        | Event::NodeLost(_)
        | Event::NodeFenced(_)
        | Event::ClockStepped(_)
        | Event::NodeRecovered(_)
        | Event::NodeQuarantined(_)
        | Event::NodeReadmitted(_)
        | Event::GatewayJoined(_)
        | Event::GatewayLeft(_)
        | Event::GatewayLost(_)
        | Event::LogArchived(_)
        | Event::LogTrimmed(_)
        | Event::LogFilled(_)
        | Event::SlurmQueueConfigured(_)
        | Event::SlurmQueueRemoved(_)
        | Event::BudgetConfigured(_)
        | Event::ReservationConfigured(_)
        | Event::ReservationRemoved(_)
        | Event::BudgetLevelChanged(_)
        | Event::ReservationPhaseChanged(_)
        | Event::SlurmRequested(_)
        | Event::SlurmSubmitted(_)
        | Event::SlurmRefused(_)
        | Event::SlurmEstimated(_)
        | Event::SlurmGranted(_)
        | Event::SlurmReleased(_)
        | Event::SlurmEnded(_)
        | Event::NodeGpuReconciled(_)
        | Event::NodeJoined(_) => None,
    }
}

/// Hides words with a `/` that are not the tenant's own: others' jobs, paths, images, addresses.
#[must_use]
pub fn own_words(text: &str, tenant: &str) -> String {
    let mut own = String::with_capacity(text.len());
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_matches(|c: char| !c.is_alphanumeric() && c != '/');
        match hidden(word, tenant) {
            None => own.push_str(piece),
            Some(instead) => own.push_str(&piece.replacen(word, instead, 1)),
        }
    }
    own
}

fn hidden(word: &str, tenant: &str) -> Option<&'static str> {
    let parts: Vec<&str> = word.split('/').filter(|part| !part.is_empty()).collect();
    let is_own = parts.contains(&tenant);
    // Two numbers are a ratio; one or two parts are an HTTP path (`/healthz`).
    let is_ratio = !word.contains(|c: char| c.is_alphabetic());
    let is_short = word.starts_with('/') && parts.len() <= 2;
    if parts.len() < 2 || is_own || is_ratio || is_short {
        return None;
    }
    let is_job = parts.len() == 2 && word.parse::<JobId>().is_ok();
    Some(if is_job {
        "another tenant's job"
    } else {
        "(left out)"
    })
}

#[cfg(test)]
mod tests;
