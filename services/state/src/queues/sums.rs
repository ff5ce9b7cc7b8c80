//! Sums over the jobs of a tenant, of a class and of all.

use std::collections::BTreeMap;

use dormouse_messages::job::Urgency;
use dormouse_messages::{JobId, TenantId};

use super::account::Contradiction;
use super::{QueueJob, Stand, TenantQueue};
use crate::total::Total;

impl TenantQueue {
    pub(super) fn count_in(&mut self, job: &QueueJob) {
        self.runs.add_job(&job.auxiliary, &job.demand, job.held());
        self.non_preemptible
            .add_job(&job.auxiliary, &job.demand, job.non_preemptible());
        self.containers.0 += job.held();
        self.containers.1 += job.non_preemptible();
        self.released += 1;
        self.weights += u64::from(job.weight);
    }

    pub(super) fn take_bytes(&mut self, id: &JobId, job: &QueueJob, found: &mut Contradiction) {
        let of = || format!("the queued bytes of {} without {id}", id.tenant());
        found.take(&mut self.queued_bytes, job.bytes, of);
    }

    pub(super) fn count_out(&mut self, id: &JobId, job: &QueueJob, found: &mut Contradiction) {
        let auxiliary = &job.auxiliary;
        self.runs.subtract_job(auxiliary, &job.demand, job.held());
        self.non_preemptible
            .subtract_job(auxiliary, &job.demand, job.non_preemptible());
        let of = |what: &'static str| move || format!("{what} of {} without {id}", id.tenant());
        let (held, non_preemptible) = &mut self.containers;
        found.take(held, job.held(), of("the containers"));
        found.take(
            non_preemptible,
            job.non_preemptible(),
            of("the non-preemptible containers"),
        );
        found.take(&mut self.released, 1, of("the released jobs"));
        found.take(&mut self.weights, u64::from(job.weight), of("the weights"));
    }
}

pub(super) struct Sums<'a> {
    pub tenants: &'a mut BTreeMap<TenantId, TenantQueue>,
    pub asked: &'a mut Total,
    pub by_class: &'a mut BTreeMap<i32, Total>,
    pub live: &'a mut u64,
    pub found: &'a mut Contradiction,
}

impl Sums<'_> {
    pub(super) fn of_class(&mut self, job: &QueueJob, inwards: bool) {
        if job.urgency > Urgency::Training {
            return;
        }
        let held = self.by_class.entry(job.class).or_default();
        if inwards {
            held.add_job(&job.auxiliary, &job.demand, job.non_preemptible())
        } else {
            held.subtract_job(&job.auxiliary, &job.demand, job.non_preemptible())
        }
        if held.is_empty() {
            self.by_class.remove(&job.class);
        }
    }

    /// Counts a job in, or out before a change.
    pub(super) fn count(&mut self, id: &JobId, job: &QueueJob, inwards: bool) {
        let start = u64::from(job.auxiliary.containers(job.containers.start()));
        let amount = match job.stand {
            Stand::Queued { .. } => Some(start),
            Stand::Released { .. } => Some(job.held()),
            Stand::Held { .. } | Stand::DependencyFailed { .. } => None,
        };
        let Some(tenant) = self.tenants.get_mut(id.tenant()) else {
            return;
        };
        match &job.stand {
            Stand::Queued { .. } if inwards => {
                tenant.order.insert((job.order(), id.clone()));
                tenant.queued.add_job(&job.auxiliary, &job.demand, start);
                tenant.queued_bytes += job.bytes;
            }
            Stand::Queued { .. } => {
                tenant.order.remove(&(job.order(), id.clone()));
                tenant.take_bytes(id, job, self.found);
                tenant
                    .queued
                    .subtract_job(&job.auxiliary, &job.demand, start);
            }
            Stand::Released { .. } => {
                if inwards {
                    tenant.count_in(job)
                } else {
                    tenant.count_out(id, job, self.found)
                }
                self.of_class(job, inwards);
            }
            Stand::Held { .. } if inwards => {
                tenant.held += 1;
                tenant.queued_bytes += job.bytes;
            }
            Stand::Held { .. } => {
                tenant.take_bytes(id, job, self.found);
                let of = || format!("the waiting jobs of {} without {id}", id.tenant());
                self.found.take(&mut tenant.held, 1, of);
            }
            Stand::DependencyFailed { .. } => {}
        }
        match amount {
            Some(amount) if inwards => {
                self.asked.add_job(&job.auxiliary, &job.demand, amount);
                *self.live += 1;
            }
            Some(amount) => {
                self.asked.subtract_job(&job.auxiliary, &job.demand, amount);
                let of = || format!("the live jobs without {id}");
                self.found.take(self.live, 1, of);
            }
            None => {}
        }
    }
}
