//! The members of a partition resized in place.
//!
//! 1. An incarnation begins with generation 0.
//! 2. A resize request names the joining containers. A training job learns at once which members leave; a
//!    service's replicas work until no gateway uses them.
//! 3. `partition.resized` sets the members from then on.
//!
//! Ranks are never reused within an incarnation.

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
    pub generation: u32,
    pub members: BTreeSet<Rank>,
    pub leaving: BTreeSet<Rank>,
    /// Stop time of the leaving members.
    pub deadline: Option<Timestamp>,
    /// Absent at first.
    pub cause: Option<ResizeCause>,
}

/// The members of an incarnation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    pub announced: Announced,
    pub requested: u32,
    pub joining: BTreeSet<Rank>,
}

/// A container of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    pub known: Known,
    pub request: Option<Sequence>,
    /// 0 for the first.
    pub generation: u32,
    /// Declared lost while running here.
    pub void: bool,
    /// Set to stop while its partition continues.
    pub leave: Option<Leave>,
    pub started_at: Option<Timestamp>,
    pub readiness: Readiness,
    /// For the newest generation.
    pub acknowledged: Option<(u32, BTreeSet<Acknowledged>)>,
}

/// A request to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    pub sequence: Sequence,
    /// Seconds before the kill.
    pub grace_s: u32,
}

/// The last reported readiness.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    #[default]
    Unknown,
    Ready,
    Unready,
}

impl Here {
    /// True with a start request and without an exit.
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

    /// Reports whether the request is new. `is_told` announces the leaving members.
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
        self.joining.extend(&event.join);
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

    /// Members that were leaving still leave.
    pub(super) fn resized(&mut self, event: &PartitionResized) {
        let generation = event.generation.max(self.announced.generation);
        self.requested = self.requested.max(generation);
        let members: BTreeSet<Rank> = event.members.iter().copied().collect();
        let leaving: BTreeSet<Rank> = &self.announced.leaving & &members;
        if event.generation >= self.requested && event.cause != ResizeCause::Lost {
            self.joining.clear();
        }
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
