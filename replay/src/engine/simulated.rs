//! The progress and the speed of a model job.

use dormouse_messages::ids::Incarnation;
use dormouse_messages::job::{CheckpointMode, JobSpec};
use dormouse_messages::{AuxiliaryRoles, Timestamp};

use super::model::ModelJob;

#[derive(Debug, Clone)]
pub(super) struct Simulated {
    pub(super) model: ModelJob,
    pub(super) mode: CheckpointMode,
    pub(super) in_place: bool,
    pub(super) served: bool,
    pub(super) task_s: Option<f64>,
    /// Work done and work saved, in seconds of one container.
    pub(super) done: f64,
    pub(super) saved: f64,
    pub(super) working: Option<(Timestamp, f64)>,
    /// Invalidates due events of older plans.
    pub(super) plan: u64,
    pub(super) failed: usize,
    pub(super) ended: Option<f64>,
    /// The incarnation that worked last; older ones no longer affect the work.
    pub(super) incarnation: Option<Incarnation>,
    pub(super) auxiliary: u32,
}

impl Simulated {
    #[expect(clippy::cast_precision_loss, reason = "at most a million tasks")]
    pub(super) fn of(
        model: ModelJob,
        mode: CheckpointMode,
        in_place: bool,
        served: bool,
        tasks: Option<u64>,
    ) -> Self {
        Self {
            task_s: tasks.map(|tasks| model.work_container_s / tasks.max(1) as f64),
            model,
            mode,
            in_place,
            served,
            done: 0.0,
            saved: 0.0,
            working: None,
            plan: 0,
            failed: 0,
            ended: None,
            incarnation: None,
            auxiliary: 0,
        }
    }

    pub(super) fn pause(&mut self, now: Timestamp) {
        self.plan += 1;
        self.done = self.done_at(now);
        self.working = None;
    }

    pub(super) fn done_at(&self, now: Timestamp) -> f64 {
        let since = self.working;
        let more = since.map(|(since, speed)| now.seconds_since(since).max(0.0) * speed);
        self.done + more.unwrap_or(0.0)
    }

    /// Half a microsecond less, since due times round up.
    pub(super) fn just_below(&self, now: Timestamp) -> f64 {
        let speed = self.working.map_or(0.0, |(_, speed)| speed);
        (self.done_at(now) - speed * 5e-7).max(0.0)
    }

    pub(super) fn die(&mut self) {
        self.plan += 1;
        self.working = None;
        self.done = self.saved;
    }
}

impl Simulated {
    pub(super) fn admitted(model: ModelJob, spec: &JobSpec) -> Self {
        let tasks = spec.tasks.map(|tasks| u64::from(tasks.count));
        let (in_place, served) = (spec.is_in_place(), spec.service.is_some());
        Self {
            auxiliary: AuxiliaryRoles::of(spec).count(),
            ..Self::of(model, spec.checkpoint.mode, in_place, served, tasks)
        }
    }
}
