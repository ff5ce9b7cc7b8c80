//! Publishes events to tenants (`<prefix>.status.>`) from the log.
//!
//! 1. The holder of the lease `status` publishes, from the last noted position, or the head.
//! 2. Events with many subjects are published in portions, so that they delay no others; the position waits
//!    for them.
//!
//! At most once for a listener, at least once across holders; a header carries the sequence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{HeaderMap, Request};
use bytes::Bytes;
use dormouse_messages::{Recorded, Sequence};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::answer::within;
use crate::connection::NoAnswer;
use crate::decode::LogItem;
use crate::error::LogError;
use crate::lease::LeaseState;
use crate::log::Log;
use crate::retry::forever;

/// Also the first token of the position's key.
const LEASE: &str = "status";
const NOTE: Duration = Duration::from_secs(1);
const AGAIN: Duration = Duration::from_millis(200);

/// An event with more subjects is published in portions.
const MANY: usize = 64;

/// Delay between portions, at most 16,000 subjects a second.
const PAUSE: Duration = Duration::from_millis(4);

/// A status message.
#[derive(Debug, Clone)]
pub struct Published {
    pub subjects: Vec<String>,
    pub content_type: &'static str,
    pub payload: Bytes,
}

#[derive(Debug, Serialize, Deserialize)]
struct Position {
    log: String,
    sequence: u64,
}

#[derive(Default)]
struct Later(VecDeque<(Arc<Recorded>, Published)>);

impl Later {
    fn push(&mut self, recorded: &Arc<Recorded>, published: Published) {
        self.0.push_back((Arc::clone(recorded), published));
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn before(&self, shown: Sequence) -> Sequence {
        let first = self.0.front();
        first.map_or(shown, |(recorded, _)| Sequence(recorded.sequence.0 - 1))
    }

    fn portion(&mut self) -> Option<(Arc<Recorded>, Published)> {
        let (recorded, first) = self.0.front_mut()?;
        let rest = first.subjects.split_off(first.subjects.len().min(MANY));
        let portion = Published {
            subjects: std::mem::replace(&mut first.subjects, rest),
            content_type: first.content_type,
            payload: first.payload.clone(),
        };
        let recorded = Arc::clone(recorded);
        if first.subjects.is_empty() {
            self.0.pop_front();
        }
        Some((recorded, portion))
    }
}

impl Log {
    /// Publishes the messages of `show` until `shutdown`; each term of the lease has a new `show`.
    ///
    /// # Errors
    /// When the log no longer holds what was shown.
    pub async fn publish_status<S>(
        &self,
        holder: &str,
        ttl: Duration,
        mut show: impl FnMut() -> S,
        shutdown: CancellationToken,
    ) -> Result<(), LogError>
    where
        S: FnMut(&Recorded) -> Vec<Published>,
    {
        let lease = self.leases().seek(LEASE, holder, 0, ttl);
        let mut state = lease.watch();
        let ended = loop {
            tokio::select! {
                () = LeaseState::until(&mut state, true) => {}
                () = shutdown.cancelled() => break Ok(()),
            }
            let ended = self.publish_while(&mut state, show(), &shutdown).await;
            if ended.is_err() || shutdown.is_cancelled() {
                break ended;
            }
        };
        lease.release().await;
        ended
    }

