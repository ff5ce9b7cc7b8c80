//! What admission folds: the tenants' queues, the submissions that wait for a decision, the
//! names taken.

use std::collections::BTreeMap;

use dormouse_messages::events::SubmissionReceived;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence};
use dormouse_state::Queues;
use serde::{Deserialize, Serialize};

/// Admission's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionState {
    /// Live jobs, by tenant, with the nodes and the policy.
    pub queues: Queues,
    /// The last submission on the log: what is at or before it is known for ever.
    pub last_ingress: u64,
    /// Submissions without a decision, by ingress sequence.
    pub undecided: BTreeMap<u64, (Sequence, SubmissionReceived)>,
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
                self.last_ingress = self.last_ingress.max(event.ingress_sequence);
                let undecided = (sequence, (**event).clone());
                self.undecided.insert(event.ingress_sequence, undecided);
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
        self.undecided.remove(&ingress_sequence);
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
