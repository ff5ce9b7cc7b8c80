//! Reading the log: every event in order, through outages of the broker.
//!
//! 1. The fetching task keeps a consumer on the stream (in memory, without acknowledgements;
//!    the position is kept here) and passes messages on in batches. It makes a new consumer
//!    whenever the connection was made anew, a delivery is missing or the broker reports
//!    anything: a consumer costs a round trip, a stuck one costs seconds.
//! 2. The decoding task turns them into events, beside the fetching of the next ones.
//!
//! Both channels are bounded: a slow reader slows the fetching, nothing piles up.

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, ReplayPolicy, pull};
use dormouse_messages::{Body, Event, Sequence};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::decode::{Delivery, Followed, RawMessage, decode};
use crate::log::{Log, within};

/// Messages a pull request asks for; more brought nothing, fewer cost round trips.
const BATCH: usize = 1_000;

/// Events that may wait for a reader.
const WAITING: usize = 4_096;

/// Where to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Never.
    Forever,
    /// After this sequence.
    At(Sequence),
}

/// What the fetching task passes on.
enum Fetched {
    Messages(Vec<RawMessage>),
    /// A new consumer found nothing behind this sequence.
    Head(u64),
}

/// Why a consumer is left.
enum Left {
    Done,
    Again(String),
    WentBack,
}

/// Starts both tasks.
pub(crate) fn spawn(log: Log, from: Sequence, until: Until) -> mpsc::Receiver<Followed> {
    let (fetched_tx, fetched_rx) = mpsc::channel(4);
    let (out_tx, out_rx) = mpsc::channel(WAITING);
    tokio::spawn(decode_all(log.clone(), until, fetched_rx, out_tx));
    let fetcher = Fetcher {
        log,
        until,
        delivered: from.0.max(1) - 1,
        delivered_nanos: None,
        out: fetched_tx,
    };
    tokio::spawn(fetcher.run());
    out_rx
}

struct Fetcher {
    log: Log,
    until: Until,
    /// The last sequence passed on, and when it was stored.
    delivered: u64,
    delivered_nanos: Option<i128>,
    out: mpsc::Sender<Fetched>,
}

impl Fetcher {
    async fn run(mut self) {
        if self.is_done() {
            let _ = self.out.send(Fetched::Head(self.delivered)).await;
            return;
        }
        let mut failures = 0_u32;
        let mut said: Option<Instant> = None;
        loop {
            let before = self.delivered;
            match self.consume().await {
                Left::Done => return,
                Left::WentBack => {
                    tracing::error!(
                        delivered = self.delivered,
                        "the log no longer holds what it delivered: it was restored or lost its tail; folding must start again"
                    );
                    return;
                }
                Left::Again(why) => {
                    failures = if self.delivered > before {
                        0
                    } else {
                        failures + 1
                    };
                    if said.is_none_or(|said| said.elapsed() > Duration::from_secs(10)) {
                        said = Some(Instant::now());
                        tracing::debug!(why, delivered = self.delivered, "following the log anew");
                    }
                }
            }
            let delay = Duration::from_millis(u64::from(failures.min(20)) * 25);
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                () = self.out.closed() => return,
            }
        }
    }

    fn is_done(&self) -> bool {
        matches!(self.until, Until::At(to) if self.delivered >= to.0)
    }

    /// Reads through one consumer until something is amiss.
    async fn consume(&mut self) -> Left {
        let mut connections = self.log.inner.connection.connections.clone();
        connections.mark_unchanged();
        if let Some(left) = self.check_history().await {
            return left;
        }
        let consumer = match within(self.create_consumer()).await {
            Ok(consumer) => consumer,
            Err(why) => return Left::Again(why),
        };
        if consumer.cached_info().num_pending == 0
            && self.out.send(Fetched::Head(self.delivered)).await.is_err()
        {
            return Left::Done;
        }
        let messages = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .expires(Duration::from_secs(5))
            .heartbeat(Duration::from_secs(1))
            .messages()
            .await;
        let mut messages = match messages {
            Ok(messages) => messages.ready_chunks(BATCH),
            Err(error) => return Left::Again(error.to_string()),
        };
        let mut deliveries = 0;
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = messages.next() => chunk,
                _ = connections.changed() => return Left::Again("connected anew".to_owned()),
                () = self.out.closed() => return Left::Done,
            };
            let Some(chunk) = chunk else {
                return Left::Again("the consumer ended".to_owned());
            };
            if let Some(left) = self.pass_on(chunk, &mut deliveries).await {
                return left;
            }
        }
    }

    async fn pass_on(
        &mut self,
        chunk: Vec<Result<async_nats::jetstream::Message, pull::MessagesError>>,
        deliveries: &mut u64,
    ) -> Option<Left> {
        let mut batch = Vec::with_capacity(chunk.len());
        let mut left = None;
        for message in chunk {
            let message = match message {
                Ok(message) => message.message,
                Err(error) => {
                    left = Some(Left::Again(error.to_string()));
                    break;
                }
            };
            let delivery = message.reply.as_deref().and_then(Delivery::parse);
            let Some(delivery) = delivery.filter(|it| it.delivery == *deliveries + 1) else {
                left = Some(Left::Again("a delivery is missing".to_owned()));
                break;
            };
            *deliveries = delivery.delivery;
            if delivery.sequence <= self.delivered {
                continue;
            }
            self.delivered = delivery.sequence;
            self.delivered_nanos = Some(delivery.stored_nanos);
            batch.push(RawMessage {
                sequence: delivery.sequence,
                stored_nanos: delivery.stored_nanos,
                subject: message.subject,
                payload: message.payload,
                pending: delivery.pending,
            });
            if self.is_done() {
                left = Some(Left::Done);
                break;
            }
        }
        if !batch.is_empty() && self.out.send(Fetched::Messages(batch)).await.is_err() {
            return Some(Left::Done);
        }
        left
    }

    /// Whether the log still ends in, or goes on from, what was delivered.
    async fn check_history(&self) -> Option<Left> {
        let nanos = self.delivered_nanos?;
        let stored = match self.log.stored_nanos(Sequence(self.delivered)).await {
            Ok(stored) => stored,
            Err(why) => return Some(Left::Again(why)),
        };
        (stored != Some(nanos)).then_some(Left::WentBack)
    }

    async fn create_consumer(&self) -> Result<PullConsumer, String> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence {
                start_sequence: self.delivered + 1,
            },
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            memory_storage: true,
            num_replicas: 1,
            inactive_threshold: Duration::from_secs(30),
            ..pull::Config::default()
        };
        self.log
            .inner
            .jetstream
            .create_consumer_on_stream(config, self.log.prefix().log_stream())
            .await
            .map_err(|error| error.to_string())
    }
}

