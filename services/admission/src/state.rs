//! What admission folds: the cluster, the submissions that wait for a decision, the names taken.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::SubmissionReceived;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence};
use dormouse_projections::shared::ClusterState;
use serde::{Deserialize, Serialize};

/// Admission's state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AdmissionState {
    /// Nodes and live jobs.
    pub cluster: ClusterState,
    /// The last submission on the log: what is at or before it is known for ever.
    pub last_ingress: u64,
    /// Submissions without a decision, by ingress sequence.
    pub undecided: BTreeMap<u64, (Sequence, SubmissionReceived)>,
    /// Queued jobs in the order of their admission.
    pub queue: BTreeMap<Sequence, JobId>,
    /// Names of ended jobs: an id stands for one job for ever.
    pub ended: BTreeSet<JobId>,
}

impl Fold for AdmissionState {
    const NAME: &'static str = "admission";
    const VERSION: u32 = 2;

    fn evolve(&mut self, recorded: &Recorded) {
        self.dequeue(recorded);
        self.cluster.evolve(recorded);
        let sequence = recorded.sequence;
        match recorded.event() {
            Some(Event::SubmissionReceived(event)) => {
                self.last_ingress = self.last_ingress.max(event.ingress_sequence);
                let undecided = (sequence, (**event).clone());
                self.undecided.insert(event.ingress_sequence, undecided);
            }
            Some(Event::JobAdmitted(event)) => {
                self.undecided.remove(&event.ingress_sequence);
                self.queue.insert(sequence, event.job.clone());
            }
            Some(Event::JobRefused(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobRevised(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobCancelRequested(event)) => self.decided(event.ingress_sequence),
            Some(Event::JobCompleted(event)) => self.end(&event.job),
            Some(Event::JobFailed(event)) => self.end(&event.job),
            Some(Event::JobCancelled(event)) => {
                if let Some(ingress_sequence) = event.ingress_sequence {
                    self.decided(ingress_sequence);
                }
                self.end(&event.job);
            }
            _ => {}
        }
    }

    fn check_invariants(&self) -> Result<(), String> {
        if self.queue.len() != self.cluster.queued.len() {
            return Err(format!(
                "{} jobs stand in the queue but {} are queued",
                self.queue.len(),
                self.cluster.queued.len()
            ));
        }
        Ok(())
    }
}

impl AdmissionState {
    fn decided(&mut self, ingress_sequence: u64) {
        self.undecided.remove(&ingress_sequence);
    }

    fn end(&mut self, job: &JobId) {
        self.ended.insert(job.clone());
    }

    /// A release or a cancellation takes the job from the queue, before the cluster forgets
    /// where it stood.
    fn dequeue(&mut self, recorded: &Recorded) {
        let job = match recorded.event() {
            Some(Event::JobReleased(event)) => &event.job,
            Some(Event::JobCancelled(event)) => &event.job,
            _ => return,
        };
        if let Some(queued) = self.cluster.queued.get(job) {
            self.queue.remove(&queued.admitted);
        }
    }

    /// Whether the name was ever taken.
    #[must_use]
    pub fn is_taken(&self, job: &JobId) -> bool {
        self.cluster.job(job).is_some() || self.ended.contains(job)
    }
}