    async fn publish_while(
        &self,
        state: &mut watch::Receiver<LeaseState>,
        mut show: impl FnMut(&Recorded) -> Vec<Published>,
        shutdown: &CancellationToken,
    ) -> Result<(), LogError> {
        let from = tokio::select! {
            from = self.shown_to() => from,
            () = shutdown.cancelled() => return Ok(()),
        };
        // Trimmed events are not shown.
        let from = from.max(Sequence(self.first().0 - 1));
        tracing::debug!(%from, "showing tenants what is new");
        let mut events = self.follow(from.next());
        let (mut shown, mut noted) = (from, from);
        let mut later = Later::default();
        let mut pause = tokio::time::interval(PAUSE);
        pause.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut note = tokio::time::interval(NOTE);
        note.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                () = LeaseState::until(state, false) => return Ok(()),
                () = shutdown.cancelled() => {
                    self.note_shown(later.before(shown)).await;
                    return Ok(());
                }
                _ = note.tick(), if later.before(shown) > noted => {
                    let before = later.before(shown);
                    if self.note_shown(before).await {
                        noted = before;
                    }
                }
                _ = pause.tick(), if !later.is_empty() => {
                    if let Some((recorded, published)) = later.portion() {
                        self.publish_shown(&recorded, &published).await;
                    }
                }
                followed = events.recv() => match followed {
                    Some(LogItem::Event(recorded)) => {
                        for published in show(&recorded) {
                            if published.subjects.len() > MANY { later.push(&recorded, published) } else { self.publish_shown(&recorded, &published).await }
                        }
                        shown = recorded.sequence;
                    }
                    Some(LogItem::Flagged { sequence, .. }) => shown = sequence,
                    Some(LogItem::CaughtUp(_)) => {}
                    None => {
                        let why = "the log no longer holds what was shown";
                        return Err(LogError::request("follow", self.prefix().log_stream(), why));
                    }
                },
            }
        }
    }

    async fn publish_shown(&self, recorded: &Recorded, published: &Published) {
        // The headers of the broker's own republishing.
        let mut headers = HeaderMap::new();
        headers.insert("content-type", published.content_type);
        headers.insert("Nats-Stream", self.prefix().log_stream().as_str());
        headers.insert("Nats-Sequence", recorded.sequence.to_string().as_str());
        headers.insert("Nats-Time-Stamp", recorded.stored_at.to_string().as_str());
        for tail in &published.subjects {
            let subject = self.prefix().status(tail);
            let connection = &self.inner.connection;
            let send = || connection.send(&subject, headers.clone(), published.payload.clone());
            let failed =
                |error: NoAnswer| tracing::debug!(subject, ?error, "not shown to its tenant yet");
            forever(AGAIN, failed, send).await;
        }
    }

    fn position_subject(&self, reader: &str) -> String {
        format!("$KV.{}.{reader}.position", self.prefix().lease_bucket())
    }

    /// Returns the position noted by `reader`.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn noted(&self, reader: &str) -> Result<Option<Sequence>, String> {
        let noted = self.position(reader).await?;
        let own = noted.filter(|noted| noted.log == self.identity());
        Ok(own.map(|noted| Sequence(noted.sequence)))
    }

    async fn shown_to(&self) -> Sequence {
        let ask = || async {
            let head = self.head().await.map_err(drop)?;
            let noted = self.noted(LEASE).await.map_err(drop)?;
            Ok::<_, ()>(noted.map_or(head, |noted| noted.min(head)))
        };
        forever(AGAIN, |()| {}, ask).await
    }

    async fn position(&self, reader: &str) -> Result<Option<Position>, String> {
        let bucket = format!("KV_{}", self.prefix().lease_bucket());
        let stream = within(self.inner.jetstream.get_stream_no_info(bucket)).await?;
        let subject = self.position_subject(reader);
        let last = async {
            use async_nats::jetstream::stream::LastRawMessageErrorKind::NoMessageFound;
            match stream.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(serde_json::from_slice(&message.payload).ok()),
                Err(error) if error.kind() == NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        within(last).await
    }

    /// On one connection, so the broker has all earlier messages.
    async fn note_shown(&self, shown: Sequence) -> bool {
        self.note(LEASE, shown).await
    }

    /// Notes the position of `reader`; true if stored.
    pub async fn note(&self, reader: &str, position: Sequence) -> bool {
        let position = Position {
            log: self.identity(),
            sequence: position.0,
        };
        let Ok(payload) = serde_json::to_vec(&position) else {
            return false;
        };
        let request = Request::new().payload(payload.into());
        let connection = &self.inner.connection;
        let noted = connection
            .ask(&self.position_subject(reader), request)
            .await;
        if let Err(error) = &noted {
            tracing::debug!(
                ?error,
                reader,
                "how far it has come on the log is not noted"
            );
        }
        noted.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::SubmissionsRateLimited;
    use dormouse_messages::{Envelope, Event, Timestamp, Writer};

    use super::*;

    #[test]
    fn what_has_many_subjects_is_shown_in_portions_and_the_position_stays_before_it() {
        let at = Timestamp::default();
        let refused = SubmissionsRateLimited {
            tenant: "flood".to_owned(),
            first: 1,
            last: 150,
            count: 150,
            since: at,
            until: at,
            max_rate: 50,
            verb: None,
        };
        let recorded = Arc::new(Recorded {
            sequence: Sequence(7),
            stored_at: at,
            writer: Writer::Admission,
            envelope: Envelope::new("id", Writer::Admission, at, None, Event::from(refused)),
        });
        let subjects: Vec<String> = (1..=150).map(|it| format!("flood._in.{it}")).collect();
        let mut later = Later::default();
        later.push(
            &recorded,
            Published {
                subjects: subjects.clone(),
                content_type: "x",
                payload: Bytes::new(),
            },
        );
        let mut shown = Vec::new();
        while let Some((_, portion)) = {
            assert_eq!(
                later.before(Sequence(9)),
                Sequence(if later.is_empty() { 9 } else { 6 })
            );
            later.portion()
        } {
            assert!(portion.subjects.len() <= MANY);
            shown.extend(portion.subjects);
        }
        assert_eq!(shown, subjects);
    }
}
