//! The tasks of a task set: pending, assigned, completed or failed.
//!
//! ```text
//!            assigned               exited with 0
//!   pending ───────────▶ assigned ────────────────▶ completed
//!      ▲                  │   │ failed, retries left
//!      │ partition ended  │   │           no retry left
//!      └──────────────────┴───┴──────────────────────▶ failed
//! ```
//!
//! Invariant: a task is in one of the four places. Repeated or outdated reports change nothing, so a task
//! completes once, though the task may run twice when a container is lost.

use std::collections::BTreeMap;

use dormouse_messages::events::{Assigned, FailedTask, TasksEnded};
use dormouse_messages::job::Tasks;
use dormouse_messages::{Rank, TaskRanges, Timestamp};
use serde::{Deserialize, Serialize};

/// A container's unreported tasks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    pub tasks: TaskRanges,
    pub since: Timestamp,
}

/// The tasks of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSet {
    pub count: u32,
    pub pending: TaskRanges,
    pub assigned: BTreeMap<Rank, Given>,
    pub completed: u32,
    pub failed: TaskRanges,
    pub first_failed: Option<FailedTask>,
    /// Only tasks to be retried.
    pub failures: BTreeMap<u32, u32>,
    pub retried: u32,
    /// Moving average per container, in microseconds.
    pub pace_us: Option<u64>,
}

impl TaskSet {
    /// Returns all tasks as pending.
    #[must_use]
    pub fn new(tasks: Tasks) -> Self {
        Self {
            count: tasks.count,
            pending: TaskRanges::first(tasks.count),
            assigned: BTreeMap::new(),
            completed: 0,
            failed: TaskRanges::default(),
            first_failed: None,
            failures: BTreeMap::new(),
            retried: 0,
            pace_us: None,
        }
    }

