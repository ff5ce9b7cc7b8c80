//! Which nodes are counted together in a model.
//!
//! Any grouping gives a relaxation of P2: rows are added up. One node a group is P2 itself; equal
//! rooms together are the smallest useful model.

use std::collections::BTreeMap;

use crate::instance::Instance;

/// Sets of nodes that are counted together.
pub(crate) type NodeClasses = Vec<Vec<usize>>;

/// Every node on its own: the model is then P2 itself.
pub(crate) fn single_nodes(instance: &Instance) -> NodeClasses {
    (0..instance.rooms.len()).map(|node| vec![node]).collect()
}

/// Nodes of equal room together: the model then bounds P2.
pub(crate) fn classes(instance: &Instance) -> NodeClasses {
    let mut classes: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (node, room) in instance.rooms.iter().enumerate() {
        classes.entry(room).or_default().push(node);
    }
    classes.into_values().collect()
}
