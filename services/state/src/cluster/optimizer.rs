//! The optimizer's events.

use dormouse_messages::events::{AllocationDecided, Basis, OptimizerEvent, Waiting};

use super::{Allocation, ClusterState};
use crate::job::Job;

impl ClusterState {
    pub(super) fn evolve_optimizer(&mut self, event: OptimizerEvent<'_>) {
        match event {
            OptimizerEvent::AllocationDecided(event) => self.allocated(event),
            OptimizerEvent::AllocationUnchanged(event) => {
                self.wait(&event.outcome.waiting);
                self.decided(event.basis.as_ref());
            }
            // The job may have ended meanwhile, and a later one may take its name.
            OptimizerEvent::JobSpeedFitted(event) if self.job(&event.job).is_none() => {}
            OptimizerEvent::JobSpeedFitted(event) => self.speeds.fitted(event),
            OptimizerEvent::StartsForecast(event) => self.forecast_asof = event.asof,
        }
    }

    fn allocated(&mut self, event: &AllocationDecided) {
        self.goes_back("an allocation", self.allocation.epoch, event.epoch);
        for allocated in &event.jobs {
            if let Some(job) = self.jobs.get_mut(&allocated.job) {
                job.made_for.clone_from(&allocated.made_for);
                let own = job.assignment.as_mut();
                if let Some(own) = own.filter(|own| allocated.containers <= own.containers()) {
                    own.lost = 0;
                }
                // A job that shrinks in place is not stopped.
                let stops = allocated.containers == 0 || !job.in_place;
                let less = allocated.containers < allocated.previous;
                if stops && less && allocated.made_for.is_some() {
                    let basis = event.basis.as_ref();
                    let at = basis.map_or(self.now, |basis| basis.now);
                    job.precedence.preempted(at);
                }
            }
        }
        let jobs = event.jobs.iter().map(|job| (job.job.clone(), job.clone()));
        self.allocation = Allocation {
            epoch: event.epoch,
            sequence: self.sequence,
            jobs: jobs.collect(),
        };
        self.wait(&event.outcome.waiting);
        self.decided(event.basis.as_ref());
    }

    fn wait(&mut self, waiting: &[Waiting]) {
        waiting.clone_into(&mut self.waiting);
        for waiting in waiting {
            if let Some(job) = self.jobs.get_mut(&waiting.job) {
                job.waiting_since.get_or_insert(self.now);
            }
        }
    }

    fn decided(&mut self, basis: Option<&Basis>) {
        self.decided_asof = basis.map_or(self.sequence, |basis| basis.asof);
        self.decided_at = basis.map_or(self.now, |basis| basis.now);
        self.decided_in_transit = self.awaits_anybody();
        // Capacity became free since the decision.
        if self.transit_sequence > self.decided_asof {
            self.last_trigger = self.last_trigger.max(self.transit_sequence);
        }
    }

    /// Reports whether arrivals of jobs in transit may change the allocation. Waiting jobs may get any
    /// capacity that becomes free.
    pub(super) fn awaits_anybody(&self) -> bool {
        let mut jobs = self.jobs.values();
        if self.waiting.is_empty() {
            jobs.any(Job::is_awaited)
        } else {
            jobs.any(Job::is_moving)
        }
    }
}
