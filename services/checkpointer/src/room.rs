//! Free capacity for starts.
//!
//! A node starts one container after another. While many of its containers have not started, further gangs wait:
//! their starts would time out in the node's queue, and be asked again behind all others.

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, NodeId, Rank};
use dormouse_state::{Assignment, ClusterState, ContainerPhase, Job, Place};

/// On a busy machine an agent starts five containers a second, and a start times out after two minutes.
const MOST_STARTING: u64 = 100;

/// A container and its place.
pub type Placed<'a> = (&'a Rank, &'a Place);

/// Counted on demand: most decisions start no gang, and large clusters have thousands of containers.
pub struct Room<'a> {
    state: &'a ClusterState,
    counted: Option<Counted<'a>>,
}

impl<'a> Room<'a> {
    /// Starts from possibly running containers.
    pub fn of(state: &'a ClusterState) -> Self {
        Self {
            state,
            counted: None,
        }
    }

    /// Takes one container's capacity, or nothing.
    pub fn take_one(&mut self, job: &Job, placed: Placed<'_>) -> bool {
        self.counted().take(job, &[placed])
    }

    /// Takes all these containers' capacity, or nothing.
    pub fn take_all<'p>(&mut self, job: &Job, places: impl Iterator<Item = Placed<'p>>) -> bool {
        self.counted().take(job, &places.collect::<Vec<_>>())
    }

    /// Takes a gang's capacity, or nothing.
    pub fn take(&mut self, job: &Job, assignment: &Assignment) -> bool {
        self.take_all(job, assignment.places.iter())
    }

    fn counted(&mut self) -> &mut Counted<'a> {
        let state = self.state;
        self.counted.get_or_insert_with(|| Counted::of(state))
    }
}

#[derive(Debug, Clone, Default)]
struct Node {
    free: Amounts,
    containers: u64,
    /// Requested and not started.
    starting: u64,
    /// Used exclusively.
    is_taken: bool,
    /// Held thousandths by UUID.
    gpus: BTreeMap<String, u64>,
}

impl Node {
    /// On false the node is inconsistent and must be discarded.
    fn take(&mut self, job: &Job, placed: Placed<'_>) -> bool {
        let exclusive = job.needs_at(*placed.0).constraints.exclusive;
        let alone = !self.is_taken && (!exclusive || self.containers == 0);
        let demand = job.demand_at(*placed.0);
        let fits = demand.first_short(&self.free, 1).is_none();
        self.hold(job, placed);
        let gpus = placed.1.gpus.iter();
        let fit = gpus
            .filter_map(|gpu| self.gpus.get(gpu))
            .all(|held| *held <= WHOLE);
        alone && fits && fit
    }

    fn hold(&mut self, job: &Job, (rank, place): Placed<'_>) {
        self.free.subtract(job.demand_at(*rank), 1);
        self.containers += 1;
        self.starting += 1;
        self.is_taken |= job.needs_at(*rank).constraints.exclusive;
        for gpu in &place.gpus {
            *self.gpus.entry(gpu.clone()).or_default() += job.gpu_share(*rank);
        }
    }
}

const WHOLE: u64 = 1000;

struct Counted<'a> {
    state: &'a ClusterState,
    nodes: BTreeMap<&'a NodeId, Node>,
    most_starting: u64,
}

/// Reports whether a joiner gets capacity without this service: leaving training or another place provides
/// some.
pub fn comes(state: &ClusterState, job: &Job, missing: &[Placed<'_>]) -> bool {
    let mut later = Counted::without(state, |job, rank| !job.is_served() && leaves(job, rank));
    later.most_starting = u64::MAX;
    let mut missing = missing.iter();
    missing.any(|placed| {
        !state.nodes.is_open(&job.needs, &placed.1.node)
            || later.take(job, std::slice::from_ref(placed))
    })
}

fn leaves(job: &Job, rank: Rank) -> bool {
    let (Some(partition), Some(own)) = (&job.partition, &job.assignment) else {
        return true;
    };
    own.incarnation != partition.incarnation || !own.places.contains_key(&rank)
}

impl<'a> Counted<'a> {
    fn of(state: &'a ClusterState) -> Self {
        Self::without(state, |_, _| false)
    }

    fn without(state: &'a ClusterState, is_gone: impl Fn(&Job, Rank) -> bool) -> Self {
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
            let living = job.partition.iter().flat_map(|it| &it.containers);
            let living = living.filter(|(_, container)| container.holds_room());
            for (rank, container) in living.filter(|(rank, _)| !is_gone(job, **rank)) {
                if let Some(node) = nodes.get_mut(&container.place.node) {
                    node.hold(job, (rank, &container.place));
                    let has_started = container.phase == ContainerPhase::Started;
                    node.starting -= u64::from(has_started);
                }
            }
        }
        Self {
            state,
            nodes,
            most_starting: MOST_STARTING,
        }
    }

    fn take(&mut self, job: &Job, places: &[Placed<'_>]) -> bool {
        let mut changed: BTreeMap<&NodeId, Node> = BTreeMap::new();
        for (rank, place) in places {
            let Some((name, node)) = self.nodes.get_key_value(&place.node) else {
                return false;
            };
            // A gang may be larger.
            if node.starting >= self.most_starting {
                return false;
            }
            let node = changed.entry(name).or_insert_with(|| node.clone());
            // Constraints hold at every start.
            let needs = job.needs_at(**rank);
            if !self.state.nodes.is_allowed(needs, name) || !node.take(job, (rank, place)) {
                return false;
            }
        }
        self.nodes.extend(changed);
        true
    }
}
