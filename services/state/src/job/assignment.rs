//! The places that the placer gave a job.

use std::collections::BTreeMap;

use dormouse_messages::{Epoch, Incarnation, NodeId, Rank, Sequence};
use serde::{Deserialize, Serialize};

use crate::incarnation::Place;

/// The newest placement of a job's partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    pub epoch: Epoch,
    pub incarnation: Incarnation,
    pub placed: Sequence,
    pub places: BTreeMap<Rank, Place>,
    /// An incarnation never reuses ranks.
    pub next: Rank,
    /// Withdrawn before the start; a lagging checkpointer may still start them.
    pub dropped: BTreeMap<Rank, Place>,
    /// Places to replace.
    pub lost: u32,
    /// True if a lost or drained node forces another decision.
    pub displaced: bool,
}

impl Assignment {
    /// Returns the number of containers.
    #[must_use]
    pub fn containers(&self) -> u32 {
        u32::try_from(self.places.len()).unwrap_or(u32::MAX)
    }

    /// Counts the containers on each node.
    #[must_use]
    pub fn by_node(&self) -> BTreeMap<NodeId, u32> {
        self.by_node_of(|_| true)
    }

    /// Iterates over node and GPU, once for each container.
    pub fn gpus(&self) -> impl Iterator<Item = (&NodeId, &str)> {
        let places = self.places.values();
        places.flat_map(|place| place.gpus.iter().map(|gpu| (&place.node, gpu.as_str())))
    }

    /// Counts the selected ranks on each node.
    #[must_use]
    pub fn by_node_of(&self, which: impl Fn(Rank) -> bool) -> BTreeMap<NodeId, u32> {
        let mut counts = BTreeMap::new();
        for (_, place) in self.places.iter().filter(|(rank, _)| which(**rank)) {
            *counts.entry(place.node.clone()).or_insert(0) += 1;
        }
        counts
    }
}
