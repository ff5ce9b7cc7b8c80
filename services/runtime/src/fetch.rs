//! Fetching a stream in order, through outages. An in-memory consumer without acknowledgements is replaced
//! after a reconnect, a gap, a report of the broker, or missing messages (its replica may lag indefinitely).
//! A client without the right to consumers reads ranges (`ranges`).

use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, ReplayPolicy, pull};
use async_nats::jetstream::message::StreamMessage;
use futures::StreamExt;
use tokio::sync::{mpsc, watch};

use crate::answer::within;
use crate::decode::{Delivery, RawMessage};
use crate::log::Log;
use crate::ranges;
use crate::rollback::{Rollback, Verdict};

/// Limits of a pull request; large, so that the broker works while a reader decodes.
const BATCH: usize = 30_000;
const BATCH_BYTES: usize = 16 << 20;
const CHUNK: usize = 1_000;

/// Then the consumer is compared with the log's head.
const SILENCE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub stream: String,
    pub filter: String,
    pub from: u64,
    pub to: Option<u64>,
    /// Starts each consumer with the last message of each subject.
    pub last_per_subject: bool,
    /// The stream never deletes, so delivered messages must still exist.
    pub permanent: bool,
}

#[derive(Debug)]
pub(crate) enum Fetched {
    Messages(Vec<RawMessage>),
    Connected,
    Head(u64),
}

enum Left {
    Done,
    Again(String),
    WentBack,
    /// The next event is trimmed.
    Trimmed {
        first: u64,
    },
}

pub(crate) fn spawn(log: Log, source: Source) -> mpsc::Receiver<Fetched> {
    let (out, fetched) = mpsc::channel(4);
    let fetcher = Fetcher {
        log: log.clone(),
        delivered: source.from.max(1) - 1,
        delivered_nanos: None,
        rollback: Rollback::default(),
        source,
        out,
    };
    log.spawn(fetcher.run());
    fetched
}

