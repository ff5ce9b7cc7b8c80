//! Turns an allocation into places: ranks, devices, and the containers that stay. The optimizer has chosen
//! the nodes; an allocation that the nodes cannot take any more is refused.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::Unplaceable;
use dormouse_messages::{JobId, NodeId, Rank};
use dormouse_state::{Assignment, ClusterState, Job, Place};

use crate::elastic::{self, Changed};
use crate::free_capacity::FreeCapacity;
use crate::gpus;
use crate::wanted::Wanted;

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
