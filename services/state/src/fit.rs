//! Fits gangs of containers on nodes.
//!
//! 1. [`Gang`]: containers that start together, by type.
//! 2. [`FreeNodes`]: free amounts of each node, free parts of each GPU.
//! 3. [`FreeNodes::place`] places containers one by one where labels and taints allow. Nodes without GPUs
//!    come first for containers without GPUs, then nodes with space for the fewest more.
//!
//! The result is exact for one type. For roles and workers an arrangement may be missed.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::needs::{ContainerType, GPU_PARTS, Labels};
use dormouse_messages::quantity::Resource;
use dormouse_messages::{Amounts, AuxiliaryRoles, JobId, NodeId};

use crate::cluster::ClusterState;
use crate::job::Job;
use crate::membership::Membership;

/// Containers of one type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Containers {
    pub of_type: ContainerType,
    /// Parts that one container takes ([`Membership::gpu_parts`]).
    pub gpu_parts: u64,
    pub count: u64,
}

impl Containers {
    fn are_allowed(&self, node: &FreeNode<'_>) -> bool {
        let needs = &self.of_type.needs;
        let asked = needs.gpu_memory_bytes;
        let mut gpus = node.gpus.iter();
        let memory =
            asked == 0 || (!node.gpus.is_empty() && gpus.all(|gpu| gpu.memory_bytes >= asked));
        memory && needs.allow(node.labels, node.taints)
    }

    fn share_gpu(&self) -> bool {
        self.of_type.shares_gpu()
    }

    fn whole_gpus(&self) -> usize {
        if self.share_gpu() {
            0
        } else {
            usize::try_from(self.gpu_parts / GPU_PARTS).unwrap_or(usize::MAX)
        }
    }
}

/// Containers that start together: roles, then workers.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Gang(pub Vec<Containers>);

impl Gang {
    /// Returns the gang of workers and auxiliary roles.
    #[must_use]
    pub fn new(
        nodes: &Membership,
        worker: ContainerType,
        auxiliary: &AuxiliaryRoles,
        workers: u32,
    ) -> Self {
        let roles = auxiliary.parts().iter();
        let roles = roles.map(|part| (part.container_type(), part.count));
        let all = roles.chain([(worker, workers)]);
        let all = all.map(|(of_type, count)| Containers {
            gpu_parts: nodes.gpu_parts(&of_type),
            of_type,
            count: u64::from(count),
        });
        Self(all.collect())
    }

    /// Returns a job's initial gang.
    #[must_use]
    pub fn of(nodes: &Membership, job: &Job) -> Self {
        Self::new(
            nodes,
            job.container_type(),
            &job.auxiliary,
            job.containers.start(),
        )
    }

    /// Returns the demanded resources.
    pub fn demanded(&self) -> BTreeSet<&Resource> {
        let demands = self.0.iter().flat_map(|them| them.of_type.demand.iter());
        demands.map(|(resource, _)| resource).collect()
    }

    /// Multiplies the counts.
    #[must_use]
    pub fn times(&self, gangs: u64) -> Self {
        let mut all = self.clone();
        for them in &mut all.0 {
            them.count = them.count.saturating_mul(gangs);
        }
        all
    }

    /// Drops the demand for one resource.
    #[must_use]
    pub fn without(&self, resource: &Resource) -> Self {
        let mut other = self.clone();
        for them in &mut other.0 {
            them.of_type.demand.set(resource.clone(), 0);
            if *resource == Resource::Gpu {
                (them.gpu_parts, them.of_type.needs.gpu_memory_bytes) = (0, 0);
            }
        }
        other
    }
}

/// Bounds the listed GPUs if the agent names none.
const MOST_UNNAMED: usize = 64;

/// A GPU's memory and free parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeGpu {
    pub memory_bytes: u64,
    /// Free parts, of [`GPU_PARTS`].
    pub free: u64,
}

/// The free capacity of a node.
#[derive(Debug, Clone)]
pub struct FreeNode<'a> {
    pub free: Amounts,
    /// In the agent's order.
    pub gpus: Vec<FreeGpu>,
    pub labels: &'a Labels,
    pub taints: &'a BTreeSet<String>,
    /// Left to containers that need GPUs.
    has_gpus: bool,
    /// False if some GPUs are unlisted.
    lists_all: bool,
    taken: u64,
}

