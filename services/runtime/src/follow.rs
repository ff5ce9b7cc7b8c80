//! Following the log: every event in order, decoded.
//!
//! The decoding runs beside the fetching of the next messages. Both channels are bounded: a
//! slow reader slows the fetching, nothing piles up.

use std::sync::atomic::Ordering;

use dormouse_messages::{Body, Event, Sequence};
use tokio::sync::mpsc;

use crate::decode::{Followed, decode};
use crate::fetch::{self, Fetched, Source};
use crate::log::Log;

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

/// Starts following.
pub(crate) fn spawn(log: Log, from: Sequence, until: Until) -> mpsc::Receiver<Followed> {
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
    let fetched = fetch::spawn(log.clone(), source);
    let (out, followed) = mpsc::channel(WAITING);
    log.spawn(decode_all(log.clone(), until, fetched, out));
    followed
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
            Fetched::Connected => continue,
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
        let imported_to = log.inner.imported_to.load(Ordering::Relaxed);
        let decoded: Vec<Followed> = messages
            .iter()
            .map(|message| decode(log.prefix(), imported_to, message))
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
