//! Reads events from now on: an operator's client from the log, a tenant's from the status messages.

use std::sync::Arc;

use async_nats::Subscriber;
use dormouse_messages::{Envelope, Recorded, Sequence};
use futures::StreamExt;
use tokio::sync::mpsc;

use crate::decode::LogItem;
use crate::error::LogError;
use crate::log::Log;

const SHOWN: usize = 1_024;

impl Log {
    /// Follows events from now on: all, or the tenant's part.
    ///
    /// # Errors
    /// When the broker does not answer, or does not let this client listen.
    pub async fn events_from_now(&self) -> Result<mpsc::Receiver<LogItem>, LogError> {
        let Some(tenant) = self.tenant() else {
            let head = self.head().await?;
            return Ok(self.follow(head.next()));
        };
        let subject = self.prefix().status(&format!("{tenant}.>"));
        let failed = |why: String| LogError::request("listen to", &subject, why);
        let client = &self.inner.connection.client;
        let shown = client.subscribe(subject.clone()).await;
        let shown = shown.map_err(|error| failed(error.to_string()))?;
        // The subscription must exist before anything is published.
        client
            .flush()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let (events, receiver) = mpsc::channel(SHOWN);
        self.spawn(pass_on(shown, events));
        Ok(receiver)
    }
}

async fn pass_on(mut shown: Subscriber, events: mpsc::Sender<LogItem>) {
    loop {
        let message = tokio::select! {
            message = shown.next() => message,
            () = events.closed() => return,
        };
        let Some(message) = message else {
            return;
        };
        let Some(recorded) = recorded(&message) else {
            continue;
        };
        if events
            .send(LogItem::Event(Arc::new(recorded)))
            .await
            .is_err()
        {
            return;
        }
    }
}

fn recorded(message: &async_nats::Message) -> Option<Recorded> {
    let place = message.headers.as_ref()?.get("Nats-Sequence")?;
    let envelope = Envelope::from_msgpack(&message.payload).ok()?;
    let mut source = envelope.source.split('/').skip(2);
    Some(Recorded {
        sequence: Sequence(place.as_str().parse().ok()?),
        stored_at: envelope.time,
        writer: source.next()?.parse().ok()?,
        envelope,
    })
}
