//! Sets of task numbers, as ranges.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Task numbers of one task set, as inclusive ranges in ascending order: `[[0, 99], [205, 205]]`.
///
/// Ranges never overlap or touch, so that equal sets are written alike.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<(u32, u32)>", into = "Vec<(u32, u32)>")]
#[schemars(with = "Vec<(u32, u32)>")]
pub struct TaskRanges(BTreeMap<u32, u32>);

impl TaskRanges {
    /// Returns the tasks 0 to `count` - 1.
    #[must_use]
    pub fn first(count: u32) -> Self {
        let last = count.checked_sub(1);
        Self(last.map(|last| (0, last)).into_iter().collect())
    }

    /// Counts the tasks.
    #[must_use]
    pub fn len(&self) -> u64 {
        let ranges = self.0.iter();
        ranges
            .map(|(first, last)| u64::from(last - first) + 1)
            .sum()
    }

    /// True if there are no tasks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True for a contained task.
    #[must_use]
    pub fn contains(&self, task: u32) -> bool {
        let before = self.0.range(..=task).next_back();
        before.is_some_and(|(_, last)| task <= *last)
    }

    /// Returns the ranges as (first, last).
    pub fn ranges(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.0.iter().map(|(first, last)| (*first, *last))
    }

    /// Returns the tasks one by one.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges().flat_map(|(first, last)| first..=last)
    }

    /// Adds a task.
    pub fn insert(&mut self, task: u32) {
        self.insert_range(task, task);
    }

    /// Adds `first` to `last`; none if `last` is smaller.
    pub fn insert_range(&mut self, first: u32, last: u32) {
        if last < first {
            return;
        }
        let (mut first, mut last) = (first, last);
        // Merge overlapping and adjacent ranges.
        while let Some((start, end)) = self.touching(first, last) {
            self.0.remove(&start);
            first = first.min(start);
            last = last.max(end);
        }
        self.0.insert(first, last);
    }

    fn touching(&self, first: u32, last: u32) -> Option<(u32, u32)> {
        let (start, end) = self.0.range(..=last.saturating_add(1)).next_back()?;
        (end.saturating_add(1) >= first).then_some((*start, *end))
    }

    /// Removes a task and reports whether it was present.
    pub fn remove(&mut self, task: u32) -> bool {
        let Some((start, end)) = self.0.range(..=task).next_back() else {
            return false;
        };
        let (start, end) = (*start, *end);
        if task > end {
            return false;
        }
        self.0.remove(&start);
        if start < task {
            self.0.insert(start, task - 1);
        }
        if task < end {
            self.0.insert(task + 1, end);
        }
        true
    }

    /// Removes and returns the lowest `count` tasks, in at most `ranges` ranges.
    #[must_use]
    pub fn take_lowest(&mut self, count: u32, ranges: usize) -> Self {
        let mut taken = BTreeMap::new();
        let mut left = count;
        while left > 0
            && taken.len() < ranges
            && let Some((first, last)) = self.0.pop_first()
        {
            let upto = last.min(first.saturating_add(left - 1));
            taken.insert(first, upto);
            left -= upto - first + 1;
            if upto < last {
                self.0.insert(upto + 1, last);
            }
        }
        Self(taken)
    }

    /// Removes and returns tasks in `others`.
    #[must_use]
    pub fn take_common(&mut self, others: &Self) -> Self {
        let mut taken = Self::default();
        for (first, last) in others.ranges() {
            while let Some((start, end)) = self.overlapping(first, last) {
                self.0.remove(&start);
                if start < first {
                    self.0.insert(start, first - 1);
                }
                if last < end {
                    self.0.insert(last + 1, end);
                }
                taken.insert_range(start.max(first), end.min(last));
            }
        }
        taken
    }

    fn overlapping(&self, first: u32, last: u32) -> Option<(u32, u32)> {
        let (start, end) = self.0.range(..=last).next_back()?;
        (*end >= first).then_some((*start, *end))
    }

    /// Adds all of `others`.
    pub fn extend(&mut self, others: &Self) {
        for (first, last) in others.ranges() {
            self.insert_range(first, last);
        }
    }
}

