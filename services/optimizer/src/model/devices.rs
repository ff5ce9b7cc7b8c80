//! Columns for fractions of GPUs in rooms and demands.
//!
//! Fractions are rounded up to the next half, quarter and so on of a device. Each size s has a column:
//! demands count containers of size s or more, and each device offers its free parts rounded down to a
//! multiple of s. Sizes divide one another, so containers fit without straddling if and only if no column
//! overflows.
//!
//! Running containers stay on their devices, and parts lost to fragmentation do not return with them. No
//! restart is decided to empty a shared GPU.

use std::collections::BTreeSet;

use dormouse_messages::needs::GPU_PARTS;
use dormouse_messages::quantity::Resource;

use crate::problem::{Problem, ProblemGpu, ProblemJob, ProblemNode};

#[derive(Debug, Clone, Default)]
pub(crate) struct Devices {
    sizes: Vec<u64>,
    /// Free parts plus those of the jobs that stay, per node and size.
    rooms: Vec<Vec<u64>>,
    counts: Vec<u64>,
    /// Size on one device and total, in parts.
    demands: Vec<(u64, u64)>,
}

pub(crate) fn has_memory(node: &ProblemNode, job: &ProblemJob) -> bool {
    let asked = job.needs.gpu_memory_bytes;
    let mut gpus = node.gpus.iter();
    asked == 0 || (!node.gpus.is_empty() && gpus.all(|gpu| gpu.memory_bytes >= asked))
}

impl Devices {
    pub fn new(problem: &Problem, nodes: &[&ProblemNode]) -> Self {
        if !problem.jobs.iter().any(shares) {
            return Self::default();
        }
        let demand = |job: &ProblemJob| (job.gpu_parts.min(GPU_PARTS), job.gpu_parts);
        let demands: Vec<(u64, u64)> = problem.jobs.iter().map(demand).collect();
        let sizes: BTreeSet<u64> = demands.iter().map(|(size, _)| *size).collect();
        let sizes = sizes.into_iter().rev().filter(|size| *size > 0).collect();
        let mut devices = Self {
            sizes,
            demands,
            counts: nodes.iter().map(|node| count(node)).collect(),
            rooms: Vec::new(),
        };
        for (index, node) in nodes.iter().enumerate() {
            let free = devices.free(problem, node, devices.counts[index]);
            let rooms = devices.sizes.iter().map(|size| {
                let open: u64 = free.iter().map(|free| free - free % size).sum();
                open + devices.held(problem, node, *size)
            });
            let rooms = rooms.collect();
            devices.rooms.push(rooms);
        }
        devices
    }

    fn free(&self, problem: &Problem, node: &ProblemNode, count: u64) -> Vec<u64> {
        let known: Option<Vec<u64>> = node.gpus.iter().map(|gpu| gpu.taken).collect();
        if let Some(taken) = known.filter(|taken| !taken.is_empty()) {
            let free = taken
                .into_iter()
                .map(|taken| GPU_PARTS.saturating_sub(taken));
            return free.take(usize::try_from(count).unwrap_or(0)).collect();
        }
        // Placements are unknown: assume that large containers came first.
        let mut stand = Vec::new();
        for (job, (size, all)) in problem.jobs.iter().zip(&self.demands) {
            let at = job.previous.iter().filter(|_| !job.displaced);
            let at: u32 = at.filter_map(|it| it.get(&node.name)).sum();
            let each = all / (*size).max(1);
            stand.extend((0..u64::from(at) * each).map(|_| *size));
        }
        stand.sort_unstable_by(|a, b| b.cmp(a));
        let mut free = vec![GPU_PARTS; usize::try_from(count).unwrap_or(0)];
        for size in stand {
            if let Some(device) = free.iter_mut().find(|free| **free >= size) {
                *device -= size;
            }
        }
        free
    }

    fn held(&self, problem: &Problem, node: &ProblemNode, size: u64) -> u64 {
        let pairs = problem.jobs.iter().zip(&self.demands);
        let large = pairs.filter(|(job, (own, _))| *own >= size && !job.displaced);
        let held = large.map(|(job, (_, all))| {
            let previous = job.previous.as_ref().and_then(|it| it.get(&node.name));
            u64::from(previous.copied().unwrap_or(0)) * all
        });
        held.sum()
    }

    pub fn width(&self) -> usize {
        self.sizes.len()
    }

    /// Excludes containers outside the problem, or describes the empty node.
    pub fn complete_room(&self, room: &mut Vec<u64>, node: usize, is_empty: bool) {
        if self.width() == 0 {
            return;
        }
        let whole = self.counts[node] * GPU_PARTS;
        let rooms = self.rooms[node].iter();
        // A drained node offers only the parts in use.
        room.extend(rooms.map(|room| if is_empty { whole.max(*room) } else { *room }));
    }

    pub fn complete_demand(&self, demand: &mut Vec<u64>, job: Option<usize>) {
        let (own, all) = job
            .and_then(|job| self.demands.get(job))
            .copied()
            .unwrap_or((0, 0));
        let of_size = |size: &u64| if own >= *size { all } else { 0 };
        demand.extend(self.sizes.iter().map(of_size));
    }
}

fn count(node: &ProblemNode) -> u64 {
    let offered = node.capacity.get(&Resource::Gpu) / 1000;
    match node.gpus.len() {
        0 => offered,
        named => offered.min(named as u64),
    }
}

pub(crate) fn unnamed(capacity_milli: u64, memory_bytes: u64) -> Vec<ProblemGpu> {
    let gpu = ProblemGpu {
        memory_bytes,
        taken: None,
    };
    vec![gpu; usize::try_from(capacity_milli / 1000).unwrap_or(0)]
}

fn shares(job: &ProblemJob) -> bool {
    (1..1000).contains(&job.demand.get(&Resource::Gpu))
}

/// Compares the sum of the containers with the empty node's devices.
pub(crate) fn overfull<'a>(
    node: &ProblemNode,
    stand: impl Iterator<Item = (&'a ProblemJob, u32)>,
) -> bool {
    let (mut parts, mut shared) = (0, false);
    for (job, many) in stand {
        parts += job.gpu_parts * u64::from(many);
        shared |= shares(job);
    }
    shared && parts > count(node) * GPU_PARTS
}
