//! Chooses each container's GPUs: whole free ones, or a part of one.
//!
//! The optimizer has proven that every container finds its device if large ones choose first. A fraction goes
//! to the fullest device that can hold it, so that others stay whole.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{Unplaceable, WhyUnplaceable};
use dormouse_messages::needs::{ContainerType, GPU_PARTS};
use dormouse_messages::{JobId, NodeId, Rank, Resource};
use dormouse_state::{ClusterState, Job, Place};

use crate::free_capacity::staying;
use crate::wanted::Wanted;

struct Gpu {
    uuid: String,
    free: u64,
}

/// Free GPU parts of the usable nodes.
pub struct Free<'a> {
    state: &'a ClusterState,
    nodes: BTreeMap<&'a NodeId, Vec<Gpu>>,
    /// On nodes that name their GPUs.
    pub unplaceable: Vec<Unplaceable>,
}

pub fn size(state: &ClusterState, of_type: &ContainerType) -> u64 {
    state.nodes.gpu_parts(of_type).min(GPU_PARTS)
}

impl<'a> Free<'a> {
    pub fn of(state: &'a ClusterState, changed: &BTreeSet<&JobId>) -> Self {
        let nodes = state.nodes.usable().map(|(name, node)| {
            let gpus = node.gpus.iter().map(|gpu| Gpu {
                uuid: gpu.uuid.clone(),
                free: GPU_PARTS,
            });
            (name, gpus.collect())
        });
        let mut free = Self {
            state,
            nodes: nodes.collect(),
            unplaceable: Vec::new(),
        };
        for job in staying(state, changed) {
            let places = job.assignment.iter().flat_map(|it| &it.places);
            places.for_each(|placed| free.hold(job, placed));
        }
        free
    }

    pub fn hold(&mut self, job: &Job, (rank, place): (&Rank, &Place)) {
        if place.gpus.is_empty() {
            return;
        }
        let size = size(self.state, &job.type_at(*rank));
        let gpus = self.nodes.get_mut(&place.node).into_iter().flatten();
        for gpu in gpus.filter(|gpu| place.gpus.contains(&gpu.uuid)) {
            gpu.free = gpu.free.saturating_sub(size);
        }
    }

    pub fn place(&mut self, node: &NodeId, wanted: &Wanted<'_>) -> Place {
        Place {
            node: node.clone(),
            gpus: self.take(node, wanted),
            port: 0,
        }
    }

    /// Empty if the node does not name its GPUs.
    fn take(&mut self, node: &NodeId, wanted: &Wanted<'_>) -> Vec<String> {
        let milli = wanted.demand().get(&Resource::Gpu);
        let gpus = self.nodes.get_mut(node).filter(|gpus| !gpus.is_empty());
        let Some(gpus) = gpus.filter(|_| milli > 0) else {
            return Vec::new();
        };
        let size = size(self.state, &wanted.container_type());
        let many = usize::try_from((milli / 1000).max(1)).unwrap_or(usize::MAX);
        let mut open: Vec<&mut Gpu> = gpus.iter_mut().filter(|gpu| gpu.free >= size).collect();
        // A stable sort keeps whole ones in the agent's order.
        open.sort_by_key(|gpu| gpu.free);
        if open.len() < many {
            self.unplaceable.push(Unplaceable {
                job: wanted.id.clone(),
                node: node.clone(),
                containers: 1,
                why: WhyUnplaceable::Short(Resource::Gpu.name().to_owned()),
            });
            return Vec::new();
        }
        let taken = open.into_iter().take(many).map(|gpu| {
            gpu.free -= size;
            gpu.uuid.clone()
        });
        taken.collect()
    }
}
