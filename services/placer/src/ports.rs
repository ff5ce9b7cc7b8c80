//! Port blocks for containers, unique in the whole cluster while enough are free, because nodes of a local
//! cluster share one machine; else unique on the node.

use std::collections::BTreeMap;

use dormouse_messages::NodeId;
use dormouse_messages::events::PORTS_PER_CONTAINER;
use dormouse_state::{ClusterState, Place};

/// Above the registered services that a node is likely to run, below Linux's ephemeral ports (32768), which
/// any client may hold.
const FIRST_PORT: u16 = 20_000;
const BLOCKS: u16 = (32_000 - FIRST_PORT) / PORTS_PER_CONTAINER;
const WORDS: usize = (BLOCKS as usize).div_ceil(64);

#[derive(Debug, Clone, Copy)]
struct Blocks([u64; WORDS]);

impl Blocks {
    const NONE: Self = Self([0; WORDS]);

    fn insert(&mut self, port: u16) {
        let offset = port.checked_sub(FIRST_PORT);
        let begins = offset.filter(|offset| offset.is_multiple_of(PORTS_PER_CONTAINER));
        let block = begins.map(|offset| offset / PORTS_PER_CONTAINER);
        if let Some(block) = block.filter(|block| *block < BLOCKS) {
            self.0[usize::from(block / 64)] |= 1 << (block % 64);
        }
    }

    fn holds(&self, block: u16) -> bool {
        self.0[usize::from(block / 64)] & (1 << (block % 64)) != 0
    }

    fn first_free(&self, start: u16) -> Option<u16> {
        (start..BLOCKS)
            .chain(0..start)
            .find(|block| !self.holds(*block))
    }
}

/// The blocks in use, and the position of the search.
pub struct Ports<'a> {
    state: &'a ClusterState,
    anywhere: Blocks,
    by_node: Option<BTreeMap<NodeId, Blocks>>,
    taken: Vec<(NodeId, u16)>,
    next_block: u16,
}

impl<'a> Ports<'a> {
    /// The search starts at a block derived from the log's sequence, so that a port just left is not reused
    /// at once.
    pub fn in_use(state: &'a ClusterState) -> Self {
        let start = state.sequence.0.wrapping_mul(13) % u64::from(BLOCKS);
        let mut anywhere = Blocks::NONE;
        for place in held(state) {
            anywhere.insert(place.port);
        }
        Self {
            state,
            anywhere,
            by_node: None,
            taken: Vec::new(),
            next_block: u16::try_from(start).unwrap_or(0),
        }
    }

    /// Prefers a block that is free everywhere; 0 if the node has none left.
    pub fn take(&mut self, node: &NodeId) -> u16 {
        let free_anywhere = self.anywhere.first_free(self.next_block);
        let Some(block) = free_anywhere.or_else(|| self.free_on(node)) else {
            return 0;
        };
        let port = FIRST_PORT + block * PORTS_PER_CONTAINER;
        self.next_block = (block + 1) % BLOCKS;
        self.anywhere.insert(port);
        match &mut self.by_node {
            Some(nodes) => nodes
                .entry(node.clone())
                .or_insert(Blocks::NONE)
                .insert(port),
            None => self.taken.push((node.clone(), port)),
        }
        port
    }

    fn free_on(&mut self, node: &NodeId) -> Option<u16> {
        let (state, taken) = (self.state, &mut self.taken);
        let nodes = self.by_node.get_or_insert_with(|| {
            let mut nodes: BTreeMap<NodeId, Blocks> = BTreeMap::new();
            let held = held(state).map(|place| (place.node.clone(), place.port));
            for (node, port) in held.chain(taken.drain(..)) {
                nodes.entry(node).or_insert(Blocks::NONE).insert(port);
            }
            nodes
        });
        nodes
            .get(node)
            .unwrap_or(&Blocks::NONE)
            .first_free(self.next_block)
    }
}

fn held(state: &ClusterState) -> impl Iterator<Item = &Place> {
    state.jobs.values().flat_map(|job| {
        let assigned = job.assignment.iter().flat_map(|a| a.places.values());
        let living = job.partition.iter().flat_map(|it| it.containers.values());
        assigned.chain(living.map(|container| &container.place))
    })
}
