//! Narrows a job's eligible nodes to its preferred ones for the next container.
//!
//! 1. `spread`: the label value with the fewest of the job's containers.
//! 2. `pack`: a value already in use; else the smallest that holds all, else the largest.
//! 3. `prefer`: the nodes that break the fewest preferred labels.

use std::collections::BTreeMap;

use dormouse_messages::NodeId;
use dormouse_messages::needs::Constraints;
use dormouse_state::ClusterState;

/// A job's preferences.
pub struct Liking<'a> {
    state: &'a ClusterState,
    constraints: &'a Constraints,
}

impl<'a> Liking<'a> {
    pub fn of(state: &'a ClusterState, constraints: &'a Constraints) -> Self {
        Self { state, constraints }
    }

    pub fn is_fussy(&self) -> bool {
        self.constraints.spread.is_some()
    }

    fn value(&self, node: &NodeId, label: &str) -> &str {
        let node = self.state.nodes.get(node);
        let value = node.and_then(|node| node.labels.get(label));
        value.map_or("", String::as_str)
    }

    /// Filters `open` (nodes with free slots) for the next of `missing` containers.
    pub fn best<'n>(
        &self,
        mut open: Vec<(&'n NodeId, u32)>,
        counts: &BTreeMap<NodeId, u32>,
        missing: u32,
    ) -> Vec<(&'n NodeId, u32)> {
        if let Some(label) = &self.constraints.spread {
            let mut has: BTreeMap<&str, u32> = BTreeMap::new();
            for (node, _) in &open {
                has.insert(self.value(node, label), 0);
            }
            for (node, count) in counts {
                *has.entry(self.value(node, label)).or_default() += count;
            }
            let least = open
                .iter()
                .map(|(node, _)| has[self.value(node, label)])
                .min();
            open.retain(|(node, _)| Some(has[self.value(node, label)]) == least);
        }
        if let Some(label) = &self.constraints.pack {
            let value = self.gathered(&open, counts, missing, label);
            open.retain(|(node, _)| self.value(node, label) == value);
        }
        if !self.constraints.prefer.is_empty() {
            let dislikes = |node: &NodeId| {
                let labels = self.state.nodes.get(node).map(|node| &node.labels);
                labels.map_or(usize::MAX, |labels| self.constraints.dislikes(labels))
            };
            let least = open.iter().map(|(node, _)| dislikes(node)).min();
            open.retain(|(node, _)| Some(dislikes(node)) == least);
        }
        open
    }

    fn gathered(
        &self,
        open: &[(&NodeId, u32)],
        counts: &BTreeMap<NodeId, u32>,
        missing: u32,
        label: &str,
    ) -> String {
        let mut free: BTreeMap<&str, u32> = BTreeMap::new();
        for (node, slots) in open {
            *free.entry(self.value(node, label)).or_default() += slots;
        }
        let mut has: BTreeMap<&str, u32> = BTreeMap::new();
        for (node, count) in counts {
            *has.entry(self.value(node, label)).or_default() += count;
        }
        let known = free.iter().filter(|(value, _)| has.contains_key(*value));
        let whole = free.iter().filter(|(_, slots)| **slots >= missing);
        let value = known
            .max_by_key(|(value, _)| (has[*value], std::cmp::Reverse(**value)))
            .or_else(|| whole.min_by_key(|(value, slots)| (**slots, **value)))
            .or_else(|| {
                free.iter()
                    .max_by_key(|(value, slots)| (**slots, std::cmp::Reverse(**value)))
            });
        value.map_or_else(String::new, |(value, _)| (*value).to_owned())
    }
}
