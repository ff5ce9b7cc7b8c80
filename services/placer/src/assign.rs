//! Assigns slots to jobs: running containers stay, gangs are packed on few nodes (or spread, by policy).
//!
//! Slots that staying jobs do not hold are free for changed jobs; containers of one shape are
//! interchangeable. Roles stay while their job keeps its places; otherwise they follow the workers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::Short;
use dormouse_messages::needs::ContainerType;
use dormouse_messages::roles::Part;
use dormouse_messages::{Amounts, JobId, Needs, NodeId, Rank, Resource};
use dormouse_state::{Assignment, ClusterState, Job, Place};

use crate::elastic::{self, Changed};
use crate::gpus;
use crate::packing::{choose_nodes, grow_at_home, packs};

/// The workers of a listed job, or one of its roles.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub id: &'a JobId,
    pub job: &'a Job,
    pub part: Option<usize>,
    pub containers: u32,
}

impl<'a> Wanted<'a> {
    pub fn all(id: &'a JobId, job: &'a Job, containers: u32) -> Vec<Self> {
        let wanted = |part, containers| Self {
            id,
            job,
            part,
            containers,
        };
        let parts = job.beside.parts().iter().enumerate();
        let parts = parts.map(|(index, part)| wanted(Some(index), part.count));
        let workers = wanted(None, job.beside.workers(containers));
        std::iter::once(workers).chain(parts).collect()
    }

    fn role(&self) -> Option<&'a Part> {
        self.job.beside.parts().get(self.part?)
    }

    pub fn demand(&self) -> &'a Amounts {
        self.role().map_or(&self.job.demand, |part| &part.demand)
    }

    pub fn needs(&self) -> &'a Needs {
        self.role().map_or(&self.job.needs, |part| &part.needs)
    }

    pub fn container_type(&self) -> ContainerType {
        let role = self.role();
        role.map_or_else(|| self.job.container_type(), Part::container_type)
    }

    pub fn stands(&self) -> impl Iterator<Item = (&'a Rank, &'a Place)> {
        let (job, part) = (self.job, self.part);
        let places = job.assignment.iter().flat_map(|it| &it.places);
        places.filter(move |(rank, _)| job.beside.index_at(**rank) == part)
    }

    fn by_node(&self) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        for (_, place) in self.stands() {
            *counts.entry(place.node.clone()).or_insert(0) += 1;
        }
        counts
    }

    fn is_fixed(&self) -> bool {
        let assignment = self.job.assignment.as_ref();
        let stands = assignment.is_some_and(|it| !it.displaced || elastic::is_alive(self.job, it));
        self.part.is_some() && stands
    }
}

type Slots = BTreeMap<ContainerType, BTreeMap<NodeId, u32>>;

