//! Reading the log, decoded. Bounded channels: a slow reader slows the fetching.

use std::sync::atomic::Ordering;

use dormouse_messages::events::Writer;
use dormouse_messages::{Body, Sequence};
use tokio::sync::mpsc;

use crate::decode::{LogItem, RawMessage, decode};
use crate::error::LogError;
use crate::fetch::{self, Fetched, Source};
use crate::log::Log;

pub(crate) const WAITING: usize = 4_096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    Forever,
    At(Sequence),
}

pub(crate) struct Reader {
    log: Log,
    until: Until,
    fetched: mpsc::Receiver<Fetched>,
    /// Under steady traffic the pending count rarely reaches 0.
    head: Option<u64>,
}

impl Reader {
    pub fn new(log: &Log, from: Sequence, until: Until) -> Self {
        let source = Source {
            stream: log.prefix().log_stream(),
            filter: String::new(),
            from: from.0,
            to: match until {
                Until::Forever => None,
                Until::At(to) => Some(to.0),
            },
            last_per_subject: false,
            permanent: true,
        };
        Self {
            log: log.clone(),
            until,
            fetched: fetch::spawn(log.clone(), source),
            head: None,
        }
    }

    /// Returns the next items; `None` after the end or a rollback. Cancel-safe.
    pub async fn next(&mut self) -> Option<Vec<LogItem>> {
        loop {
            match self.fetched.recv().await? {
                Fetched::Messages(messages) => return Some(self.decode(&messages)),
                Fetched::Connected => {}
                Fetched::Head(sequence) => {
                    self.head = None;
                    return Some(vec![LogItem::CaughtUp(Sequence(sequence))]);
                }
            }
        }
    }

    fn decode(&mut self, messages: &[RawMessage]) -> Vec<LogItem> {
        let imported_to = self.log.inner.imported_to.load(Ordering::Relaxed);
        let mut decoded = Vec::with_capacity(messages.len() + 1);
        for message in messages {
            let followed = decode(self.log.prefix(), imported_to, message);
            announce(&followed);
            decoded.push(followed);
            let known = *self.head.get_or_insert(message.sequence + message.pending);
            let caught_up = match self.until {
                Until::At(to) => message.sequence >= to.0,
                Until::Forever => message.sequence >= known,
            };
            if caught_up {
                self.head = None;
                decoded.push(LogItem::CaughtUp(Sequence(message.sequence)));
            }
        }
        if self.until == Until::Forever {
            self.log.remember_traces(&decoded);
            self.log.note_newer_format(&decoded);
            if let Some(last) = messages.last() {
                let followed_to = &self.log.inner.followed_to;
                followed_to.fetch_max(last.sequence, Ordering::Relaxed);
            }
        }
        decoded
    }
}

fn read(log: &Log, from: Sequence, to: Sequence) -> mpsc::Receiver<LogItem> {
    let mut reader = Reader::new(log, from, Until::At(to));
    let (out, followed) = mpsc::channel(WAITING);
    log.spawn(async move {
        while let Some(items) = reader.next().await {
            for item in items {
                if out.send(item).await.is_err() {
                    return;
                }
            }
        }
    });
    followed
}

fn announce(followed: &LogItem) {
    match followed {
        LogItem::Flagged { sequence, why, .. } => {
            tracing::warn!(%sequence, why, "flagged: not an event that may be here");
        }
        LogItem::Event(recorded) => {
            if let Body::Unknown { type_name } = &recorded.envelope.body
                && recorded.too_new().is_none()
            {
                tracing::debug!(sequence = %recorded.sequence, type_name, "an event of a type unknown to this build");
            }
        }
        LogItem::CaughtUp(_) => {}
    }
}

impl Log {
    /// Reads from `from` to `to` or the head. `CaughtUp` is last, unless cut short.
    ///
    /// # Errors
    /// When the head cannot be read, or event `from` is trimmed.
    pub async fn read(
        &self,
        from: Sequence,
        to: Sequence,
    ) -> Result<mpsc::Receiver<LogItem>, LogError> {
        let head = self.head().await?;
        let first = self.first();
        if from < first {
            return Err(LogError::Trimmed { first });
        }
        Ok(read(self, from, to.min(head)))
    }

    fn note_newer_format(&self, followed: &[LogItem]) {
        let newer = followed.iter().find_map(|followed| match followed {
            LogItem::Event(recorded) => recorded.newer_format(),
            LogItem::Flagged { .. } | LogItem::CaughtUp(_) => None,
        });
        if newer.is_some() {
            self.inner.newer_format.send_replace(newer);
        }
    }

    fn remember_traces(&self, followed: &[LogItem]) {
        let Ok(mut traces) = self.inner.traces.lock() else {
            return;
        };
        for followed in followed {
            if let LogItem::Event(recorded) = followed
                && let Some(traceparent) = &recorded.envelope.traceparent
            {
                // Commands send no spans, so their flags decide nothing.
                let decides = recorded.writer != Writer::Operator;
                traces.insert(recorded.sequence.0, traceparent, decides);
            }
        }
    }
}