impl<'a> FreeNode<'a> {
    /// Returns an empty node. Unnamed GPUs count by capacity.
    #[must_use]
    pub fn empty(
        capacity: &Amounts,
        gpus: impl Iterator<Item = u64>,
        (labels, taints): (&'a Labels, &'a BTreeSet<String>),
    ) -> Self {
        let gpu = |memory_bytes| FreeGpu {
            memory_bytes,
            free: GPU_PARTS,
        };
        let offered = usize::try_from(capacity.get(&Resource::Gpu) / 1000).unwrap_or(0);
        let mut gpus: Vec<FreeGpu> = gpus.map(gpu).collect();
        if gpus.is_empty() {
            gpus = vec![gpu(0); offered.min(MOST_UNNAMED)];
        }
        gpus.truncate(offered);
        Self {
            free: capacity.clone(),
            has_gpus: offered > 0,
            lists_all: gpus.len() == offered,
            gpus,
            labels,
            taints,
            taken: 0,
        }
    }

    /// Returns how many more containers fit.
    #[must_use]
    pub fn holds(&self, them: &Containers) -> u64 {
        if them.are_allowed(self) {
            self.holds_allowed(them)
        } else {
            0
        }
    }

    /// Returns how many more containers fit that labels and taints allow.
    pub(crate) fn holds_allowed(&self, them: &Containers) -> u64 {
        let by_amounts = them.of_type.demand.times_in(&self.free);
        let alone = them.of_type.needs.constraints.exclusive;
        let by_exclusivity = match (alone, self.taken) {
            (true, 0) => 1,
            (true, _) => 0,
            (false, _) => u64::MAX,
        };
        let by_gpus = match (them.share_gpu(), them.whole_gpus()) {
            (true, _) => {
                let each = them.gpu_parts.max(1);
                self.gpus.iter().map(|gpu| gpu.free / each).sum()
            }
            (false, 0) => u64::MAX,
            (false, _) if !self.lists_all => u64::MAX,
            (false, each) => {
                let whole = self.gpus.iter().filter(|gpu| gpu.free == GPU_PARTS);
                (whole.count() / each) as u64
            }
        };
        by_amounts.min(by_exclusivity).min(by_gpus)
    }

    pub(crate) fn take(&mut self, them: &Containers, known: &[usize]) {
        self.free.subtract(&them.of_type.demand, 1);
        self.taken += 1;
        let own = usize::from(them.share_gpu()).max(them.whole_gpus());
        let mut gpus = known.to_vec();
        if gpus.len() != own {
            let fits = |gpu: &FreeGpu| gpu.free >= them.gpu_parts.min(GPU_PARTS);
            let free = self.gpus.iter().enumerate().filter(|(_, gpu)| fits(gpu));
            let mut free: Vec<(u64, usize)> = free.map(|(index, gpu)| (gpu.free, index)).collect();
            free.sort_unstable();
            gpus = free.into_iter().take(own).map(|(_, index)| index).collect();
        }
        for index in gpus {
            if let Some(gpu) = self.gpus.get_mut(index) {
                gpu.free = gpu.free.saturating_sub(them.gpu_parts.min(GPU_PARTS));
            }
        }
        if them.of_type.needs.constraints.exclusive {
            self.free = Amounts::new();
            self.gpus.iter_mut().for_each(|gpu| gpu.free = 0);
        }
    }
}

/// A set of nodes, by index; [`None`] means all nodes.
pub type NodeSet = Option<std::rc::Rc<Vec<bool>>>;

/// Reports whether a node is in a set.
#[must_use]
pub fn is_in(set: &NodeSet, index: usize) -> bool {
    set.as_ref().is_none_or(|set| set.get(index) == Some(&true))
}

/// Nodes for placement, by name, with their free capacity.
#[derive(Debug, Clone, Default)]
pub struct FreeNodes<'a> {
    nodes: Vec<FreeNode<'a>>,
}

impl<'a> FreeNodes<'a> {
    /// Wraps the given nodes.
    #[must_use]
    pub const fn new(nodes: Vec<FreeNode<'a>>) -> Self {
        Self { nodes }
    }

