//! Confines jobs to some nodes for one decision: backfilled jobs avoid the nodes of a blocked head.
//!
//! Each set of nodes is one more eligibility column, before the class column ([`crate::model::columns`]), so every
//! model respects it. Fair shares ignore the sets.

use std::collections::BTreeMap;

use crate::model::columns::PLENTY;

#[derive(Debug, Clone, Default)]
pub(crate) struct Confined {
    sets: Vec<Vec<bool>>,
    set_of: BTreeMap<usize, usize>,
}

impl Confined {
    pub fn hold(&mut self, job: usize, nodes: &[bool]) {
        let known = self.sets.iter().position(|set| set == nodes);
        let set = known.unwrap_or_else(|| {
            self.sets.push(nodes.to_vec());
            self.sets.len() - 1
        });
        self.set_of.insert(job, set);
    }

    pub fn would_exceed(&self, nodes: &[bool], most: usize) -> bool {
        self.sets.len() >= most && !self.sets.iter().any(|set| set == nodes)
    }

    pub fn of(&self, jobs: impl Iterator<Item = usize>) -> Self {
        let mut of = Self::default();
        for job in jobs {
            if let Some(set) = self.set_of.get(&job) {
                of.hold(job, &self.sets[*set]);
            }
        }
        of
    }

    pub fn complete_rooms(&self, rooms: &mut [Vec<u64>], counted: usize) {
        for (node, room) in rooms.iter_mut().enumerate() {
            let columns = self.sets.iter();
            let columns = columns.map(|set| if set[node] { PLENTY } else { 0 });
            self.complete(room, counted, columns.collect());
        }
    }

    pub fn complete_demand(&self, demand: &mut Vec<u64>, job: usize, counted: usize) {
        let own = self.set_of.get(&job);
        let columns = 0..self.sets.len();
        let columns = columns.map(|set| u64::from(own == Some(&set)));
        self.complete(demand, counted, columns.collect());
    }

    fn complete(&self, amounts: &mut Vec<u64>, counted: usize, columns: Vec<u64>) {
        if self.sets.is_empty() {
            return;
        }
        // The class is the last column; without eligibility columns the class is missing.
        if amounts.len() == counted {
            amounts.push(0);
        }
        let class = amounts.len() - 1;
        amounts.splice(class..class, columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eligibility_columns_stand_before_the_class() {
        let mut confined = Confined::default();
        confined.hold(7, &[true, false]);
        let mut rooms = vec![vec![4, 5], vec![6, 7]];
        confined.complete_rooms(&mut rooms, 2);
        assert_eq!(rooms, [vec![4, 5, PLENTY, 0], vec![6, 7, 0, 0]]);
        let (mut own, mut other) = (vec![1, 1, 0], vec![1, 0, 0]);
        confined.complete_demand(&mut own, 7, 1);
        confined.complete_demand(&mut other, 8, 1);
        assert_eq!((own, other), (vec![1, 1, 1, 0], vec![1, 0, 0, 0]));
        let mut room = vec![vec![4, 5]];
        confined.of([8].into_iter()).complete_rooms(&mut room, 2);
        assert_eq!(room, [vec![4, 5]]);
    }
}
