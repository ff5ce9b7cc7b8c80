//! Racks and zones of the nodes, by their labels `rack` and `zone`, so that a gang gets near nodes.

use std::collections::BTreeMap;

use crate::problem::ProblemNode;

/// A rack's name counts within its zone.
type Rack<'a> = (Option<&'a str>, &'a str);

/// Rack and zone of each node by index; `None` without the label.
#[derive(Debug, Clone, Default)]
pub(crate) struct Topology {
    racks: Vec<Option<usize>>,
    zones: Vec<Option<usize>>,
    has_labels: bool,
}

impl Topology {
    pub fn of(nodes: &[&ProblemNode]) -> Self {
        let mut racks: BTreeMap<Rack<'_>, usize> = BTreeMap::new();
        let mut zones: BTreeMap<&str, usize> = BTreeMap::new();
        let mut topology = Self::default();
        for node in nodes {
            let label = |name: &str| node.labels.get(name).map(String::as_str);
            let zone = label("zone");
            let rack = label("rack").map(|rack| (zone, rack));
            let (next_rack, next_zone) = (racks.len(), zones.len());
            let rack = rack.map(|rack| *racks.entry(rack).or_insert(next_rack));
            let zone = zone.map(|zone| *zones.entry(zone).or_insert(next_zone));
            topology.racks.push(rack);
            topology.zones.push(zone);
        }
        topology.has_labels = !racks.is_empty() || !zones.is_empty();
        topology
    }

    /// True if all nodes are equally far from each other.
    pub const fn is_flat(&self) -> bool {
        !self.has_labels
    }

    /// 0 in one rack, 1 in one zone, else 2.
    fn between(&self, one: usize, other: usize) -> u32 {
        let same = |of: &[Option<usize>]| of[one].is_some() && of[one] == of[other];
        match (same(&self.racks), same(&self.zones)) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        }
    }

    /// Returns the sum of the distances from `node` to a job's containers.
    pub fn distance(&self, node: usize, counts: &BTreeMap<usize, u32>) -> u32 {
        let each = counts.iter();
        let each = each.map(|(at, count)| self.between(node, *at).saturating_mul(*count));
        each.fold(0, u32::saturating_add)
    }

    /// Returns the node's group of the nearest kind that it has: its rack, and its zone.
    pub fn groups(&self, node: usize) -> (Group, Group) {
        let rack = self.racks[node].map_or(Group::Node(node), Group::Rack);
        let zone = self.zones[node].map_or(rack, Group::Zone);
        (rack, zone)
    }
}

/// Nodes near each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Group {
    Node(usize),
    Rack(usize),
    Zone(usize),
}
