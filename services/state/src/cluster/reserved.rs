//! Effects of reservations and used budgets on jobs.

use std::collections::BTreeSet;

use dormouse_messages::{JobId, Needs, TenantId, Timestamp};

use super::ClusterState;
use crate::job::{Job, replace_tolerated};

impl ClusterState {
    /// Gives nodes and jobs the taints and tolerations of the present reservations. A job that may not stay
    /// leaves if it can, as from a drained node.
    pub(super) fn reserve(&mut self) {
        let changed = self.nodes.reserve(self.reservations.taints());
        let other = |(id, job): (&JobId, &Job)| {
            let tolerated = self.reservations.tolerated(id, job, self.now);
            (tolerated != job.tolerated()).then(|| (id.clone(), tolerated))
        };
        let others: Vec<(JobId, BTreeSet<String>)> = self.live().filter_map(other).collect();
        for (id, tolerated) in others {
            if let Some(job) = self.job_mut(&id) {
                job.tolerate(&tolerated);
            }
        }
        let nodes = &self.nodes;
        let leaves = |job: &Job| {
            let mut places = job.assignment.iter().flat_map(|it| it.places.values());
            job.is_adjustable() && places.any(|place| !nodes.is_open(&job.needs, &place.node))
        };
        let leaving = self.jobs.values_mut_if(leaves);
        for assignment in leaving.filter_map(|job| job.assignment.as_mut()) {
            assignment.displaced = true;
        }
        self.relabelled();
        self.triggers_if(!changed.is_empty());
    }

    /// Gives a job that does not run the tolerations that it has now.
    pub(super) fn tolerates(&mut self, id: &JobId) {
        if self.reservations.is_empty() {
            return;
        }
        let waits = |job: &&Job| job.running_since().is_none();
        let tolerated = self.job(id).filter(waits);
        let tolerated = tolerated.map(|job| self.reservations.tolerated(id, job, self.now));
        if let Some((tolerated, job)) = tolerated.zip(self.job_mut(id)) {
            job.tolerate(&tolerated);
        }
    }

    /// Returns a job's needs by the reservations at `now`; they change with time for a job that cannot save.
    #[must_use]
    pub fn needs_at(&self, id: &JobId, job: &Job, now: Timestamp) -> Needs {
        let mut needs = job.needs.clone();
        if !self.reservations.is_empty() && job.running_since().is_none() {
            let tolerated = self.reservations.tolerated(id, job, now);
            replace_tolerated(&mut needs.tolerations, &tolerated);
        }
        needs
    }

    /// Changes a tenant's budget, and stops and starts the tenant's training and batch jobs as it says.
    pub(super) fn budget(&mut self, tenant: &TenantId, change: impl FnOnce(&mut Self)) {
        let tenant = tenant.as_str();
        let before = self.budgets.holds(tenant);
        change(self);
        let stops = self.budgets.stops(tenant);
        let is_of = |id: &JobId, job: &Job| id.tenant() == tenant && !job.is_served();
        let of_tenant = self.jobs.iter().filter(|(id, job)| is_of(id, job));
        let others = of_tenant.filter(|(_, job)| job.over_budget != stops);
        let others: Vec<JobId> = others.map(|(id, _)| id.clone()).collect();
        for id in &others {
            if let Some(job) = self.jobs.get_mut(id) {
                job.over_budget = stops;
            }
        }
        self.triggers_if(before != self.budgets.holds(tenant) || !others.is_empty());
    }
}
