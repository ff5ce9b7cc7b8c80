//! The members of a partition that is resized in place: who takes part, and which change is under
//! way.
//!
//! 1. A life begins with generation 0: the containers that started together.
//! 2. `partition.resize_requested`: containers are to join or to leave; one change is under way.
//! 3. `container.ready`, `gateway.unrouted`, `container.exited`: what the change waits for.
//! 4. `partition.resized`: the members are others now. It comes without a request where members died.
//!
//! A container's [`Rank`] is its number in the life and never reused; 0 is the chief.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    GatewayUnrouted, PartitionResizeRequested, PartitionResized, ResizeCause,
};
use dormouse_messages::{GatewayId, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// The members of a life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// How many changes there were.
    pub generation: u32,
    /// Who takes part; the order is that of their ranks.
    pub current: BTreeSet<Rank>,
    /// The change under way.
    pub change: Option<Change>,
    /// When the members last changed.
    pub changed_at: Option<Timestamp>,
}

/// A change under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its number.
    pub generation: u32,
    /// Those that start.
    pub join: BTreeSet<Rank>,
    /// Those that go.
    pub leave: BTreeSet<Rank>,
    /// Why.
    pub cause: ResizeCause,
    /// The request.
    pub requested: Sequence,
    /// When it was requested.
    pub since: Timestamp,
    /// When those that go are asked to stop.
    pub deadline: Timestamp,
    /// Those that were asked to stop.
    pub stopping: BTreeSet<Rank>,
    /// By leaving container: the gateways that use it no more.
    pub unrouted: BTreeMap<Rank, BTreeSet<GatewayId>>,
}

impl Members {
    /// Of a life that starts with these containers.
    #[must_use]
    pub fn starting(ranks: impl Iterator<Item = Rank>) -> Self {
        Self {
            current: ranks.collect(),
            ..Self::default()
        }
    }

    /// The number of the change after all that are known.
    #[must_use]
    pub fn next_generation(&self) -> u32 {
        let under_way = self.change.as_ref().map_or(0, |change| change.generation);
        self.generation.max(under_way) + 1
    }

    /// Whether a container is leaving.
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
        self.change = Some(Change {
            generation: event.generation,
            join: event.join.iter().copied().collect(),
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
