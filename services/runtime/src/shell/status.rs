//! Showing tenants the events of their jobs, as they come back from the log.
//!
//! At most once, like any live view: a watcher that was not connected asks a query. The broker
//! could republish the log itself, but only where the job stands in the log's subject, which the
//! fence cannot afford (see `publish`).

use std::sync::Arc;

use async_nats::HeaderMap;
use dormouse_messages::Recorded;
use dormouse_messages::envelope::CONTENT_TYPE;
use tokio::sync::mpsc;

use crate::log::Log;
use crate::publish::status_subject;

/// Events that may wait to be shown while the broker is slow.
const WAITING: usize = 4_096;

/// Where the service puts what tenants are to see.
#[derive(Clone)]
pub(crate) struct Status {
    waiting: mpsc::Sender<Arc<Recorded>>,
}

impl Status {
    pub fn new(log: Log) -> Self {
        let (waiting, mut events) = mpsc::channel::<Arc<Recorded>>(WAITING);
        log.clone().spawn(async move {
            while let Some(recorded) = events.recv().await {
                show(&log, &recorded).await;
            }
        });
        Self { waiting }
    }

    /// Shows an event, unless too many wait already.
    pub fn show(&self, recorded: &Arc<Recorded>) {
        if self.waiting.try_send(Arc::clone(recorded)).is_err() {
            tracing::warn!(sequence = %recorded.sequence, "not shown to its tenant: too many wait");
        }
    }
}

async fn show(log: &Log, recorded: &Recorded) {
    let Some(event) = recorded.event() else {
        return;
    };
    let Some(subject) = status_subject(log.prefix(), event) else {
        return;
    };
    let Ok(payload) = recorded.envelope.to_msgpack() else {
        return;
    };
    // The headers that the broker itself adds when it republishes.
    let mut headers = HeaderMap::new();
    headers.insert("content-type", CONTENT_TYPE);
    headers.insert("Nats-Stream", log.prefix().log_stream().as_str());
    headers.insert("Nats-Sequence", recorded.sequence.to_string().as_str());
    headers.insert("Nats-Time-Stamp", recorded.stored_at.to_string().as_str());
    if let Err(error) = log
        .inner
        .connection
        .send(&subject, headers, payload.into())
        .await
    {
        tracing::debug!(subject, ?error, "not shown to its tenant");
    }
}
