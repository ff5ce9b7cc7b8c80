//! Queues posts in lanes: in order within a lane, in parallel across lanes. Pure.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use dormouse_messages::Sequence;

/// Waiting and unfinished posts of one tenant.
#[derive(Debug)]
pub struct JobQueues<T> {
    /// By lane, that is, by job.
    waiting: BTreeMap<String, VecDeque<(Sequence, T)>>,
    under_way: BTreeMap<String, Sequence>,
    /// Unfinished; an event can be in several lanes.
    open: BTreeSet<(Sequence, String)>,
    /// The last event read.
    read: Sequence,
}

impl<T> JobQueues<T> {
    /// Creates empty lanes, with the log read up to `read`.
    pub fn new(read: Sequence) -> Self {
        Self {
            waiting: BTreeMap::new(),
            under_way: BTreeMap::new(),
            open: BTreeSet::new(),
            read,
        }
    }

    /// Marks the event at `sequence` as read, after its pushes.
    pub fn read(&mut self, sequence: Sequence) {
        self.read = self.read.max(sequence);
    }

    /// Appends to a lane.
    pub fn push(&mut self, lane: String, sequence: Sequence, what: T) {
        self.open.insert((sequence, lane.clone()));
        self.waiting
            .entry(lane)
            .or_default()
            .push_back((sequence, what));
    }

    /// Returns the number of unfinished posts.
    pub fn open(&self) -> usize {
        self.open.len()
    }

    /// Returns the oldest post whose lane is idle, while fewer than `most` posts are in flight.
    pub fn next(&mut self, most: usize) -> Option<(String, T)> {
        if self.under_way.len() >= most {
            return None;
        }
        let free = self
            .waiting
            .iter()
            .filter(|(lane, _)| !self.under_way.contains_key(*lane));
        let oldest = free
            .filter_map(|(lane, queue)| Some((queue.front()?.0, lane.clone())))
            .min();
        let (sequence, lane) = oldest?;
        let queue = self.waiting.get_mut(&lane)?;
        let (_, what) = queue.pop_front()?;
        if queue.is_empty() {
            self.waiting.remove(&lane);
        }
        self.under_way.insert(lane.clone(), sequence);
        Some((lane, what))
    }

    /// Marks the lane's post in flight as done.
    pub fn done(&mut self, lane: &str) {
        if let Some(sequence) = self.under_way.remove(lane) {
            self.open.remove(&(sequence, lane.to_owned()));
        }
    }

    /// Returns the last event up to which everything is done.
    pub fn position(&self) -> Sequence {
        match self.open.first() {
            Some((Sequence(open), _)) => Sequence(open.saturating_sub(1)).min(self.read),
            None => self.read,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_lane_waits_for_its_own_and_not_for_others() {
        let mut lanes = JobQueues::new(Sequence(4));
        for (lane, sequence) in [("a", 5), ("a", 6), ("b", 7)] {
            lanes.push(lane.to_owned(), Sequence(sequence), sequence);
            lanes.read(Sequence(sequence));
        }
        assert_eq!(lanes.next(8), Some(("a".to_owned(), 5)));
        assert_eq!(lanes.next(8), Some(("b".to_owned(), 7)));
        assert_eq!(lanes.next(8), None, "6 waits for 5");
        lanes.done("b");
        assert_eq!(lanes.position(), Sequence(4), "5 is open");
        lanes.done("a");
        assert_eq!(lanes.position(), Sequence(5), "6 is open");
        assert_eq!(lanes.next(8), Some(("a".to_owned(), 6)));
        lanes.done("a");
        assert_eq!(lanes.position(), Sequence(7));
    }

    proptest! {
        /// In any order of ends, lanes keep their order and lose nothing, and the position stays before every
        /// open event.
        #[test]
        fn lanes_keep_their_order(
            events in prop::collection::vec(0_u8..4, 1..60),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut lanes = JobQueues::new(Sequence(0));
            for (index, lane) in events.iter().enumerate() {
                let sequence = Sequence(index as u64 + 1);
                lanes.push(lane.to_string(), sequence, sequence);
                lanes.read(sequence);
            }
            let mut taken: BTreeMap<String, Vec<Sequence>> = BTreeMap::new();
            let mut under_way: Vec<(String, Sequence)> = Vec::new();
            for end in ends {
                while let Some(next) = lanes.next(3) {
                    under_way.push(next);
                }
                prop_assert!(under_way.len() <= 3);
                if under_way.is_empty() {
                    break;
                }
                let (lane, sequence) = under_way.swap_remove(end.index(under_way.len()));
                prop_assert!(lanes.position() < sequence);
                lanes.done(&lane);
                taken.entry(lane).or_default().push(sequence);
            }
            prop_assert_eq!(lanes.position(), Sequence(events.len() as u64));
            for (lane, taken) in taken {
                let own = events.iter().enumerate().filter(|(_, it)| it.to_string() == lane);
                let own: Vec<Sequence> = own.map(|(index, _)| Sequence(index as u64 + 1)).collect();
                prop_assert_eq!(taken, own);
            }
        }
    }
}
