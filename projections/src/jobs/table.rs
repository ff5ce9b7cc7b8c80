//! The maps of the job table, and the dispatch of events.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{JobAdmitted, JobRefused, SubmissionReceived};
use dormouse_messages::{Event, Fact, JobId, Sequence, SerializedSpec, Timestamp};
use serde::{Deserialize, Serialize};

use super::{
    ENDED_LIMIT, Job, Live, PENDING_LIMIT, Phase, PhaseCounts, REFUSED_LIMIT, Refused, Request,
    Times, nodes_of,
};
use dormouse_state::{ClusterState, SharedMap};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Pending {
    at: Timestamp,
    verb: String,
    sha256: String,
}

/// Every job by id.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobTable {
    live: SharedMap<JobId, Job>,
    ended: SharedMap<JobId, Job>,
    /// The oldest goes first.
    ended_order: VecDeque<JobId>,
    refused: VecDeque<Refused>,
    refused_total: u64,
    pending: BTreeMap<u64, Pending>,
    counts: PhaseCounts,
}

impl JobTable {
    /// Returns a live or ended job.
    #[must_use]
    pub fn get(&self, job: &JobId) -> Option<&Job> {
        self.live.get(job).or_else(|| self.ended.get(job))
    }

    /// Returns the live jobs by id.
    pub fn live(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.live.iter()
    }

    /// Returns the ended jobs by id.
    pub fn ended(&self) -> impl Iterator<Item = (&JobId, &Job)> {
        self.ended.iter()
    }

