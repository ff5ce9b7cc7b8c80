//! Appending under a fence: one message, pipelined, or in an atomic batch.
//!
//! The fence is the last sequence of a writer's subjects: the broker refuses a writer that has not seen
//! another copy's append.
//!
//! With replicas the leader checks a message at its proposal, and every replica applies it later. A check
//! that fails at the apply stops the stream on every replica, after each restart too (nats-server 2.15,
//! `processJetStreamMsg` and `applyStreamMsgOp`). Only `Nats-Expected-Last-Msg-Id` is checked there, so no
//! message to a replicated stream carries it:
//!
//! - *A fence* (`Nats-Expected-Last-Subject-Sequence` with a filter) is checked at the proposal. While a
//!   fenced message is in flight, the leader answers others "in process" (10164): a doubt, not a refusal
//!   (`dormouse_shell::broker_errors`).
//! - *An atomic batch* is checked at its commit, and proposed whole or not at all. Each member carries the
//!   fence, so that no other copy can write in between.
//!
//! On an unclustered server a batch costs an extra disk write, so events are pipelined
//! ([`Log::publish_ahead`]): the first under the fence, each further one on the condition that its
//! predecessor is the stream's last message. Predicted sequences would be unsafe: another writer's message
//! could take the place of a predecessor.
//!
//! Once the fence's own event is trimmed, the broker knows no last sequence of these subjects. A copy that
//! slept would pass such a fence although another copy's appends are trimmed too. So the first event then
//! expects the log's last sequence (`Nats-Expected-Last-Sequence`, also checked at the proposal).
//!
//! An event is stored under its writer's shard, not its job: a wildcard fence visits every distinct subject.

use async_nats::{HeaderMap, Request};
use bytes::Bytes;
use dormouse_messages::envelope::CONTENT_TYPE;
use dormouse_messages::{CodecError, Envelope, Event, Prefix, Timestamp, Writer};
use dormouse_shell::Failure;
use dormouse_shell::broker_errors::{WRONG_LAST_ID, append_id, failure};
use futures::future::join_all;
use opentelemetry_sdk::trace::{IdGenerator, RandomIdGenerator};
use tokio::sync::broadcast;

use crate::answer::{Reply, ReplyError};
use crate::connection::NoAnswer;
use crate::decode::STORED_AT;
use crate::error::AppendError;
use crate::log::Log;

/// Half of the broker's `max_payload`, for headers and envelopes.
pub(crate) const MAX_EVENT_BYTES: usize = 4 << 20;

/// The broker's limit of a batch.
pub(crate) const MAX_BATCH: usize = 1_000;

/// The broker holds a batch in memory until its commit.
const MAX_BATCH_BYTES: usize = 8 << 20;

#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    pub subject: String,
    pub id: String,
    pub type_name: &'static str,
    pub stored_at: Option<Timestamp>,
    pub payload: Bytes,
}

#[derive(Debug, Clone)]
pub(crate) struct Fence {
    pub filter: String,
    pub last: u64,
    /// Set if the broker no longer holds `last`: then the log's last message must be this one, since another
    /// copy's append may be trimmed as well.
    pub head: Option<u64>,
}

pub(crate) type PublishError = Failure<AppendError>;

/// Encodes `event`. A repeated append has an equal id, which lets the log resolve doubts.
pub(crate) fn outgoing(
    prefix: &Prefix,
    place: &Place<'_>,
    time: Timestamp,
    traceparent: Option<String>,
    event: Event,
) -> Result<Outgoing, CodecError> {
    let subject = prefix.event(place.writer, &event);
    let type_name = event.type_name();
    let data = rmp_serde::to_vec_named(&event)?;
    let Place {
        writer,
        name,
        expected,
        index,
    } = place;
    let id = append_id(name, *expected, *index, &data);
    let envelope = Envelope::new(id.clone(), *writer, time, traceparent, event);
    Ok(Outgoing {
        subject,
        id,
        type_name,
        stored_at: None,
        payload: envelope.to_msgpack()?.into(),
    })
}

pub(crate) struct Place<'a> {
    pub writer: Writer,
    /// The writer; an [`crate::Appender`] adds a token, since two may append equal data.
    pub name: &'a str,
    pub expected: u64,
    pub index: usize,
}

fn headers(message: &Outgoing) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if !message.id.is_empty() {
        headers.insert("Nats-Msg-Id", message.id.as_str());
    }
    headers.insert("content-type", CONTENT_TYPE);
    if let Some(stored_at) = message.stored_at {
        headers.insert(STORED_AT, stored_at.as_micros().to_string().as_str());
    }
    headers
}

