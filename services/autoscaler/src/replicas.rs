//! The replicas of a service: nodes, readiness and start times.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::events::{PartitionResizeRequested, PlacementDecided};
use dormouse_messages::{Incarnation, JobId, NodeId, Rank, Timestamp};
use serde::{Deserialize, Serialize};

/// Enough for a 90th percentile.
const STARTS_KEPT: usize = 20;

/// The phase of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaPhase {
    /// Placed, not yet ready.
    Starting,
    Ready,
    /// Not ready in time, or no longer answering.
    Unready,
    Leaving,
}

/// A placed replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub node: NodeId,
    /// The decision to scale up.
    pub wished_at: Timestamp,
    pub phase: ReplicaPhase,
}

/// All possibly running replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    #[serde(with = "listed")]
    live: BTreeMap<(Incarnation, Rank), Replica>,
    /// Without a placement yet.
    wished_at: Option<Timestamp>,
    /// From scale-up to readiness.
    starts_ms: VecDeque<u64>,
}

impl Replicas {
    /// Records a scale-up.
    pub fn wished(&mut self, at: Timestamp) {
        self.wished_at = Some(at);
    }

    /// Records placed and removed replicas.
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

    /// Marks leaving replicas.
    pub fn resizing(&mut self, event: &PartitionResizeRequested) {
        for rank in &event.leave {
            self.leave(event.incarnation, *rank);
        }
    }

    /// Records an answering replica.
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

    /// Records a replica that stopped answering.
    pub fn unready(&mut self, incarnation: Incarnation, rank: Rank) {
        if let Some(replica) = self.live.get_mut(&(incarnation, rank))
            && replica.phase != ReplicaPhase::Leaving
        {
            replica.phase = ReplicaPhase::Unready;
        }
    }

    /// Records an exit.
    pub fn exited(&mut self, incarnation: Incarnation, rank: Rank) {
        self.live.remove(&(incarnation, rank));
    }

    /// Drops an ended incarnation.
    pub fn stopped(&mut self, incarnation: Incarnation) {
        self.live.retain(|(of, _), _| *of != incarnation);
    }

    /// Drops the replicas of a lost node.
    pub fn lost(&mut self, node: &NodeId) {
        self.live.retain(|_, replica| replica.node != *node);
    }

    fn count(&self, phase: ReplicaPhase) -> u32 {
        let count = self.live.values().filter(|it| it.phase == phase).count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Counts the ready replicas.
    #[must_use]
    pub fn ready_count(&self) -> u32 {
        self.count(ReplicaPhase::Ready)
    }

    /// Counts replicas that start or do not answer.
    #[must_use]
    pub fn unready_count(&self) -> u32 {
        self.count(ReplicaPhase::Starting) + self.count(ReplicaPhase::Unready)
    }

    /// Returns the latest unfinished scale-up.
    #[must_use]
    pub fn starting_since(&self) -> Option<Timestamp> {
        let starting = self.live.values();
        let starting = starting.filter(|it| it.phase == ReplicaPhase::Starting);
        starting.map(|it| it.wished_at).chain(self.wished_at).max()
    }

    /// Returns the 90th percentile of start times; `None` before the first.
    #[must_use]
    pub fn start_ms(&self) -> Option<u64> {
        let mut sorted: Vec<u64> = self.starts_ms.iter().copied().collect();
        sorted.sort_unstable();
        let index = (sorted.len() * 9).div_ceil(10).checked_sub(1)?;
        sorted.get(index).copied()
    }

    /// Reports whether the replicas are within their bounds.
    #[must_use]
    pub fn is_bounded(&self) -> bool {
        self.starts_ms.len() <= STARTS_KEPT
    }
}

/// As a list, because some encodings lack keys of pairs.
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
