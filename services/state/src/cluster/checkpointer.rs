//! The checkpointer's events: starts, saves and stops of partitions, ends of jobs. `resize.rs` holds the
//! resizes in place.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    CheckpointerEvent, PartitionStartRequested, PartitionStarted, PartitionStopped, StopReason,
    TasksAssigned,
};
use dormouse_messages::{JobId, Rank};

use super::{ClusterState, asked};
use crate::health::StartFaults;
use crate::incarnation::{Partition, PartitionContainer, PartitionPhase, Place};
use crate::job::{Assignment, Stop};
use crate::members::Members;

impl ClusterState {
    pub(super) fn evolve_checkpointer(&mut self, event: CheckpointerEvent<'_>) {
        match event {
            CheckpointerEvent::PartitionStartRequested(event) => self.start(event),
            CheckpointerEvent::PartitionStarted(event) => self.started(event),
            CheckpointerEvent::CheckpointRequested(event) => {
                let phase = PartitionPhase::Saving {
                    since: self.now,
                    requested: self.sequence,
                    saved: None,
                    failed: None,
                };
                self.set_phase(&event.job, phase);
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.adjusting_since = Some(self.now);
                }
            }
            CheckpointerEvent::PartitionStopRequested(event) => {
                let partition = self.partition(&event.job, event.incarnation);
                let phase = PartitionPhase::Stopping {
                    reason: event.reason,
                    whole: partition.is_some_and(|it| it.is_whole()),
                    requested: self.sequence,
                };
                self.set_phase(&event.job, phase);
            }
            CheckpointerEvent::PartitionStopped(event) => self.stopped(event),
            CheckpointerEvent::ResizeAbandoned(event) => self.abandoned(&event.job),
            CheckpointerEvent::PartitionResizeRequested(event) => self.resize(event),
            CheckpointerEvent::PartitionLeaveRequested(event) => {
                let partition = self.partition(&event.job, event.incarnation);
                if let Some(members) = partition.and_then(|it| it.members.as_mut()) {
                    members.stopping(event.generation, &event.ranks);
                }
            }
            CheckpointerEvent::PartitionResized(event) => self.resized(event),
            CheckpointerEvent::PartitionWarned(event) => {
                if let Some(job) = self.jobs.get_mut(&event.job) {
                    job.limits.warned = Some(event.incarnation);
                }
            }
            CheckpointerEvent::TasksAssigned(event) => self.assigned(event),
            CheckpointerEvent::JobCompleted(event) => self.end(&event.job),
            CheckpointerEvent::JobFailed(event) => self.end(&event.job),
            CheckpointerEvent::JobCancelled(event) => self.end(&event.job),
        }
    }

    fn assigned(&mut self, event: &TasksAssigned) {
        let at = self.now;
        let job = self.jobs.get_mut(&event.job);
        if let Some(tasks) = job.and_then(|job| job.tasks_of(event.incarnation)) {
            for assigned in &event.assigned {
                tasks.assign(assigned, at);
            }
        }
    }

    fn started(&mut self, event: &PartitionStarted) {
        self.set_phase(&event.job, PartitionPhase::Running);
        let now = self.now;
        if let Some(partition) = self.partition(&event.job, event.incarnation) {
            partition.running_since = Some(now);
        }
        self.serves(&event.job);
        if let Some(job) = self.jobs.get_mut(&event.job) {
            job.start_faults = StartFaults::default();
            // A started job needs only its minimum: another allocation may shrink the job.
            let least = job.auxiliary.containers(job.containers.min);
            let started_whole = job.containers.start() > job.containers.min;
            if started_whole && job.is_adjustable() && event.containers > least {
                self.last_trigger = self.sequence;
            }
            if let Some(since) = job.adjusting_since.take() {
                let stall_ms = now.ms_since(since);
                job.stall_ms = Some(stall_ms);
                self.stalls.count += 1;
                self.stalls.total_ms += stall_ms;
            }
        }
        self.transit_ended();
    }

    fn stopped(&mut self, event: &PartitionStopped) {
        self.speeds.runs(&event.job, 0, self.now);
        self.tolerates(&event.job);
        let has = self.allocation.jobs.get(&event.job);
        let is_sent_back = has.is_none_or(|it| it.containers == 0);
        if let Some(job) = self.jobs.get_mut(&event.job) {
            if is_sent_back {
                // Queueing is no cost of an adjustment.
                job.adjusting_since = None;
            }
            if std::mem::take(&mut job.requeued) {
                job.on_hold = false;
                self.last_trigger = self.sequence;
            }
            let ended = job.partition.take();
            let since = ended.as_ref().and_then(|it| it.running_since);
            job.limits.ran_ms += since.map_or(0, |it| self.now.ms_since(it));
            if let Some(tasks) = &mut job.tasks {
                tasks.partition_ended();
            }
            let why = ended.as_ref().and_then(Partition::first_failure);
            let is_late = ended.as_ref().is_some_and(Partition::may_have_been_delayed);
            let is_excused = event.reason == StopReason::Failed && event.attempts == job.attempts;
            job.start_faults.late += u32::from(is_late && is_excused);
            job.attempts = event.attempts;
            job.last_stop = Some(Stop {
                incarnation: event.incarnation,
                reason: event.reason,
                at: self.now,
                sequence: self.sequence,
                why: why.map(str::to_owned),
                ran: ended.as_ref().is_some_and(|it| it.ran),
            });
            let next = job.assignment.iter_mut();
            next.for_each(|it| {
                it.displaced |= !self.nodes.take((&job.needs, &job.auxiliary), it);
            });
            let stays = job.assignment.as_ref().filter(|to| !to.displaced);
            if stays.is_none() {
                self.last_trigger = self.sequence;
            }
        }
        self.transit_ended();
    }

    fn set_phase(&mut self, job: &JobId, phase: PartitionPhase) {
        if let Some(partition) = self
            .jobs
            .get_mut(job)
            .and_then(|job| job.partition.as_mut())
        {
            partition.phase = phase;
            partition.last_event = self.sequence;
        }
    }

    fn start(&mut self, event: &PartitionStartRequested) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(places) = job.places_to_start(event.incarnation) else {
            return;
        };
        let at = self.sequence;
        let containers = places.into_iter();
        let containers = containers.map(|(rank, place)| (rank, asked(&self.nodes, place, at)));
        let containers: BTreeMap<Rank, PartitionContainer> = containers.collect();
        let members = job
            .in_place
            .then(|| Members::starting(containers.keys().copied()));
        job.partition = Some(Partition {
            incarnation: event.incarnation,
            epoch: event.epoch,
            requested_at: now,
            running_since: None,
            ready_at: None,
            last_event: self.sequence,
            resumed_from: event.resumed_from.clone(),
            numbered: containers.keys().last().map_or(Rank(0), |rank| rank.next()),
            containers,
            phase: PartitionPhase::Starting,
            ran: false,
            begun: 0,
            rejoined: false,
            members,
        });
    }

    /// Abandons the adjustment: the incarnation's places become the assignment.
    fn abandoned(&mut self, id: &JobId) {
        let Some(job) = self.jobs.get_mut(id) else {
            return;
        };
        let (Some(partition), Some(assignment)) = (&mut job.partition, &mut job.assignment) else {
            return;
        };
        partition.phase = PartitionPhase::Running;
        let places = partition.containers.iter();
        let places = places.map(|(rank, container)| (*rank, container.place.clone()));
        let places: BTreeMap<Rank, Place> = places.collect();
        *assignment = Assignment {
            epoch: partition.epoch,
            incarnation: partition.incarnation,
            placed: self.sequence,
            next: assignment.next.max(partition.numbered),
            dropped: BTreeMap::new(),
            lost: 0,
            displaced: !places
                .values()
                .all(|place| self.nodes.is_open(&job.needs, &place.node)),
            places,
        };
        job.kept_at = Some(self.now);
        job.adjusting_since = None;
        self.last_trigger = self.sequence;
    }

    fn end(&mut self, job: &JobId) {
        self.queued.remove(job);
        self.speeds.ended(job);
        if self.jobs.remove(job).is_some() {
            let before = self.ended.filter(|(at, _)| *at == self.last_trigger);
            self.ended = if self.last_trigger > self.decided_asof {
                before.map(|(_, since)| (self.sequence, since))
            } else {
                Some((self.sequence, self.now))
            };
            self.last_trigger = self.sequence;
            self.freed();
        }
    }
}
