//! Chooses nodes among those with slots for a job.
//!
//! 1. Packed: a node in use; else the nearest that takes all the rest, the smallest of these; else the one
//!    that takes most, with near ones around ([`crate::distance`]).
//! 2. Spread, by policy: one by one on the node with the most slots.
//! 3. Preferences come before both ([`crate::liking`]).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use dormouse_messages::NodeId;
use dormouse_messages::policy::Placement;
use dormouse_state::ClusterState;

use crate::assign::Wanted;
use crate::distance::Distance;
use crate::liking::Liking;

pub fn packs(state: &ClusterState) -> bool {
    state.policy.placement == Placement::Pack
}

pub fn grow_at_home(
    wanted: &Wanted<'_>,
    counts: &mut BTreeMap<NodeId, u32>,
    slots: &mut BTreeMap<NodeId, u32>,
) {
    let mut missing = wanted.containers - counts.values().sum::<u32>();
    for (node, count) in counts {
        if let Some(free) = slots.get_mut(node) {
            let taken = missing.min(*free);
            *free -= taken;
            *count += taken;
            missing -= taken;
        }
    }
}

pub fn choose_nodes(
    state: &ClusterState,
    wanted: &Wanted<'_>,
    mut counts: BTreeMap<NodeId, u32>,
    slots: &mut BTreeMap<NodeId, u32>,
) -> BTreeMap<NodeId, u32> {
    let mut missing = wanted.containers - counts.values().sum::<u32>();
    let needs = wanted.needs();
    let liking = Liking::of(state, &needs.constraints);
    while missing > 0 {
        let open = slots.iter().filter(|(_, free)| **free > 0);
        let open = open.filter(|(node, _)| state.nodes.is_allowed(needs, node));
        let open = open.map(|(node, free)| (node, *free)).collect();
        let liked = liking.best(open, &counts, missing);
        let chosen = if packs(state) {
            pack(&Distance(state), &liked, &counts, missing)
        } else {
            roomiest(&liked)
        };
        let Some(node) = chosen else {
            break;
        };
        let free = slots.get(&node).copied().unwrap_or(0);
        let one_by_one = liking.is_fussy() || !packs(state);
        let most = if one_by_one { 1 } else { missing };
        let taken = free.min(most);
        slots.insert(node.clone(), free - taken);
        *counts.entry(node).or_default() += taken;
        missing -= taken;
    }
    counts
}

fn pack(
    distance: &Distance<'_>,
    open: &[(&NodeId, u32)],
    counts: &BTreeMap<NodeId, u32>,
    missing: u32,
) -> Option<NodeId> {
    let here = open.iter().filter(|(node, _)| counts.contains_key(*node));
    let fits = open.iter().filter(|(_, free)| *free >= missing);
    here.max_by_key(|(node, free)| (*free, Reverse(*node)))
        .or_else(|| fits.min_by_key(|(node, free)| (distance.to(node, counts), *free, *node)))
        .or_else(|| {
            open.iter().max_by_key(|(node, free)| {
                let far = Reverse(distance.to(node, counts));
                (*free, far, distance.around(node, open), Reverse(*node))
            })
        })
        .map(|(node, _)| (*node).clone())
}

fn roomiest(open: &[(&NodeId, u32)]) -> Option<NodeId> {
    let most = open
        .iter()
        .max_by_key(|(node, free)| (*free, Reverse(*node)));
    most.map(|(node, _)| (*node).clone())
}
