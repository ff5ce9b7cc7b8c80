//! Assigns tasks to containers.
//!
//! A container holds about [`AHEAD_US`] of work by the measured pace, so that none idles while reports
//! travel; of longer tasks, one. Near the end a container gets its share of the rest (guided self-scheduling:
//! Polychronopoulos and Kuck 1987, with half of their chunks), so all end together.

use dormouse_messages::JobId;
use dormouse_messages::events::{Assigned, StopReason};
use dormouse_state::{ContainerPhase, Partition, TaskSet};

/// A report and its answer take some 10 ms, on a busy machine 100 ms.
const AHEAD_US: u64 = 500_000;

/// Bounds reruns after a death.
const MOST: u64 = 512;

const NAMED: usize = 10;

/// Returns a finished set's outcome.
pub fn over(set: &TaskSet) -> Option<StopReason> {
    let ended = set.remaining() == 0;
    ended.then_some(if set.failed.is_empty() {
        StopReason::Completed
    } else {
        StopReason::GaveUp
    })
}

/// Explains a failure; `None` if no task failed.
pub fn why_failed(id: &JobId, set: &TaskSet) -> Option<String> {
    let first = set.first_failed?;
    let some: Vec<_> = set.failed.iter().take(NAMED).collect();
    let names: Vec<_> = some.iter().map(u32::to_string).collect();
    let more = if set.failed.len() > NAMED as u64 {
        ", …"
    } else {
        ""
    };
    Some(format!(
        "{} of {} tasks failed ({}{more}); task {} exited with {}: see `dormouse job logs {id} --task {}`",
        set.failed.len(),
        set.count,
        names.join(", "),
        first.task,
        first.exit_code,
        first.task,
    ))
}

/// Returns the next tasks of low containers.
pub fn assign(set: &TaskSet, partition: &Partition) -> Option<Vec<Assigned>> {
    if set.pending.is_empty() {
        return None;
    }
    let containers = partition.containers.len() as u64;
    let ahead = match set.pace_us {
        Some(pace_us) => (AHEAD_US / pace_us.max(1)).clamp(1, MOST),
        None => 1,
    };
    let mut pending = set.pending.clone();
    let mut all = Vec::new();
    let started = partition.containers.iter();
    let started = started.filter(|(_, container)| container.phase == ContainerPhase::Started);
    for (rank, _) in started {
        let has = set.assigned.get(rank).map_or(0, |given| given.tasks.len());
        let fair = pending.len().div_ceil(2 * containers);
        let wanted = ahead.min(fair);
        // One order for half of the wanted tasks.
        if has * 2 >= wanted + wanted % 2 {
            continue;
        }
        let count = u32::try_from(wanted - has.min(wanted)).unwrap_or(u32::MAX);
        let tasks = pending.take_lowest(count, Assigned::RANGES);
        if !tasks.is_empty() {
            all.push(Assigned { rank: *rank, tasks });
        }
    }
    (!all.is_empty()).then_some(all)
}

#[cfg(test)]
mod tests {
    use dormouse_messages::job::Tasks;
    use dormouse_messages::{Epoch, Incarnation, Rank, TaskRanges, Timestamp};
    use dormouse_state::{PartitionContainer, PartitionPhase, Place};

    use super::*;

    fn partition(containers: u32) -> Partition {
        let container = PartitionContainer {
            place: Place {
                node: "n0".parse().expect("a node"),
                gpus: Vec::new(),
                port: 0,
            },
            phase: ContainerPhase::Started,
            readiness: dormouse_state::Readiness::Unknown,
        };
        Partition {
            incarnation: Incarnation(1),
            epoch: Epoch(1),
            requested_at: Timestamp::from_micros(0),
            running_since: Some(Timestamp::from_micros(0)),
            ready_at: None,
            last_event: dormouse_messages::Sequence(1),
            resumed_from: None,
            containers: (0..containers)
                .map(|rank| (Rank(rank), container.clone()))
                .collect(),
            numbered: Rank(containers),
            phase: PartitionPhase::Running,
            ran: true,
            begun: containers,
            rejoined: false,
            members: None,
        }
    }

