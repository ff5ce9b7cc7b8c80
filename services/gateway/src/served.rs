//! A service and its replicas, as the log tells of them.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::job::Kind;
use dormouse_messages::service::Service;
use dormouse_messages::{ContainerId, GatewayId, Incarnation, JobId, NodeId, Rank, Sequence};
use serde::{Deserialize, Serialize};

/// What may be done with a replica.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// It has a place, and has not said yet that it is ready.
    Placed,
    /// Requests are sent to it.
    Ready,
    /// It did not answer its probes; its requests go on.
    Unready,
    /// It is to go: nothing new is sent to it.
    Leaving {
        /// The `partition.resize_requested` that a gateway answers; `None` where the whole life ends.
        answers: Option<Sequence>,
        /// Seconds that its requests have.
        grace_s: u32,
        /// Whether it was ready until then: a later generation may keep it after all.
        ready: bool,
        /// The gateways that have answered.
        told: BTreeSet<GatewayId>,
    },
}

/// A replica's place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replica {
    /// Its node.
    pub node: NodeId,
    /// Its port there.
    pub port: u16,
    /// What may be done with it.
    pub phase: Phase,
    /// Of a notebook: the hash of its token, in hexadecimal digits.
    #[serde(default)]
    pub token: Option<String>,
}

/// A service that has been admitted and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Served {
    /// What it promises.
    pub service: Service,
    /// A service or a notebook.
    pub kind: Kind,
    /// The replicas that it is to have.
    pub target: u32,
    /// Whether the autoscaler has said so, and not only `containers.min`.
    pub scaled: bool,
    /// The life whose replicas are listed.
    pub incarnation: Incarnation,
    /// Its replicas, by their numbers.
    pub replicas: BTreeMap<Rank, Replica>,
}

impl Served {
    /// The id of its replica `rank`.
    #[must_use]
    pub fn container(&self, job: &JobId, rank: Rank) -> ContainerId {
        ContainerId {
            job: job.clone(),
            incarnation: self.incarnation,
            rank,
        }
    }

    /// The hash of a notebook's token: its newest container's.
    #[must_use]
    pub fn token(&self) -> Option<blake3::Hash> {
        let tokens = self.replicas.values().rev();
        let mut tokens = tokens.filter_map(|replica| replica.token.as_deref());
        blake3::Hash::from_hex(tokens.next()?).ok()
    }

    /// How many requests a replica works on at once. A notebook is one person's, whose page keeps
    /// several connections open: it has no such bound.
    #[must_use]
    pub const fn concurrency(&self) -> u32 {
        match self.kind {
            Kind::Notebook => u32::MAX,
            _ => self.service.concurrency,
        }
    }
}

impl Replica {
    /// It is to go.
    pub fn leave(&mut self, answers: Option<Sequence>, grace_s: u32) {
        let ready = match &self.phase {
            Phase::Ready => true,
            Phase::Placed | Phase::Unready => false,
            // Only what is asked is answered.
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

    /// It is to stay after all.
    pub fn stay(&mut self) {
        if let Phase::Leaving {
            answers: Some(_),
            ready,
            ..
        } = self.phase
        {
            self.phase = match ready {
                true => Phase::Ready,
                false => Phase::Placed,
            };
        }
    }
}