type Key<'a> = (&'a JobId, Option<usize>);

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
/// Containers without a slot, or on a node that is too small.
pub fn assign(
    state: &ClusterState,
    wanted: &[Wanted<'_>],
) -> Result<BTreeMap<JobId, Placed>, Vec<Short>> {
    let changed: BTreeSet<&JobId> = state.allocation.jobs.keys().collect();
    let mut free = free_slots(state, &changed);
    let mut room = Room::of(state, &changed);
    let mut chosen: Vec<(&Wanted<'_>, BTreeMap<NodeId, u32>)> = Vec::new();
    let mut short = Vec::new();
    let mut staying = stay(state, wanted, &mut free);
    // Large gangs choose first, replicas last; roles follow their workers.
    let mut order: Vec<&Wanted<'_>> = wanted.iter().collect();
    order.sort_by_key(|wanted| {
        let is_replica = wanted.job.is_served() && packs(state);
        let is_role = wanted.part.is_some();
        (is_role, is_replica, Reverse(wanted.containers), wanted.id)
    });
    for wanted in order {
        let slots = free.entry(wanted.container_type()).or_default();
        let mut stands = staying
            .remove(&(wanted.id, wanted.part))
            .unwrap_or_else(|| {
                let mut stands = BTreeMap::new();
                stand(state, wanted, &mut stands, slots);
                stands
            });
        if wanted.part.is_some() {
            let workers = chosen.iter().find(|(other, _)| other.id == wanted.id);
            for node in workers.iter().flat_map(|(_, counts)| counts.keys()) {
                take(wanted, &mut stands, node, u32::MAX, slots);
            }
        }
        let counts = choose_nodes(state, wanted, stands, slots);
        let missing = wanted.containers - counts.values().sum::<u32>();
        let tight = room.take(&counts, wanted.demand());
        if missing > 0 || tight.is_some() {
            let resource = tight.map_or("slots".to_owned(), |resource| resource.name().to_owned());
            short.push(Short {
                job: wanted.id.clone(),
                containers: missing.max(1),
                resource,
            });
            continue;
        }
        chosen.push((wanted, counts));
    }
    if short.is_empty() {
        with_gpus(state, &changed, chosen)
    } else {
        Err(short)
    }
}

/// Keeps running containers in place: coordinators first, since replicas are interchangeable.
fn stay<'a>(
    state: &ClusterState,
    wanted: &[Wanted<'a>],
    free: &mut Slots,
) -> BTreeMap<Key<'a>, BTreeMap<NodeId, u32>> {
    let mut staying = BTreeMap::new();
    let workers = wanted.iter().filter(|it| it.part.is_none());
    let mut in_place: Vec<&Wanted<'_>> = workers.filter(|it| it.job.in_place).collect();
    in_place.sort_by_key(|wanted| wanted.job.is_served());
    // Elsewhere a role would leave slots that nobody may use.
    for role in wanted.iter().filter(|it| it.is_fixed()) {
        let slots = free.entry(role.container_type()).or_default();
        let mut stands = BTreeMap::new();
        for (node, count) in role.by_node() {
            take(role, &mut stands, &node, count, slots);
        }
        staying.insert((role.id, role.part), stands);
    }
    for wanted in &in_place {
        let slots = free.entry(wanted.container_type()).or_default();
        staying.insert((wanted.id, None), hold(state, wanted, slots));
    }
    for wanted in &in_place {
        let slots = free.entry(wanted.container_type()).or_default();
        if let Some(stands) = staying.get_mut(&(wanted.id, None)) {
            stand(state, wanted, stands, slots);
        }
    }
    // Replicas are interchangeable, so growing training takes slots at home first.
    let training = wanted.iter().filter(|it| it.part.is_none());
    for wanted in training.filter(|it| it.job.in_place && !it.job.is_served()) {
        let slots = free.entry(wanted.container_type()).or_default();
        let stands = staying.get_mut(&(wanted.id, None));
        if let Some(stands) = stands.filter(|_| packs(state)) {
            grow_at_home(wanted, stands, slots);
        }
    }
    staying
}

/// Whole GPUs come first, then fractions by size, so that each finds a device.
fn with_gpus(
    state: &ClusterState,
    changed: &BTreeSet<&JobId>,
    mut chosen: Vec<(&Wanted<'_>, BTreeMap<NodeId, u32>)>,
) -> Result<BTreeMap<JobId, Placed>, Vec<Short>> {
    chosen.sort_by_key(|(wanted, _)| Reverse(gpus::size(state, &wanted.container_type())));
    let mut gpus = gpus::Free::of(state, changed);
    let changes: BTreeMap<&JobId, Changed> = chosen
        .iter()
        .filter(|(wanted, _)| wanted.part.is_none())
        .filter_map(|(wanted, counts)| {
            let roles = chosen.iter().filter(|it| it.0.id == wanted.id);
            let mut roles = roles.filter(|it| it.0.part.is_some());
            let stay = roles.all(|(role, counts)| role.by_node() == *counts);
            let change = elastic::change(wanted.job, counts).filter(|_| stay);
            Some((wanted.id, change?))
        })
        .collect();
    for (wanted, _) in chosen.iter().filter(|(wanted, _)| wanted.part.is_none()) {
        let change = changes.get(wanted.id);
        if let (Some(change), Some(assignment)) = (change, &wanted.job.assignment) {
            elastic::staying(assignment, change).for_each(|it| gpus.hold(wanted.job, it));
        }
    }
    let mut whole: BTreeMap<&JobId, BTreeMap<Option<usize>, Vec<Place>>> = BTreeMap::new();
    let mut placed = BTreeMap::new();
    for (wanted, counts) in chosen {
        let Some(Changed { remove, create }) = changes.get(wanted.id) else {
            let places = rank_places(wanted, counts, &mut gpus);
            let parts = whole.entry(wanted.id).or_default();
            parts.insert(wanted.part, places);
            continue;
        };
        if wanted.part.is_some() {
            continue;
        }
        let place = |(rank, node): &(Rank, NodeId)| {
            let gpus = gpus.take(node, wanted);
            let node = node.clone();
            (
                *rank,
                Place {
                    node,
                    gpus,
                    port: 0,
                },
            )
        };
        let changed = Placed::Changed {
            remove: remove.clone(),
            create: create.iter().map(place).collect(),
        };
        placed.insert(wanted.id.clone(), changed);
    }
    let whole = whole.into_iter();
    placed.extend(whole.map(|(id, parts)| (id.clone(), Placed::Whole(by_rank(parts)))));
    if gpus.short.is_empty() {
        Ok(placed)
    } else {
        Err(gpus.short)
    }
}

fn by_rank(mut parts: BTreeMap<Option<usize>, Vec<Place>>) -> Vec<Place> {
    let workers = parts.remove(&None).unwrap_or_default();
    let mut workers = workers.into_iter();
    let chief = workers.next();
    let roles = parts.into_values().flatten();
    chief.into_iter().chain(roles).chain(workers).collect()
}

fn free_slots(state: &ClusterState, changed: &BTreeSet<&JobId>) -> Slots {
    let mut slots = Slots::new();
    for (node, shapes) in &state.allocation.slots {
        for (of_type, count) in shapes {
            slots
                .entry(of_type.clone())
                .or_default()
                .insert(node.clone(), *count);
        }
    }
    let unlisted = |node: &NodeId| !state.allocation.slots.contains_key(node);
    for (id, job) in &state.jobs {
        for (of_type, node, count) in standing(job) {
            let slot = slots
                .entry(of_type)
                .or_default()
                .entry(node.clone())
                .or_default();
            // On an unlisted node the slots of a staying job cancel out.
            match (unlisted(&node), changed.contains(id)) {
                (true, true) => *slot += count,
                (false, false) if !is_left_out(state, job) => *slot = slot.saturating_sub(count),
                (true, false) | (false, _) => {}
            }
        }
    }
    for nodes in slots.values_mut() {
        nodes.retain(|node, count| *count > 0 && state.nodes.is_usable(node));
    }
    slots
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

fn standing(job: &Job) -> Vec<(ContainerType, NodeId, u32)> {
    let workers = job.workers_by_node().into_iter();
    let workers = workers.map(|(node, count)| (job.container_type(), node, count));
    let assignment = job.assignment.iter();
    let roles = assignment.flat_map(|assignment| {
        let parts = job.beside.parts().iter().enumerate();
        parts.flat_map(|(index, part)| {
            let ranks = job.beside.ranks(index);
            let counts = assignment.by_node_of(|rank| ranks.contains(&rank.0));
            let counts = counts.into_iter();
            counts.map(|(node, count)| (part.container_type(), node, count))
        })
    });
    workers.chain(roles).collect()
}

/// Takes slots that nobody else may use: the coordinator's, and those on ineligible nodes.
fn hold(
    state: &ClusterState,
    wanted: &Wanted<'_>,
    slots: &mut BTreeMap<NodeId, u32>,
) -> BTreeMap<NodeId, u32> {
    let mut counts = BTreeMap::new();
    let assignment = wanted.job.assignment.as_ref();
    let Some(assignment) = assignment.filter(|it| elastic::is_alive(wanted.job, it)) else {
        return counts;
    };
    let chief = assignment.places.get(&Rank(0));
    if let Some(chief) = chief.filter(|_| !wanted.job.is_served()) {
        take(wanted, &mut counts, &chief.node, 1, slots);
    }
    for (node, count) in wanted.by_node() {
        if !state.nodes.is_allowed(wanted.needs(), &node) {
            take(wanted, &mut counts, &node, count, slots);
        }
    }
    counts
}

/// Takes slots at a job's present eligible nodes, rank 0's node first.
fn stand(
    state: &ClusterState,
    wanted: &Wanted<'_>,
    counts: &mut BTreeMap<NodeId, u32>,
    slots: &mut BTreeMap<NodeId, u32>,
) {
    let assignment = wanted.job.assignment.as_ref();
    let chief = assignment.and_then(|assignment| assignment.places.get(&Rank(0)));
    let mut stands: Vec<(NodeId, u32)> = wanted.by_node().into_iter().collect();
    if wanted.job.in_place {
        stands.sort_by_key(|(node, _)| chief.map(|chief| &chief.node) != Some(node));
    }
    for (node, count) in stands {
        if state.nodes.is_allowed(wanted.needs(), &node) {
            take(wanted, counts, &node, count, slots);
        }
    }
}

fn take(
    wanted: &Wanted<'_>,
    counts: &mut BTreeMap<NodeId, u32>,
    node: &NodeId,
    most: u32,
    slots: &mut BTreeMap<NodeId, u32>,
) {
    let missing = wanted.containers.saturating_sub(counts.values().sum());
    let here = counts.get(node).copied().unwrap_or(0);
    let Some(free) = slots.get_mut(node) else {
        return;
    };
    let taken = most.saturating_sub(here).min(*free).min(missing);
    *free -= taken;
    if taken > 0 {
        *counts.entry(node.clone()).or_default() += taken;
    }
}

/// Neighbouring ranks share a node; rank 0 stays on its node if possible.
fn rank_places(
    wanted: &Wanted<'_>,
    counts: BTreeMap<NodeId, u32>,
    gpus: &mut gpus::Free<'_>,
) -> Vec<Place> {
    let chief = wanted.stands().next().map(|(_, place)| &place.node);
    let mut nodes: Vec<(&NodeId, &u32)> = counts.iter().collect();
    nodes.sort_by_key(|(node, count)| (chief != Some(*node), Reverse(**count), *node));
    let mut places = Vec::new();
    for (node, count) in nodes {
        for _ in 0..*count {
            places.push(Place {
                node: node.clone(),
                gpus: gpus.take(node, wanted),
                port: 0,
            });
        }
    }
    places
}

/// A member that its node could not start moves to another node, unless it has GPUs, which the optimizer
/// divides.
pub fn elsewhere(
    state: &ClusterState,
    room: &mut Room,
    job: &Job,
    assignment: &Assignment,
) -> Vec<Place> {
    let avoid = &job.start_faults.nodes;
    let again = |(rank, place): (&Rank, &Place)| {
        let moves = avoid.contains(&place.node) && place.gpus.is_empty();
        let moves = moves && !job.needs_at(*rank).constraints.exclusive;
        let other = moves.then(|| room.take_one(state, (job, *rank)));
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

/// Free capacity of each node, and the nodes held by exclusive containers.
pub struct Room(BTreeMap<NodeId, Amounts>, BTreeSet<NodeId>);

impl Room {
    pub fn of(state: &ClusterState, changed: &BTreeSet<&JobId>) -> Self {
        let capacities = state.nodes.usable();
        let mut room: BTreeMap<NodeId, Amounts> = capacities
            .map(|(name, node)| (name.clone(), node.capacity.clone()))
            .collect();
        let mut alone = BTreeSet::new();
        for job in staying(state, changed) {
            for (of_type, node, count) in standing(job) {
                if let Some(room) = room.get_mut(&node) {
                    room.subtract(&of_type.demand, u64::from(count));
                }
                if of_type.needs.constraints.exclusive {
                    alone.insert(node);
                }
            }
        }
        Self(room, alone)
    }

    /// Takes one container's capacity on an eligible node that has not failed to start the job.
    fn take_one(&mut self, state: &ClusterState, (job, rank): (&Job, Rank)) -> Option<NodeId> {
        let avoid = &job.start_faults.nodes;
        let (demand, needs) = (job.demand_at(rank), job.needs_at(rank));
        let mut nodes = self.0.iter_mut();
        let (name, room) = nodes.find(|(name, room)| {
            let may = !avoid.contains(*name) && state.nodes.is_allowed(needs, name);
            may && !self.1.contains(*name) && demand.first_short(room, 1).is_none()
        })?;
        room.subtract(demand, 1);
        Some(name.clone())
    }

    fn take(&mut self, counts: &BTreeMap<NodeId, u32>, demand: &Amounts) -> Option<Resource> {
        for (node, count) in counts {
            let room = self.0.get_mut(node)?;
            if let Some(resource) = demand.first_short(room, u64::from(*count)) {
                return Some(resource.clone());
            }
            room.subtract(demand, u64::from(*count));
        }
        None
    }
}
