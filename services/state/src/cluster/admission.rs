//! Admission's events.

use dormouse_messages::events::{AdmissionEvent, JobReleased, JobRequeued, JobRevised};

use super::ClusterState;
use crate::job::Job;

impl ClusterState {
    pub(super) fn evolve_admission(&mut self, event: AdmissionEvent<'_>) {
        match event {
            AdmissionEvent::JobAdmitted(event) => {
                let mut job = Job::admitted(&event.spec, self.sequence, self.now);
                job.tolerate(&self.reservations.tolerated(&event.job, &job, self.now));
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
            AdmissionEvent::BudgetLevelChanged(event) => {
                self.budget(&event.tenant, |it| it.budgets.level_changed(event));
            }
            AdmissionEvent::ReservationPhaseChanged(event) => {
                self.reservations.phase_changed(event);
                self.reserve();
            }
            AdmissionEvent::SubmissionReceived(_)
            | AdmissionEvent::JobRefused(_)
            | AdmissionEvent::SubmissionsRateLimited(_)
            | AdmissionEvent::PlanAccepted(_)
            | AdmissionEvent::PlanMissed(_) => {}
        }
    }

    fn released(&mut self, event: &JobReleased) {
        if let Some(mut job) = self.queued.remove(&event.job) {
            job.released = Some(self.sequence);
            job.over_budget = !job.is_served() && self.budgets.stops(event.job.tenant());
            job.tolerate(&self.reservations.tolerated(&event.job, &job, self.now));
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
        self.tolerates(&event.job);
    }

    fn requeued(&mut self, event: &JobRequeued) {
        // A job without containers already waits for capacity.
        if let Some(job) = self.jobs.get_mut(&event.job)
            && job.partition.is_some()
            && !job.on_hold
        {
            (job.on_hold, job.requeued) = (true, true);
            self.triggers();
        }
    }
}
