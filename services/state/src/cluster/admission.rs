//! Admission's events.

use dormouse_messages::events::{AdmissionEvent, JobReleased, JobRequeued, JobRevised};

use super::ClusterState;
use crate::job::Job;

impl ClusterState {
    pub(super) fn evolve_admission(&mut self, event: AdmissionEvent<'_>) {
        match event {
            AdmissionEvent::JobAdmitted(event) => {
                let job = Job::admitted(&event.spec, self.sequence, self.now);
                self.queued.insert(event.job.clone(), job);
            }
            AdmissionEvent::JobReleased(event) => self.released(event),
            AdmissionEvent::JobRevised(event) => self.revised(event),
            AdmissionEvent::JobRequeued(event) => self.requeued(event),
            AdmissionEvent::JobCancelRequested(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.cancel_requested = Some(self.sequence);
                }
            }
            AdmissionEvent::SubmissionReceived(_)
            | AdmissionEvent::JobRefused(_)
            | AdmissionEvent::SubmissionsShed(_)
            | AdmissionEvent::PlanAccepted(_)
            | AdmissionEvent::PlanMissed(_) => {}
        }
    }

    fn released(&mut self, event: &JobReleased) {
        if let Some(mut job) = self.queued.remove(&event.job) {
            job.released = Some(self.sequence);
            self.jobs.insert(event.job.clone(), job);
            self.triggers();
        }
    }

    fn revised(&mut self, event: &JobRevised) {
        let is_released = self.jobs.contains_key(&event.job);
        self.triggers_if(is_released);
        if let Some(job) = self.job_mut(&event.job) {
            job.weight = event.weight.unwrap_or(job.weight);
            job.containers = event.containers.unwrap_or(job.containers);
            job.limits.revise(event);
            job.on_hold = event.held.unwrap_or(job.on_hold);
            job.requeued &= event.held.is_none();
        }
    }

    fn requeued(&mut self, event: &JobRequeued) {
        // A job without containers already waits for capacity.
        if let Some(job) = self.jobs.get_mut(&event.job)
            && job.life.is_some()
            && !job.on_hold
        {
            (job.on_hold, job.requeued) = (true, true);
            self.triggers();
        }
    }
}
