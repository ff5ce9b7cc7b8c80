//! Running jobs as blocks: one job's containers on one node. A restart frees all blocks of a job.

use std::ops::Range;

use crate::model::instance::{Instance, State};
use crate::model::room_grid::RoomGrid;

/// 4,096 sets are tabulated per node; fewer blocks loosen the bound.
pub(crate) const TABULATED: usize = 12;

/// The node stays overfull if only this set departs.
pub(crate) const OVERFULL: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Block {
    pub job: usize,
    pub node: usize,
    pub size: Vec<i64>,
}

#[derive(Debug)]
pub(crate) struct NodeBlocks {
    pub blocks: Range<usize>,
    /// Left by all incumbents; negative on a node that shrank.
    pub room: Vec<i64>,
    /// Grid entry per set of departing blocks (a bit mask); empty for more than [`TABULATED`] blocks.
    pub entries: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct IncumbentBlocks {
    pub blocks: Vec<Block>,
    pub nodes: Vec<NodeBlocks>,
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
        for (blocks, room) in on_node.into_iter().zip(rooms_left_by_all(instance)) {
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
    pub fn is_tabulated(&self) -> bool {
        !self.entries.is_empty()
    }
}

fn rooms_left_by_all(instance: &Instance) -> Vec<Vec<i64>> {
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
