//! Nodes, their capacity and usability.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    Gpu, NodeDrained, NodeFaulted, NodeJoined, NodeLabelled, NodeQuarantined,
};
use dormouse_messages::needs::{ContainerType, GPU_MODEL_LABEL, Labels, NODE_LABEL};
use dormouse_messages::reservation::{is_of_reservations, is_reserved};
use dormouse_messages::{Amounts, AuxiliaryRoles, Needs, NodeId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::health::Health;
use crate::job::Assignment;
use crate::shared_map::SharedMap;

/// The membership of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodePhase {
    Up,
    Lost {
        last_seen: Timestamp,
    },
    /// Rejoined after a loss; the placer takes the node back.
    Returning {
        /// The last renewal before the loss.
        last_seen: Timestamp,
        joined: Sequence,
    },
}

/// A node's agent, capacity and condition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub capacity: Amounts,
    pub gpus: Vec<Gpu>,
    pub address: String,
    pub incarnation: u64,
    pub phase: NodePhase,
    pub drained: bool,
    /// The end of the drain.
    pub leave_by: Option<Timestamp>,
    pub health: Health,
    /// The operator's labels override the agent's.
    pub labels: Labels,
    pub taints: BTreeSet<String>,
}

impl Node {
    /// Reports whether each GPU has the requested memory.
    #[must_use]
    pub fn has_gpu_memory(&self, needs: &Needs) -> bool {
        let asked = needs.gpu_memory_bytes;
        let mut gpus = self.gpus.iter();
        asked == 0 || (!self.gpus.is_empty() && gpus.all(|gpu| gpu.memory_bytes >= asked))
    }

    /// Reports whether containers may be placed here.
    #[must_use]
    pub fn is_usable(&self) -> bool {
        self.phase == NodePhase::Up && !self.drained && self.health.quarantine.is_none()
    }
}

/// All nodes that ever joined.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    nodes: SharedMap<NodeId, Node>,
    /// May precede the first join.
    drained: BTreeMap<NodeId, Option<Timestamp>>,
    said: SharedMap<NodeId, NodeLabels>,
    /// Taints of reservations.
    reserved: BTreeMap<NodeId, BTreeSet<String>>,
}

/// Labels and taints from the agent and the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeLabels {
    own: (Labels, BTreeSet<String>),
    labels: BTreeMap<String, Option<String>>,
    taints: BTreeMap<String, bool>,
}

impl NodeLabels {
    /// Replaces the agent's part.
    pub fn joined(&mut self, event: &NodeJoined) {
        let mut labels = event.labels.clone();
        labels.insert(NODE_LABEL.to_owned(), event.node.to_string());
        if let Some(first) = event.gpus.first() {
            let alike = event.gpus.iter().all(|gpu| gpu.model == first.model);
            if alike && !first.model.is_empty() {
                labels
                    .entry(GPU_MODEL_LABEL.to_owned())
                    .or_insert_with(|| first.model.clone());
            }
        }
        let own = event.taints.iter().filter(|it| !is_of_reservations(it));
        self.own = (labels, own.cloned().collect());
    }

    /// Adds the operator's part.
    pub fn labelled(&mut self, event: &NodeLabelled) {
        self.labels.extend(event.labels.clone());
        let taints = event.taints.iter();
        let taints = taints.filter(|(it, _)| !is_of_reservations(it));
        self.taints
            .extend(taints.map(|(it, is_put)| (it.clone(), *is_put)));
    }

    /// Returns the effective labels and taints.
    #[must_use]
    pub fn both(&self) -> (Labels, BTreeSet<String>) {
        let (mut labels, mut taints) = self.own.clone();
        for (label, value) in &self.labels {
            match value {
                Some(value) => drop(labels.insert(label.clone(), value.clone())),
                None => drop(labels.remove(label)),
            }
        }
        for (taint, is_put) in &self.taints {
            match is_put {
                true => drop(taints.insert(taint.clone())),
                false => drop(taints.remove(taint)),
            }
        }
        (labels, taints)
    }
}

impl Membership {
    /// Drains a node, also before its first join; reports whether the node is known.
    pub(crate) fn drained(&mut self, event: &NodeDrained, now: Timestamp) -> bool {
        let after = event.deadline_s.map(|s| u64::from(s) * 1000);
        let leave_by = after.map(|after| now.plus_ms(after));
        self.drained.insert(event.node.clone(), leave_by);
        self.change(&event.node, |node| {
            (node.drained, node.leave_by) = (true, leave_by);
        })
    }

