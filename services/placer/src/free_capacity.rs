//! Free capacity of the nodes while the jobs of an allocation are placed.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{Unplaceable, WhyUnplaceable};
use dormouse_messages::{Amounts, JobId, NodeId, Rank};
use dormouse_state::{ClusterState, Job};

use crate::elastic;
use crate::wanted::Wanted;

/// The allocation gave away the capacity of a job known to be ending.
fn is_left_out(state: &ClusterState, job: &Job) -> bool {
    job.cancel_requested
        .is_some_and(|requested| requested <= state.decided_asof)
}

/// Returns the jobs that keep their places while changed jobs are placed.
pub fn staying<'a>(
    state: &'a ClusterState,
    changed: &BTreeSet<&JobId>,
) -> impl Iterator<Item = &'a Job> {
    let stays = |(id, job): &(&JobId, &Job)| !changed.contains(id) && !is_left_out(state, job);
    state.jobs.iter().filter(stays).map(|(_, job)| job)
}

/// Free capacity of the usable nodes, and the nodes held by exclusive containers.
pub struct FreeCapacity {
    by_node: BTreeMap<NodeId, Amounts>,
    exclusive: BTreeSet<NodeId>,
}

impl FreeCapacity {
    pub fn of(state: &ClusterState, changed: &BTreeSet<&JobId>) -> Self {
        let capacities = state.nodes.usable();
        let mut by_node: BTreeMap<NodeId, Amounts> = capacities
            .map(|(name, node)| (name.clone(), node.capacity.clone()))
            .collect();
        let mut exclusive = BTreeSet::new();
        for job in staying(state, changed) {
            for (rank, place) in job.assignment.iter().flat_map(|it| &it.places) {
                if let Some(free) = by_node.get_mut(&place.node) {
                    free.subtract(job.demand_at(*rank), 1);
                }
                if job.needs_at(*rank).constraints.exclusive {
                    exclusive.insert(place.node.clone());
                }
            }
        }
        Self { by_node, exclusive }
    }

    /// Takes one container's capacity on an eligible node that has not failed to start the job.
    pub fn take_one(&mut self, state: &ClusterState, (job, rank): (&Job, Rank)) -> Option<NodeId> {
        let avoid = &job.start_faults.nodes;
        let (demand, needs) = (job.demand_at(rank), job.needs_at(rank));
        let mut nodes = self.by_node.iter_mut();
        let (name, free) = nodes.find(|(name, free)| {
            let may = !avoid.contains(*name) && state.nodes.is_allowed(needs, name);
            may && !self.exclusive.contains(*name) && demand.first_short(free, 1).is_none()
        })?;
        free.subtract(demand, 1);
        Some(name.clone())
    }

    /// Returns the containers that their nodes cannot take. Containers that stay need no eligible node.
    pub fn take(&mut self, state: &ClusterState, wanted: &Wanted<'_>) -> Vec<Unplaceable> {
        let assignment = wanted.job.assignment.as_ref();
        let stays = assignment.is_some_and(|it| elastic::is_alive(wanted.job, it));
        let present = if stays {
            wanted.present_by_node()
        } else {
            BTreeMap::new()
        };
        let mut unplaceable = Vec::new();
        for (node, count) in &wanted.nodes {
            let is_new = *count > present.get(node).copied().unwrap_or(0);
            let why = match self.by_node.get_mut(node) {
                None => Some(WhyUnplaceable::Unusable),
                Some(_) if is_new && !state.nodes.is_allowed(wanted.needs(), node) => {
                    Some(WhyUnplaceable::NotAllowed)
                }
                Some(free) => match wanted.demand().first_short(free, u64::from(*count)) {
                    Some(resource) => Some(WhyUnplaceable::Short(resource.name().to_owned())),
                    None => {
                        free.subtract(wanted.demand(), u64::from(*count));
                        None
                    }
                },
            };
            unplaceable.extend(why.map(|why| Unplaceable {
                job: wanted.id.clone(),
                node: node.clone(),
                containers: *count,
                why,
            }));
        }
        unplaceable
    }
}
