//! Observations: events that a service appends without a decision.
//!
//! Level-triggered: given the folded state, an input names every observation that the state lacks, and
//! repeats unstored ones. An input thus needs no memory, and a newly active copy continues from the log.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Event, Fold, GatewayId, NodeId, Timestamp};
pub use dormouse_shell::Observation;
use tokio::sync::Notify;

use crate::lease_watch::{LeaseTable, Lost, LostGateway};
use crate::log::Log;

/// A source of observations.
pub trait Inputs<S: Fold>: Send + 'static {
    /// Returns the observations missing in `state`, in order of append. Must not wait.
    fn observe(&mut self, state: &S) -> Vec<Observation>;

    /// True if the input needs another state first, and is to be asked after each folded event.
    fn waits(&self) -> bool {
        false
    }

    /// Returns the notice of possible new observations.
    fn changed(&self) -> Arc<Notify>;
}

/// Observes the loss of nodes and gateways by their leases.
pub struct LeaseWatcher<S> {
    table: Arc<LeaseTable>,
    watched: fn(&S) -> Watched,
    lost: fn(Lost) -> Event,
    lost_gateway: fn(LostGateway) -> Event,
    local: LocalNodes,
}

/// The members to watch.
pub struct Watched {
    /// Minimum term of a node's lease.
    pub ttl: Duration,
    /// Member nodes with their agents' incarnations.
    pub expected: Vec<(NodeId, u64)>,
    /// Term of a gateway's lease.
    pub gateway_ttl: Duration,
    pub gateways: Vec<GatewayId>,
}

/// Unfenced nodes of this process, which are not lost by their leases.
#[derive(Debug, Clone, Default)]
pub struct LocalNodes {
    pub present: BTreeSet<NodeId>,
    /// Ended nodes, which are lost.
    pub gone: BTreeSet<NodeId>,
}

impl<S: Fold> LeaseWatcher<S> {
    /// Creates a watcher from the members of a state and the events that record a loss.
    #[must_use]
    pub fn new(
        log: &Log,
        local: LocalNodes,
        watched: fn(&S) -> Watched,
        lost: fn(Lost) -> Event,
        lost_gateway: fn(LostGateway) -> Event,
    ) -> Self {
        Self {
            table: log.leases().table(),
            watched,
            lost,
            lost_gateway,
            local,
        }
    }
}

impl<S: Fold> Inputs<S> for LeaseWatcher<S> {
    fn observe(&mut self, state: &S) -> Vec<Observation> {
        let Watched {
            ttl,
            mut expected,
            gateway_ttl,
            gateways,
        } = (self.watched)(state);
        expected.retain(|(node, _)| !self.local.present.contains(node));
        let is_gone = |(node, _): &(NodeId, u64)| self.local.gone.contains(node);
        let (gone, expected): (Vec<_>, Vec<_>) = expected.into_iter().partition(is_gone);
        let gone = gone.into_iter().map(|(node, incarnation)| Lost {
            node,
            incarnation,
            last_seen: Timestamp::default(),
        });
        let lost = self.table.lost(&expected, ttl);
        let silent = self.table.lost_gateways(&gateways, gateway_ttl);
        let events = gone.chain(lost).map(self.lost);
        events
            .chain(silent.into_iter().map(self.lost_gateway))
            .map(|event| Observation {
                event,
                traceparent: None,
            })
            .collect()
    }

    fn changed(&self) -> Arc<Notify> {
        self.table.changed()
    }
}
