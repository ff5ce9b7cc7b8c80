//! The room that is free for a gang to start in.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::{Amounts, NodeId};
use dormouse_state::{Assignment, ClusterState, Job, Place};

/// The room of a decision: counted when the first gang asks for it, since most decisions start
/// none and a large cluster has thousands of containers.
pub struct Room<'a> {
    state: &'a ClusterState,
    counted: Option<Counted>,
}

impl<'a> Room<'a> {
    /// What the containers that may still run leave free.
    pub fn of(state: &'a ClusterState) -> Self {
        Self {
            state,
            counted: None,
        }
    }

    /// Takes the room of one container, or nothing.
    pub fn take_one(&mut self, job: &Job, place: &Place) -> bool {
        let counted = self.counted.get_or_insert_with(|| Counted::of(self.state));
        counted.take_one(job, place)
    }

    /// Takes the room of these containers together, or nothing.
    pub fn take_all<'p>(&mut self, job: &Job, places: impl Iterator<Item = &'p Place>) -> bool {
        let counted = self.counted.get_or_insert_with(|| Counted::of(self.state));
        let before = (counted.free.clone(), counted.held_gpus.clone());
        for place in places {
            if !counted.take_one(job, place) {
                (counted.free, counted.held_gpus) = before;
                return false;
            }
        }
        true
    }

    /// Takes the room of the whole gang, or nothing.
    pub fn take(&mut self, job: &Job, assignment: &Assignment) -> bool {
        let counted = self.counted.get_or_insert_with(|| Counted::of(self.state));
        counted.take(job, assignment)
    }
}

/// Free room and held GPUs of each usable node.
struct Counted {
    free: BTreeMap<NodeId, Amounts>,
    held_gpus: BTreeSet<(NodeId, String)>,
}

impl Counted {
    fn of(state: &ClusterState) -> Self {
        let usable = state.nodes.usable();
        let mut free: BTreeMap<NodeId, Amounts> = usable
            .map(|(name, node)| (name.clone(), node.capacity.clone()))
            .collect();
        for (node, held) in state.held() {
            if let Some(free) = free.get_mut(&node) {
                free.subtract(&held, 1);
            }
        }
        let lives = state.jobs.values().flat_map(|job| job.life.iter());
        let living = lives.flat_map(|life| life.containers.values().filter(|c| c.holds_room()));
        let held_gpus = living.flat_map(|container| {
            let place = &container.place;
            place
                .gpus
                .iter()
                .map(|gpu| (place.node.clone(), gpu.clone()))
        });
        Self {
            held_gpus: held_gpus.collect(),
            free,
        }
    }

    fn take_one(&mut self, job: &Job, place: &Place) -> bool {
        let held = |gpu: &String| {
            let key = (place.node.clone(), gpu.clone());
            self.held_gpus.contains(&key)
        };
        let free = self.free.get(&place.node);
        let fits = free.is_some_and(|free| job.demand.first_short(free, 1).is_none());
        if !fits || place.gpus.iter().any(held) {
            return false;
        }
        if let Some(free) = self.free.get_mut(&place.node) {
            free.subtract(&job.demand, 1);
        }
        let gpus = place.gpus.iter();
        self.held_gpus
            .extend(gpus.map(|gpu| (place.node.clone(), gpu.clone())));
        true
    }

    fn take(&mut self, job: &Job, assignment: &Assignment) -> bool {
        let counts = assignment.by_node();
        let fits = counts.iter().all(|(node, count)| {
            let free = self.free.get(node);
            free.is_some_and(|free| job.demand.first_short(free, u64::from(*count)).is_none())
        });
        let gpus = || {
            let places = assignment.places.values();
            places.flat_map(|place| {
                place
                    .gpus
                    .iter()
                    .map(|gpu| (place.node.clone(), gpu.clone()))
            })
        };
        if !fits || gpus().any(|gpu| self.held_gpus.contains(&gpu)) {
            return false;
        }
        for (node, count) in &counts {
            if let Some(free) = self.free.get_mut(node) {
                free.subtract(&job.demand, u64::from(*count));
            }
        }
        self.held_gpus.extend(gpus());
        true
    }
}
