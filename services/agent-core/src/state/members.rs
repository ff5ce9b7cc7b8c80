//! The members of a partition that is resized in place, as a node's agent folds them.
//!
//! 1. An incarnation begins with generation 0: the containers that start together.
//! 2. A resize request names the joining containers. A training job also learns at once which members leave;
//!    replicas of a service are not told, and work until no gateway uses them.
//! 3. `partition.resized` sets the members from then on.
//!
//! A container's [`Rank`] is unique within its incarnation and never reused.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use dormouse_messages::events::{
    Acknowledged, PartitionResizeRequested, PartitionResized, ResizeCause,
};
use dormouse_messages::{Rank, Sequence, Timestamp};

use super::Known;

/// Contents of the members' file, without addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The resize's generation.
    pub generation: u32,
    /// Members that stay.
    pub members: BTreeSet<Rank>,
    /// Members that leave.
    pub leaving: BTreeSet<Rank>,
    /// Time at which the leaving members are asked to stop.
    pub deadline: Option<Timestamp>,
    /// Absent at the start of an incarnation.
    pub cause: Option<ResizeCause>,
}

/// The members of an incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub announced: Announced,
    /// The newest requested generation.
    pub requested: u32,
    /// Ranks that start for it.
    pub joining: BTreeSet<Rank>,
}

/// A container of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    pub known: Known,
    /// The start request.
    pub request: Option<Sequence>,
    /// The generation that started the container; 0 for the start of the incarnation.
    pub generation: u32,
    /// The node was declared lost while the container ran here.
    pub void: bool,
    /// Set if the container has to stop while its partition continues.
    pub leave: Option<Leave>,
    pub started_at: Option<Timestamp>,
    pub readiness: Readiness,
    /// Acknowledgements of the newest acknowledged generation.
    pub acknowledged: Option<(u32, BTreeSet<Acknowledged>)>,
}

/// A request to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub sequence: Sequence,
    /// Seconds until the container is killed.
    pub grace_s: u32,
}

/// The readiness last reported for a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    #[default]
    Unknown,
    Ready,
    /// The container missed its deadline or became unready.
    Unready,
}

impl Here {
    /// True if the container has a start request and no exit on the log.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.request.is_some() && self.known != Known::Exited
    }
}

impl Members {
    /// Returns the members of a starting incarnation.
    #[must_use]
    pub fn starting(members: BTreeSet<Rank>) -> Self {
        Self {
            announced: Announced {
                members,
                ..Announced::default()
            },
            ..Self::default()
        }
    }

    /// Records a resize request and reports whether the request is new. `is_told` announces the leaving
    /// members.
    pub(super) fn request(
        &mut self,
        event: &PartitionResizeRequested,
        at: Timestamp,
        is_told: bool,
    ) -> bool {
        if event.generation <= self.requested {
            return false;
        }
        self.requested = event.generation;
        self.joining = event.join.iter().copied().collect();
        if is_told && !event.leave.is_empty() {
            let leaving: BTreeSet<Rank> = event.leave.iter().copied().collect();
            let stays = |rank: &Rank| !leaving.contains(rank);
            self.announced = Announced {
                generation: event.generation,
                members: event.stay.iter().copied().filter(stays).collect(),
                leaving,
                deadline: Some(at.plus_ms(u64::from(event.grace_s) * 1000)),
                cause: Some(event.cause),
            };
        }
        true
    }

    /// Sets the members. Members that were leaving still leave, for example if another container died
    /// meanwhile.
    pub(super) fn resized(&mut self, event: &PartitionResized) {
        let generation = event.generation.max(self.announced.generation);
        self.requested = self.requested.max(generation);
        let members: BTreeSet<Rank> = event.members.iter().copied().collect();
        let leaving: BTreeSet<Rank> = &self.announced.leaving & &members;
        self.joining.retain(|rank| !members.contains(rank));
        self.announced = Announced {
            generation,
            members: &members - &leaving,
            deadline: self.announced.deadline.filter(|_| !leaving.is_empty()),
            leaving,
            cause: Some(event.cause),
        };
    }
}
