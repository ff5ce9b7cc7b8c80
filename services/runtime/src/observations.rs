//! Observations: events that a service appends without a decision. Level-triggered: an input repeats every
//! observation that the folded state lacks, so it needs no memory, and a new active copy continues from the
//! log.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Build, Event, Fold, GatewayId, NodeId, Timestamp};
pub use dormouse_shell::Observation;
use tokio::sync::Notify;

use crate::lease_watch::{LeaseTable, Lost, LostGateway};
use crate::log::Log;

/// A source of observations.
pub trait Inputs<S: Fold>: Send + 'static {
    /// Returns the observations missing in `state`. Must not wait.
    fn observe(&mut self, state: &S) -> Vec<Observation>;

    /// True if only another state lets the input continue: it is asked after each folded event.
    fn waits(&self) -> bool {
        false
    }

    fn changed(&self) -> Arc<Notify>;
}

/// Observes lost nodes and gateways.
pub struct LeaseWatcher<S> {
    table: Arc<LeaseTable>,
    watched: fn(&S) -> Watched,
    lost: fn(Lost) -> Event,
    lost_gateway: fn(LostGateway) -> Event,
    local: LocalNodes,
}

/// The members to watch.
pub struct Watched {
    pub ttl: Duration,
    /// Member nodes, with their agents' incarnations.
    pub expected: Vec<(NodeId, u64)>,
    pub gateway_ttl: Duration,
    pub gateways: Vec<GatewayId>,
    /// The living processes by the log.
    pub builds: BTreeMap<String, Build>,
}

/// Unfenced nodes of this process, never lost by their leases.
#[derive(Debug, Clone, Default)]
pub struct LocalNodes {
    pub present: BTreeSet<NodeId>,
    pub gone: BTreeSet<NodeId>,
}

impl<S: Fold> LeaseWatcher<S> {
    /// Creates a watcher of a state's members.
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
            builds,
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
            .chain(self.table.builds(&builds))
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