    /// Drains a node without a deadline, also before its first join; reports whether the node was usable.
    pub(crate) fn leaves(&mut self, name: &NodeId) -> bool {
        self.drained.entry(name.clone()).or_insert(None);
        let was_usable = self.is_usable(name);
        self.change(name, |node| node.drained = true);
        was_usable
    }

    /// Forgets what was said about a node that is not known.
    pub(crate) fn forget(&mut self, name: &NodeId) {
        self.drained.remove(name);
        self.said.remove(name);
    }

    pub(crate) fn restored(&mut self, name: &NodeId) -> bool {
        self.drained.remove(name);
        self.change(name, |node| {
            (node.drained, node.leave_by) = (false, None);
            node.health = Health::default();
        })
    }

    pub(crate) fn labelled(&mut self, event: &NodeLabelled) -> bool {
        let said = self.said.or_default(event.node.clone());
        said.labelled(event);
        let (labels, taints) = self.said_of(&event.node);
        self.change(&event.node, |node| {
            (node.labels, node.taints) = (labels, taints);
        })
    }

    /// Returns the labels and the taints, those of reservations included.
    fn said_of(&self, name: &NodeId) -> (Labels, BTreeSet<String>) {
        let said = self.said.get(name);
        let (labels, mut taints) = said.map(NodeLabels::both).unwrap_or_default();
        taints.extend(self.reserved.get(name).into_iter().flatten().cloned());
        (labels, taints)
    }

    /// Replaces the taints of reservations; returns the nodes that changed.
    pub(crate) fn reserve(&mut self, taints: BTreeMap<NodeId, BTreeSet<String>>) -> Vec<NodeId> {
        let before = std::mem::replace(&mut self.reserved, taints);
        let names: BTreeSet<&NodeId> = before.keys().chain(self.reserved.keys()).collect();
        let changed = names
            .into_iter()
            .filter(|name| before.get(*name) != self.reserved.get(*name));
        let changed: Vec<NodeId> = changed.cloned().collect();
        for name in &changed {
            let (_, taints) = self.said_of(name);
            self.change(name, |node| node.taints = taints);
        }
        changed
    }

    /// Reports whether containers with these needs may stay on the node: it is usable, and not reserved for
    /// others.
    #[must_use]
    pub fn is_open(&self, needs: &Needs, name: &NodeId) -> bool {
        let reserved = |node: &Node| {
            let mut taints = node.taints.iter();
            taints.any(|taint| is_reserved(taint) && !needs.tolerations.contains(taint))
        };
        let node = self.nodes.get(name);
        node.is_some_and(|node| node.is_usable() && !reserved(node))
    }

    pub(crate) fn quarantined(&mut self, event: &NodeQuarantined, sequence: Sequence) -> bool {
        self.change(&event.node, |node| node.health.quarantined(event, sequence))
    }

    pub(crate) fn readmitted(&mut self, name: &NodeId) -> bool {
        self.change(name, |node| node.health.quarantine = None)
    }

    pub(crate) fn faulted(&mut self, event: &NodeFaulted, sequence: Sequence) {
        self.change(&event.node, |node| node.health.faulted(event, sequence));
    }

    pub(crate) fn container_started(&mut self, name: &NodeId) {
        let node = self.nodes.get(name);
        if node.is_some_and(|node| node.health.is_doubted()) {
            self.change(name, |node| node.health.started());
        }
    }

    /// Ignores losses of other incarnations.
    pub(crate) fn lost(&mut self, name: &NodeId, incarnation: u64, last_seen: Timestamp) -> bool {
        let node = self.nodes.get_mut(name);
        let node = node.filter(|node| {
            node.incarnation == incarnation && !matches!(node.phase, NodePhase::Lost { .. })
        });
        node.map(|node| node.phase = NodePhase::Lost { last_seen })
            .is_some()
    }

    /// Reports changed usability.
    pub(crate) fn joined(&mut self, event: &NodeJoined, sequence: Sequence) -> bool {
        let before = self.nodes.get(&event.node);
        let phase = match before.map(|node| &node.phase) {
            None | Some(NodePhase::Up) => NodePhase::Up,
            Some(NodePhase::Lost { last_seen } | NodePhase::Returning { last_seen, .. }) => {
                NodePhase::Returning {
                    last_seen: *last_seen,
                    joined: sequence,
                }
            }
        };
        let said = self.said.or_default(event.node.clone());
        said.joined(event);
        let (labels, taints) = self.said_of(&event.node);
        let unchanged = before.is_some_and(|node| {
            let same = (&node.labels, &node.taints) == (&labels, &taints);
            same && node.phase == phase && node.capacity == event.capacity
        });
        let node = Node {
            capacity: event.capacity.clone(),
            gpus: event.gpus.clone(),
            address: event.address.clone(),
            incarnation: event.incarnation,
            phase,
            drained: self.drained.contains_key(&event.node),
            leave_by: self.drained.get(&event.node).copied().flatten(),
            health: before.map(|node| node.health.clone()).unwrap_or_default(),
            labels,
            taints,
        };
        self.nodes.insert(event.node.clone(), node);
        !unchanged
    }

