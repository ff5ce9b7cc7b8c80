//! A service and its replicas, as logged.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::job::Kind;
use dormouse_messages::service::Service;
use dormouse_messages::{ContainerId, GatewayId, Incarnation, JobId, NodeId, Rank, Sequence};
use serde::{Deserialize, Serialize};

/// Phase of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    Placed,
    Ready,
    /// Failed its probes; requests continue.
    Unready,
    Leaving {
        /// The request to answer; `None` if the whole incarnation ends.
        answers: Option<Sequence>,
        grace_s: u32,
        /// True if the replica was ready, since a later generation may keep it.
        ready: bool,
        told: BTreeSet<GatewayId>,
    },
}

/// A placed replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    pub node: NodeId,
    pub port: u16,
    pub phase: Phase,
    pub token: Option<String>,
}

/// An admitted service that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    pub service: Service,
    pub kind: Kind,
    pub target: u32,
    /// True if the autoscaler set `target`, not only `containers.min`.
    pub scaled: bool,
    pub incarnation: Incarnation,
    pub replicas: BTreeMap<Rank, Replica>,
}

impl Served {
    /// Returns a replica's id.
    #[must_use]
    pub fn container(&self, job: &JobId, rank: Rank) -> ContainerId {
        ContainerId {
            job: job.clone(),
            incarnation: self.incarnation,
            rank,
        }
    }

    /// Returns the hash of a notebook's newest token, hexadecimal.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        let mut replicas = self.replicas.values().rev();
        replicas.find_map(|replica| replica.token.as_deref())
    }

    /// Returns the requests per replica; unlimited for a notebook, whose page keeps several connections open.
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        match self.kind {
            Kind::Notebook => u32::MAX,
            _ => self.service.concurrency,
        }
    }
}

impl Replica {
    /// Marks the replica as leaving.
    pub fn leave(&mut self, answers: Option<Sequence>, grace_s: u32) {
        let ready = match &self.phase {
            Phase::Ready => true,
            Phase::Placed | Phase::Unready => false,
            // A stop of the whole incarnation is final.
            Phase::Leaving { answers: None, .. } => return,
            Phase::Leaving { ready, .. } => *ready,
        };
        self.phase = Phase::Leaving {
            answers,
            grace_s,
            ready,
            told: BTreeSet::new(),
        };
    }

    /// Reverts [`Self::leave`].
    pub fn stay(&mut self) {
        if let Phase::Leaving {
            answers: Some(_),
            ready,
            ..
        } = self.phase
        {
            self.phase = if ready { Phase::Ready } else { Phase::Placed };
        }
    }
}
