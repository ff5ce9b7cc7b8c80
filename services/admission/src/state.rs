//! Admission's state.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    AdmissionEvent, ArchiverEvent, Basis, ByWriter, CheckpointerEvent, Fill, GatewayEvent,
    JobAllocation, LogFilled, OptimizerEvent, ServiceMeasured, SubmissionReceived,
};
use dormouse_messages::intake::{Rates, Stand};
use dormouse_messages::job::Kind;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Fold, JobId, Recorded, Sequence, Timestamp};
use dormouse_state::Queues;
use serde::{Deserialize, Serialize};

use crate::ended::Ended;

/// For each service: eight proxies that report every two seconds.
const MOST_PER_SERVICE: u32 = 4;

/// Refusals are events, too: a tenant that tries again and again must not use up a full log's reserve.
const RATE_WHEN_FULL: u32 = 5;

/// Admission's folded state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionState {
    pub queues: Queues,
    /// By published tenant; messages on the log stay known.
    pub intake: BTreeMap<String, Stand>,
    pub undecided: BTreeMap<Sequence, SubmissionReceived>,
    /// A tenant may measure its own live services.
    pub services: BTreeMap<String, BTreeSet<JobId>>,
    /// Names that are still taken.
    pub ended: Ended,
    /// Accepted plans, until the first allocation that can list the job.
    pub planned: BTreeMap<JobId, Promise>,
    /// Missed plans, not yet reported.
    pub missed: BTreeMap<JobId, Missed>,
    /// Set while the log is full.
    pub full: Option<LogFilled>,
}

/// An accepted plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promise {
    /// At least 1.
    pub containers: u32,
    /// Allocations from here on can list the job.
    pub from: Sequence,
}

/// A missed plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missed {
    pub planned: u32,
    pub containers: u32,
    pub decided: Sequence,
}

impl Fold for AdmissionState {
    const NAME: &'static str = "admission";
    const VERSION: u32 = 22;

    fn evolve(&mut self, recorded: &Recorded) {
        let Some(event) = self.queues.fold(recorded) else {
            return;
        };
        let cluster = &self.queues.cluster;
        let kept_ms = cluster.policy.archive.names_kept_ms();
        self.ended.forget(kept_ms, cluster.now);
        match event.by_writer() {
            ByWriter::Admission(event) => self.evolve_admission(event, recorded),
            ByWriter::Optimizer(OptimizerEvent::AllocationDecided(event)) => {
                self.hold_against(event.basis.as_ref(), recorded.sequence, &event.jobs);
            }
            ByWriter::Optimizer(OptimizerEvent::AllocationUnchanged(event)) => {
                self.hold_against(event.basis.as_ref(), recorded.sequence, &[]);
            }
            ByWriter::Optimizer(
                OptimizerEvent::JobSpeedFitted(_) | OptimizerEvent::StartsForecast(_),
            ) => {}
            ByWriter::Checkpointer(event) => self.evolve_checkpointer(event),
            ByWriter::Gateway(GatewayEvent::ServiceMeasured(event)) => self.measured(event),
            ByWriter::Archiver(ArchiverEvent::LogFilled(event)) => {
                self.full = (event.fill == Fill::Full).then(|| event.clone());
            }
            ByWriter::Operator(_)
            | ByWriter::Placer(_)
            | ByWriter::Node(_)
            | ByWriter::Autoscaler(_)
            | ByWriter::Archiver(ArchiverEvent::LogArchived(_) | ArchiverEvent::LogTrimmed(_))
            | ByWriter::Slurm(_)
            | ByWriter::Gateway(
                GatewayEvent::GatewayJoined(_)
                | GatewayEvent::GatewayLeft(_)
                | GatewayEvent::GatewayUnrouted(_),
            ) => {}
        }
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.queues.rejects(recorded)
    }

    fn log_time(&self) -> Option<Timestamp> {
        self.queues.log_time()
    }

    fn contradiction(&self) -> Option<&str> {
        self.queues.contradiction()
    }

    fn check_invariants(&self) -> Result<(), String> {
        let mut services = self.services.values().flatten();
        match services.find(|job| !self.queues.jobs.contains_key(job)) {
            Some(job) => Err(format!("{job} is a service and no live job")),
            None => self.queues.check_invariants(),
        }
    }
}

