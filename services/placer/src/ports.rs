//! Port blocks for containers: their own on the node, and their own in the whole cluster while
//! there are enough, because nodes of a local cluster share one machine.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::NodeId;
use dormouse_messages::events::PORTS_PER_CONTAINER;
use dormouse_projections::shared::{ClusterState, Place};

/// The first port: above the registered services that a node is likely to run, and below the
/// ephemeral ports of Linux (32768), which any client may hold at any moment.
const FIRST_PORT: u16 = 20_000;
const BLOCKS: u16 = (32_000 - FIRST_PORT) / PORTS_PER_CONTAINER;

/// The blocks in use, and where the search goes on.
pub struct Ports {
    by_node: BTreeMap<NodeId, BTreeSet<u16>>,
    anywhere: BTreeSet<u16>,
    next_block: u16,
}

impl Ports {
    /// The ports of every assignment and of every life. The search starts at another block each
    /// time (by the log's sequence), so that a port just left is not taken at once.
    pub fn in_use(state: &ClusterState) -> Self {
        let start = state.sequence.0.wrapping_mul(13) % u64::from(BLOCKS);
        let mut ports = Self {
            by_node: BTreeMap::new(),
            anywhere: BTreeSet::new(),
            next_block: u16::try_from(start).unwrap_or(0),
        };
        for job in state.jobs.values() {
            let assigned = job.assignment.iter().flat_map(|a| a.places.values());
            let living = job.life.iter().flat_map(|life| life.containers.values());
            for place in assigned.chain(living.map(|container| &container.place)) {
                ports.hold(place);
            }
        }
        ports
    }

    fn hold(&mut self, place: &Place) {
        self.by_node
            .entry(place.node.clone())
            .or_default()
            .insert(place.port);
        self.anywhere.insert(place.port);
    }

    /// Takes a free block on `node`: free everywhere if one is, else free on the node; 0 where
    /// the node has none left.
    pub fn take(&mut self, node: &NodeId) -> u16 {
        let used_here = self.by_node.entry(node.clone()).or_default();
        let candidates = (0..BLOCKS).map(|offset| {
            let block = (self.next_block + offset) % BLOCKS;
            FIRST_PORT + block * PORTS_PER_CONTAINER
        });
        let free_anywhere = candidates
            .clone()
            .find(|port| !self.anywhere.contains(port));
        let free_here = || candidates.clone().find(|port| !used_here.contains(port));
        let Some(port) = free_anywhere.or_else(free_here) else {
            return 0;
        };
        self.next_block = ((port - FIRST_PORT) / PORTS_PER_CONTAINER + 1) % BLOCKS;
        used_here.insert(port);
        self.anywhere.insert(port);
        port
    }
}