    fn set(count: u32, pace_us: Option<u64>) -> TaskSet {
        let mut set = TaskSet::new(Tasks {
            count,
            concurrency: 8,
        });
        set.pace_us = pace_us;
        set
    }

    fn counts(assigned: Option<&[Assigned]>) -> Vec<u64> {
        let assigned = assigned.unwrap_or_default().iter();
        assigned.map(|assigned| assigned.tasks.len()).collect()
    }

    fn given(set: &mut TaskSet, assigned: &[Assigned]) {
        for assigned in assigned {
            set.assign(assigned, Timestamp::from_micros(0));
        }
    }

    #[test]
    fn before_anything_is_known_each_gets_one() {
        let mut set = set(100, None);
        let assigned = assign(&set, &partition(4)).expect("tasks");
        assert_eq!(counts(Some(&assigned)), [1, 1, 1, 1]);
        given(&mut set, &assigned);
        assert_eq!(assign(&set, &partition(4)), None, "each has one");
    }

    #[test]
    fn short_tasks_are_given_ahead_and_long_ones_are_not() {
        assert_eq!(
            counts(assign(&set(10_000, Some(10_000)), &partition(2)).as_deref()),
            [50, 50]
        );
        assert_eq!(
            counts(assign(&set(10_000, Some(9_000_000)), &partition(2)).as_deref()),
            [1, 1]
        );
        assert_eq!(
            counts(assign(&set(10_000, Some(0)), &partition(2)).as_deref()),
            [512, 512]
        );
    }

    #[test]
    fn the_last_tasks_are_shared_out() {
        let mut set = set(16, Some(1));
        let mut orders = Vec::new();
        while let Some(assigned) = assign(&set, &partition(2)) {
            orders.push(counts(Some(&assigned)));
            given(&mut set, &assigned);
            set.assigned.clear();
        }
        assert_eq!(orders, [[4, 3], [3, 2], [1, 1], [1, 1]]);
        assert!(set.pending.is_empty());
    }

    #[test]
    fn only_what_has_started_gets_tasks_and_each_task_is_given_once() {
        let mut partition = partition(3);
        if let Some(container) = partition.containers.get_mut(&Rank(1)) {
            container.phase = ContainerPhase::Requested;
        }
        let assigned = assign(&set(100, Some(100_000)), &partition).expect("tasks");
        let ranks: Vec<_> = assigned.iter().map(|assigned| assigned.rank.0).collect();
        assert_eq!(ranks, [0, 2]);
        let mut all = TaskRanges::default();
        for assigned in &assigned {
            assert!(all.take_common(&assigned.tasks).is_empty());
            all.extend(&assigned.tasks);
        }
        assert_eq!(all.len(), 10);
    }

    #[test]
    fn a_container_with_half_of_its_work_left_is_not_disturbed() {
        let mut set = set(10_000, Some(10_000));
        let assigned = assign(&set, &partition(1)).expect("tasks");
        given(&mut set, &assigned);
        let rank = set.assigned.get_mut(&Rank(0)).expect("given");
        let _ = rank.tasks.take_lowest(24, usize::MAX);
        assert_eq!(assign(&set, &partition(1)), None, "26 of 50 are left");
        let rank = set.assigned.get_mut(&Rank(0)).expect("given");
        let _ = rank.tasks.take_lowest(2, usize::MAX);
        assert_eq!(counts(assign(&set, &partition(1)).as_deref()), [26]);
    }

    #[test]
    fn a_failed_set_names_its_tasks() {
        let mut set = set(3, None);
        assert_eq!(over(&set), None);
        set.pending = TaskRanges::default();
        set.completed = 3;
        assert_eq!(over(&set), Some(StopReason::Completed));
        set.completed = 2;
        set.failed.insert(1);
        set.first_failed = Some(dormouse_messages::events::FailedTask {
            task: 1,
            exit_code: 9,
        });
        assert_eq!(over(&set), Some(StopReason::GaveUp));
        let id: JobId = "ads/set".parse().expect("an id");
        let why = why_failed(&id, &set).expect("a reason");
        assert!(
            why.starts_with("1 of 3 tasks failed (1); task 1 exited with 9"),
            "{why}"
        );
    }
}
