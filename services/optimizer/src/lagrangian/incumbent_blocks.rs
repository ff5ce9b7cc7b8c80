//! What runs, as blocks: a block is what one running job has on one node. A restart frees all
//! blocks of its job.

use std::ops::Range;

use crate::instance::{Instance, State};
use crate::lagrangian::knapsack_table::RoomGrid;

/// Blocks on a node up to which the room beside every set of them is tabulated: 4,096 sets. At 9,
/// sixty steps of the ascent end 0.3 % higher, on a cluster of a thousand nodes where one in six has
/// more than 8.
pub(crate) const TABULATED: usize = 12;

/// A set of blocks that cannot be all that leaves: the node would stay overfull.
pub(crate) const OVERFULL: u32 = u32::MAX;

/// What one running job has on one node.
#[derive(Debug)]
pub(crate) struct Block {
    pub job: usize,
    pub node: usize,
    /// Per resource: what it holds.
    pub size: Vec<i64>,
}

/// A node and its blocks.
#[derive(Debug)]
pub(crate) struct NodeBlocks {
    pub blocks: Range<usize>,
    /// Per resource: the room beside all that runs; negative on a node that shrank.
    pub room: Vec<i64>,
    /// Per set of blocks that leave (bit by bit): the grid entry of the room then; empty for
    /// a node of more than [`TABULATED`] blocks.
    pub entries: Vec<u32>,
}

/// The blocks of an instance, in the order of the nodes.
#[derive(Debug)]
pub(crate) struct IncumbentBlocks {
    pub blocks: Vec<Block>,
    pub nodes: Vec<NodeBlocks>,
    /// Per job: its blocks.
    pub of_job: Vec<Vec<usize>>,
}

impl IncumbentBlocks {
    pub fn new(instance: &Instance, grid: &RoomGrid) -> Self {
        let mut on_node: Vec<Vec<Block>> = instance.rooms.iter().map(|_| Vec::new()).collect();
        for (index, job) in instance.jobs.iter().enumerate() {
            let moves = job.state == State::Running;
            for (node, count) in job.previous.iter().filter(|_| moves) {
                let demand = &instance.types[job.ty].demand;
                on_node[*node].push(Block {
                    job: index,
                    node: *node,
                    size: demand
                        .iter()
                        .map(|d| signed(d * u64::from(*count)))
                        .collect(),
                });
            }
        }
        let mut incumbents = Self {
            blocks: Vec::new(),
            nodes: Vec::new(),
            of_job: vec![Vec::new(); instance.jobs.len()],
        };
        for (blocks, room) in on_node.into_iter().zip(rooms_beside_all(instance)) {
            let first = incumbents.blocks.len();
            for block in blocks {
                incumbents.of_job[block.job].push(incumbents.blocks.len());
                incumbents.blocks.push(block);
            }
            let blocks = first..incumbents.blocks.len();
            let sizes: Vec<&[i64]> = incumbents.blocks[blocks.clone()]
                .iter()
                .map(|block| block.size.as_slice())
                .collect();
            let entries = match blocks.len() {
                0..=TABULATED => entries(&room, &sizes, grid),
                _ => Vec::new(),
            };
            incumbents.nodes.push(NodeBlocks {
                blocks,
                room,
                entries,
            });
        }
        incumbents
    }
}

impl NodeBlocks {
    /// Whether every set of its blocks is tabulated.
    pub fn is_tabulated(&self) -> bool {
        !self.entries.is_empty()
    }
}

/// The rooms beside all that runs; negative on a node that shrank.
fn rooms_beside_all(instance: &Instance) -> Vec<Vec<i64>> {
    let rooms = instance.rooms.iter();
    let mut rooms: Vec<Vec<i64>> = rooms
        .map(|room| room.iter().map(|amount| signed(*amount)).collect())
        .collect();
    for job in instance.jobs.iter().filter(|job| job.state != State::Free) {
        for (node, count) in &job.previous {
            let demand = &instance.types[job.ty].demand;
            for (room, amount) in rooms[*node].iter_mut().zip(demand) {
                *room -= signed(amount * u64::from(*count));
            }
        }
    }
    rooms
}

fn signed(amount: u64) -> i64 {
    i64::try_from(amount).unwrap_or(i64::MAX)
}

/// Per set of blocks of these sizes that leave: the grid entry of the room then.
pub(crate) fn entries(room: &[i64], sizes: &[&[i64]], grid: &RoomGrid) -> Vec<u32> {
    let width = room.len();
    let mut rooms = room.to_vec();
    rooms.reserve(width << sizes.len());
    for size in sizes {
        for at in 0..rooms.len() {
            rooms.push(rooms[at] + size[at % width]);
        }
    }
    let entry = |room: &[i64]| grid.entry(room).map_or(OVERFULL, |at| at as u32);
    rooms.chunks_exact(width.max(1)).map(entry).collect()
}
