//! Applies events to partitions resized in place.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    MemberAcknowledged, PartitionLeaveRequested, PartitionResizeRequested, PartitionResized,
    PlacementDecided,
};
use dormouse_messages::{ContainerId, NodeId, Rank, Sequence, Timestamp};

use crate::state::{
    AgentState, Here, Leave, NodeFacts, Partition, Phase, Place, Readiness, Standing,
};

impl Partition {
    /// True if the container is on `node`.
    pub(in crate::state) fn is_on(&self, rank: Rank, node: &NodeId) -> bool {
        let place = self.gang.get(&rank);
        place.is_some_and(|place| place.node == *node)
    }

    /// Returns the nodes of the containers here.
    pub(in crate::state) fn nodes_here(&self) -> impl Iterator<Item = &NodeId> {
        let places = self.here.keys().filter_map(|rank| self.gang.get(rank));
        places.map(|place| &place.node)
    }

    /// A rank in use keeps its container.
    pub(super) fn add(&mut self, mut placed: Self) {
        for (rank, place) in placed.gang {
            let known = self.gang.get(&rank);
            if known.is_some_and(|known| known.standing != Standing::TakenBack) {
                continue;
            }
            self.gang.insert(rank, place);
            match placed.here.remove(&rank) {
                Some(here) => self.here.insert(rank, here),
                None => self.here.remove(&rank),
            };
        }
    }

    /// `is_void`: the loss concerns containers here.
    pub(super) fn lose(&mut self, node: &NodeId, is_void: bool) {
        for (rank, place) in self.gang.iter_mut().filter(|(_, it)| it.node == *node) {
            let here = self.here.get_mut(rank).filter(|_| is_void);
            if let Some(here) = here.filter(|here| here.request.is_some()) {
                here.void = true;
            }
            if self.members.is_some() && place.standing == Standing::Asked {
                place.standing = Standing::Over;
            }
        }
        self.forget_the_over();
    }

    pub(super) fn ask(
        &mut self,
        ranks: &BTreeSet<Rank>,
        sequence: Sequence,
        generation: u32,
        nodes: &BTreeMap<NodeId, NodeFacts>,
    ) {
        for rank in ranks {
            let Some(place) = self.gang.get_mut(rank) else {
                continue;
            };
            if matches!(place.standing, Standing::Placed | Standing::TakenBack) {
                place.standing = Standing::Asked;
            }
            let here = self.here.get_mut(rank);
            if let Some(here) = here.filter(|here| here.request.is_none()) {
                here.request = Some(sequence);
                here.generation = generation;
                let facts = nodes.get(&place.node);
                here.void = facts.is_some_and(NodeFacts::counts_as_lost);
            }
        }
    }

    /// The author of the next request knows of the withdrawals.
    fn forget_the_taken_back(&mut self) {
        self.forget(|_, place| place.standing == Standing::TakenBack);
    }

    /// A service has thousands of containers over time. Called after every change, as a cut forgets what its
    /// node alone would have forgotten.
    pub(in crate::state) fn forget_the_over(&mut self) {
        let Some(members) = self.members.take() else {
            return;
        };
        let announced = &members.announced;
        let sets = [&announced.members, &announced.leaving, &members.joining];
        self.forget(|rank, place| {
            place.standing == Standing::Over && !sets.iter().any(|ranks| ranks.contains(&rank))
        });
        self.members = Some(members);
    }

    fn forget(&mut self, is_over: impl Fn(Rank, &Place) -> bool) {
        let here = &self.here;
        self.gang.retain(|rank, place| {
            !is_over(*rank, place) || here.get(rank).is_some_and(Here::is_open)
        });
        let gang = &self.gang;
        self.here.retain(|rank, _| gang.contains_key(rank));
        let here = &self.here;
        self.orders.retain(|rank, _| here.contains_key(rank));
    }
}

impl AgentState {
    /// Returns a container on `node`, which alone reports on it.
    pub(super) fn here_mut(&mut self, container: &ContainerId, node: &NodeId) -> Option<&mut Here> {
        let partition = self.partition_mut(&container.job, container.incarnation)?;
        let is_there = partition.is_on(container.rank, node);
        let here = partition.here.get_mut(&container.rank);
        here.filter(|_| is_there)
    }

    /// A start request in flight still starts a withdrawn placement, as all readers await its report.
    pub(super) fn taken_back(&mut self, event: &PlacementDecided) {
        for removed in &event.remove {
            let partition = self.partition_mut(&removed.job, removed.incarnation);
            let Some(partition) = partition.filter(|it| it.members.is_some()) else {
                continue;
            };
            let place = partition.gang.get_mut(&removed.rank);
            if let Some(place) = place.filter(|place| place.standing == Standing::Placed) {
                place.standing = Standing::TakenBack;
            }
        }
    }

    pub(super) fn resize(
        &mut self,
        event: &PartitionResizeRequested,
        sequence: Sequence,
        at: Timestamp,
    ) {
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let is_told = job.spec().is_some_and(|spec| spec.service.is_none());
        let partition = job.partitions.get_mut(&event.incarnation);
        let Some(partition) = partition.filter(|it| matches!(it.phase, Phase::Run(_))) else {
            return;
        };
        let Some(members) = &mut partition.members else {
            return;
        };
        if members.request(event, at, is_told) {
            let joining = members.joining.clone();
            partition.ask(&joining, sequence, event.generation, &self.nodes);
            partition.forget_the_taken_back();
            partition.forget_the_over();
        }
    }

    pub(super) fn leave(&mut self, event: &PartitionLeaveRequested, sequence: Sequence) {
        let partition = self.partition_mut(&event.job, event.incarnation);
        let Some(partition) = partition.filter(|it| it.members.is_some()) else {
            return;
        };
        for rank in &event.ranks {
            let here = partition.here.get_mut(rank);
            if let Some(here) = here.filter(|it| it.request.is_some() && it.leave.is_none()) {
                here.leave = Some(Leave {
                    sequence,
                    grace_s: event.grace_s,
                });
            }
        }
    }

    pub(super) fn resized(&mut self, event: &PartitionResized) {
        let partition = self.partition_mut(&event.job, event.incarnation);
        let Some(partition) = partition else {
            return;
        };
        if let Some(members) = &mut partition.members {
            members.resized(event);
            partition.forget_the_over();
        }
    }

    pub(super) fn over(&mut self, container: &ContainerId) {
        let partition = self.partition_mut(&container.job, container.incarnation);
        let Some(partition) = partition.filter(|it| it.members.is_some()) else {
            return;
        };
        if let Some(place) = partition.gang.get_mut(&container.rank) {
            place.standing = Standing::Over;
        }
    }

    pub(super) fn ready(&mut self, container: &ContainerId, node: &NodeId, readiness: Readiness) {
        if let Some(here) = self.here_mut(container, node) {
            here.readiness = readiness;
        }
    }

    pub(super) fn acknowledged(&mut self, event: &MemberAcknowledged) {
        let Some(here) = self.here_mut(&event.container, &event.node) else {
            return;
        };
        let known = here.acknowledged.get_or_insert_default();
        if known.0 < event.generation {
            *known = (event.generation, BTreeSet::new());
        }
        if known.0 == event.generation {
            known.1.insert(event.state);
        }
    }
}