    /// Ignores a recovery that crossed another loss.
    pub(crate) fn recovered(&mut self, name: &NodeId) -> bool {
        let returning = |node: &&mut Node| matches!(node.phase, NodePhase::Returning { .. });
        let node = self.nodes.get_mut(name).filter(returning);
        node.map(|node| node.phase = NodePhase::Up).is_some()
    }

    fn change(&mut self, name: &NodeId, change: impl FnOnce(&mut Node)) -> bool {
        self.nodes.get_mut(name).map(change).is_some()
    }

    /// Returns a node.
    #[must_use]
    pub fn get(&self, name: &NodeId) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// Iterates over all nodes, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter()
    }

    /// Iterates over nodes not shared with an earlier copy.
    pub fn changed_since<'a>(&'a self, before: &'a Self) -> impl Iterator<Item = &'a NodeId> {
        let changed = self.nodes.changed_since(&before.nodes);
        changed.map(|(name, _)| name)
    }

    /// Iterates over the usable nodes, by name.
    pub fn usable(&self) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter().filter(|(_, node)| node.is_usable())
    }

    /// Reports whether the node is usable.
    #[must_use]
    pub fn is_usable(&self, name: &NodeId) -> bool {
        self.nodes.get(name).is_some_and(Node::is_usable)
    }

    /// Reports whether the node satisfies the needs.
    #[must_use]
    pub fn is_allowed(&self, needs: &Needs, name: &NodeId) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|node| {
            node.has_gpu_memory(needs) && needs.allow(&node.labels, &node.taints)
        })
    }

    /// Returns a container's GPU parts ([`ContainerType::gpu_parts`]) by the smallest eligible device, so the
    /// number holds on every node.
    #[must_use]
    pub fn gpu_parts(&self, of_type: &ContainerType) -> u64 {
        let needs = &of_type.needs;
        if needs.gpu_memory_bytes == 0 {
            return of_type.gpu_parts(u64::MAX);
        }
        let able = self
            .nodes
            .values()
            .filter(|node| node.has_gpu_memory(needs) && needs.allow(&node.labels, &node.taints));
        let memories = able.flat_map(|node| node.gpus.iter().map(|gpu| gpu.memory_bytes));
        of_type.gpu_parts(memories.min().unwrap_or(needs.gpu_memory_bytes))
    }

    /// Reports whether every place satisfies its needs.
    #[must_use]
    pub fn allow(
        &self,
        (needs, auxiliary): (&Needs, &AuxiliaryRoles),
        assignment: &Assignment,
    ) -> bool {
        let mut places = assignment.places.iter();
        places.all(|(rank, place)| {
            let needs = auxiliary.at(*rank).map_or(needs, |part| &part.needs);
            self.is_allowed(needs, &place.node)
        })
    }

    /// Forgets a node.
    pub(crate) fn remove(&mut self, name: &NodeId) {
        self.nodes.remove(name);
        self.forget(name);
    }

    /// Reports whether every place is usable and satisfies its needs.
    #[must_use]
    pub fn take(&self, needs: (&Needs, &AuxiliaryRoles), assignment: &Assignment) -> bool {
        self.hold(needs.0, assignment) && self.allow(needs, assignment)
    }

    /// Reports whether the containers may stay at every place.
    #[must_use]
    pub fn hold(&self, needs: &Needs, assignment: &Assignment) -> bool {
        let mut places = assignment.places.values();
        places.all(|place| self.is_open(needs, &place.node))
    }

    /// Reports whether the node is lost and not rejoined.
    #[must_use]
    pub fn is_lost(&self, name: &NodeId) -> bool {
        let node = self.nodes.get(name);
        node.is_some_and(|node| matches!(node.phase, NodePhase::Lost { .. }))
    }

    /// Sums the usable nodes.
    #[must_use]
    pub fn total(&self) -> Amounts {
        let mut total = Amounts::new();
        for (_, node) in self.usable() {
            total.add(&node.capacity, 1);
        }
        total
    }
}
