//! Distance of nodes by their labels `rack` and `zone`, so that a gang gets near nodes.

use std::collections::BTreeMap;

use dormouse_messages::NodeId;
use dormouse_state::ClusterState;

/// The distances of the nodes of a cluster.
pub struct Distance<'a>(pub &'a ClusterState);

impl Distance<'_> {
    fn label(&self, node: &NodeId, name: &str) -> Option<&str> {
        let node = self.0.nodes.get(node)?;
        node.labels.get(name).map(String::as_str)
    }

    fn same(&self, one: &NodeId, other: &NodeId, name: &str) -> bool {
        let value = self.label(one, name);
        value.is_some() && value == self.label(other, name)
    }

    /// 0 in one rack, 1 in one zone, else 2. A rack's name counts within its zone.
    fn between(&self, one: &NodeId, other: &NodeId) -> u32 {
        let zones = (self.label(one, "zone"), self.label(other, "zone"));
        match (self.same(one, other, "rack"), self.same(one, other, "zone")) {
            (true, _) if zones.0 == zones.1 => 0,
            (_, true) => 1,
            (_, false) => 2,
        }
    }

    pub fn to(&self, node: &NodeId, counts: &BTreeMap<NodeId, u32>) -> u32 {
        let each = counts
            .iter()
            .map(|(at, count)| self.between(node, at).saturating_mul(*count));
        each.sum()
    }

    pub fn around(&self, node: &NodeId, open: &[(&NodeId, u32)]) -> (u32, u32) {
        let within = |most: u32| {
            let near = open
                .iter()
                .filter(|(other, _)| *other == node || self.between(node, other) <= most);
            near.map(|(_, free)| free).sum()
        };
        (within(0), within(1))
    }
}