    /// Returns the usable nodes, empty.
    #[must_use]
    pub fn empty(membership: &'a Membership) -> Self {
        let nodes = membership.usable().map(|(_, node)| {
            let memory = node.gpus.iter().map(|gpu| gpu.memory_bytes);
            FreeNode::empty(&node.capacity, memory, (&node.labels, &node.taints))
        });
        Self::new(nodes.collect())
    }

    /// Returns usable nodes without the `keeps` lowest ranks of each released job (coordinator and roles
    /// first).
    #[must_use]
    pub fn left_by(cluster: &'a ClusterState, keeps: impl Fn(&JobId, &Job) -> u64) -> Self {
        Self::left_by_placed(cluster, &Placed::of(cluster), keeps)
    }

    /// As [`FreeNodes::left_by`], for containers found before.
    #[must_use]
    pub fn left_by_placed(
        cluster: &'a ClusterState,
        placed: &Placed<'a>,
        keeps: impl Fn(&JobId, &Job) -> u64,
    ) -> Self {
        let mut free = Self::empty(&cluster.nodes);
        for (_, them, place) in placed.kept(keeps) {
            free.nodes[place.node].take(them, &place.gpus);
        }
        free
    }

    /// Adds nodes.
    pub fn extend(&mut self, nodes: impl IntoIterator<Item = FreeNode<'a>>) {
        self.nodes.extend(nodes);
    }

    /// Returns the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[FreeNode<'a>] {
        &self.nodes
    }

    /// Returns the nodes that fit one container of the gang; [`None`] means all.
    #[must_use]
    pub fn eligible(&self, gang: &Gang) -> NodeSet {
        let holds = |node: &FreeNode<'_>| gang.0.iter().any(|them| node.holds(them) > 0);
        let set: Vec<bool> = self.nodes.iter().map(holds).collect();
        (!set.iter().all(|holds| *holds)).then(|| set.into())
    }

    /// Reports whether the gang fits.
    #[must_use]
    pub fn fits(&self, gang: &Gang, open: &NodeSet) -> bool {
        match gang.0.as_slice() {
            [them] => {
                let mut left = them.count;
                let mut nodes = self.nodes.iter().enumerate();
                left == 0
                    || nodes.any(|(index, node)| {
                        let more = if is_in(open, index) {
                            node.holds(them)
                        } else {
                            0
                        };
                        left = left.saturating_sub(more);
                        left == 0
                    })
            }
            _ => self.clone().place(gang, open),
        }
    }

    /// Places a gang on nodes of a set; returns false, and takes nothing, if impossible.
    pub fn place(&mut self, gang: &Gang, open: &NodeSet) -> bool {
        if let [them] = gang.0.as_slice() {
            return self.place_all(them, open);
        }
        // Either order may fit where the other fails.
        let orders = [
            gang.0.iter().collect::<Vec<_>>(),
            gang.0.iter().rev().collect(),
        ];
        for order in orders {
            let mut nodes = self.clone();
            if order.into_iter().all(|them| nodes.place_all(them, open)) {
                *self = nodes;
                return true;
            }
        }
        false
    }

    fn place_all(&mut self, them: &Containers, open: &NodeSet) -> bool {
        let wants_gpus = them.gpu_parts > 0;
        let nodes = self.nodes.iter().enumerate();
        let nodes = nodes.filter(|(index, _)| is_in(open, *index));
        let able = nodes.map(|(index, node)| {
            let holds = node.holds(them);
            (node.has_gpus && !wants_gpus, holds, index)
        });
        let able = able.filter(|(_, holds, _)| *holds > 0);
        let able: Vec<(bool, u64, usize)> = match them.count {
            1 => able.min().into_iter().collect(),
            _ => {
                let mut able: Vec<_> = able.collect();
                able.sort_unstable();
                able
            }
        };
        let room = able
            .iter()
            .fold(0, |sum: u64, (_, holds, _)| sum.saturating_add(*holds));
        if room < them.count {
            return false;
        }
        let mut left = them.count;
        for (_, holds, index) in able {
            for _ in 0..holds.min(left) {
                self.nodes[index].take(them, &[]);
                left -= 1;
            }
        }
        true
    }

    /// Returns the resources without whose demand the gang would fit, or all if no single one suffices.
    #[must_use]
    pub fn lacks(&self, gang: &Gang, open: &NodeSet) -> BTreeSet<Resource> {
        let demanded = gang.demanded();
        let alone = demanded.iter();
        let alone = alone.filter(|resource| self.fits(&gang.without(resource), open));
        let alone: BTreeSet<Resource> = alone.map(|resource| (**resource).clone()).collect();
        if alone.is_empty() {
            demanded.into_iter().cloned().collect()
        } else {
            alone
        }
    }
}