impl AdmissionState {
    fn evolve_admission(&mut self, event: AdmissionEvent<'_>, recorded: &Recorded) {
        let sequence = recorded.sequence;
        match event {
            AdmissionEvent::SubmissionReceived(event) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                stand.record(&event.verb, event.ingress_sequence, event.published_at);
                stand.undecided += 1;
                self.undecided.insert(sequence, event.clone());
            }
            AdmissionEvent::SubmissionsRateLimited(event) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                (stand.last, stand.at) = (event.last, event.until);
            }
            AdmissionEvent::JobAdmitted(event) => {
                self.decided(event.ingress_sequence);
                if event.spec.kind == Kind::Inference {
                    let services = self.services.entry(event.job.tenant().to_owned());
                    services.or_default().insert(event.job.clone());
                }
                // A release follows in this append.
                self.promised_from(&event.job, sequence.next().next());
            }
            AdmissionEvent::JobRefused(event) => {
                self.decided(event.ingress_sequence);
                if let Some(job) = &event.job
                    && !self.queues.jobs.contains_key(job)
                {
                    self.planned.remove(job);
                }
            }
            AdmissionEvent::JobReleased(event) => self.promised_from(&event.job, sequence),
            AdmissionEvent::PlanAccepted(event) => {
                if event.containers > 0 {
                    let promise = Promise {
                        containers: event.containers,
                        from: Sequence(u64::MAX),
                    };
                    self.planned.insert(event.job.clone(), promise);
                }
            }
            AdmissionEvent::PlanMissed(event) => drop(self.missed.remove(&event.job)),
            AdmissionEvent::JobRevised(event) => self.decided(event.ingress_sequence),
            AdmissionEvent::JobRequeued(event) => self.decided(event.ingress_sequence),
            AdmissionEvent::JobCancelRequested(event) => self.decided(event.ingress_sequence),
            AdmissionEvent::BudgetLevelChanged(_) | AdmissionEvent::ReservationPhaseChanged(_) => {}
        }
    }

    fn evolve_checkpointer(&mut self, event: CheckpointerEvent<'_>) {
        match event {
            CheckpointerEvent::JobCompleted(event) => self.end(&event.job, true),
            CheckpointerEvent::JobFailed(event) => self.end(&event.job, false),
            CheckpointerEvent::JobCancelled(event) => {
                if let Some(ingress_sequence) = event.ingress_sequence {
                    self.decided(ingress_sequence);
                }
                self.end(&event.job, false);
            }
            CheckpointerEvent::CheckpointRequested(_)
            | CheckpointerEvent::PartitionStartRequested(_)
            | CheckpointerEvent::PartitionStopRequested(_)
            | CheckpointerEvent::PartitionStarted(_)
            | CheckpointerEvent::PartitionStopped(_)
            | CheckpointerEvent::ResizeAbandoned(_)
            | CheckpointerEvent::TasksAssigned(_)
            | CheckpointerEvent::PartitionResizeRequested(_)
            | CheckpointerEvent::PartitionLeaveRequested(_)
            | CheckpointerEvent::PartitionResized(_)
            | CheckpointerEvent::PartitionWarned(_) => {}
        }
    }

    fn decided(&mut self, ingress_sequence: u64) {
        let mut undecided = self.undecided.iter();
        let is_it =
            |(_, it): &(&Sequence, &SubmissionReceived)| it.ingress_sequence == ingress_sequence;
        let Some(sequence) = undecided.find(is_it).map(|(sequence, _)| *sequence) else {
            return;
        };
        let decided = self.undecided.remove(&sequence);
        if let Some(stand) = decided.and_then(|it| self.intake.get_mut(&it.tenant)) {
            stand.undecided = stand.undecided.saturating_sub(1);
        }
    }

    /// Either the event records the message, or the message was recorded before and is decided now.
    fn measured(&mut self, event: &ServiceMeasured) {
        let Some(ingress_sequence) = event.ingress_sequence else {
            return;
        };
        if event.basis.is_some() {
            return self.decided(ingress_sequence);
        }
        if let Some(at) = event.published_at {
            let stand = self.intake.entry(event.job.tenant().to_owned());
            stand.or_default().record(MEASURED, ingress_sequence, at);
        }
    }

    /// Returns the tenant's ingress position and rates per second.
    #[must_use]
    pub fn stand(&self, tenant: &str) -> (Stand, Rates) {
        let stand = self.intake.get(tenant).copied().unwrap_or_default();
        let services = self.services.get(tenant).map_or(0, BTreeSet::len);
        let full = self.full.as_ref().map(|_| RATE_WHEN_FULL);
        let granted = self.queues.cluster.tenants.grants.max_rate(tenant);
        let rates = Rates {
            submissions: granted.into_iter().chain(full).min(),
            measured: measured_rate(services),
        };
        (stand, rates)
    }

    pub(crate) fn is_service(&self, job: &JobId) -> bool {
        let services = self.services.get(job.tenant());
        services.is_some_and(|services| services.contains(job))
    }

    fn promised_from(&mut self, job: &JobId, from: Sequence) {
        if let Some(promise) = self.planned.get_mut(job) {
            promise.from = from;
        }
    }

    /// Compares an allocation with plans.
    fn hold_against(&mut self, basis: Option<&Basis>, decided: Sequence, jobs: &[JobAllocation]) {
        let Some(asof) = basis.filter(|_| !self.planned.is_empty()).map(|it| it.asof) else {
            return;
        };
        let missed = &mut self.missed;
        self.planned.retain(|job, promise| {
            if asof < promise.from {
                return true;
            }
            let got = jobs.iter().find(|it| it.job == *job);
            let containers = got.map_or(0, |it| it.containers);
            if containers != promise.containers {
                let planned = promise.containers;
                let it = Missed {
                    planned,
                    containers,
                    decided,
                };
                missed.insert(job.clone(), it);
            }
            false
        });
    }

    fn end(&mut self, job: &JobId, completed: bool) {
        self.planned.remove(job);
        if let Some(services) = self.services.get_mut(job.tenant()) {
            services.remove(job);
            if services.is_empty() {
                self.services.remove(job.tenant());
            }
        }
        self.ended.add(job, completed, self.queues.cluster.now);
    }

    /// Reports whether a job has the name, or an ended one still keeps it.
    #[must_use]
    pub fn is_taken(&self, job: &JobId) -> bool {
        self.queues.jobs.contains_key(job) || self.ended.completed(job).is_some()
    }
}

/// Returns the measurements accepted per second.
fn measured_rate(services: usize) -> u32 {
    let services = u32::try_from(services).unwrap_or(u32::MAX);
    // A tenant without services still gets refusals.
    services.max(1).saturating_mul(MOST_PER_SERVICE)
}
