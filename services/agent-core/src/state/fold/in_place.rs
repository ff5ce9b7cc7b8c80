//! Applies events to partitions resized in place.

use std::collections::BTreeSet;

use dormouse_messages::events::{
    MemberAcknowledged, PartitionLeaveRequested, PartitionResizeRequested, PartitionResized,
    PlacementDecided,
};
use dormouse_messages::{ContainerId, NodeId, Rank, Sequence, Timestamp};

use crate::state::{AgentState, Here, Job, Leave, Partition, Phase, Readiness, Standing};

impl Partition {
    /// A rank in use keeps its container.
    pub(super) fn add(&mut self, placed: Self) {
        for (rank, place) in placed.gang {
            let known = self.gang.get(&rank);
            if known.is_some_and(|known| known.standing == Standing::TakenBack) {
                self.gang.remove(&rank);
                self.here.remove(&rank);
            }
            self.gang.entry(rank).or_insert(place);
        }
        for (rank, here) in placed.here {
            self.here.entry(rank).or_insert(here);
        }
    }

    pub(super) fn ask(
        &mut self,
        ranks: &BTreeSet<Rank>,
        sequence: Sequence,
        generation: u32,
        void: bool,
    ) {
        for rank in ranks {
            let place = self.gang.get_mut(rank);
            let place =
                place.filter(|it| matches!(it.standing, Standing::Placed | Standing::TakenBack));
            if let Some(place) = place {
                place.standing = Standing::Asked;
            }
            let here = self.here.get_mut(rank);
            if let Some(here) = here.filter(|here| here.request.is_none()) {
                here.request = Some(sequence);
                here.generation = generation;
                here.void = void;
            }
        }
    }

    /// The author of the next request knows of the withdrawals.
    fn forget_the_taken_back(&mut self) {
        self.gang
            .retain(|_, place| place.standing != Standing::TakenBack);
        let gang = &self.gang;
        self.here.retain(|rank, _| gang.contains_key(rank));
    }

    /// A service has thousands of containers over time.
    fn forget_the_over(&mut self) {
        let Some(members) = &self.members else {
            return;
        };
        let announced = &members.announced;
        let here = &self.here;
        self.gang.retain(|rank, place| {
            let sets = [&announced.members, &announced.leaving, &members.joining];
            let is_open = here.get(rank).is_some_and(Here::is_open);
            let takes_part = sets.into_iter().any(|ranks| ranks.contains(rank));
            place.standing != Standing::Over || takes_part || is_open
        });
        let gang = &self.gang;
        self.here.retain(|rank, _| gang.contains_key(rank));
    }
}

impl AgentState {
    pub(super) fn here_mut(&mut self, container: &ContainerId) -> Option<&mut Here> {
        let partition = self.partition_mut(&container.job, container.incarnation)?;
        partition.here.get_mut(&container.rank)
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
        let lost = self.counts_as_lost();
        let job = self.jobs.get(&event.job);
        let spec = job.and_then(Job::spec);
        let is_told = spec.is_some_and(|spec| spec.service.is_none());
        let partition = self.partition_mut(&event.job, event.incarnation);
        let Some(partition) = partition.filter(|it| matches!(it.phase, Phase::Run(_))) else {
            return;
        };
        let Some(members) = &mut partition.members else {
            return;
        };
        if members.request(event, at, is_told) {
            let joining = members.joining.clone();
            partition.ask(&joining, sequence, event.generation, lost);
            partition.forget_the_taken_back();
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

    pub(super) fn started(&mut self, container: &ContainerId, at: Timestamp) {
        if let Some(here) = self.here_mut(container) {
            here.started_at = Some(at);
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
        partition.forget_the_over();
    }

    pub(super) fn lost_elsewhere(&mut self, node: &NodeId) {
        if self.is_here(node) {
            return;
        }
        for id in &self.here {
            let job = self.jobs.get_mut(id).into_iter();
            let partitions = job.flat_map(|job| job.partitions.values_mut());
            for partition in partitions.filter(|it| it.members.is_some()) {
                let places = partition.gang.values_mut();
                let asked = places.filter(|it| it.standing == Standing::Asked && it.node == *node);
                asked.for_each(|place| place.standing = Standing::Over);
                partition.forget_the_over();
            }
        }
    }

    pub(super) fn ready(&mut self, container: &ContainerId, readiness: Readiness) {
        if let Some(here) = self.here_mut(container) {
            here.readiness = readiness;
        }
    }

    pub(super) fn acknowledged(&mut self, event: &MemberAcknowledged) {
        let Some(here) = self.here_mut(&event.container) else {
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
