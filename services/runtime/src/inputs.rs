//! What a service appends without deciding it: observations from outside the log.
//!
//! Level-triggered like a decision: asked with the folded state, an input names every
//! observation that the state does not hold yet. What was not stored, for whatever reason, is
//! named again; what was, no more. So an input needs no memory of its own, and a copy that
//! becomes active goes on where the log ends.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::{Event, Fold, GatewayId, NodeId, Timestamp};
pub use dormouse_shell::Observation;
use tokio::sync::{Notify, mpsc};

use crate::decode::RawMessage;
use crate::fetch::{self, Fetched, Source};
use crate::lease_watch::{LeaseTable, Lost, LostGateway};
use crate::log::Log;

/// Submissions in one append: one atomic batch of the broker.
const SUBMISSIONS: usize = 1_000;

/// Payload in one append: a batch is held in the broker's memory.
const SUBMISSION_BYTES: usize = 4 << 20;

/// Further behind than this, fetching starts anew rather than reading on to the position.
const FAR: u64 = 5_000;

/// A source of observations.
pub trait Inputs<S: Fold>: Send + 'static {
    /// What was observed and is not in `state` yet, in the order in which it is to be appended.
    /// Called whenever the service may append; must not wait.
    fn observe(&mut self, state: &S) -> Vec<Observation>;

    /// Notified when `observe` may have something new.
    fn changed(&self) -> Arc<Notify>;
}

/// The tenants' ingress, from the position in the folded state on.
pub struct IngressSource<S> {
    log: Log,
    position: fn(&S) -> u64,
    received: fn(u64, &str, &str, Option<&str>, &[u8]) -> Event,
    fetching: Option<mpsc::Receiver<Vec<RawMessage>>>,
    /// Fetched and not yet known to be on the log.
    waiting: VecDeque<RawMessage>,
    fetched_to: u64,
    changed: Arc<Notify>,
}

impl<S: Fold> IngressSource<S> {
    /// `position`: the last ingress sequence in the state. `received`: the event that records a
    /// submission, from its sequence, tenant, verb, content type and payload.
    #[must_use]
    pub fn new(
        log: Log,
        position: fn(&S) -> u64,
        received: fn(u64, &str, &str, Option<&str>, &[u8]) -> Event,
    ) -> Self {
        Self {
            log,
            position,
            received,
            fetching: None,
            waiting: VecDeque::new(),
            fetched_to: 0,
            changed: Arc::new(Notify::new()),
        }
    }

    fn fetch_from(&mut self, position: u64) {
        self.waiting.clear();
        self.fetched_to = position;
        self.fetching = Some(ingress(&self.log, position + 1, Arc::clone(&self.changed)));
    }

    fn observation(&self, message: &RawMessage) -> Observation {
        let subject = message.subject.as_str();
        let (tenant, verb) = self
            .log
            .prefix()
            .parse_ingress(subject)
            .unwrap_or((subject, ""));
        // In whatever case a language writes them.
        let header = |name: &str| {
            let mut headers = message.headers.as_ref()?.iter();
            let (_, values) = headers.find(|(key, _)| {
                let key: &str = key.as_ref();
                key.eq_ignore_ascii_case(name)
            })?;
            values.first().map(|value| value.as_str())
        };
        let event = (self.received)(
            message.sequence,
            tenant,
            verb,
            header("content-type"),
            &message.payload,
        );
        Observation {
            event,
            traceparent: header("traceparent").map(str::to_owned),
        }
    }
}

impl<S: Fold> Inputs<S> for IngressSource<S> {
    fn observe(&mut self, state: &S) -> Vec<Observation> {
        let position = (self.position)(state);
        if self.fetching.is_none() || position > self.fetched_to + FAR {
            self.fetch_from(position);
        }
        loop {
            while self
                .waiting
                .front()
                .is_some_and(|message| message.sequence <= position)
            {
                self.waiting.pop_front();
            }
            if self.waiting.len() >= SUBMISSIONS {
                break;
            }
            let more = self.fetching.as_mut().map(mpsc::Receiver::try_recv);
            let Some(Ok(messages)) = more else { break };
            if let Some(last) = messages.last() {
                self.fetched_to = last.sequence;
            }
            self.waiting.extend(messages);
        }
        let mut bytes = 0;
        self.waiting
            .iter()
            .take(SUBMISSIONS)
            .take_while(|message| {
                let fits = bytes < SUBMISSION_BYTES;
                bytes += message.payload.len();
                fits
            })
            .map(|message| self.observation(message))
            .collect()
    }

    fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

/// Fetches the ingress from a sequence on. Bounded: what nobody takes stays with the broker.
fn ingress(log: &Log, from: u64, changed: Arc<Notify>) -> mpsc::Receiver<Vec<RawMessage>> {
    let source = Source {
        stream: log.prefix().ingress_stream(),
        filter: String::new(),
        from,
        to: None,
        last_per_subject: false,
        permanent: false,
    };
    let mut fetched = fetch::spawn(log.clone(), source);
    let (out, messages) = mpsc::channel(2);
    log.spawn(async move {
        while let Some(fetched) = fetched.recv().await {
            if let Fetched::Messages(batch) = fetched {
                if out.send(batch).await.is_err() {
                    return;
                }
                changed.notify_one();
            }
        }
    });
    messages
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
        (lost, lost_gateway): (fn(Lost) -> Event, fn(LostGateway) -> Event),
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
