//! Which nodes are counted together in a model.
//!
//! Any grouping gives a relaxation of P2: rows are added up. One node a group is P2 itself; equal
//! rooms together are the smallest useful model; nodes of equal room and similar free room lie
//! between, and lose little, because what cannot be used on one node cannot be used on its like.

use std::collections::BTreeMap;

use super::instance::Instance;

/// Sets of nodes that are counted together.
pub(crate) type Groups = Vec<Vec<usize>>;

/// Every node on its own: the model is then P2 itself.
pub(crate) fn single_nodes(instance: &Instance) -> Groups {
    (0..instance.rooms.len()).map(|node| vec![node]).collect()
}

/// Nodes of equal room together: the model then bounds P2.
pub(crate) fn classes(instance: &Instance) -> Groups {
    let mut classes: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (node, room) in instance.rooms.iter().enumerate() {
        classes.entry(room).or_default().push(node);
    }
    classes.into_values().collect()
}

/// Nodes of equal room whose free room is similar together, in at most about `limit` groups.
pub(crate) fn similar(instance: &Instance, limit: usize) -> Groups {
    let free = instance.free_rooms(&vec![false; instance.jobs.len()]);
    let typical = typical_demands(instance);
    let mut coarseness = 1;
    loop {
        let mut groups: BTreeMap<(&[u64], Vec<u64>), Vec<usize>> = BTreeMap::new();
        for (node, room) in instance.rooms.iter().enumerate() {
            let levels = free[node].iter().zip(&typical);
            let levels = levels.map(|(free, typical)| 4 * free / (typical * coarseness));
            groups
                .entry((room, levels.collect()))
                .or_default()
                .push(node);
        }
        // 2^20 quarters of a typical container are more than any node has room for.
        if groups.len() <= limit || coarseness > 1 << 20 {
            return groups.into_values().collect();
        }
        coarseness *= 2;
    }
}

/// Per resource, the median demand of the types that demand it.
fn typical_demands(instance: &Instance) -> Vec<u64> {
    let median = |resource: usize| {
        let demands = instance.types.iter().map(|ty| ty.demand[resource]);
        let mut demands: Vec<u64> = demands.filter(|demand| *demand > 0).collect();
        demands.sort_unstable();
        demands.get(demands.len() / 2).copied().unwrap_or(1)
    };
    (0..instance.totals.len()).map(median).collect()
}
