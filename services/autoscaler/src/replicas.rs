//! The replicas of a service: where each stands, whether it is ready, how long starts take.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{PartitionResizeRequested, PlacementDecided};
use dormouse_messages::{Incarnation, JobId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Enough for a 90th percentile that one slow start does not move.
const STARTS_KEPT: usize = 20;

/// How far a replica is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaPhase {
    /// It has a place, and starts.
    Starting,
    /// It answers.
    Ready,
    /// It was not ready in time, or does not answer any more.
    Unready,
    /// It is to go.
    Leaving,
}

/// A replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its node.
    pub node: NodeId,
    /// When it was wished for.
    pub wished_at: Timestamp,
    /// How far it is.
    pub phase: ReplicaPhase,
}

/// All replicas of a service that may still run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    #[serde(with = "listed")]
    live: BTreeMap<(Incarnation, Rank), Replica>,
    /// The scaling up that no placement has answered yet.
    wished_at: Option<Timestamp>,
    /// How long the newest starts took, from the wish to being ready.
    starts_ms: VecDeque<u64>,
}

impl Replicas {
    /// More are wished for.
    pub fn wished(&mut self, at: Timestamp) {
        self.wished_at = Some(at);
    }

    /// The places that a decision gives and takes.
    pub fn placed(&mut self, job: &JobId, event: &PlacementDecided, at: Timestamp) {
        for removed in event.remove.iter().filter(|it| it.job == *job) {
            self.leave(removed.incarnation, removed.rank);
        }
        let mut created = false;
        for place in event.create.iter().filter(|it| it.job == *job) {
            let replica = Replica {
                node: place.node.clone(),
                wished_at: self.wished_at.unwrap_or(at),
                phase: ReplicaPhase::Starting,
            };
            self.live.insert((place.incarnation, place.rank), replica);
            created = true;
        }
        if created {
            self.wished_at = None;
        }
    }

    fn leave(&mut self, incarnation: Incarnation, rank: Rank) {
        if let Some(replica) = self.live.get_mut(&(incarnation, rank)) {
            replica.phase = ReplicaPhase::Leaving;
        }
    }

    /// A change of the membership: those that leave are used no more.
    pub fn resizing(&mut self, event: &PartitionResizeRequested) {
        for rank in &event.leave {
            self.leave(event.incarnation, *rank);
        }
    }

    /// It answers.
    pub fn ready(&mut self, incarnation: Incarnation, rank: Rank, at: Timestamp) {
        let Some(replica) = self.live.get_mut(&(incarnation, rank)) else {
            return;
        };
        match replica.phase {
            ReplicaPhase::Starting => {
                let took_ms = at.ms_since(replica.wished_at);
                replica.phase = ReplicaPhase::Ready;
                self.starts_ms.push_back(took_ms);
                if self.starts_ms.len() > STARTS_KEPT {
                    self.starts_ms.pop_front();
                }
            }
            ReplicaPhase::Unready => replica.phase = ReplicaPhase::Ready,
            ReplicaPhase::Ready | ReplicaPhase::Leaving => {}
        }
    }

    /// It does not answer.
    pub fn unready(&mut self, incarnation: Incarnation, rank: Rank) {
        if let Some(replica) = self.live.get_mut(&(incarnation, rank))
            && replica.phase != ReplicaPhase::Leaving
        {
            replica.phase = ReplicaPhase::Unready;
        }
    }

    /// It has ended.
    pub fn exited(&mut self, incarnation: Incarnation, rank: Rank) {
        self.live.remove(&(incarnation, rank));
    }

    /// A life is over.
    pub fn stopped(&mut self, incarnation: Incarnation) {
        self.live.retain(|(life, _), _| *life != incarnation);
    }

    /// All on a lost node are gone.
    pub fn lost(&mut self, node: &NodeId) {
        self.live.retain(|_, replica| replica.node != *node);
    }

    fn count(&self, phase: ReplicaPhase) -> u32 {
        let count = self.live.values().filter(|it| it.phase == phase).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// How many are ready.
    #[must_use]
    pub fn ready_count(&self) -> u32 {
        self.count(ReplicaPhase::Ready)
    }

    /// How many start, or do not answer.
    #[must_use]
    pub fn unready_count(&self) -> u32 {
        self.count(ReplicaPhase::Starting) + self.count(ReplicaPhase::Unready)
    }

    /// When the replicas were wished for that start, the latest.
    #[must_use]
    pub fn starting_since(&self) -> Option<Timestamp> {
        let starting = self.live.values();
        let starting = starting.filter(|it| it.phase == ReplicaPhase::Starting);
        starting.map(|it| it.wished_at).chain(self.wished_at).max()
    }

    /// The 90th percentile of the newest starts, in milliseconds; `None` before the first.
    #[must_use]
    pub fn start_ms(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.starts_ms.iter().copied().collect();
        sorted.sort_unstable();
        let index = (sorted.len() * 9).div_ceil(10).checked_sub(1)?;
        sorted.get(index).copied()
    }

    /// Whether it is within its bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.starts_ms.len() <= STARTS_KEPT
    }
}

/// A map whose keys are pairs, as a list: not every encoding has such keys.
mod listed {
    use std::collections::BTreeMap;

    use dormouse_messages::{Incarnation, Rank};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Replica;

    type Map = BTreeMap<(Incarnation, Rank), Replica>;

    pub fn serialize<S: Serializer>(map: &Map, serializer: S) -> Result<S::Ok, S::Error> {
        map.iter().collect::<Vec<_>>().serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map, D::Error> {
        let listed = Vec::<((Incarnation, Rank), Replica)>::deserialize(deserializer)?;
        Ok(listed.into_iter().collect())
    }
}
