//! The containers of a task set, as a model: each runs its tasks one after another, all of the
//! same length, and reports a whole batch when it has ended.

use dormouse_messages::events::FailedTask;
use dormouse_messages::{TaskRanges, Timestamp};

/// What one container has to run.
#[derive(Debug, Clone, Default)]
pub struct Queue {
    waiting: TaskRanges,
    running: TaskRanges,
    since: Timestamp,
}

impl Queue {
    /// More tasks, after those it has; how many it begins now, if it was idle.
    pub fn give(&mut self, tasks: &TaskRanges, now: Timestamp) -> Option<u64> {
        self.waiting.extend(tasks);
        match self.running.is_empty() {
            true => self.begin(now),
            false => None,
        }
    }

    /// Begins all that waits; how many, if any.
    pub fn begin(&mut self, now: Timestamp) -> Option<u64> {
        self.running = std::mem::take(&mut self.waiting);
        self.since = now;
        (!self.running.is_empty()).then(|| self.running.len())
    }

    /// What runs has ended.
    pub fn ended(&mut self) -> TaskRanges {
        std::mem::take(&mut self.running)
    }

    /// How many run.
    pub fn running(&self) -> u64 {
        self.running.len()
    }

    /// What a log says has ended; how many it begins now, if that was all that ran.
    pub fn have_ended(
        &mut self,
        completed: &TaskRanges,
        failed: &[FailedTask],
        now: Timestamp,
    ) -> Option<u64> {
        for ended in [&mut self.running, &mut self.waiting] {
            let _ = ended.take_common(completed);
            for task in failed {
                ended.remove(task.task);
            }
        }
        match self.running.is_empty() {
            true => self.begin(now),
            false => None,
        }
    }

    /// What has ended by `now`, where a task takes `task_s`; the rest never will.
    pub fn cut_short(&mut self, task_s: f64, now: Timestamp) -> TaskRanges {
        let done = now.seconds_since(self.since).max(0.0) / task_s.max(1e-6);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most a million tasks"
        )]
        let done = done.min(1e6) as u32;
        self.running.take_lowest(done, usize::MAX)
    }
}

/// One of `tasks` fails: it is taken out of them.
pub fn fail_one(tasks: &mut TaskRanges) -> Vec<FailedTask> {
    let failed = tasks.take_lowest(1, 1);
    let failed = failed.iter().map(|task| FailedTask { task, exit_code: 1 });
    failed.collect()
}
