//! Simulates the containers of a task set. A container runs tasks of equal length in turn and reports
//! whole batches.

use dormouse_agent_core::state::AgentState;
use dormouse_messages::events::{FailedTask, TasksEnded};
use dormouse_messages::ids::{ContainerId, Rank};
use dormouse_messages::{NodeId, TaskRanges, Timestamp};

use super::agents::ModelAgents;
use super::faults::{Faults, Saving};
use super::incarnation::{Due, IncarnationId, after, exited, incarnation_of};

pub fn fail_one(tasks: &mut TaskRanges) -> Vec<FailedTask> {
    let failed = tasks.take_lowest(1, 1);
    let failed = failed.iter().map(|task| FailedTask { task, exit_code: 1 });
    failed.collect()
}

impl ModelAgents {
    pub(super) fn give(&mut self, state: &AgentState, id: &ContainerId, now: Timestamp) {
        let incarnation = incarnation_of(id);
        let task_s = self.jobs.get(&incarnation.0).and_then(|job| job.task_s);
        let gang = self.gangs.get_mut(&incarnation);
        let gang = gang.filter(|gang| gang.containers.contains_key(&id.rank));
        let (Some(task_s), Some(gang)) = (task_s, gang) else {
            return;
        };
        let Some((_, partition)) = state.partition(id) else {
            return;
        };
        let queue = gang.tasks.entry(id.rank).or_default();
        let mut given = TaskRanges::default();
        for (order, tasks) in partition.orders_of(id.rank) {
            if *order > queue.newest {
                queue.newest = *order;
                given.extend(tasks);
            }
        }
        if let Some(tasks) = queue.give(&given, now) {
            self.run_tasks(&incarnation, id.rank, tasks, task_s, now);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "at most a million tasks")]
    pub(super) fn run_tasks(
        &mut self,
        incarnation: &IncarnationId,
        rank: Rank,
        tasks: u64,
        task_s: f64,
        now: Timestamp,
    ) {
        let at = after(now, task_s * tasks as f64);
        self.schedule(at, incarnation.clone(), Due::TasksEnded(rank));
    }

    pub(super) fn tasks_ended(
        &mut self,
        incarnation: &IncarnationId,
        rank: Rank,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let task_s = self.jobs.get(&incarnation.0).and_then(|job| job.task_s);
        let gang = self.gangs.get_mut(incarnation);
        let gang = gang.filter(|gang| !gang.stopping.contains(&rank));
        let (Some(task_s), Some(gang)) = (task_s, gang) else {
            return;
        };
        let (Some((node, _)), Some(queue)) =
            (gang.containers.get(&rank), gang.tasks.get_mut(&rank))
        else {
            return;
        };
        let node = node.clone();
        let mut completed = queue.ended();
        let failed = if faults.task_fails() {
            fail_one(&mut completed)
        } else {
            Vec::new()
        };
        let next = if gang.draining.contains(&rank) {
            None
        } else {
            queue.begin(now)
        };
        let failures = failed.len();
        self.report_tasks(incarnation, rank, node, (completed, failed));
        if let Some(tasks) = next {
            self.run_tasks(incarnation, rank, tasks, task_s, now);
        }
        self.note_blame(&incarnation.0, u32::try_from(failures).unwrap_or(u32::MAX));
    }

    /// Drains a container of a task set. Nothing is saved, so no save fails, but a task may outlast the
    /// grace period.
    pub(super) fn drain(&mut self, id: &ContainerId, now: Timestamp, faults: &mut Faults) {
        let incarnation = incarnation_of(id);
        let job = self.jobs.get(&incarnation.0);
        let save_s = job.map_or(0.0, |job| job.model.save_s(incarnation.1));
        let Some(gang) = self.gangs.get_mut(&incarnation) else {
            return;
        };
        let hangs = || faults.saving() == Saving::Hangs;
        if !*gang.hangs.get_or_insert_with(hangs) {
            gang.draining.insert(id.rank);
            self.schedule(after(now, save_s), incarnation, Due::Drained);
        }
    }

    pub(super) fn drained(&mut self, incarnation: &IncarnationId, now: Timestamp) {
        let task_s = self.jobs.get(&incarnation.0).and_then(|job| job.task_s);
        let Some(gang) = self.gangs.get_mut(incarnation) else {
            return;
        };
        let mut left = Vec::new();
        for rank in std::mem::take(&mut gang.draining) {
            let queue = gang.tasks.get_mut(&rank).zip(task_s);
            let completed = queue.map(|(queue, task_s)| queue.cut_short(task_s, now));
            if let Some((node, _)) = gang.containers.get(&rank) {
                left.push((rank, node.clone(), completed.unwrap_or_default()));
            }
        }
        for (rank, node, completed) in &left {
            let ended = (completed.clone(), Vec::new());
            self.report_tasks(incarnation, *rank, node.clone(), ended);
        }
        for (rank, ..) in left {
            self.end(incarnation, rank, exited(0));
        }
    }

    fn report_tasks(
        &mut self,
        incarnation: &IncarnationId,
        rank: Rank,
        node: NodeId,
        (completed, failed): (TaskRanges, Vec<FailedTask>),
    ) {
        if completed.is_empty() && failed.is_empty() {
            return;
        }
        let ended = TasksEnded {
            job: incarnation.0.clone(),
            incarnation: incarnation.1,
            rank,
            node: node.clone(),
            completed,
            failed,
        };
        self.says(node, ended);
    }
}