    /// Returns the number of ended jobs that were dropped.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        let ended = self.counts.iter().filter(|(phase, _)| phase.is_over());
        let ended: u64 = ended.map(|(_, count)| count).sum();
        ended.saturating_sub(self.ended.len() as u64)
    }

    /// Returns the refused submissions, oldest first.
    pub fn refused(&self) -> impl DoubleEndedIterator<Item = &Refused> {
        self.refused.iter()
    }

    /// Returns the refusals, including cancellations and revisions.
    #[must_use]
    pub const fn refused_total(&self) -> u64 {
        self.refused_total
    }

    /// Returns the jobs by phase.
    #[must_use]
    pub const fn counts(&self) -> &PhaseCounts {
        &self.counts
    }

    pub(super) fn update(&mut self, id: &JobId, change: impl FnOnce(&mut Job, &mut Live)) {
        let Some(job) = self.live.get_mut(id) else {
            return;
        };
        let before = job.phase;
        if let Some(mut live) = job.live.take() {
            change(job, &mut live);
            job.live = Some(live);
        }
        if job.phase != before {
            self.counts.remove(before);
            self.counts.add(job.phase);
        }
    }

    fn submitted(&mut self, ingress_sequence: u64) -> Option<Pending> {
        self.pending.remove(&ingress_sequence)
    }

    fn receive(&mut self, event: &SubmissionReceived, at: Timestamp) {
        let pending = Pending {
            at,
            verb: event.verb.clone(),
            sha256: event.sha256.clone(),
        };
        self.pending.insert(event.ingress_sequence, pending);
        if self.pending.len() > PENDING_LIMIT {
            self.pending.pop_first();
        }
    }

    fn admit(&mut self, event: &JobAdmitted, sequence: Sequence, at: Timestamp) {
        let submitted = self.submitted(event.ingress_sequence);
        let (submitted, sha256) =
            submitted.map_or((at, String::new()), |pending| (pending.at, pending.sha256));
        let job = Job {
            admitted_sequence: sequence,
            ingress_sequence: event.ingress_sequence,
            sha256,
            submitted_by: event.by.clone(),
            cancelled_by: None,
            kind: event.spec.kind,
            executor: event.spec.executor,
            phase: Phase::Queued,
            preempted: 0,
            now: 0,
            target: 0,
            share: 0.0,
            fair_share: 0.0,
            epoch: dormouse_messages::Epoch::default(),
            times: Times {
                submitted,
                admitted: at,
                phase_since: at,
                ..Times::default()
            },
            resizes: 0,
            restarts: 0,
            attempts: 0,
            resize_ms: 0,
            recovery_ms: 0,
            container_ms: 0,
            code: String::new(),
            note: String::new(),
            progress: None,
            gpu: None,
            checkpoint: None,
            incarnations: Vec::new(),
            incarnations_dropped: 0,
            last_request: None,
            command: String::new(),
            workdir: event.spec.workdir.clone().map(Box::new),
            live: Some(Box::new(Live {
                spec: SerializedSpec::packed(&event.spec),
                transit: None,
                exit: None,
                preempted: false,
                unready: None,
            })),
        };
        if self.ended.remove(&event.job).is_some() {
            // An ended job had the name; its place in the order would never be removed.
            self.ended_order.retain(|job| *job != event.job);
        }
        if let Some(replaced) = self.live.insert(event.job.clone(), job) {
            self.counts.remove(replaced.phase);
        }
        self.counts.add(Phase::Queued);
    }

    fn refuse(&mut self, event: &JobRefused, at: Timestamp) {
        let submitted = self.submitted(event.ingress_sequence);
        self.refused_total += 1;
        // Only submissions are refused jobs.
        if let Some(pending) = &submitted
            && pending.verb != "submit"
        {
            return;
        }
        if self.refused.len() == REFUSED_LIMIT {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused {
            at,
            job: event.job.clone(),
            tenant: event.tenant.clone(),
            verb: submitted.map(|pending| pending.verb).unwrap_or_default(),
            ingress_sequence: event.ingress_sequence,
            code: event.code.clone(),
            reason: event.reason.clone(),
        });
    }

    fn end(
        &mut self,
        id: &JobId,
        (phase, reason, attempts): (Phase, &str, u32),
        before: Option<&dormouse_state::Job>,
        at: Timestamp,
    ) {
        let Some(mut job) = self.live.remove(id) else {
            return;
        };
        self.counts.remove(job.phase);
        self.counts.add(phase);
        let request = before.map(Request::of);
        job.end((phase, reason, attempts), request, at);
        self.ended_order.push_back(id.clone());
        self.ended.insert(id.clone(), job);
        while self.ended.len() > ENDED_LIMIT {
            let Some(oldest) = self.ended_order.pop_front() else {
                break;
            };
            self.ended.remove(&oldest);
        }
    }

    fn evolve_incarnations(
        &mut self,
        event: &Event,
        (state, before): (&ClusterState, Option<&dormouse_state::Job>),
        at: Timestamp,
    ) {
        match event {
            Event::CheckpointRequested(e) => {
                self.update(&e.job, |job, live| job.checkpoint_requested(live, e, at));
            }
            Event::PartitionStartRequested(e) => {
                let present = state.job(&e.job);
                let nodes = present.map_or(0, |job| nodes_of(&e.job, job).len());
                self.update(&e.job, |job, live| {
                    job.start_requested(live, (e, nodes), at)
                });
            }
            Event::PartitionStarted(e) => {
                self.update(&e.job, |job, live| job.started(live, e, at));
            }
            Event::PartitionResized(e) => self.update(&e.job, |job, live| job.resized(live, e, at)),
            Event::PartitionStopRequested(e) => {
                self.update(&e.job, |job, live| job.stop_requested(live, e, at));
            }
            Event::PartitionStopped(e) => {
                let was_on_hold = before.is_some_and(|job| job.on_hold);
                self.update(&e.job, |job, live| job.stopped(live, (e, was_on_hold), at));
            }
            Event::ResizeAbandoned(e) => {
                self.update(&e.job, |job, live| job.kept(live, e, at));
            }
            Event::TasksEnded(e) => {
                let present = state.job(&e.job);
                if let Some(tasks) = present.and_then(|job| job.tasks.as_ref()) {
                    self.update(&e.job, |job, _| {
                        if e.incarnation == job.incarnation() {
                            job.tasks_ended(tasks, at);
                        }
                    });
                }
            }
            Event::JobCompleted(e) => {
                self.end(
                    &e.job,
                    (Phase::Completed, &e.reason, e.attempts),
                    before,
                    at,
                );
            }
            Event::JobFailed(e) => {
                self.end(&e.job, (Phase::Failed, &e.reason, e.attempts), before, at);
            }
            Event::JobCancelled(e) => {
                if let Some(request) = e.ingress_sequence {
                    self.submitted(request);
                    self.update(&e.job, |job, _| job.cancelled_by.clone_from(&e.by));
                }
                self.end(
                    &e.job,
                    (Phase::Cancelled, &e.reason, e.attempts),
                    before,
                    at,
                );
            }
            _ => {}
        }
    }
}

