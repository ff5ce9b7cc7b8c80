//! Admission's state.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{JobAllocation, ServiceMeasured, SubmissionReceived};
use dormouse_messages::intake::{Rates, Stand};
use dormouse_messages::job::Kind;
use dormouse_messages::subject::MEASURED;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence, Timestamp};
use dormouse_state::{ClusterState, Queues};
use serde::{Deserialize, Serialize};

use crate::folded;

/// For each service: eight proxies that report every two seconds.
const MOST_PER_SERVICE: u32 = 4;

/// Admission's folded state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionState {
    pub queues: Queues,
    /// Places of released jobs, node constraints of all.
    pub cluster: ClusterState,
    /// By published tenant; messages on the log stay known.
    pub intake: BTreeMap<String, Stand>,
    pub undecided: BTreeMap<Sequence, SubmissionReceived>,
    /// A tenant may measure its own live services.
    pub services: BTreeMap<String, BTreeSet<JobId>>,
    /// True if completed. Ids stay taken.
    pub ended: BTreeMap<JobId, bool>,
    /// Accepted plans, until the first allocation that can list the job.
    pub planned: BTreeMap<JobId, Promise>,
    /// Missed plans, not yet reported.
    pub missed: BTreeMap<JobId, Missed>,
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
    const VERSION: u32 = 14;

    fn evolve(&mut self, recorded: &Recorded) {
        self.queues.evolve(recorded);
        self.cluster.evolve(recorded);
        let sequence = recorded.sequence;
        match recorded.event().filter(|event| folded::is_taken_in(event)) {
            Some(Event::SubmissionReceived(event)) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                // Old logs lack the published time; the stored time is no earlier.
                let at = event.published_at.unwrap_or(recorded.stored_at);
                stand.record(&event.verb, event.ingress_sequence, at);
                stand.undecided += 1;
                self.undecided.insert(sequence, (**event).clone());
            }
            Some(Event::SubmissionsShed(event)) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                (stand.last, stand.at) = (event.last, event.until);
            }
            Some(Event::JobAdmitted(event)) => {
                self.decided(event.ingress_sequence);
                if event.spec.kind == Kind::Inference {
                    let services = self.services.entry(event.job.tenant().to_owned());
                    services.or_default().insert(event.job.clone());
                }
                // A release follows in this append.
                self.promised_from(&event.job, sequence.next().next());
            }
            Some(Event::JobRefused(event)) => {
                self.decided(event.ingress_sequence);
                if let Some(job) = &event.job
                    && !self.queues.jobs.contains_key(job)
                {
                    self.planned.remove(job);
                }
            }
            Some(Event::ServiceMeasured(event)) => self.measured(event),
            Some(Event::JobReleased(event)) => self.promised_from(&event.job, sequence),
            Some(Event::PlanAccepted(event)) if event.containers > 0 => {
                let promise = Promise {
                    containers: event.containers,
                    from: Sequence(u64::MAX),
                };
                self.planned.insert(event.job.clone(), promise);
            }
            Some(Event::PlanMissed(event)) => {
                self.missed.remove(&event.job);
            }
            Some(Event::AllocationDecided(event)) => {
                let asof = event.basis.as_ref().map(|basis| basis.asof);
                self.hold_against(sequence, asof, &event.jobs);
            }
            Some(Event::AllocationUnchanged(event)) => {
                let asof = event.basis.as_ref().map(|basis| basis.asof);
                self.hold_against(sequence, asof, &[]);
            }
            Some(Event::JobRevised(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobRequeued(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobCancelRequested(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobCompleted(event)) => self.end(&event.job, true),
            Some(Event::JobFailed(event)) => self.end(&event.job, false),
            Some(Event::JobCancelled(event)) => {
                if let Some(ingress_sequence) = event.ingress_sequence {
                    self.decided(ingress_sequence);
                }
                self.end(&event.job, false);
            }
            _ => {}
        }
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.queues.rejects(recorded)
    }

    fn log_time(&self) -> Option<Timestamp> {
        self.queues.log_time()
    }

    fn contradiction(&self) -> Option<&str> {
        let queues = self.queues.contradiction();
        queues.or_else(|| self.cluster.contradiction())
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
        let rates = Rates {
            submissions: self.queues.config.grants.max_rate(tenant),
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
    fn hold_against(&mut self, decided: Sequence, asof: Option<Sequence>, jobs: &[JobAllocation]) {
        let Some(asof) = asof.filter(|_| !self.planned.is_empty()) else {
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
        self.ended.insert(job.clone(), completed);
    }

    /// Reports whether the name was ever taken.
    #[must_use]
    pub fn is_taken(&self, job: &JobId) -> bool {
        self.queues.jobs.contains_key(job) || self.ended.contains_key(job)
    }
}

/// Returns the measurements accepted per second.
fn measured_rate(services: usize) -> u32 {
    let services = u32::try_from(services).unwrap_or(u32::MAX);
    // A tenant without services still gets refusals.
    services.max(1).saturating_mul(MOST_PER_SERVICE)
}
