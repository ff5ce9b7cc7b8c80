//! Groups of nodes for the model. Any grouping relaxes P2: single nodes give P2, groups of equal rooms the
//! smallest useful model.

use std::collections::BTreeMap;

use crate::model::instance::Instance;

pub(crate) type NodeClasses = Vec<Vec<usize>>;

pub(crate) fn single_nodes(instance: &Instance) -> NodeClasses {
    (0..instance.rooms.len()).map(|node| vec![node]).collect()
}

pub(crate) fn classes(instance: &Instance) -> NodeClasses {
    let mut classes: BTreeMap<&[u64], Vec<usize>> = BTreeMap::new();
    for (node, room) in instance.rooms.iter().enumerate() {
        classes.entry(room).or_default().push(node);
    }
    classes.into_values().collect()
}