impl From<Vec<(u32, u32)>> for TaskRanges {
    fn from(ranges: Vec<(u32, u32)>) -> Self {
        let mut tasks = Self::default();
        for (first, last) in ranges {
            tasks.insert_range(first, last);
        }
        tasks
    }
}

impl From<TaskRanges> for Vec<(u32, u32)> {
    fn from(tasks: TaskRanges) -> Self {
        tasks.0.into_iter().collect()
    }
}

impl FromIterator<u32> for TaskRanges {
    fn from_iter<I: IntoIterator<Item = u32>>(tasks: I) -> Self {
        let mut ranges = Self::default();
        for task in tasks {
            ranges.insert(task);
        }
        ranges
    }
}

/// Writes `0-99, 205`.
impl fmt::Display for TaskRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (first, last)) in self.ranges().enumerate() {
            if index > 0 {
                f.write_str(", ")?;
            }
            if first == last {
                write!(f, "{first}")?
            } else {
                write!(f, "{first}-{last}")?
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn tasks(numbers: &BTreeSet<u32>) -> TaskRanges {
        numbers.iter().copied().collect()
    }

    fn is_normal(ranges: &TaskRanges) -> bool {
        let all: Vec<_> = ranges.ranges().collect();
        all.iter().all(|(first, last)| first <= last)
            && all.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0)
    }

    proptest! {
        #[test]
        fn is_the_set_that_it_stands_for(
            steps in vec((0_u8..5, 0_u32..40, 0_u32..12), 0..60)
        ) {
            let (mut ranges, mut set) = (TaskRanges::default(), BTreeSet::new());
            for (what, task, more) in steps {
                match what {
                    0 => {
                        ranges.insert_range(task, task + more);
                        set.extend(task..=task + more);
                    }
                    1 => prop_assert_eq!(ranges.remove(task), set.remove(&task)),
                    2 => {
                        let others: BTreeSet<u32> = (task..task + more).step_by(2).collect();
                        let taken = ranges.take_common(&tasks(&others));
                        let common: BTreeSet<u32> = set.intersection(&others).copied().collect();
                        prop_assert_eq!(&taken, &tasks(&common));
                        set.retain(|task| !common.contains(task));
                    }
                    3 => {
                        let taken = ranges.take_lowest(more, usize::MAX);
                        let lowest: BTreeSet<u32> = set.iter().copied().take(more as usize).collect();
                        prop_assert_eq!(&taken, &tasks(&lowest));
                        set.retain(|task| !lowest.contains(task));
                    }
                    _ => {
                        let others: BTreeSet<u32> = (task..task + more).collect();
                        ranges.extend(&tasks(&others));
                        set.extend(others);
                    }
                }
                prop_assert!(is_normal(&ranges), "{:?}", ranges);
                prop_assert_eq!(ranges.iter().collect::<BTreeSet<_>>(), set.clone());
                prop_assert_eq!(ranges.len(), set.len() as u64);
                prop_assert!((0..60).all(|task| ranges.contains(task) == set.contains(&task)));
            }
        }
    }

    #[test]
    fn a_bounded_number_of_ranges_is_taken() {
        let mut ranges: TaskRanges = [0, 2, 4, 6].into_iter().collect();
        assert_eq!(ranges.take_lowest(9, 3).to_string(), "0, 2, 4");
        assert_eq!(ranges.to_string(), "6");
    }

    #[test]
    fn a_set_is_written_as_ranges_and_read_in_any_order() {
        let ranges: TaskRanges = serde_json::from_str("[[7,9],[0,3],[4,5],[9,8]]").expect("ranges");
        assert_eq!(
            serde_json::to_string(&ranges).expect("json"),
            "[[0,5],[7,9]]"
        );
        assert_eq!(ranges.to_string(), "0-5, 7-9");
        assert_eq!(TaskRanges::first(3).to_string(), "0-2");
        assert!(TaskRanges::first(0).is_empty());
    }

    #[test]
    fn the_largest_number_has_no_neighbour() {
        let mut ranges = TaskRanges::default();
        ranges.insert(u32::MAX);
        ranges.insert(u32::MAX - 1);
        assert_eq!(ranges.len(), 2);
        assert!(ranges.remove(u32::MAX));
        assert_eq!(
            ranges.ranges().collect::<Vec<_>>(),
            [(u32::MAX - 1, u32::MAX - 1)]
        );
    }
}
