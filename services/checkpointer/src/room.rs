//! The room that is free for a gang to start in, on nodes where it may start.

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, NodeId};
use dormouse_state::{Assignment, ClusterState, Job, Place};

/// The room of a decision: counted when the first gang asks for it, since most decisions start
/// none and a large cluster has thousands of containers.
pub struct Room<'a> {
    state: &'a ClusterState,
    counted: Option<Counted<'a>>,
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
        self.counted().take(job, &[place])
    }

    /// Takes the room of these containers together, or nothing.
    pub fn take_all<'p>(&mut self, job: &Job, places: impl Iterator<Item = &'p Place>) -> bool {
        self.counted().take(job, &places.collect::<Vec<_>>())
    }

    /// Takes the room of the whole gang, or nothing.
    pub fn take(&mut self, job: &Job, assignment: &Assignment) -> bool {
        self.take_all(job, assignment.places.values())
    }

    fn counted(&mut self) -> &mut Counted<'a> {
        let state = self.state;
        self.counted.get_or_insert_with(|| Counted::of(state))
    }
}

/// What is there on a usable node.
#[derive(Debug, Clone, Default)]
struct Node {
    free: Amounts,
    /// Containers on it.
    containers: u64,
    /// Whether one of them has it for itself.
    is_taken: bool,
    /// What is held of its GPUs, in thousandths, by UUID.
    gpus: BTreeMap<String, u64>,
}

impl Node {
    /// Takes the room of one container; false, and something may be taken, where there is none.
    fn take(&mut self, job: &Job, place: &Place) -> bool {
        let exclusive = job.needs.constraints.exclusive;
        let alone = !self.is_taken && (!exclusive || self.containers == 0);
        let fits = job.demand.first_short(&self.free, 1).is_none();
        self.hold(job, place);
        let gpus = place.gpus.iter();
        let fit = gpus
            .filter_map(|gpu| self.gpus.get(gpu))
            .all(|held| *held <= WHOLE);
        alone && fits && fit
    }

    fn hold(&mut self, job: &Job, place: &Place) {
        self.free.subtract(&job.demand, 1);
        self.containers += 1;
        self.is_taken |= job.needs.constraints.exclusive;
        for gpu in &place.gpus {
            *self.gpus.entry(gpu.clone()).or_default() += job.gpu_share();
        }
    }
}

/// A GPU in thousandths.
const WHOLE: u64 = 1000;

/// The usable nodes.
struct Counted<'a> {
    state: &'a ClusterState,
    nodes: BTreeMap<&'a NodeId, Node>,
}

impl<'a> Counted<'a> {
    fn of(state: &'a ClusterState) -> Self {
        let usable = state.nodes.usable();
        let mut nodes: BTreeMap<&NodeId, Node> = usable
            .map(|(name, node)| {
                let free = node.capacity.clone();
                (
                    name,
                    Node {
                        free,
                        ..Node::default()
                    },
                )
            })
            .collect();
        for job in state.jobs.values() {
            let living = job.life.iter().flat_map(|life| life.containers.values());
            for container in living.filter(|container| container.holds_room()) {
                if let Some(node) = nodes.get_mut(&container.place.node) {
                    node.hold(job, &container.place);
                }
            }
        }
        Self { state, nodes }
    }

    fn take(&mut self, job: &Job, places: &[&Place]) -> bool {
        let mut changed: BTreeMap<&NodeId, Node> = BTreeMap::new();
        for place in places {
            let Some((name, node)) = self.nodes.get_key_value(&place.node) else {
                return false;
            };
            let node = changed.entry(name).or_insert_with(|| node.clone());
            // A constraint holds at every start.
            if !self.state.nodes.is_allowed(&job.needs, name) || !node.take(job, place) {
                return false;
            }
        }
        self.nodes.extend(changed);
        true
    }
}