impl JobTable {
    /// Folds one event, after `state`. `before` is the job in the state before an event that starts or stops
    /// the job.
    pub fn evolve(
        &mut self,
        fact: &Fact<'_>,
        state: &ClusterState,
        before: Option<&dormouse_state::Job>,
    ) {
        let Some(event) = fact.event() else {
            return;
        };
        let (sequence, at) = (fact.sequence, fact.at);
        match event {
            Event::Progress(e) => self.update(&e.job, |job, _| job.progressed(e, at)),
            Event::ContainerGpuUsed(e) => self.update(&e.container.job, |job, _| {
                job.gpu.get_or_insert_default().add(e, at);
            }),
            Event::ContainerStarted(e) => self.update(&e.container.job, |job, _| {
                job.ran_on(e.container.incarnation, &e.node);
            }),
            Event::ContainerExited(e) => {
                let partition = state
                    .job(&e.container.job)
                    .and_then(|job| job.partition.as_ref());
                let members = partition.and_then(|it| it.members.as_ref());
                let is_leaving = members.is_some_and(|it| it.is_leaving(e.container.rank));
                self.update(&e.container.job, |job, live| {
                    job.exited(live, e, is_leaving)
                });
            }
            Event::ContainerReady(e) => {
                self.update(&e.container.job, |_, live| live.unready = None)
            }
            Event::ContainerUnready(e) => self.update(&e.container.job, |_, live| {
                live.unready = Some(e.reason.clone());
            }),
            Event::CheckpointSaved(e) => self.update(&e.job, |job, live| job.saved(live, e, at)),
            Event::CheckpointFailed(e) => self.update(&e.job, |job, live| {
                if let Some(transit) = &mut live.transit
                    && e.incarnation == job.incarnation()
                {
                    transit.save_failed = Some(e.reason.clone());
                }
            }),
            Event::SubmissionReceived(e) => self.receive(e, at),
            Event::JobAdmitted(e) => self.admit(e, sequence, at),
            Event::JobRefused(e) => self.refuse(e, at),
            Event::ServiceMeasured(e) if e.basis.is_some() => {
                if let Some(message) = e.ingress_sequence {
                    self.submitted(message);
                }
            }
            Event::JobReleased(e) => self.update(&e.job, |job, _| job.released(at)),
            Event::JobRevised(e) => {
                self.submitted(e.ingress_sequence);
                self.update(&e.job, |_, live| Job::revised(live, e));
            }
            Event::JobRequeued(e) => drop(self.submitted(e.ingress_sequence)),
            Event::JobCancelRequested(e) => {
                self.submitted(e.ingress_sequence);
                self.update(&e.job, |job, _| job.cancelled_by.clone_from(&e.by));
            }
            Event::AllocationDecided(e) => self.allocate(e, state, at),
            Event::AllocationUnchanged(e) => self.wait(&e.outcome.waiting, at),
            other => self.evolve_incarnations(other, (state, before), at),
        }
    }

    /// # Errors
    /// The broken invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        for (id, job) in self.live() {
            if job.phase.is_over() || job.live.is_none() {
                return Err(format!("{id} is {} but counts as live", job.phase));
            }
            if job.phase == Phase::Running && job.now == 0 {
                return Err(format!("{id} runs without containers"));
            }
        }
        for (phase, count) in self.counts.iter().filter(|(phase, _)| !phase.is_over()) {
            let live = self.live.values();
            let found = live.filter(|job| job.phase == phase).count() as u64;
            if found != count {
                return Err(format!("{found} jobs are {phase} but {count} are counted"));
            }
        }
        Ok(())
    }
}