/// The placed containers of all released jobs on usable nodes: several questions share the search.
pub struct Placed<'a>(Vec<PlacedJob<'a>>);

struct PlacedJob<'a> {
    id: &'a JobId,
    job: &'a Job,
    gang: Gang,
    places: Vec<PlacedContainer>,
}

/// A container on a usable node.
pub(crate) struct PlacedContainer {
    /// Its position in the assignment.
    index: usize,
    of_type: usize,
    pub node: usize,
    /// Its GPUs, if they are known.
    pub gpus: Vec<usize>,
}

impl<'a> Placed<'a> {
    /// Finds the containers.
    #[must_use]
    pub fn of(cluster: &'a ClusterState) -> Self {
        let usable = cluster.nodes.usable().enumerate();
        let usable: BTreeMap<&NodeId, _> = usable
            .map(|(index, (name, node))| (name, (index, node)))
            .collect();
        let jobs = cluster.jobs.iter().filter_map(|(id, job)| {
            let assignment = job.assignment.as_ref().filter(|_| !unplaced(job))?;
            let gang = Gang::of(&cluster.nodes, job);
            let places = assignment.places.iter().enumerate();
            let places = places.filter_map(|(index, (rank, place))| {
                let (number, node) = usable.get(&place.node)?;
                let role = job.auxiliary.index_at(*rank);
                let known = node.gpus.iter().enumerate();
                let known = known.filter(|(_, gpu)| place.gpus.contains(&gpu.uuid));
                Some(PlacedContainer {
                    index,
                    of_type: role.unwrap_or(gang.0.len() - 1),
                    node: *number,
                    gpus: known.map(|(index, _)| index).collect(),
                })
            });
            let places = places.collect();
            Some(PlacedJob {
                id,
                job,
                gang,
                places,
            })
        });
        Self(jobs.collect())
    }

    /// Returns the `keeps` lowest ranks of each job that stand on usable nodes, in the order of the jobs.
    pub(crate) fn kept(
        &self,
        keeps: impl Fn(&JobId, &Job) -> u64,
    ) -> impl Iterator<Item = (&'a Job, &Containers, &PlacedContainer)> {
        self.0.iter().flat_map(move |job| {
            let keeps = keeps(job.id, job.job);
            let keeps = usize::try_from(keeps).unwrap_or(usize::MAX);
            let kept = job.places.iter();
            let kept = kept.take_while(move |place| place.index < keeps);
            kept.filter_map(|place| {
                let them = job.gang.0.get(place.of_type)?;
                Some((job.job, them, place))
            })
        })
    }
}

/// Reports whether a released job has no usable placement.
#[must_use]
pub fn unplaced(job: &Job) -> bool {
    let assignment = job.assignment.as_ref();
    assignment.is_none_or(|assignment| assignment.displaced && !job.in_place)
}

/// Returns the nodes in `set` and not in `other`.
#[must_use]
pub fn outside(set: &NodeSet, other: &NodeSet) -> NodeSet {
    let Some(other) = other else {
        return Some(Vec::new().into());
    };
    let left = other.iter().enumerate();
    let left: Vec<bool> = left
        .map(|(index, other)| !other && is_in(set, index))
        .collect();
    Some(left.into())
}

/// Reports whether two sets share a node.
#[must_use]
pub fn meet(one: &NodeSet, other: &NodeSet) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.iter().zip(other.iter()).any(|(a, b)| *a && *b),
        (Some(set), None) | (None, Some(set)) => set.contains(&true),
        (None, None) => true,
    }
}