impl Log {
    /// When the message at `sequence` was stored; `None` if there is none. Asks the leader.
    pub(crate) async fn stored_nanos(&self, sequence: Sequence) -> Result<Option<i128>, String> {
        use async_nats::jetstream::stream::LastRawMessageErrorKind as Kind;
        let stream = self.stream().await?;
        let read = async {
            match stream.get_raw_message(sequence.0).await {
                Ok(message) => Ok(Some(message.time.unix_timestamp_nanos())),
                Err(error) if error.kind() == Kind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        within(read).await
    }
}

async fn decode_all(
    log: Log,
    until: Until,
    mut fetched: mpsc::Receiver<Fetched>,
    out: mpsc::Sender<Followed>,
) {
    // The head as it was known at the first message after the last `CaughtUp`: under steady
    // traffic nothing is ever pending for long, yet something nearly always is.
    let mut head = None;
    while let Some(fetched) = fetched.recv().await {
        let messages = match fetched {
            Fetched::Messages(messages) => messages,
            Fetched::Head(sequence) => {
                head = None;
                if out
                    .send(Followed::CaughtUp(Sequence(sequence)))
                    .await
                    .is_err()
                {
                    return;
                }
                continue;
            }
        };
        let decoded: Vec<Followed> = messages
            .iter()
            .map(|message| decode(log.prefix(), message))
            .collect();
        if until == Until::Forever {
            log.remember_traces(&decoded);
        }
        for (message, followed) in messages.iter().zip(decoded) {
            announce(&followed);
            let known = *head.get_or_insert(message.sequence + message.pending);
            let at_end = matches!(until, Until::At(to) if message.sequence >= to.0);
            let caught_up = at_end || (until == Until::Forever && message.sequence >= known);
            if out.send(followed).await.is_err() {
                return;
            }
            if caught_up {
                head = None;
                let here = Followed::CaughtUp(Sequence(message.sequence));
                if out.send(here).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// Says once, at the place where it is read, what readers will only count.
fn announce(followed: &Followed) {
    match followed {
        Followed::Flagged { sequence, why, .. } => {
            tracing::warn!(%sequence, why, "flagged: not an event that may be here");
        }
        Followed::Event(recorded) => {
            if let Body::Unknown { type_name } = &recorded.envelope.body
                && !Event::is_other_version(type_name)
            {
                tracing::debug!(sequence = %recorded.sequence, type_name, "an event of a type unknown to this build");
            }
        }
        Followed::CaughtUp(_) => {}
    }
}

impl Log {
    fn remember_traces(&self, followed: &[Followed]) {
        let Ok(mut traces) = self.inner.traces.lock() else {
            return;
        };
        for followed in followed {
            if let Followed::Event(recorded) = followed
                && let Some(traceparent) = &recorded.envelope.traceparent
            {
                traces.insert(recorded.sequence.0, traceparent);
            }
        }
    }
}
