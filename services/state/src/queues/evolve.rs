//! The effect of each event on the queues.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    AllocationDecided, ByWriter, JobAdmitted, JobReleased, JobRevised, Waiting,
};
use dormouse_messages::job::{Kind, Urgency};
use dormouse_messages::serialized_spec::bytes_of;
use dormouse_messages::{
    AuxiliaryRoles, Event, Fold, JobId, Recorded, Sequence, TenantId, Timestamp,
};

use crate::total::Total;

use super::sums::Sums;
use super::{FAILED_LIMIT, QueueJob, Queues, Stand, TenantQueue};

impl Fold for Queues {
    const NAME: &'static str = "queues";
    const VERSION: u32 = 23;

    fn evolve(&mut self, recorded: &Recorded) {
        self.fold(recorded);
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.cluster.rejects(recorded)
    }

    fn log_time(&self) -> Option<Timestamp> {
        self.cluster.log_time()
    }

    fn contradiction(&self) -> Option<&str> {
        let own = self.contradiction.what();
        own.or_else(|| self.cluster.contradiction())
    }

    fn check_invariants(&self) -> Result<(), String> {
        if let Some(what) = self.contradiction() {
            return Err(what.to_owned());
        }
        let mut again = BTreeMap::new();
        let mut by_class: BTreeMap<i32, Total> = BTreeMap::new();
        let mut live = 0;
        for (id, job) in &self.jobs {
            let tenant: &mut TenantQueue = again.entry(id.tenant()).or_default();
            match &job.stand {
                Stand::Queued { .. } => {
                    live += 1;
                    tenant.order.insert((job.order(), id.clone()));
                    tenant.queued.add(&job.smallest());
                    tenant.queued_bytes += job.bytes;
                }
                Stand::Released { unschedulable, .. } => {
                    if *unschedulable && !self.unschedulable.contains(id) {
                        return Err(format!("{id} counts for nothing, and is not listed so"));
                    }
                    live += 1;
                    tenant.count_in(job);
                    if job.urgency == Urgency::Training {
                        let held = by_class.entry(job.class).or_default();
                        held.add_job(&job.auxiliary, &job.demand, job.non_preemptible());
                    }
                }
                Stand::Held { .. } => {
                    tenant.held += 1;
                    tenant.queued_bytes += job.bytes;
                }
                Stand::DependencyFailed { .. } => {}
            }
        }
        for (name, tenant) in &self.tenants {
            let again = again.remove(name.as_str()).unwrap_or_default();
            let same = tenant.order == again.order
                && tenant.queued == again.queued
                && tenant.queued_bytes == again.queued_bytes
                && tenant.runs == again.runs
                && tenant.non_preemptible == again.non_preemptible
                && tenant.containers == again.containers
                && (tenant.released, tenant.weights) == (again.released, again.weights)
                && (tenant.held, tenant.waits.queued) == (again.held, again.order.len() as u64);
            if !same {
                return Err(format!("the sums of {name} are not those of its jobs"));
            }
        }
        by_class.retain(|_, held| !held.is_empty());
        if by_class != self.by_class {
            return Err("the sums by class are not those of the jobs".to_owned());
        }
        let queued: usize = self.tenants.values().map(|t| t.order.len()).sum();
        if live == self.live && queued == self.credit.len() {
            Ok(())
        } else {
            Err(format!("{live} jobs live but {} are counted", self.live))
        }
    }
}

