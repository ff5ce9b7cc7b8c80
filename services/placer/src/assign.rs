//! Slots to jobs: keeps what runs in place, packs a gang on few nodes (or spreads it, where the policy
//! says so).
//!
//! An allocation says how many containers of each shape every changed node holds. On the nodes
//! that it does not list the counts are those of the assignments so far. What the jobs that stay
//! do not take is free for the jobs that change; containers of one shape are interchangeable, so
//! any division of the free slots among them fits.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::Short;
use dormouse_messages::needs::ContainerType;
use dormouse_messages::{Amounts, JobId, NodeId, Rank, Resource};
use dormouse_state::{Assignment, ClusterState, Job, Place};

use crate::elastic::{self, Changed};
use crate::gpus;
use crate::packing::{choose_nodes, grow_at_home, packs};

/// A job that the allocation lists with containers.
pub struct Wanted<'a> {
    /// Which.
    pub id: &'a JobId,
    /// Its state.
    pub job: &'a Job,
    /// How many containers it gets.
    pub containers: u32,
}

type Slots = BTreeMap<ContainerType, BTreeMap<NodeId, u32>>;

/// Where the containers of a job go.
pub enum Placed {
    /// All of them anew, under the next incarnation, by rank.
    Whole(Vec<Place>),
    /// Some go and some come; the others stay.
    Changed {
        /// Those that go.
        remove: Vec<Rank>,
        /// Those that come.
        create: Vec<(Rank, Place)>,
    },
}