    /// Counts unended tasks.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        let ended = u64::from(self.completed) + self.failed.len();
        u64::from(self.count).saturating_sub(ended)
    }

    /// Counts the assigned tasks.
    #[must_use]
    pub fn running(&self) -> u64 {
        self.assigned.values().map(|given| given.tasks.len()).sum()
    }

    /// Assigns tasks to a container.
    pub fn assign(&mut self, assigned: &Assigned, at: Timestamp) {
        let tasks = self.pending.take_common(&assigned.tasks);
        let given = self.assigned.entry(assigned.rank).or_insert_with(|| Given {
            tasks: TaskRanges::default(),
            since: at,
        });
        if given.tasks.is_empty() {
            given.since = at;
        }
        given.tasks.extend(&tasks);
    }

    /// Records a container's report.
    pub fn ended(&mut self, event: &TasksEnded, retries: u32, at: Timestamp) {
        let Some(given) = self.assigned.get_mut(&event.rank) else {
            return;
        };
        let completed = given.tasks.take_common(&event.completed);
        let failed = event.failed.iter().copied();
        let failed: Vec<_> = failed
            .filter(|failed| given.tasks.remove(failed.task))
            .collect();
        let ended = completed.len() + failed.len() as u64;
        if ended == 0 {
            return;
        }
        let sample_us = at.micros_since(given.since) / ended;
        given.since = at;
        // Each sample weighs half of its successor.
        self.pace_us = Some(match self.pace_us {
            Some(pace_us) => pace_us.midpoint(sample_us),
            None => sample_us,
        });
        self.completed += u32::try_from(completed.len()).unwrap_or(u32::MAX);
        if !self.failures.is_empty() {
            for task in completed.iter() {
                self.failures.remove(&task);
            }
        }
        for failed in failed {
            self.fail(failed, retries);
        }
    }

    fn fail(&mut self, failed: FailedTask, retries: u32) {
        let failures = self.failures.entry(failed.task).or_insert(0);
        *failures += 1;
        if *failures <= retries {
            self.retried += 1;
            self.pending.insert(failed.task);
            return;
        }
        self.failures.remove(&failed.task);
        self.failed.insert(failed.task);
        self.first_failed.get_or_insert(failed);
    }

    /// Returns unreported tasks to pending.
    pub fn partition_ended(&mut self) {
        for (_, given) in std::mem::take(&mut self.assigned) {
            self.pending.extend(&given.tasks);
        }
    }

    /// Checks that every task is in exactly one place.
    ///
    /// # Errors
    /// The discrepancy.
    pub fn check(&self) -> Result<(), String> {
        let known = self.pending.len() + self.running() + self.failed.len();
        if known + u64::from(self.completed) == u64::from(self.count) {
            Ok(())
        } else {
            Err(format!(
                "of {} tasks {} wait, {} are assigned, {} completed and {} failed",
                self.count,
                self.pending.len(),
                self.running(),
                self.completed,
                self.failed.len()
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Rank = Rank(0);

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_micros(ms * 1000)
    }

    fn ranges(tasks: &[u32]) -> TaskRanges {
        tasks.iter().copied().collect()
    }

    fn set(count: u32, given: &[u32]) -> TaskSet {
        let mut set = TaskSet::new(Tasks {
            count,
            concurrency: 1,
        });
        let assigned = Assigned {
            rank: FIRST,
            tasks: ranges(given),
        };
        set.assign(&assigned, at(0));
        set
    }

    fn report(completed: &[u32], failed: &[u32]) -> TasksEnded {
        let failed = failed.iter().map(|task| FailedTask {
            task: *task,
            exit_code: 3,
        });
        TasksEnded {
            job: "ads/set".parse().expect("an id"),
            incarnation: dormouse_messages::Incarnation(1),
            rank: FIRST,
            node: "n0".parse().expect("a node"),
            completed: ranges(completed),
            failed: failed.collect(),
        }
    }

    #[test]
    fn a_report_that_comes_twice_counts_once() {
        let mut set = set(10, &[0, 1, 2]);
        for _ in 0..2 {
            set.ended(&report(&[0, 2], &[]), 0, at(10));
            assert_eq!((set.completed, set.running(), set.remaining()), (2, 1, 8));
            set.check().expect("consistent");
        }
    }

    #[test]
    fn what_the_container_does_not_have_is_not_believed() {
        let mut set = set(10, &[0]);
        set.ended(&report(&[5], &[6]), 0, at(10));
        assert_eq!((set.completed, set.remaining()), (0, 10));
        set.check().expect("consistent");
    }

    #[test]
    fn a_failed_task_is_tried_again_by_itself_and_then_given_up() {
        let mut set = set(3, &[0, 1, 2]);
        set.ended(&report(&[0, 2], &[1]), 1, at(10));
        assert_eq!(set.pending, ranges(&[1]));
        let again = Assigned {
            rank: FIRST,
            tasks: ranges(&[1]),
        };
        set.assign(&again, at(20));
        set.ended(&report(&[], &[1]), 1, at(30));
        assert_eq!((set.remaining(), &set.failed), (0, &ranges(&[1])));
        assert_eq!(set.first_failed.map(|failed| failed.task), Some(1));
        set.check().expect("consistent");
    }

    #[test]
    fn what_a_partition_has_not_reported_is_to_be_done_again() {
        let mut set = set(4, &[0, 1, 2]);
        set.ended(&report(&[1], &[]), 0, at(10));
        set.partition_ended();
        assert_eq!(set.pending, ranges(&[0, 2, 3]));
        set.ended(&report(&[0], &[]), 0, at(20));
        assert_eq!(
            set.completed, 1,
            "a late report is of a partition that is over"
        );
        set.check().expect("consistent");
    }

    #[test]
    fn the_pace_follows_what_is_reported() {
        let mut set = set(100, &[0, 1, 2, 3]);
        set.ended(&report(&[0], &[]), 0, at(40));
        assert_eq!(set.pace_us, Some(40_000));
        set.ended(&report(&[1, 2], &[]), 0, at(60));
        assert_eq!(set.pace_us, Some(25_000));
    }
}