struct Fetcher {
    log: Log,
    source: Source,
    delivered: u64,
    delivered_nanos: Option<i128>,
    rollback: Rollback,
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
                Left::Trimmed { first } => {
                    tracing::error!(
                        delivered = self.delivered,
                        first,
                        "the log was trimmed beyond this reader; folding must start again from a newer state"
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
        self.source.to.is_some_and(|to| self.delivered >= to)
    }

    /// Reports whether messages before `sequence` are missing: only the log's beginning is ever removed.
    fn is_beyond(&self, sequence: u64) -> bool {
        let is_whole = self.source.permanent && self.source.filter.is_empty();
        is_whole && sequence > self.delivered + 1
    }

    async fn consume(&mut self) -> Left {
        let mut connections = self.log.inner.connection.connections.clone();
        connections.mark_unchanged();
        if let Some(left) = self.check_history().await {
            return left;
        }
        let own = self.log.inner.own.clone();
        if let Some(own) = own.filter(|own| own.name.is_none() && self.source.permanent) {
            return self.consume_ranges(&own.api, connections).await;
        }
        let consumer = match within(self.create_consumer()).await {
            Ok(consumer) => consumer,
            Err(why) => return Left::Again(why),
        };
        if self.out.send(Fetched::Connected).await.is_err() {
            return Left::Done;
        }
        if consumer.cached_info().num_pending == 0
            && self.out.send(Fetched::Head(self.delivered)).await.is_err()
        {
            return Left::Done;
        }
        let messages = consumer
            .stream()
            .max_messages_per_batch(BATCH)
            .max_bytes_per_batch(BATCH_BYTES)
            .expires(Duration::from_secs(5))
            .heartbeat(Duration::from_secs(1))
            .messages()
            .await;
        let mut messages = match messages {
            Ok(messages) => messages.ready_chunks(CHUNK),
            Err(error) => return Left::Again(error.to_string()),
        };
        let mut deliveries = 0;
        // The consumer must deliver up to here.
        let mut owed = self.source.to;
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = messages.next() => chunk,
                () = tokio::time::sleep(SILENCE) => {
                    if owed.is_some_and(|to| to > self.delivered) {
                        return Left::Again("the consumer delivers nothing of what is there".to_owned());
                    }
                    owed = self.head_of_all().await;
                    continue;
                }
                _ = connections.changed() => return Left::Again("connected anew".to_owned()),
                () = self.out.closed() => return Left::Done,
            };
            let Some(chunk) = chunk else {
                return Left::Again("the consumer ended".to_owned());
            };
            owed = self.source.to;
            if let Some(left) = self.pass_on(chunk, &mut deliveries).await {
                return left;
            }
        }
    }

    async fn head_of_all(&self) -> Option<u64> {
        let of_all = self.source.permanent && self.source.filter.is_empty();
        let head = of_all.then(|| self.log.head())?.await;
        head.ok().map(|head| head.0)
    }

    async fn consume_ranges(&mut self, api: &str, mut connections: watch::Receiver<u64>) -> Left {
        if self.out.send(Fetched::Connected).await.is_err() {
            return Left::Done;
        }
        let mut said_head = false;
        loop {
            let range = ranges::next(&self.log, api, &self.source.stream, self.delivered + 1);
            let range = tokio::select! {
                biased;
                range = range => range,
                _ = connections.changed() => return Left::Again("connected anew".to_owned()),
                () = self.out.closed() => return Left::Done,
            };
            let range = match range {
                Ok(range) => range,
                Err(why) => return Left::Again(why),
            };
            let Some(last) = range.last() else {
                let head = Fetched::Head(self.delivered);
                if !said_head && self.out.send(head).await.is_err() {
                    return Left::Done;
                }
                said_head = true;
                tokio::select! {
                    () = tokio::time::sleep(ranges::AGAIN) => continue,
                    () = self.out.closed() => return Left::Done,
                }
            };
            if let Some(first) = range.first().map(|it| it.sequence)
                && self.is_beyond(first)
            {
                return Left::Trimmed { first };
            }
            said_head = true;
            (self.delivered, self.delivered_nanos) = (last.sequence, Some(last.stored_nanos));
            let to = self.source.to.unwrap_or(u64::MAX);
            let within = range.into_iter().filter(|it| it.sequence <= to).collect();
            if self.out.send(Fetched::Messages(within)).await.is_err() || self.is_done() {
                return Left::Done;
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
            if !self.source.last_per_subject && delivery.sequence <= self.delivered {
                continue;
            }
            if self.is_beyond(delivery.sequence) {
                let first = delivery.sequence;
                left = Some(Left::Trimmed { first });
                break;
            }
            self.delivered = delivery.sequence;
            self.delivered_nanos = Some(delivery.stored_nanos);
            batch.push(RawMessage {
                sequence: delivery.sequence,
                stored_nanos: delivery.stored_nanos,
                subject: message.subject,
                headers: message.headers,
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

    async fn check_history(&mut self) -> Option<Left> {
        let read = self.delivered_nanos.filter(|_| self.source.permanent)?;
        let mark = |message: &StreamMessage| message.time.unix_timestamp_nanos();
        let word = match self.log.word(self.delivered, read, mark).await {
            Ok(word) => word,
            Err(why) => return Some(Left::Again(why)),
        };
        match self.rollback.hear(word, Instant::now()) {
            Verdict::Same => None,
            Verdict::Unsettled => Some(Left::Again("its leader is asked again".to_owned())),
            Verdict::WentBack => Some(Left::WentBack),
        }
    }

    async fn create_consumer(&self) -> Result<PullConsumer, String> {
        if let Some(own) = &self.log.inner.own
            && self.source.permanent
        {
            let inner = &self.log.inner;
            let (stream, from) = (&self.source.stream, self.delivered + 1);
            return own
                .reset(&inner.connection, &inner.jetstream, stream, from)
                .await;
        }
        let deliver_policy = if self.source.last_per_subject {
            DeliverPolicy::LastPerSubject
        } else {
            DeliverPolicy::ByStartSequence {
                start_sequence: self.delivered + 1,
            }
        };
        let config = pull::Config {
            deliver_policy,
            filter_subject: self.source.filter.clone(),
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
            .create_consumer_on_stream(config, &self.source.stream)
            .await
            .map_err(|error| error.to_string())
    }
}
