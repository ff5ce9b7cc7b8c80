//! The members of a partition that is resized in place, as a node's agent folds them.
//!
//! 1. A life begins with generation 0: the containers that start together.
//! 2. A request says who is to start. It announces who leaves a training job at once; replicas of a
//!    service work on until no gateway uses them, and are not told.
//! 3. A resize says who takes part from then on.
//!
//! A container's [`Rank`] is its number in the life, never used twice.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use dormouse_messages::events::{
    Acknowledged, PartitionResizeRequested, PartitionResized, ResizeCause,
};
use dormouse_messages::{Rank, Sequence, Timestamp};

use super::Known;

/// What members are told: the contents of their file, but for addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announced {
    /// The change.
    pub generation: u32,
    /// Who takes part and stays.
    pub members: BTreeSet<Rank>,
    /// Who is to leave.
    pub leaving: BTreeSet<Rank>,
    /// When those are asked to stop.
    pub deadline: Option<Timestamp>,
    /// Why; absent at the start of a life.
    pub cause: Option<ResizeCause>,
}

/// The members of a life.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Members {
    /// What they are told.
    pub announced: Announced,
    /// The newest change that was requested.
    pub requested: u32,
    /// Who starts for it.
    pub joining: BTreeSet<Rank>,
}

/// A container of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Here {
    /// What the log has of it.
    pub known: Known,
    /// What asked for its start.
    pub request: Option<Sequence>,
    /// The change for which it started; 0 with its life.
    pub generation: u32,
    /// The node was declared lost while it ran here.
    pub void: bool,
    /// It is to stop, though its partition runs on.
    pub leave: Option<Leave>,
    /// When the log heard of its start.
    pub started_at: Option<Timestamp>,
    /// Whether it can take part, as far as the log knows.
    pub readiness: Readiness,
    /// What the log has of its acknowledgements: of the last change only.
    pub acknowledged: Option<(u32, BTreeSet<Acknowledged>)>,
}

/// A container is to leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leave {
    /// Where that stands on the log.
    pub sequence: Sequence,
    /// Seconds until it is killed.
    pub grace_s: u32,
}

/// Whether a container can take part, as far as the log knows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    /// Nothing was said.
    #[default]
    Unknown,
    /// It can.
    Ready,
    /// It could not in time, or cannot any more.
    Unready,
}

impl Here {
    /// Whether it was asked to start and its exit is not on the log.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.request.is_some() && self.known != Known::Exited
    }
}

impl Members {
    /// A life that starts with these.
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

    /// A change is requested: whether it is a new one. `is_told` where leaving ones are told.
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

    /// The members have changed. Who is still leaving (somebody else died meanwhile) leaves.
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
