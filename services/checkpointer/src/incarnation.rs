//! The steps of a job's incarnation: start, save, stop and end.

use dormouse_messages::events::{
    CheckpointRequested, JobCompleted, PartitionStarted, PartitionStopRequested, PartitionStopped,
    ResizeAbandoned, StopReason, TasksAssigned,
};
use dormouse_messages::job::{CheckpointMode, Success};
use dormouse_messages::{Epoch, JobId, NodeId, Proposal, Rank, Sequence, Timestamp};
use dormouse_state::{
    ClusterState, ContainerPhase, Job, Partition, PartitionContainer, PartitionPhase,
};

use crate::tasks;

/// The least retries of a task set, which loses little when a container dies.
const TASK_SET_RETRIES: u32 = 3;

/// The step of a job.
pub enum Step {
    Append(Box<Proposal>),
    /// Nothing is due before an event or this time.
    Wait(Option<Timestamp>),
}

impl From<Proposal> for Step {
    fn from(proposal: Proposal) -> Self {
        Self::Append(Box::new(proposal))
    }
}

pub fn earliest(a: Option<Timestamp>, b: Option<Timestamp>) -> Option<Timestamp> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

pub fn completed(id: &JobId, job: &Job, reason: &str, cause: Sequence) -> Step {
    let event = JobCompleted {
        job: id.clone(),
        reason: reason.to_owned(),
        attempts: job.attempts,
        #[cfg(feature = "test-format")]
        format: None,
        basis: None,
    };
    Proposal::new(event, cause).into()
}

/// The containers' combined state.
enum Verdict {
    /// Nothing final.
    Running,
    /// The job has succeeded.
    Succeeded(Sequence),
    /// All that count have succeeded; others still run.
    WorkersSucceeded(Sequence),
    /// A member died.
    Failed { evicted: bool, at: Sequence },
    /// A node of the gang was lost.
    Lost(Sequence),
}

/// A job with an incarnation.
pub struct Act<'a> {
    pub state: &'a ClusterState,
    pub id: &'a JobId,
    pub job: &'a Job,
    pub partition: &'a Partition,
    pub start_timeout_s: u32,
}

