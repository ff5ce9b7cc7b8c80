//! Observations: what a service appends without having decided it.
//!
//! The two there are: what arrives on the tenants' ingress ([`IngressSource`]), and nodes whose
//! leases have ended ([`LeaseWatcher`]). The domain's part is given as plain functions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, pull};
use bytes::Bytes;
use dormouse_messages::{Event, NodeId};
use futures::StreamExt;
use tokio::sync::Notify;

use crate::lease_watch::{LeaseTable, Lost};
use crate::log::Log;

/// An observed event.
#[derive(Debug, Clone)]
pub struct Observed {
    /// The event.
    pub event: Event,
    /// The trace that it continues.
    pub traceparent: Option<String>,
}

/// What a service observes.
pub trait Inputs<S>: Send + 'static {
    /// What was observed and is not on the log yet, judged by the folded state. Asked only of
    /// the active copy, when it has folded everything.
    fn observed(&mut self, state: &S) -> Vec<Observed>;

    /// Notified when there may be something new.
    fn woken(&self) -> Arc<Notify>;
}

/// Observations appended at once: fewer than a batch of the broker holds.
const MOST_OBSERVED: usize = 500;
/// Submissions that wait in memory; the rest waits in the ingress stream.
const MOST_BUFFERED: usize = 4_096;
const MOST_BUFFERED_BYTES: usize = 64 << 20;

/// A message of the ingress.
struct Arrived {
    sequence: u64,
    subject: String,
    content_type: Option<String>,
    traceparent: Option<String>,
    payload: Bytes,
}

#[derive(Default)]
struct Buffer {
    arrived: VecDeque<Arrived>,
    bytes: usize,
}

/// An arrived submission as an event: sequence, tenant, verb, content type, payload.
pub type Receive = fn(u64, &str, &str, Option<&str>, &[u8]) -> Event;

/// The tenants' ingress, in order, from where the folded state ends.
pub struct IngressSource<S> {
    log: Log,
    last_ingress: fn(&S) -> u64,
    receive: Receive,
    buffer: Arc<Mutex<Buffer>>,
    woken: Arc<Notify>,
    room: Arc<Notify>,
    reading: Option<tokio::task::JoinHandle<()>>,
}

impl<S> IngressSource<S> {
    /// `last_ingress` reads the position from the state.
    pub fn new(log: Log, last_ingress: fn(&S) -> u64, receive: Receive) -> Self {
        Self {
            log,
            last_ingress,
            receive,
            buffer: Arc::default(),
            woken: Arc::default(),
            room: Arc::default(),
            reading: None,
        }
    }
}

impl<S: 'static> Inputs<S> for IngressSource<S> {
    fn observed(&mut self, state: &S) -> Vec<Observed> {
        let last = (self.last_ingress)(state);
        if self.reading.is_none() {
            let reader = Reader {
                log: self.log.clone(),
                buffer: Arc::clone(&self.buffer),
                woken: Arc::clone(&self.woken),
                room: Arc::clone(&self.room),
                read: last,
            };
            self.reading = Some(tokio::spawn(reader.run()));
        }
        let Ok(mut buffer) = self.buffer.lock() else { return Vec::new() };
        while let Some(done) = buffer.arrived.front().filter(|arrived| arrived.sequence <= last) {
            buffer.bytes -= done.payload.len();
            buffer.arrived.pop_front();
        }
        self.room.notify_one();
        let prefix = self.log.prefix();
        let observed = buffer.arrived.iter().take(MOST_OBSERVED).map(|arrived| {
            let (tenant, verb) = prefix.parse_ingress(&arrived.subject).unwrap_or(("", &arrived.subject));
            let content_type = arrived.content_type.as_deref();
            Observed {
                event: (self.receive)(arrived.sequence, tenant, verb, content_type, &arrived.payload),
                traceparent: arrived.traceparent.clone(),
            }
        });
        observed.collect()
    }

    fn woken(&self) -> Arc<Notify> {
        Arc::clone(&self.woken)
    }
}

impl<S> Drop for IngressSource<S> {
    fn drop(&mut self) {
        if let Some(reading) = &self.reading {
            reading.abort();
        }
    }
}