fn fence_headers(headers: &mut HeaderMap, fence: &Fence) {
    if let Some(head) = fence.head {
        headers.insert("Nats-Expected-Last-Sequence", head.to_string().as_str());
        return;
    }
    headers.insert(
        "Nats-Expected-Last-Subject-Sequence",
        fence.last.to_string().as_str(),
    );
    headers.insert(
        "Nats-Expected-Last-Subject-Sequence-Subject",
        fence.filter.as_str(),
    );
}

pub(crate) fn batch_len(messages: &[Outgoing]) -> usize {
    let mut bytes = 0;
    messages
        .iter()
        .take(MAX_BATCH)
        .take_while(|message| {
            bytes += message.payload.len();
            bytes <= MAX_BATCH_BYTES
        })
        .count()
        .max(1)
}

impl Log {
    pub(crate) async fn publish(
        &self,
        message: &Outgoing,
        fence: &Fence,
    ) -> Result<u64, PublishError> {
        self.check_size(message)?;
        let mut headers = headers(message);
        fence_headers(&mut headers, fence);
        self.ask(message, headers).await.map(|reply| reply.seq)
    }

    /// Appends all messages consecutively, or none; returns the last sequence.
    pub(crate) async fn publish_batch(
        &self,
        messages: &[Outgoing],
        fence: &Fence,
    ) -> Result<u64, PublishError> {
        let (first, rest) = match messages {
            [] => return Ok(fence.last),
            [only] => return self.publish(only, fence).await,
            [first, rest @ ..] => (first, rest),
        };
        for message in messages {
            self.check_size(message)?;
        }
        let batch = RandomIdGenerator::default().new_trace_id().to_string();
        let member = |message: &Outgoing, number: usize| {
            let mut headers = headers(message);
            headers.insert("Nats-Batch-Id", batch.as_str());
            headers.insert("Nats-Batch-Sequence", number.to_string().as_str());
            fence_headers(&mut headers, fence);
            headers
        };
        let mut denied = self.inner.connection.denials();
        self.ask(first, member(first, 1)).await?;
        let mut number = 1;
        for message in rest {
            number += 1;
            let mut headers = member(message, number);
            if number < messages.len() {
                let sent =
                    self.inner
                        .connection
                        .send(&message.subject, headers, message.payload.clone());
                sent.await.map_err(|error| failed(message, error))?;
                continue;
            }
            headers.insert("Nats-Batch-Commit", "1");
            return tokio::select! {
                biased;
                reply = self.ask(message, headers) => reply.map(|reply| reply.seq),
                subject = any_denial(&mut denied, messages) => Err(PublishError::Refused(AppendError::Denied { subject })),
            };
        }
        Err(PublishError::Doubt("the batch has no end".to_owned()))
    }

    /// True if the server is unclustered. It joins a cluster only with a restart, hence a new connection, and
    /// outages leave nothing queued.
    pub(crate) fn may_send_ahead(&self) -> bool {
        !self.is_replicated() && self.inner.connection.is_to_a_single_server()
    }

    /// Pipelines messages. Returns the stored sequences and the next one's error; without an error, another
    /// writer's message came between.
    pub(crate) async fn publish_ahead(
        &self,
        messages: &[Outgoing],
        fence: &Fence,
    ) -> (Vec<u64>, Option<PublishError>) {
        debug_assert!(messages.iter().all(|message| !message.id.is_empty()));
        let ids = messages.iter().map(|message| Some(message.id.as_str()));
        let asking = messages.iter().zip(std::iter::once(None).chain(ids));
        let asking = asking.map(|(message, before)| async move {
            self.check_size(message)?;
            let mut headers = headers(message);
            match before {
                None => fence_headers(&mut headers, fence),
                Some(id) => headers.insert("Nats-Expected-Last-Msg-Id", id),
            }
            self.ask(message, headers).await
        });
        let mut stored = Vec::with_capacity(messages.len());
        for reply in join_all(asking).await {
            match reply {
                Ok(reply) => stored.push(reply.seq),
                Err(PublishError::Refused(AppendError::Rejected { code, .. }))
                    if code == WRONG_LAST_ID && !stored.is_empty() =>
                {
                    return (stored, None);
                }
                Err(error) => return (stored, Some(error)),
            }
        }
        (stored, None)
    }

    fn check_size(&self, message: &Outgoing) -> Result<(), PublishError> {
        // A kilobyte covers the headers.
        let limit = MAX_EVENT_BYTES.min(
            self.inner
                .connection
                .client
                .max_payload()
                .saturating_sub(1024),
        );
        if message.payload.len() <= limit {
            return Ok(());
        }
        Err(PublishError::Refused(too_large(message, limit)))
    }

