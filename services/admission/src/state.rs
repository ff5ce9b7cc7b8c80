//! What admission folds: the tenants' queues, the submissions that wait for a decision, the
//! names taken.

use std::collections::BTreeMap;

use dormouse_messages::events::SubmissionReceived;
use dormouse_messages::intake::Stand;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence};
use dormouse_state::Queues;
use serde::{Deserialize, Serialize};

/// Admission's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionState {
    /// Live jobs, by tenant, with the nodes and the policy.
    pub queues: Queues,
    /// Where each tenant's submissions stand, by the tenant as published: what is on the log is known
    /// for ever.
    pub intake: BTreeMap<String, Stand>,
    /// Submissions without a decision, in the order of the log.
    pub undecided: BTreeMap<Sequence, SubmissionReceived>,
    /// Ended jobs, and whether they completed: an id stands for one job for ever.
    pub ended: BTreeMap<JobId, bool>,
}

impl Fold for AdmissionState {
    const NAME: &'static str = "admission";
    const VERSION: u32 = 5;

    fn evolve(&mut self, recorded: &Recorded) {
        self.queues.evolve(recorded);
        let sequence = recorded.sequence;
        match recorded.event() {
            Some(Event::SubmissionReceived(event)) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                // An older log has no time of its own: that of the record is no earlier.
                let at = event.published_at.unwrap_or(recorded.stored_at);
                stand.record(event.ingress_sequence, at);
                stand.undecided += 1;
                self.undecided.insert(sequence, (**event).clone());
            }
            Some(Event::SubmissionsShed(event)) => {
                let stand = self.intake.entry(event.tenant.clone()).or_default();
                (stand.last, stand.at) = (event.last, event.until);
            }
            Some(Event::JobAdmitted(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobRefused(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobRevised(event)) => self.decided(event.ingress_sequence),
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

    fn check_invariants(&self) -> Result<(), String> {
        self.queues.check_invariants()
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

    /// Where a tenant's submissions stand, and how many a second are taken of it.
    #[must_use]
    pub fn stand(&self, tenant: &str) -> (Stand, Option<u32>) {
        let stand = self.intake.get(tenant).copied().unwrap_or_default();
        (stand, self.queues.config.grants.max_rate(tenant))
    }

    fn end(&mut self, job: &JobId, completed: bool) {
        self.ended.insert(job.clone(), completed);
    }

    /// Whether the name was ever taken.
    #[must_use]
    pub fn is_taken(&self, job: &JobId) -> bool {
        self.queues.jobs.contains_key(job) || self.ended.contains_key(job)
    }
}