impl Act<'_> {
    /// Reports whether nothing ends the incarnation.
    pub fn is_alive(&self) -> bool {
        matches!(self.verdict(), Verdict::Running)
    }

    fn verdict(&self) -> Verdict {
        let auxiliary = &self.job.auxiliary;
        let (workers, roles): (Vec<_>, Vec<_>) = self
            .partition
            .containers
            .iter()
            .partition(|(rank, _)| auxiliary.is_worker(**rank));
        let verdict = self.verdict_of(&workers);
        match verdict {
            // After the workers' success, other roles do not matter.
            Verdict::Running => {}
            verdict => return verdict,
        }
        let mut deaths = roles.iter().filter_map(|(_, container)| {
            Some(match &container.phase {
                ContainerPhase::Lost { at } => Verdict::Lost(*at),
                ContainerPhase::Exited {
                    success: false,
                    evicted,
                    at,
                    ..
                } => Verdict::Failed {
                    evicted: *evicted,
                    at: *at,
                },
                _ => return None,
            })
        });
        deaths.next().unwrap_or(verdict)
    }

    fn verdict_of(&self, workers: &[(&Rank, &PartitionContainer)]) -> Verdict {
        let mut succeeded = Some(Sequence(0));
        let mut failed = None;
        // Containers of a task set run until asked to leave.
        let may_leave = self.job.tasks.is_none();
        for (rank, container) in workers {
            match &container.phase {
                ContainerPhase::Lost { at } => return Verdict::Lost(*at),
                ContainerPhase::Exited {
                    success: true, at, ..
                } if may_leave => {
                    if **rank == Rank(0) && self.job.success == Success::Coordinator {
                        return if self.partition.is_over() {
                            Verdict::Succeeded(*at)
                        } else {
                            Verdict::WorkersSucceeded(*at)
                        };
                    }
                    succeeded = succeeded.map(|newest| newest.max(*at));
                }
                ContainerPhase::Exited { evicted, at, .. } => {
                    failed.get_or_insert((*evicted, *at));
                    succeeded = None;
                }
                ContainerPhase::Requested | ContainerPhase::Started => succeeded = None,
            }
        }
        match (failed, succeeded) {
            (Some((evicted, at)), _) => Verdict::Failed { evicted, at },
            (None, Some(at)) if self.partition.is_over() => Verdict::Succeeded(at),
            (None, Some(at)) => Verdict::WorkersSucceeded(at),
            (None, None) => Verdict::Running,
        }
    }

    /// Returns a newer placement's epoch.
    pub fn adjusted(&self) -> Option<(Epoch, Sequence)> {
        let assignment = self.job.assignment.as_ref()?;
        let newer = assignment.incarnation > self.partition.incarnation;
        newer.then_some((assignment.epoch, assignment.placed))
    }

    /// A gang without places leaves a drained node and waits.
    fn leaving(&self) -> Option<(Epoch, Sequence)> {
        let leaves = self.job.assignment.is_none();
        leaves.then_some((self.partition.epoch, self.partition.last_event))
    }

    pub fn ended(&self) -> Option<Step> {
        match self.verdict() {
            Verdict::Running => None,
            Verdict::Succeeded(at) => Some(completed(
                self.id,
                self.job,
                "every container that counts succeeded",
                at,
            )),
            Verdict::WorkersSucceeded(at) => Some(self.stop(StopReason::Completed, at)),
            Verdict::Failed { evicted, at } => Some(self.fail(evicted, at)),
            Verdict::Lost(at) => Some(self.stop(StopReason::NodeLost, at)),
        }
    }

    pub fn fail(&self, evicted: bool, at: Sequence) -> Step {
        let evicted = evicted && !self.job.start_faults.are_the_jobs();
        let retries = match self.job.tasks {
            Some(_) => self.job.retries.max(TASK_SET_RETRIES),
            None => self.job.retries,
        };
        // A service is retried until cancelled.
        let last_try = !evicted && self.job.attempts >= retries && !self.job.is_served();
        let reason = if last_try {
            StopReason::GaveUp
        } else {
            StopReason::Failed
        };
        self.stop(reason, at)
    }

    /// Returns the step of an incarnation that nothing has ended.
    pub fn living(&self, now: Timestamp) -> Step {
        if let Some(requested) = self.job.cancel_requested {
            return self.stop(StopReason::Cancelled, requested);
        }
        if self.partition.phase == PartitionPhase::Starting {
            return self.starting(now);
        }
        if let Some(reason) = self.job.tasks.as_ref().and_then(tasks::over) {
            return self.stop(reason, self.partition.last_event);
        }
        let not_before = self.left_alone_until().filter(|until| now < *until);
        let adjusted = self.adjusted().or_else(|| self.leaving());
        if let Some((epoch, placed)) = adjusted.filter(|_| not_before.is_none()) {
            if self.job.mode == CheckpointMode::None {
                return self.stop(StopReason::Adjusted, placed);
            }
            let event = CheckpointRequested {
                job: self.id.clone(),
                epoch,
                incarnation: self.partition.incarnation,
                basis: None,
            };
            return Proposal::new(event, placed).into();
        }
        let set = self.job.tasks.as_ref();
        if let Some(assigned) = set.and_then(|set| tasks::assign(set, self.partition)) {
            let event = TasksAssigned {
                job: self.id.clone(),
                incarnation: self.partition.incarnation,
                assigned,
                basis: None,
            };
            return Proposal::new(event, self.partition.last_event).into();
        }
        let leave_by = self.leave_by();
        if leave_by.is_some_and(|leave_by| leave_by <= now) {
            return self.stop(StopReason::Adjusted, self.partition.last_event);
        }
        Step::Wait(not_before.into_iter().chain(leave_by).min())
    }

    /// Returns the drain's deadline for an unadjustable gang.
    fn leave_by(&self) -> Option<Timestamp> {
        if self.job.is_adjustable() {
            return None;
        }
        let nodes = &self.state.nodes;
        let containers = self
            .partition
            .containers
            .values()
            .filter(|it| it.holds_room());
        let on = containers.filter_map(|it| nodes.get(&it.place.node)?.leave_by);
        on.min()
    }

    fn is_open(&self, node: &NodeId) -> bool {
        self.state.nodes.is_open(&self.job.needs, node)
    }

    /// Returns the end of the time in which other jobs may not adjust a new job.
    fn left_alone_until(&self) -> Option<Timestamp> {
        self.adjusted()?;
        let mut containers = self.partition.containers.values();
        let may_stay = containers.all(|c| self.is_open(&c.place.node));
        let settled = self.job.settled_at(&self.state.policy);
        settled.filter(|_| may_stay && self.job.mode != CheckpointMode::None)
    }

    pub fn starting(&self, now: Timestamp) -> Step {
        if self.partition.all_started() {
            let event = PartitionStarted {
                job: self.id.clone(),
                epoch: self.partition.epoch,
                incarnation: self.partition.incarnation,
                containers: u32::try_from(self.partition.containers.len()).unwrap_or(u32::MAX),
                resumed_from: self.partition.resumed_from.clone(),
                basis: None,
            };
            return Proposal::new(event, self.partition.last_event).into();
        }
        let deadline = self
            .partition
            .requested_at
            .plus_ms(u64::from(self.start_timeout_s) * 1000);
        if now >= deadline {
            return self.fail(false, self.partition.last_event);
        }
        Step::Wait(Some(deadline))
    }

    /// Mode `exit` ends by saving; mode `continue` is stopped once saved.
    pub fn saving(&self, now: Timestamp) -> Step {
        let PartitionPhase::Saving {
            since,
            requested,
            saved,
            failed,
        } = &self.partition.phase
        else {
            return Step::Wait(None);
        };
        if self.partition.is_over() {
            return self.stopped(StopReason::Adjusted, *requested);
        }
        if self.job.mode == CheckpointMode::Exit && !self.some_worker_runs() {
            // Remaining roles have nothing to save.
            return self.stop(StopReason::Adjusted, self.partition.last_event);
        }
        if let Verdict::Lost(at) = self.verdict() {
            return self.stop(StopReason::NodeLost, at);
        }
        if let Some(requested) = self.job.cancel_requested {
            return self.stop(StopReason::Cancelled, requested);
        }
        let deadline = since.plus_ms(u64::from(self.job.grace_s) * 1000);
        match (self.job.mode, saved, failed) {
            (CheckpointMode::Continue, Some(saved), _) => self.stop(StopReason::Adjusted, *saved),
            (CheckpointMode::Continue, None, Some((at, why))) => self.keep(*at, why),
            (CheckpointMode::Continue, None, None) if now >= deadline => {
                let why = format!("no checkpoint within {} s", self.job.grace_s);
                self.keep(*requested, &why)
            }
            (_, _, Some((at, _))) => self.stop(StopReason::Adjusted, *at),
            (CheckpointMode::Exit, None, None) if self.is_past_saving() => {
                self.stop(StopReason::Adjusted, self.partition.last_event)
            }
            (_, _, None) if now >= deadline => self.stop(StopReason::Adjusted, *requested),
            _ => Step::Wait(Some(deadline)),
        }
    }

    /// Reports whether nobody can save: rank 0, which reports, has ended; or a rank died before any progress,
    /// and rank 0 waits for the dead rank. After progress rank 0 may still be writing.
    fn is_past_saving(&self) -> bool {
        if self.job.tasks.is_some() {
            // Containers of a task set leave without saving, after their task.
            return false;
        }
        let coordinator = self.partition.containers.get(&Rank(0));
        coordinator.is_some_and(|coordinator| !coordinator.holds_room())
            || self.partition.ready_at.is_none() && self.has_dead()
    }

    /// Abandons the adjustment, unless the gang must move.
    fn keep(&self, cause: Sequence, why: &str) -> Step {
        let mut containers = self.partition.containers.values();
        let whole = containers.all(|c| c.holds_room() && self.is_open(&c.place.node));
        let Some((epoch, _)) = self.adjusted().filter(|_| whole) else {
            return self.stop(StopReason::Adjusted, cause);
        };
        let event = ResizeAbandoned {
            job: self.id.clone(),
            epoch,
            incarnation: self.partition.incarnation,
            reason: format!("the checkpoint failed ({why}); it stays as it was"),
            basis: None,
        };
        Proposal::new(event, cause).into()
    }

    pub fn stopping(&self, reason: StopReason, requested: Sequence, whole: bool) -> Step {
        if self.partition.is_over() {
            return if self.is_excused(reason, requested, whole) {
                self.stopped_after(StopReason::Failed, self.job.attempts, requested)
            } else {
                self.stopped(reason, requested)
            };
        }
        // The agent kills after the grace period; a lost node ends its containers here.
        Step::Wait(None)
    }

    /// Without running containers, reports the stop at once.
    pub fn stop(&self, reason: StopReason, cause: Sequence) -> Step {
        if self.partition.is_over() {
            return self.stopped(reason, cause);
        }
        let event = PartitionStopRequested {
            job: self.id.clone(),
            epoch: self.partition.epoch,
            incarnation: self.partition.incarnation,
            containers: u32::try_from(self.partition.containers.len()).unwrap_or(u32::MAX),
            reason,
            grace_s: self.is_without_hope().then_some(0),
            basis: None,
        };
        Proposal::new(event, cause).into()
    }

    /// Reports whether survivors of a final save wait for a dead member.
    fn is_without_hope(&self) -> bool {
        let saves = matches!(self.partition.phase, PartitionPhase::Saving { .. });
        let ends = self.job.mode == CheckpointMode::Exit;
        let gang = self.job.tasks.is_none();
        let no_hope = self.has_dead() || self.is_past_saving();
        saves && ends && gang && self.some_worker_runs() && no_hope
    }

    fn some_worker_runs(&self) -> bool {
        let mut workers = self.workers();
        workers.any(PartitionContainer::holds_room)
    }

    fn workers(&self) -> impl Iterator<Item = &PartitionContainer> {
        let containers = self.partition.containers.iter();
        let workers = containers.filter(|(rank, _)| self.job.auxiliary.is_worker(**rank));
        workers.map(|(_, container)| container)
    }

    fn has_dead(&self) -> bool {
        let is_dead = |container: &PartitionContainer| {
            matches!(
                container.phase,
                ContainerPhase::Exited { success: false, .. }
            )
        };
        self.workers().any(is_dead)
    }

    /// Excuses a start time-out: the gang had started, but the reports were not folded yet; or reports or
    /// agents came late, a few times; or a node was lost.
    fn is_excused(&self, reason: StopReason, requested: Sequence, whole: bool) -> bool {
        let failed = matches!(reason, StopReason::Failed | StopReason::GaveUp);
        let starting = self.partition.running_since.is_none();
        let mut containers = self.partition.containers.values();
        let died = containers.any(|container| {
            matches!(
                container.phase,
                ContainerPhase::Exited { success: false, at, .. } if at < requested
            )
        });
        let mut containers = self.partition.containers.values();
        let cut = containers.any(|it| matches!(it.phase, ContainerPhase::Lost { .. }));
        let late = self.partition.may_have_been_delayed() && self.job.start_faults.may_be_late();
        failed && starting && !died && (whole || cut || late)
    }

    pub fn stopped(&self, reason: StopReason, cause: Sequence) -> Step {
        let own_failure = match reason {
            StopReason::GaveUp => true,
            // Evictions cost no attempt, unless the job itself counts as the cause.
            StopReason::Failed => !self.evicted() || self.job.start_faults.are_the_jobs(),
            _ => false,
        };
        self.stopped_after(reason, self.job.attempts + u32::from(own_failure), cause)
    }

    fn stopped_after(&self, reason: StopReason, attempts: u32, cause: Sequence) -> Step {
        let event = PartitionStopped {
            job: self.id.clone(),
            epoch: self.partition.epoch,
            incarnation: self.partition.incarnation,
            containers: u32::try_from(self.partition.containers.len()).unwrap_or(u32::MAX),
            reason,
            attempts,
            basis: None,
        };
        Proposal::new(event, cause).into()
    }

    /// Reports whether the first failure was an eviction; later members die of the gang's end.
    fn evicted(&self) -> bool {
        let exits =
            self.partition
                .containers
                .values()
                .filter_map(|container| match &container.phase {
                    ContainerPhase::Exited {
                        success: false,
                        evicted,
                        at,
                        ..
                    } => Some((*at, *evicted)),
                    _ => None,
                });
        exits.min().is_some_and(|(_, evicted)| evicted)
    }
}
