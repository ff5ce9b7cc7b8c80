//! Turns an allocation into places: ranks, devices, and the containers that stay. The optimizer has chosen
//! the nodes; an allocation that the nodes cannot take any more is refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{JobAllocation, Unplaceable, WhyUnplaceable};
use dormouse_messages::needs::ContainerType;
use dormouse_messages::roles::Part;
use dormouse_messages::{Amounts, JobId, Needs, NodeId, Rank};
use dormouse_state::{Assignment, ClusterState, Job, Place};

use crate::elastic::{self, Changed};
use crate::gpus;

/// The workers of a listed job, or one of its roles.
#[derive(Clone)]
pub struct Wanted<'a> {
    pub id: &'a JobId,
    pub job: &'a Job,
    pub part: Option<usize>,
    pub nodes: BTreeMap<NodeId, u32>,
}

impl<'a> Wanted<'a> {
    pub fn all(job: &'a Job, allocated: &'a JobAllocation) -> Vec<Self> {
        let wanted = |part, role: Option<&str>| Self {
            id: &allocated.job,
            job,
            part,
            nodes: allocated.by_node(role),
        };
        let parts = job.beside.parts().iter().enumerate();
        let parts = parts.map(|(index, part)| wanted(Some(index), Some(&part.role)));
        std::iter::once(wanted(None, None)).chain(parts).collect()
    }

    fn role(&self) -> Option<&'a Part> {
        self.job.beside.parts().get(self.part?)
    }

    pub fn demand(&self) -> &'a Amounts {
        self.role().map_or(&self.job.demand, |part| &part.demand)
    }

    fn needs(&self) -> &'a Needs {
        self.role().map_or(&self.job.needs, |part| &part.needs)
    }

    pub fn container_type(&self) -> ContainerType {
        let role = self.role();
        role.map_or_else(|| self.job.container_type(), Part::container_type)
    }

    fn present(&self) -> impl Iterator<Item = (&'a Rank, &'a Place)> {
        let (job, part) = (self.job, self.part);
        let places = job.assignment.iter().flat_map(|it| &it.places);
        places.filter(move |(rank, _)| job.beside.index_at(**rank) == part)
    }

    fn present_by_node(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        for (_, place) in self.present() {
            *counts.entry(place.node.clone()).or_insert(0) += 1;
        }
        counts
    }
}

/// The new places of a job's containers.
pub enum Placed {
    Whole(Vec<Place>),
    Changed {
        remove: Vec<Rank>,
        create: Vec<(Rank, Place)>,
    },
}

/// Gives each wanted job its places.
/// # Errors
/// Containers that their nodes cannot take.
pub fn assign(
    state: &ClusterState,
    wanted: Vec<Wanted<'_>>,
) -> Result<BTreeMap<JobId, Placed>, Vec<Unplaceable>> {
    let changed: BTreeSet<&JobId> = state.allocation.jobs.keys().collect();
    let mut free = FreeCapacity::of(state, &changed);
    let unplaceable: Vec<Unplaceable> = wanted
        .iter()
        .flat_map(|wanted| free.take(state, wanted))
        .collect();
    if unplaceable.is_empty() {
        with_gpus(state, &changed, wanted)
    } else {
        Err(unplaceable)
    }
}

/// Whole GPUs come first, then fractions by size, so that each finds a device.
fn with_gpus(
    state: &ClusterState,
    changed: &BTreeSet<&JobId>,
    mut wanted: Vec<Wanted<'_>>,
) -> Result<BTreeMap<JobId, Placed>, Vec<Unplaceable>> {
    wanted.sort_by_key(|wanted| Reverse(gpus::size(state, &wanted.container_type())));
    let mut gpus = gpus::Free::of(state, changed);
    let workers = || wanted.iter().filter(|it| it.part.is_none());
    let changes: BTreeMap<&JobId, Changed> = workers()
        .filter_map(|workers| {
            let mut roles = wanted
                .iter()
                .filter(|it| it.id == workers.id && it.part.is_some());
            let stay = roles.all(|role| role.present_by_node() == role.nodes);
            let change = elastic::change(workers.job, &workers.nodes).filter(|_| stay);
            Some((workers.id, change?))
        })
        .collect();
    for workers in workers() {
        let change = changes.get(workers.id);
        if let (Some(change), Some(assignment)) = (change, &workers.job.assignment) {
            elastic::staying(assignment, change).for_each(|it| gpus.hold(workers.job, it));
        }
    }
    let mut whole: BTreeMap<&JobId, BTreeMap<Option<usize>, Vec<Place>>> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    for wanted in &wanted {
        let Some(Changed { remove, create }) = changes.get(wanted.id) else {
            let places = rank_places(wanted, &mut gpus);
            let parts = whole.entry(wanted.id).or_default();
            parts.insert(wanted.part, places);
            continue;
        };
        if wanted.part.is_some() {
            continue;
        }
        let place = |(rank, node): &(Rank, NodeId)| (*rank, gpus.place(node, wanted));
        let changed = Placed::Changed {
            remove: remove.clone(),
            create: create.iter().map(place).collect(),
        };
        placed.insert(wanted.id.clone(), changed);
    }
    let whole = whole.into_iter();
    placed.extend(whole.map(|(id, parts)| (id.clone(), Placed::Whole(by_rank(parts)))));
    if gpus.unplaceable.is_empty() {
        Ok(placed)
    } else {
        Err(gpus.unplaceable)
    }
}

