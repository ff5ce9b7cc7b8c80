//! Members of a partition resized in place.
//!
//! 1. Generation 0: the containers that started together.
//! 2. `partition.resize_requested` begins a change.
//! 3. The change waits for `container.ready`, `gateway.unrouted` or `container.exited`.
//! 4. `partition.resized` sets the new members; deaths need no request.
//!
//! An incarnation never reuses a [`Rank`]; rank 0 is the coordinator.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    GatewayUnrouted, PartitionResizeRequested, PartitionResized, ResizeCause,
};
use dormouse_messages::{GatewayId, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// An incarnation's members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub generation: u32,
    pub current: BTreeSet<Rank>,
    pub change: Option<Change>,
    pub changed_at: Option<Timestamp>,
}

/// A change under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub generation: u32,
    pub join: BTreeSet<Rank>,
    pub leave: BTreeSet<Rank>,
    pub cause: ResizeCause,
    pub requested: Sequence,
    pub since: Timestamp,
    pub deadline: Timestamp,
    pub stopping: BTreeSet<Rank>,
    /// Gateways without routes to a leaving container.
    pub unrouted: BTreeMap<Rank, BTreeSet<GatewayId>>,
}

impl Members {
    /// Returns the initial members.
    #[must_use]
    pub fn starting(ranks: impl Iterator<Item = Rank>) -> Self {
        Self {
            current: ranks.collect(),
            ..Self::default()
        }
    }

    /// Returns the next change's number.
    #[must_use]
    pub fn next_generation(&self) -> u32 {
        let under_way = self.change.as_ref().map_or(0, |change| change.generation);
        self.generation.max(under_way) + 1
    }

    /// Reports whether a container is leaving.
    #[must_use]
    pub fn is_leaving(&self, rank: Rank) -> bool {
        let change = self.change.as_ref();
        change.is_some_and(|change| change.leave.contains(&rank))
    }

    pub(crate) fn requested(
        &mut self,
        event: &PartitionResizeRequested,
        sequence: Sequence,
        at: Timestamp,
    ) {
        // Further joiners of a service add to those of the change under way.
        let earlier = self.change.take().map(|change| change.join);
        let join = earlier
            .into_iter()
            .flatten()
            .chain(event.join.iter().copied());
        self.change = Some(Change {
            generation: event.generation,
            join: join.collect(),
            leave: event.leave.iter().copied().collect(),
            cause: event.cause,
            requested: sequence,
            since: at,
            deadline: at.plus_ms(u64::from(event.grace_s) * 1000),
            stopping: BTreeSet::new(),
            unrouted: BTreeMap::new(),
        });
    }

    pub(crate) fn stopping(&mut self, generation: u32, ranks: &[Rank]) {
        if let Some(change) = &mut self.change
            && change.generation == generation
        {
            change.stopping.extend(ranks);
        }
    }

    pub(crate) fn unrouted(&mut self, event: &GatewayUnrouted) {
        if let Some(change) = &mut self.change
            && change.requested == event.answers
        {
            let gateways = change.unrouted.entry(event.container.rank).or_default();
            gateways.insert(event.gateway.clone());
        }
    }

    pub(crate) fn resized(&mut self, event: &PartitionResized, at: Timestamp) {
        self.generation = self.generation.max(event.generation);
        self.current = event.members.iter().copied().collect();
        self.changed_at = Some(at);
        let is_over = |change: &Change| change.generation <= event.generation;
        if self.change.as_ref().is_some_and(is_over) && event.cause != ResizeCause::Lost {
            self.change = None;
        }
    }
}