/// Gives each wanted job its places.
///
/// # Errors
/// The containers that find no slot, or whose node is too small.
pub fn assign(
    state: &ClusterState,
    wanted: &[Wanted<'_>],
) -> Result<BTreeMap<JobId, Placed>, Vec<Short>> {
    let changed: BTreeSet<&JobId> = state.allocation.jobs.keys().collect();
    let mut free = free_slots(state, &changed);
    let mut room = Room::of(state, &changed);
    let mut chosen: Vec<(&Wanted<'_>, BTreeMap<NodeId, u32>)> = Vec::new();
    let mut short = Vec::new();
    // What can stay where it runs does so, whoever else would like to be there; chiefs before
    // replicas, for which another would do.
    let mut staying = BTreeMap::new();
    let mut in_place: Vec<&Wanted<'_>> = wanted.iter().filter(|it| it.job.in_place).collect();
    in_place.sort_by_key(|wanted| wanted.job.is_served());
    // First what the allocation holds fixed: elsewhere it would leave slots that nobody else may have.
    for wanted in &in_place {
        let slots = free.entry(wanted.job.container_type()).or_default();
        staying.insert(wanted.id, hold(state, wanted, slots));
    }
    for wanted in in_place {
        let slots = free.entry(wanted.job.container_type()).or_default();
        if let Some(stands) = staying.get_mut(wanted.id) {
            stand(state, wanted, stands, slots);
        }
    }
    // Then training that grows takes what is free where it is: a replica is as well elsewhere.
    for wanted in wanted
        .iter()
        .filter(|it| it.job.in_place && !it.job.is_served())
    {
        let slots = free.entry(wanted.job.container_type()).or_default();
        if let Some(stands) = staying.get_mut(wanted.id).filter(|_| packs(state)) {
            grow_at_home(wanted, stands, slots);
        }
    }
    // Large gangs choose first: a small one finds a node of its own more easily. Replicas come last.
    let mut order: Vec<&Wanted<'_>> = wanted.iter().collect();
    order.sort_by_key(|wanted| {
        let is_replica = wanted.job.is_served() && packs(state);
        (is_replica, Reverse(wanted.containers), wanted.id)
    });
    for wanted in order {
        let slots = free.entry(wanted.job.container_type()).or_default();
        let stands = staying.remove(wanted.id).unwrap_or_else(|| {
            let mut stands = BTreeMap::new();
            stand(state, wanted, &mut stands, slots);
            stands
        });
        let counts = choose_nodes(state, wanted, stands, slots);
        let missing = wanted.containers - counts.values().sum::<u32>();
        let tight = room.take(&counts, &wanted.job.demand);
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
    match short.is_empty() {
        true => with_gpus(state, &changed, chosen),
        false => Err(short),
    }
}

/// The places with their GPUs: containers that stay keep theirs. Whole ones come first, then fractions
/// by their size: so each finds a device.
fn with_gpus(
    state: &ClusterState,
    changed: &BTreeSet<&JobId>,
    mut chosen: Vec<(&Wanted<'_>, BTreeMap<NodeId, u32>)>,
) -> Result<BTreeMap<JobId, Placed>, Vec<Short>> {
    chosen.sort_by_key(|(wanted, _)| Reverse(gpus::size(state, wanted.job)));
    let mut gpus = gpus::Free::of(state, changed);
    let in_place = chosen.into_iter().map(|(wanted, counts)| {
        let change = elastic::change(wanted.job, &counts);
        (wanted, counts, change)
    });
    let in_place: Vec<_> = in_place.collect();
    for (wanted, _, change) in &in_place {
        if let (Some(change), Some(assignment)) = (change, &wanted.job.assignment) {
            elastic::staying(assignment, change).for_each(|it| gpus.hold(wanted.job, it));
        }
    }
    let placed = in_place.into_iter().map(|(wanted, counts, change)| {
        let placed = match change {
            None => Placed::Whole(rank_places(wanted, counts, &mut gpus)),
            Some(Changed { remove, create }) => {
                let place = |(rank, node): (Rank, NodeId)| {
                    let gpus = gpus.take(&node, wanted);
                    let port = 0;
                    (rank, Place { node, gpus, port })
                };
                Placed::Changed {
                    remove,
                    create: create.into_iter().map(place).collect(),
                }
            }
        };
        (wanted.id.clone(), placed)
    });
    let placed = placed.collect();
    match gpus.short.is_empty() {
        true => Ok(placed),
        false => Err(gpus.short),
    }
}

/// The slots of each shape on each usable node that jobs which stay do not take.
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
    // The allocation's counts leave out the containers of a job that it knew to be ending.
    let left_out = |job: &Job| {
        job.cancel_requested
            .is_some_and(|requested| requested <= state.decided_asof)
    };
    for (id, job) in &state.jobs {
        let counts = job
            .assignment
            .iter()
            .flat_map(|assignment| assignment.by_node());
        for (node, count) in counts {
            let slot = slots
                .entry(job.container_type())
                .or_default()
                .entry(node.clone())
                .or_default();
            // On an unlisted node a job that stays adds its slots and takes them again.
            match (unlisted(&node), changed.contains(id)) {
                (true, true) => *slot += count,
                (false, false) if !left_out(job) => *slot = slot.saturating_sub(count),
                (true, false) | (false, _) => {}
            }
        }
    }
    for nodes in slots.values_mut() {
        nodes.retain(|node, count| *count > 0 && state.nodes.is_usable(node));
    }
    slots
}

/// Takes the slots that the allocation holds fixed for what is resized in place: its chief's, then those
/// on nodes where it stands and could not start any more. For its type nobody else may use these.
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
    for (node, count) in assignment.by_node() {
        if !state.nodes.is_allowed(&wanted.job.needs, &node) {
            take(wanted, &mut counts, &node, count, slots);
        }
    }
    counts
}

/// Takes the slots where a job stands and may start again; where rank 0 is first.
fn stand(
    state: &ClusterState,
    wanted: &Wanted<'_>,
    counts: &mut BTreeMap<NodeId, u32>,
    slots: &mut BTreeMap<NodeId, u32>,
) {
    let assignment = wanted.job.assignment.as_ref();
    let chief = assignment.and_then(|assignment| assignment.places.get(&Rank(0)));
    let mut stands: Vec<(NodeId, u32)> = assignment
        .iter()
        .flat_map(|assignment| assignment.by_node())
        .collect();
    if wanted.job.in_place {
        stands.sort_by_key(|(node, _)| chief.map(|chief| &chief.node) != Some(node));
    }
    for (node, count) in stands {
        if state.nodes.is_allowed(&wanted.job.needs, &node) {
            take(wanted, counts, &node, count, slots);
        }
    }
}

/// Takes free slots on a node until the job has `most` there, or all that it wants.
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

/// Ranks by node, so that neighbours share one; rank 0 stays on its node if the job still has
/// containers there.
fn rank_places(
    wanted: &Wanted<'_>,
    counts: BTreeMap<NodeId, u32>,
    gpus: &mut gpus::Free<'_>,
) -> Vec<Place> {
    let assignment = wanted.job.assignment.as_ref();
    let chief = assignment
        .and_then(|old| old.places.values().next())
        .map(|place| &place.node);
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

/// The places of a gang that is tried again: where a node could not start a member, another node
/// that has room, and else the same. A member with GPUs stays: they are the optimizer's to divide.
pub fn elsewhere(
    state: &ClusterState,
    room: &mut Room,
    job: &Job,
    assignment: &Assignment,
) -> Vec<Place> {
    let avoid = &job.start_faults.nodes;
    let again = |place: &Place| {
        let moves = avoid.contains(&place.node) && place.gpus.is_empty();
        let moves = moves && !job.needs.constraints.exclusive;
        let other = moves.then(|| room.take_one(state, job, avoid)).flatten();
        other.map_or_else(
            || place.clone(),
            |node| Place {
                node,
                gpus: Vec::new(),
                port: 0,
            },
        )
    };
    assignment.places.values().map(again).collect()
}

/// What is left on each node beside the jobs that stay, and the nodes that one of them has for itself.
pub struct Room(BTreeMap<NodeId, Amounts>, BTreeSet<NodeId>);

impl Room {
    /// What the assignments of all jobs but the changed ones leave on the usable nodes.
    pub fn of(state: &ClusterState, changed: &BTreeSet<&JobId>) -> Self {
        let capacities = state.nodes.usable();
        let mut room: BTreeMap<NodeId, Amounts> = capacities
            .map(|(name, node)| (name.clone(), node.capacity.clone()))
            .collect();
        let mut alone = BTreeSet::new();
        for (_, job) in state.jobs.iter().filter(|(id, _)| !changed.contains(id)) {
            if job.needs.constraints.exclusive {
                let places = job.assignment.iter().flat_map(|it| it.places.values());
                alone.extend(places.map(|place| place.node.clone()));
            }
            for (node, count) in job
                .assignment
                .iter()
                .flat_map(|assignment| assignment.by_node())
            {
                if let Some(room) = room.get_mut(&node) {
                    room.subtract(&job.demand, u64::from(count));
                }
            }
        }
        Self(room, alone)
    }

    /// Takes the room of one container on the first node that has it and is not to be avoided.
    fn take_one(
        &mut self,
        state: &ClusterState,
        job: &Job,
        avoid: &BTreeSet<NodeId>,
    ) -> Option<NodeId> {
        let demand = &job.demand;
        let mut nodes = self.0.iter_mut();
        let (name, room) = nodes.find(|(name, room)| {
            let may = !avoid.contains(*name) && state.nodes.is_allowed(&job.needs, name);
            may && !self.1.contains(*name) && demand.first_short(room, 1).is_none()
        })?;
        room.subtract(demand, 1);
        Some(name.clone())
    }

    /// Takes the containers' room; the resource that is short, if one is.
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