fn by_rank(mut parts: BTreeMap<Option<usize>, Vec<Place>>) -> Vec<Place> {
    let workers = parts.remove(&None).unwrap_or_default();
    let mut workers = workers.into_iter();
    let coordinator = workers.next();
    let roles = parts.into_values().flatten();
    coordinator
        .into_iter()
        .chain(roles)
        .chain(workers)
        .collect()
}

/// The allocation gave away the capacity of a job known to be ending.
fn is_left_out(state: &ClusterState, job: &Job) -> bool {
    job.cancel_requested
        .is_some_and(|requested| requested <= state.decided_asof)
}

/// Returns the jobs that keep their places while changed jobs are placed.
pub fn staying<'a>(
    state: &'a ClusterState,
    changed: &BTreeSet<&JobId>,
) -> impl Iterator<Item = &'a Job> {
    let stays = |(id, job): &(&JobId, &Job)| !changed.contains(id) && !is_left_out(state, job);
    state.jobs.iter().filter(stays).map(|(_, job)| job)
}

/// Neighbouring ranks share a node; rank 0 stays on its node if possible.
fn rank_places(wanted: &Wanted<'_>, gpus: &mut gpus::Free<'_>) -> Vec<Place> {
    let coordinator = wanted.present().next().map(|(_, place)| &place.node);
    let mut nodes: Vec<(&NodeId, &u32)> = wanted.nodes.iter().collect();
    nodes.sort_by_key(|(node, count)| (coordinator != Some(*node), Reverse(**count), *node));
    let nodes = nodes
        .into_iter()
        .flat_map(|(node, count)| std::iter::repeat_n(node, *count as usize));
    nodes.map(|node| gpus.place(node, wanted)).collect()
}

/// A member that its node could not start moves to another node, unless it has GPUs, which the optimizer
/// divides.
pub fn elsewhere(
    state: &ClusterState,
    free: &mut FreeCapacity,
    job: &Job,
    assignment: &Assignment,
) -> Vec<Place> {
    let avoid = &job.start_faults.nodes;
    let again = |(rank, place): (&Rank, &Place)| {
        let moves = avoid.contains(&place.node) && place.gpus.is_empty();
        let moves = moves && !job.needs_at(*rank).constraints.exclusive;
        let other = moves.then(|| free.take_one(state, (job, *rank)));
        let other = other.flatten();
        other.map_or_else(
            || place.clone(),
            |node| Place {
                node,
                gpus: Vec::new(),
                port: 0,
            },
        )
    };
    assignment.places.iter().map(again).collect()
}

/// Free capacity of the usable nodes, and the nodes held by exclusive containers.
pub struct FreeCapacity {
    by_node: BTreeMap<NodeId, Amounts>,
    exclusive: BTreeSet<NodeId>,
}

impl FreeCapacity {
    pub fn of(state: &ClusterState, changed: &BTreeSet<&JobId>) -> Self {
        let capacities = state.nodes.usable();
        let mut by_node: BTreeMap<NodeId, Amounts> = capacities
            .map(|(name, node)| (name.clone(), node.capacity.clone()))
            .collect();
        let mut exclusive = BTreeSet::new();
        for job in staying(state, changed) {
            for (rank, place) in job.assignment.iter().flat_map(|it| &it.places) {
                if let Some(free) = by_node.get_mut(&place.node) {
                    free.subtract(job.demand_at(*rank), 1);
                }
                if job.needs_at(*rank).constraints.exclusive {
                    exclusive.insert(place.node.clone());
                }
            }
        }
        Self { by_node, exclusive }
    }

    /// Takes one container's capacity on an eligible node that has not failed to start the job.
    fn take_one(&mut self, state: &ClusterState, (job, rank): (&Job, Rank)) -> Option<NodeId> {
        let avoid = &job.start_faults.nodes;
        let (demand, needs) = (job.demand_at(rank), job.needs_at(rank));
        let mut nodes = self.by_node.iter_mut();
        let (name, free) = nodes.find(|(name, free)| {
            let may = !avoid.contains(*name) && state.nodes.is_allowed(needs, name);
            may && !self.exclusive.contains(*name) && demand.first_short(free, 1).is_none()
        })?;
        free.subtract(demand, 1);
        Some(name.clone())
    }

    /// Returns the containers that their nodes cannot take. Containers that stay need no eligible node.
    fn take(&mut self, state: &ClusterState, wanted: &Wanted<'_>) -> Vec<Unplaceable> {
        let assignment = wanted.job.assignment.as_ref();
        let stays = assignment.is_some_and(|it| elastic::is_alive(wanted.job, it));
        let present = if stays {
            wanted.present_by_node()
        } else {
            BTreeMap::new()
        };
        let mut unplaceable = Vec::new();
        for (node, count) in &wanted.nodes {
            let is_new = *count > present.get(node).copied().unwrap_or(0);
            let why = match self.by_node.get_mut(node) {
                None => Some(WhyUnplaceable::Unusable),
                Some(_) if is_new && !state.nodes.is_allowed(wanted.needs(), node) => {
                    Some(WhyUnplaceable::NotAllowed)
                }
                Some(free) => match wanted.demand().first_short(free, u64::from(*count)) {
                    Some(resource) => Some(WhyUnplaceable::Short(resource.name().to_owned())),
                    None => {
                        free.subtract(wanted.demand(), u64::from(*count));
                        None
                    }
                },
            };
            unplaceable.extend(why.map(|why| Unplaceable {
                job: wanted.id.clone(),
                node: node.clone(),
                containers: *count,
                why,
            }));
        }
        unplaceable
    }
}
