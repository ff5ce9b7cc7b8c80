//! Groups of nodes for the model.
//!
//! Any grouping adds up rows and relaxes P2. Single nodes give P2; groups of equal rooms give the smallest
//! useful model.

use std::collections::BTreeMap;

use crate::instance::Instance;

/// Groups of nodes, each counted as one.
pub(crate) type NodeClasses = Vec<Vec<usize>>;

/// Puts every node into its own group; the model is then P2.
pub(crate) fn single_nodes(instance: &Instance) -> NodeClasses {
    (0..instance.rooms.len()).map(|node| vec![node]).collect()
}

/// Groups nodes of equal room; the model then bounds P2.
pub(crate) fn classes(instance: &Instance) -> NodeClasses {
    let mut classes: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (node, room) in instance.rooms.iter().enumerate() {
        classes.entry(room).or_default().push(node);
    }
    classes.into_values().collect()
}
