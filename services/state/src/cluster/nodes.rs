//! Effects of nodes' changes on jobs.

use dormouse_messages::{Amounts, NodeId, Rank, Timestamp};

use super::ClusterState;
use crate::incarnation::{ContainerPhase, PartitionContainer, Place};
use crate::job::Job;
use crate::membership::{Node, NodePhase};

impl ClusterState {
    /// Ignores losses of other incarnations: an earlier incarnation's loss may follow the next join.
    pub(super) fn lose(&mut self, node: &NodeId, incarnation: u64, last_seen: Timestamp) {
        if !self.nodes.lost(node, incarnation, last_seen) {
            return;
        }
        self.triggers();
        for job in self.jobs.values_mut_if(|job| has_containers_on(job, node)) {
            let containers = job
                .partition
                .iter_mut()
                .flat_map(|it| it.containers.values_mut());
            let mut lost = false;
            for container in containers.filter(|c| c.place.node == *node && c.holds_room()) {
                container.phase = ContainerPhase::Lost { at: self.sequence };
                lost = true;
            }
            if lost {
                // Waiting for a lease is no cost of an adjustment.
                job.adjusting_since = None;
            }
        }
        self.displace(node, true);
        self.freed();
    }

    /// A restarted agent may have missed start requests.
    pub(super) fn rejoined(&mut self, node: &NodeId) {
        let jobs = self.jobs.values_mut_if(|job| has_containers_on(job, node));
        for partition in jobs.filter_map(|job| job.partition.as_mut()) {
            let asked = |it: &PartitionContainer| {
                it.place.node == *node && it.phase == ContainerPhase::Requested
            };
            partition.rejoined |= partition.containers.values().any(asked);
        }
    }

    /// A job without a checkpoint stays on a drained node until the job ends, as in Slurm.
    pub(super) fn displace(&mut self, node: &NodeId, lost: bool) {
        // An unmovable job does not start there again.
        let is_tried_again = |job: &Job| match (&job.partition, &job.assignment, &job.last_stop) {
            (None, Some(assignment), Some(stop)) => stop.incarnation >= assignment.incarnation,
            _ => false,
        };
        let may_move = |job: &Job| lost || job.is_adjustable() || is_tried_again(job);
        let is_there = |job: &Job| {
            let mut places = job.assignment.iter().flat_map(|it| it.places.values());
            places.any(|place| place.node == *node)
        };
        let jobs = self
            .jobs
            .values_mut_if(|job| may_move(job) && is_there(job));
        for assignment in jobs.filter_map(|job| job.assignment.as_mut()) {
            assignment.displaced = true;
        }
    }

    /// Replaces placed containers that new labels or taints forbid. Running containers stay.
    pub(super) fn relabelled(&mut self) {
        let nodes = &self.nodes;
        let is_forbidden = |job: &Job| {
            let needs = (&job.needs, &job.auxiliary);
            job.assignment.as_ref().is_some_and(|assignment| {
                let mut places = assignment.places.values();
                !nodes.allow(needs, assignment)
                    || places.any(|place| !nodes.is_allowed(&job.needs, &place.node))
            })
        };
        for job in self.jobs.values_mut_if(is_forbidden) {
            let Some(assignment) = &mut job.assignment else {
                continue;
            };
            let partition = job.partition.as_ref();
            let partition = partition.filter(|it| it.incarnation == assignment.incarnation);
            let Some(partition) = partition else {
                let needs = (&job.needs, &job.auxiliary);
                if !assignment.displaced && !self.nodes.allow(needs, assignment) {
                    assignment.displaced = true;
                    self.last_trigger = self.sequence;
                }
                continue;
            };
            if !job.in_place {
                continue;
            }
            let starts = |(rank, place): &(&Rank, &Place)| {
                !partition.containers.contains_key(*rank)
                    && !self.nodes.is_allowed(&job.needs, &place.node)
            };
            let starts: Vec<Rank> = assignment
                .places
                .iter()
                .filter(starts)
                .map(|(r, _)| *r)
                .collect();
            for rank in starts {
                if let Some(place) = assignment.places.remove(&rank) {
                    assignment.dropped.insert(rank, place);
                    assignment.lost += 1;
                    self.last_trigger = self.sequence;
                }
            }
        }
    }

    /// Reports whether a node may be forgotten: it is lost, or drained, and has no container.
    #[must_use]
    pub fn may_forget(&self, name: &NodeId) -> bool {
        let node = self.nodes.get(name);
        let is_out =
            node.is_some_and(|it| it.drained || matches!(it.phase, NodePhase::Lost { .. }));
        is_out && !self.is_in_use(name)
    }

    /// Reports whether a container is placed or may run on the node.
    fn is_in_use(&self, name: &NodeId) -> bool {
        let is_at = |place: &Place| place.node == *name;
        self.jobs.values().any(|job| {
            let assigned = job.assignment.iter().flat_map(|it| it.places.values());
            let living = job.partition.iter().flat_map(|it| it.containers.values());
            let holds = living.filter(|it| it.holds_room()).map(|it| &it.place);
            assigned.chain(holds).any(is_at)
        })
    }

    pub(super) fn remove_node(&mut self, name: &NodeId) {
        if self.may_forget(name) {
            self.nodes.remove(name);
        }
    }

    /// Running and placed containers stay on a smaller node until the next decision.
    pub(super) fn shrunk(&mut self, name: &NodeId) {
        let taken = self.taken(name);
        self.overfull.insert(name.clone(), taken);
        self.freed();
    }

    pub(super) fn freed(&mut self) {
        let names: Vec<NodeId> = self.overfull.keys().cloned().collect();
        for name in names {
            let node = self.nodes.get(&name);
            let fits = |node: &Node| self.taken(&name).first_short(&node.capacity, 1).is_none();
            if node.is_none_or(fits) {
                self.overfull.remove(&name);
            }
        }
    }

    /// Returns the running and placed amounts.
    fn taken(&self, name: &NodeId) -> Amounts {
        let mut taken = Amounts::new();
        for job in self.jobs.values() {
            let placed = job.waits_to_start().into_iter();
            let placed = placed.flat_map(|assignment| &assignment.places);
            for (rank, _) in placed.filter(|(_, place)| place.node == *name) {
                taken.add(job.demand_at(*rank), 1);
            }
            for (_, demand) in job.held().filter(|(node, _)| *node == name) {
                taken.add(demand, 1);
            }
        }
        taken
    }
}

fn has_containers_on(job: &Job, node: &NodeId) -> bool {
    let mut containers = job.partition.iter().flat_map(|it| it.containers.values());
    containers.any(|container| container.place.node == *node)
}