impl Queues {
    /// Folds one event and returns the event, unless the event is unknown or rejected.
    pub fn fold<'a>(&mut self, recorded: &'a Recorded) -> Option<&'a Event> {
        let above = self.above_bounds(recorded);
        let event = self.cluster.fold(recorded);
        self.credit_arrivals();
        // New bounds may make jobs schedulable.
        for id in above {
            if self.above(&id).is_none() {
                self.set_unschedulable(&id, false);
            }
        }
        match event?.by_writer() {
            ByWriter::Operator(event) => self.evolve_operator(event),
            ByWriter::Admission(event) => self.evolve_admission(event),
            ByWriter::Optimizer(event) => self.evolve_optimizer(event),
            ByWriter::Placer(event) => self.evolve_placer(event),
            ByWriter::Checkpointer(event) => self.evolve_checkpointer(event),
            ByWriter::Node(event) => self.evolve_node(event),
            // The nodes of a released allocation are drained.
            ByWriter::Slurm(_) => self.nodes_changed(),
            ByWriter::Autoscaler(_) | ByWriter::Gateway(_) | ByWriter::Archiver(_) => {}
        }
        event
    }

    pub(super) fn nodes_changed(&mut self) {
        self.total = self.cluster.nodes.total();
    }

    /// Lists unschedulable jobs above bounds that the event may raise.
    fn above_bounds(&self, recorded: &Recorded) -> Vec<JobId> {
        match recorded.event() {
            Some(
                Event::ClusterConfigured(_)
                | Event::TenantConfigured(_)
                | Event::TenantGranted(_)
                | Event::TenantRemoved(_),
            ) => {
                let unschedulable = self.unschedulable.iter();
                let above = unschedulable.filter(|id| self.above(id).is_some());
                above.cloned().collect()
            }
            _ => Vec::new(),
        }
    }

    fn of(&mut self, id: &JobId) -> Option<&mut TenantQueue> {
        self.tenants.get_mut(id.tenant())
    }

    fn list_limited(&mut self, id: &JobId) {
        let known = self.cluster.jobs.get(id);
        if known.is_some_and(|job| job.limits.time_limit_s.is_some()) {
            self.limited.insert(id.clone());
        } else {
            self.limited.remove(id);
        }
    }

    fn sums(&mut self) -> Sums<'_> {
        Sums {
            tenants: &mut self.tenants,
            asked: &mut self.asked,
            by_class: &mut self.by_class,
            live: &mut self.live,
            found: &mut self.contradiction,
        }
    }

    fn update(&mut self, id: &JobId, change: impl FnOnce(&mut QueueJob)) {
        let mut sums = Sums {
            tenants: &mut self.tenants,
            asked: &mut self.asked,
            by_class: &mut self.by_class,
            live: &mut self.live,
            found: &mut self.contradiction,
        };
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        sums.count(id, job, false);
        change(job);
        sums.count(id, job, true);
    }

    pub(super) fn admit(&mut self, event: &JobAdmitted) {
        let sequence = self.cluster.sequence;
        let Ok(tenant) = TenantId::new(event.job.tenant()) else {
            return;
        };
        self.tenants.entry(tenant).or_default();
        // Another job of the name, which may complete.
        self.failed.retain(|id| *id != event.job);
        let wanted = &event.spec.depends_on;
        let failed = wanted.iter().find(|id| self.failed.contains(id));
        let unmet: BTreeSet<JobId> = wanted
            .iter()
            .filter(|id| self.jobs.contains_key(*id))
            .cloned()
            .collect();
        for dependency in &unmet {
            let dependents = self.dependents.entry(dependency.clone()).or_default();
            dependents.insert(event.job.clone());
        }
        let stand = match failed {
            Some(by) => Stand::DependencyFailed {
                by: by.clone(),
                at: sequence,
            },
            None => Stand::Held { unmet },
        };
        if failed.is_some() {
            self.dependency_failed.insert(event.job.clone(), sequence);
        }
        let job = QueueJob {
            demand: event.spec.demand.clone(),
            auxiliary: AuxiliaryRoles::of(&event.spec),
            weight: event.spec.weight,
            containers: event.spec.containers,
            adjustable: event.spec.adjustable(),
            most: match event.spec.tasks {
                Some(tasks) => Some(tasks.concurrency),
                None if event.spec.kind == Kind::Batch => Some(1),
                None => event.spec.batch.map(|batch| batch.max),
            },
            static_containers: event.spec.static_containers,
            urgency: event.spec.kind.urgency(),
            class: event.spec.priority_class.as_ref().map_or(0, |it| it.value),
            preempts: event
                .spec
                .priority_class
                .as_ref()
                .is_some_and(|it| it.preempts),
            priority: event.spec.priority,
            bytes: bytes_of(&event.spec),
            admitted: sequence,
            admitted_at: self.cluster.now,
            queue_limit_s: event.spec.queue_limit_s,
            on_hold: false,
            over_budget: false,
            stand,
        };
        self.sums().count(&event.job, &job, true);
        if let Some(until) = job.queued_until() {
            self.expiring.insert((until, event.job.clone()));
        }
        self.jobs.insert(event.job.clone(), job);
        self.join_if_free(&event.job);
    }

    /// Queues a job once no dependency or hold remains.
    fn join_if_free(&mut self, id: &JobId) {
        let free = |job: &QueueJob| {
            !job.on_hold && matches!(&job.stand, Stand::Held { unmet } if unmet.is_empty())
        };
        let Some(admitted) = self
            .jobs
            .get(id)
            .filter(|job| free(job))
            .map(|j| j.admitted)
        else {
            return;
        };
        let now = self.cluster.now;
        let gap_us = self.gap_us().map_or(0, |(over, under)| over / under.max(1));
        let gap_us = i64::try_from(gap_us).unwrap_or(i64::MAX);
        let Some(tenant) = self.of(id) else { return };
        let paced = tenant.last_credited.as_micros().saturating_add(gap_us);
        let credited = now.max(Timestamp::from_micros(paced));
        tenant.last_credited = credited;
        tenant.waits.join(now);
        if credited <= now {
            tenant.credited.join(credited);
        }
        self.credit.join(credited, admitted, now);
        self.update(id, |job| {
            job.stand = Stand::Queued {
                since: now,
                credited,
            };
        });
        if credited > now {
            self.waiting_credit.insert(admitted, id.clone());
        }
    }

    fn credit_arrivals(&mut self) {
        while let Some((credited, admitted)) = self.credit.to_come.first().copied() {
            if credited > self.cluster.now {
                return;
            }
            self.credit.to_come.pop_first();
            let Some(id) = self.waiting_credit.remove(&admitted) else {
                continue;
            };
            if let Some(tenant) = self.of(&id) {
                tenant.credited.join(credited);
            }
        }
    }

    fn leave_credit(&mut self, id: &JobId, job: &QueueJob, credited: Timestamp, released: bool) {
        let now = self.cluster.now;
        let early = self.waiting_credit.remove(&job.admitted).is_some();
        if early {
            self.credit.to_come.remove(&(credited, job.admitted));
        }
        let Some(tenant) = self.tenants.get_mut(id.tenant()) else {
            return;
        };
        match (early, released) {
            // The job arrived and never waited.
            (true, true) => tenant.credited.arrived += 1,
            (true, false) => {}
            (false, true) => tenant.credited.release(credited, now),
            (false, false) => tenant.credited.leave(credited),
        }
        if released {
            self.credit.release()
        } else {
            self.credit.leave(credited, job.admitted)
        }
    }

    pub(super) fn release(&mut self, event: &JobReleased) {
        let now = self.cluster.now;
        for passed in &event.passed_over {
            if self.jobs.contains_key(passed) {
                self.passed_over.entry(passed.clone()).or_insert(now);
            }
        }
        self.passed_over.remove(&event.job);
        let Some(job) = self.jobs.get(&event.job).cloned() else {
            return;
        };
        if let Some(until) = job.queued_until() {
            self.expiring.remove(&(until, event.job.clone()));
        }
        let Stand::Queued { since, credited } = job.stand else {
            return;
        };
        self.leave_credit(&event.job, &job, credited, true);
        if let Some(tenant) = self.of(&event.job) {
            tenant.waits.release(since, now);
        }
        let known = self.cluster.jobs.get(&event.job);
        let over_budget = known.is_some_and(|job| job.over_budget);
        self.update(&event.job, |job| {
            job.over_budget = over_budget;
            job.stand = Stand::Released {
                at: now,
                given: 0,
                unschedulable: false,
            };
        });
        self.list_limited(&event.job);
        self.last = TenantId::new(event.job.tenant()).ok();
    }

    pub(super) fn revise(&mut self, event: &JobRevised) {
        let id = &event.job;
        let Some(before) = self.jobs.get(id).cloned() else {
            return;
        };
        let on_hold = event.held.unwrap_or(before.on_hold);
        let leaves = on_hold && !before.on_hold;
        if let Stand::Queued { since, credited } = &before.stand
            && leaves
        {
            self.leave_credit(id, &before, *credited, false);
            if let Some(tenant) = self.of(id) {
                tenant.waits.leave(*since);
            }
            self.passed_over.remove(id);
        }
        self.update(id, |job| {
            job.weight = event.weight.unwrap_or(job.weight);
            job.containers = event.containers.unwrap_or(job.containers);
            job.priority = event.priority.unwrap_or(job.priority);
            if let Some(limit_s) = event.queue_limit_s {
                job.queue_limit_s = Some(limit_s).filter(|limit_s| *limit_s > 0);
            }
            job.on_hold = on_hold;
            if leaves && matches!(job.stand, Stand::Queued { .. }) {
                job.stand = Stand::Held {
                    unmet: BTreeSet::new(),
                };
            }
        });
        self.list_limited(id);
        let until = self.jobs.get(id).and_then(QueueJob::queued_until);
        if let Some(until) = before.queued_until() {
            self.expiring.remove(&(until, id.clone()));
        }
        if let Some(until) = until {
            self.expiring.insert((until, id.clone()));
        }
        self.join_if_free(id);
    }

    pub(super) fn allocate(&mut self, event: &AllocationDecided) {
        for allocated in &event.jobs {
            self.give(&allocated.job, allocated.containers);
        }
    }

    pub(super) fn give(&mut self, id: &JobId, containers: u32) {
        self.update(id, |job| {
            if let Stand::Released { given, .. } = &mut job.stand {
                *given = containers;
            }
        });
    }

    /// Takes over which jobs of the tenant its budget stops.
    pub(super) fn within_budget(&mut self, tenant: &TenantId) {
        let of_tenant = |id: &&JobId| id.tenant() == tenant.as_str();
        let ids: Vec<JobId> = self.jobs.keys().filter(of_tenant).cloned().collect();
        for id in ids {
            let job = self.cluster.jobs.get(&id);
            let over_budget = job.is_some_and(|job| job.over_budget);
            self.update(&id, |job| job.over_budget = over_budget);
        }
    }

    fn set_unschedulable(&mut self, id: &JobId, is_unschedulable: bool) {
        if is_unschedulable {
            self.unschedulable.insert(id.clone())
        } else {
            self.unschedulable.remove(id)
        };
        self.update(id, |job| {
            if let Stand::Released { unschedulable, .. } = &mut job.stand {
                *unschedulable = is_unschedulable;
            }
        });
    }

    /// A decision lists every waiting job with a reason.
    pub(super) fn wait(&mut self, waiting: &[Waiting]) {
        let unschedulable = waiting.iter().filter(|it| it.is_unschedulable());
        let unschedulable: BTreeSet<JobId> = unschedulable.map(|it| it.job.clone()).collect();
        let changed = self.unschedulable.symmetric_difference(&unschedulable);
        let changed: Vec<JobId> = changed.cloned().collect();
        for id in &changed {
            self.set_unschedulable(id, unschedulable.contains(id));
        }
    }

    pub(super) fn end(&mut self, id: &JobId, success: bool) {
        let sequence = self.cluster.sequence;
        let Some(job) = self.jobs.remove(id) else {
            return;
        };
        self.sums().count(id, &job, false);
        self.passed_over.remove(id);
        self.limited.remove(id);
        self.unschedulable.remove(id);
        self.dependency_failed.remove(id);
        if let Some(until) = job.queued_until() {
            self.expiring.remove(&(until, id.clone()));
        }
        match &job.stand {
            Stand::Queued { since, credited } => {
                self.leave_credit(id, &job, *credited, false);
                let since = *since;
                if let Some(tenant) = self.of(id) {
                    tenant.waits.leave(since);
                }
            }
            Stand::Held { unmet } => {
                for dependency in unmet {
                    if let Some(dependents) = self.dependents.get_mut(dependency) {
                        dependents.remove(id);
                    }
                }
            }
            Stand::Released { at, .. } if success => {
                let ran_us = self.cluster.now.as_micros() - at.as_micros();
                self.durations.count += 1;
                self.durations.total_us += u64::try_from(ran_us).unwrap_or(0);
            }
            Stand::Released { .. } | Stand::DependencyFailed { .. } => {}
        }
        if !success {
            self.failed.push_back(id.clone());
            if self.failed.len() > FAILED_LIMIT {
                self.failed.pop_front();
            }
        }
        for dependent in self.dependents.remove(id).unwrap_or_default() {
            self.dependency_ended(&dependent, id, sequence, success);
        }
    }

    fn dependency_ended(&mut self, id: &JobId, dependency: &JobId, at: Sequence, success: bool) {
        let mut dependency_failed = false;
        let until = self.jobs.get(id).and_then(QueueJob::queued_until);
        self.update(id, |job| {
            if let Stand::Held { unmet } = &mut job.stand {
                unmet.remove(dependency);
                dependency_failed = !success;
            }
            if dependency_failed {
                job.stand = Stand::DependencyFailed {
                    by: dependency.clone(),
                    at,
                };
            }
        });
        if dependency_failed {
            self.dependency_failed.insert(id.clone(), at);
            if let Some(until) = until {
                self.expiring.remove(&(until, id.clone()));
            }
        } else {
            self.join_if_free(id)
        }
    }
}