    async fn ask(&self, message: &Outgoing, headers: HeaderMap) -> Result<Reply, PublishError> {
        let request = Request::new()
            .headers(headers)
            .payload(message.payload.clone());
        let answer = self
            .inner
            .connection
            .ask(&message.subject, request)
            .await
            .map_err(|error| failed(message, error))?;
        if answer.payload.is_empty() {
            return Ok(Reply::default());
        }
        let reply = Reply::read(&answer)
            .map_err(|why| PublishError::Doubt(format!("unreadable answer: {why}")))?;
        reply.map_err(|error| refused(message, error))
    }
}

fn failed(message: &Outgoing, error: NoAnswer) -> PublishError {
    match error {
        NoAnswer::Denied => PublishError::Refused(AppendError::Denied {
            subject: message.subject.clone(),
        }),
        NoAnswer::TooLarge { limit } => PublishError::Refused(too_large(message, limit)),
        error @ (NoAnswer::Nobody | NoAnswer::Doubt(_)) => PublishError::Doubt(error.into_words()),
    }
}

fn refused(message: &Outgoing, error: ReplyError) -> PublishError {
    let code = error.err_code;
    failure(code, error.code, error.description).map(|why| AppendError::Rejected {
        subject: message.subject.clone(),
        code,
        why,
    })
}

fn too_large(message: &Outgoing, limit: usize) -> AppendError {
    AppendError::TooLarge {
        type_name: message.type_name,
        bytes: message.payload.len(),
        limit,
    }
}

async fn any_denial(denied: &mut broadcast::Receiver<String>, messages: &[Outgoing]) -> String {
    loop {
        match denied.recv().await {
            Ok(denied) if messages.iter().any(|it| it.subject == denied) => return denied,
            Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::{BrokerConfig, LocalBroker};
    use crate::settings::Settings;

    fn sized(id: &str, subject: &str, bytes: usize) -> Outgoing {
        Outgoing {
            subject: subject.to_owned(),
            id: id.to_owned(),
            type_name: "",
            stored_at: None,
            payload: vec![0; bytes].into(),
        }
    }

    #[tokio::test]
    async fn what_is_sent_ahead_follows_the_one_before_or_is_not_stored() {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = LocalBroker::start(BrokerConfig::new(folder.path())).await;
        let broker = broker.expect("it runs: scripts/install.sh nats");
        let log = Log::connect(&Settings::new(broker.url(), "test")).await;
        let log = log.expect("connects");
        log.ensure_streams().await.expect("streams");
        assert!(log.may_send_ahead());
        let fence = |last| Fence {
            filter: log.prefix().writer(Writer::Placer, None),
            last,
            head: None,
        };
        let own = |id: &str, bytes| sized(id, "dormouse.log.placer.0.x", bytes);
        let three = ["a", "b", "c"].map(|id| own(id, 1));
        let (stored, error) = log.publish_ahead(&three, &fence(0)).await;
        assert!(stored == [1, 2, 3] && error.is_none(), "{error:?}");
        let others = ["d", "e"].map(|id| own(id, 1));
        let (stored, error) = log.publish_ahead(&others, &fence(0)).await;
        assert!(stored.is_empty() && matches!(error, Some(PublishError::Conflict)));
        let large = [own("f", 1), own("g", MAX_EVENT_BYTES + 1), own("h", 1)];
        let (stored, error) = log.publish_ahead(&large, &fence(3)).await;
        let too_large = Some(PublishError::Refused(AppendError::TooLarge {
            type_name: "",
            bytes: MAX_EVENT_BYTES + 1,
            limit: MAX_EVENT_BYTES,
        }));
        assert_eq!(
            (stored, format!("{error:?}")),
            (vec![4], format!("{too_large:?}"))
        );
        // Stands for another writer's message in between.
        let between = [sized("i", "dormouse.in.ads.submit", 1), own("j", 1)];
        let (stored, error) = log.publish_ahead(&between, &fence(0)).await;
        assert!(stored.len() == 1 && error.is_none(), "{error:?}");
        assert_eq!(log.head().await.expect("a head").0, 4);
    }

    #[test]
    fn batches_are_bounded_in_messages_and_bytes() {
        let message = |bytes: usize| sized("", "", bytes);
        assert_eq!(batch_len(&vec![message(1); 1_500]), MAX_BATCH);
        assert_eq!(batch_len(&vec![message(3 << 20); 5]), 2);
        assert_eq!(batch_len(&[message(9 << 20)]), 1);
    }
}
