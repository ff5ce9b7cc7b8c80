//! What a service appends without deciding it: observations from outside the log.
//!
//! Level-triggered like a decision: asked with the folded state, an input names every
//! observation that the state does not hold yet. What was not stored, for whatever reason, is
//! named again; what was, no more. So an input needs no memory of its own, and a copy that
//! becomes active goes on where the log ends.

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
    /// What was observed and is not in `state` yet, in the order in which it is to be appended.
    /// Called whenever the service may append; must not wait.
    fn observe(&mut self, state: &S) -> Vec<Observation>;

    /// Whether it has something that only another state lets it name: then it is asked again after
    /// everything that is folded, and need not notify anybody.
    fn waits(&self) -> bool {
        false
    }

    /// Notified when `observe` may have something new.
    fn changed(&self) -> Arc<Notify>;
}

/// The nodes' leases: names the nodes that the state takes for alive and that are silent.
pub struct LeaseWatcher<S> {
    table: Arc<LeaseTable>,
    watched: fn(&S) -> Watched,
    lost: fn(Lost) -> Event,
    lost_gateway: fn(LostGateway) -> Event,
    local: LocalNodes,
}

/// The nodes to watch, by the folded state.
pub struct Watched {
    /// How long a lease lasts.
    pub ttl: Duration,
    /// The nodes that are members, each with its agent's life.
    pub expected: Vec<(NodeId, u64)>,
    /// How long a gateway's lease lasts.
    pub gateway_ttl: Duration,
    /// The gateways that have joined.
    pub gateways: Vec<GatewayId>,
}

/// The nodes whose agents run in this process, without a fence. Whether they are lost is not for
/// their leases to say.
#[derive(Debug, Clone, Default)]
pub struct LocalNodes {
    /// Those that it runs.
    pub present: BTreeSet<NodeId>,
    /// Those that it ran once and has ended: they are lost.
    pub gone: BTreeSet<NodeId>,
}

impl<S: Fold> LeaseWatcher<S> {
    /// `watched`: what is to be watched. Then the events that record the loss of a node, and of a
    /// gateway.
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