struct Reader {
    log: Log,
    buffer: Arc<Mutex<Buffer>>,
    woken: Arc<Notify>,
    room: Arc<Notify>,
    read: u64,
}

impl Reader {
    /// Reads for ever; a new consumer after every outage.
    async fn run(mut self) {
        loop {
            if let Err(why) = self.consume().await {
                tracing::debug!(why, "reading the ingress anew");
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn consume(&mut self) -> Result<(), String> {
        let name = self.log.prefix().ingress_stream();
        let jetstream = &self.log.inner.jetstream;
        let stream = jetstream.get_stream_no_info(name).await.map_err(|error| error.to_string())?;
        let config = pull::Config {
            ack_policy: AckPolicy::None,
            memory_storage: true,
            inactive_threshold: Duration::from_secs(30),
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.read + 1,
            },
            ..pull::Config::default()
        };
        let mut connections = self.log.inner.connection.connections.clone();
        connections.borrow_and_update();
        let consumer = stream.create_consumer(config).await.map_err(|error| error.to_string())?;
        let mut messages = consumer
            .stream()
            .max_messages_per_batch(500)
            .expires(Duration::from_secs(5))
            .heartbeat(Duration::from_secs(1))
            .messages()
            .await
            .map_err(|error| error.to_string())?;
        loop {
            let message = tokio::select! {
                message = messages.next() => message,
                _ = connections.changed() => return Err("connected anew".to_owned()),
            };
            let message = match message {
                Some(Ok(message)) => message,
                Some(Err(error)) => return Err(error.to_string()),
                None => return Err("the consumer ended".to_owned()),
            };
            let sequence = message.info().map_err(|error| error.to_string())?.stream_sequence;
            if sequence > self.read {
                self.read = sequence;
                self.buffer(sequence, message.message).await;
            }
        }
    }

    async fn buffer(&self, sequence: u64, message: async_nats::Message) {
        let header = |name: &str| {
            let value = message.headers.as_ref().and_then(|headers| headers.get(name));
            value.map(|value| value.as_str().to_owned())
        };
        let arrived = Arrived {
            sequence,
            content_type: header("content-type").or_else(|| header("Content-Type")),
            traceparent: header("traceparent"),
            subject: message.subject.to_string(),
            payload: message.payload,
        };
        loop {
            if let Ok(mut buffer) = self.buffer.lock()
                && buffer.arrived.len() < MOST_BUFFERED
                && buffer.bytes < MOST_BUFFERED_BYTES
            {
                buffer.bytes += arrived.payload.len();
                buffer.arrived.push_back(arrived);
                break;
            }
            self.room.notified().await;
        }
        self.woken.notify_one();
    }
}

/// The nodes that hold a lease as far as the log knows: names and agents' lives.
pub type Members<S> = fn(&S) -> Vec<(NodeId, u64)>;
/// The event that says that a node's lease has ended.
pub type LostEvent = fn(Lost) -> Event;

/// The nodes' leases: an agent that does not renew its own is lost.
pub struct LeaseWatcher<S> {
    members: Members<S>,
    event: LostEvent,
    ttl: Duration,
    table: Arc<LeaseTable>,
}

impl<S> LeaseWatcher<S> {
    /// `members` reads from the state who is to be heard of; `ttl` is the nodes' leases' length,
    /// by which agents have fenced themselves.
    #[must_use]
    pub fn new(log: &Log, ttl: Duration, members: Members<S>, event: LostEvent) -> Self {
        Self {
            members,
            event,
            ttl,
            table: log.leases().table(),
        }
    }
}

impl<S: 'static> Inputs<S> for LeaseWatcher<S> {
    fn observed(&mut self, state: &S) -> Vec<Observed> {
        let lost = self.table.lost(&(self.members)(state), self.ttl);
        let observed = lost.into_iter().map(|lost| {
            tracing::warn!(node = %lost.node, "the node's lease has ended: it is lost");
            Observed {
                event: (self.event)(lost),
                traceparent: None,
            }
        });
        observed.collect()
    }

    fn woken(&self) -> Arc<Notify> {
        self.table.changed()
    }
}
