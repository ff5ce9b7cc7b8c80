//! Importing an exported log into an empty one.
//!
//! Sequences stay, since events refer to them; gaps get fillers that readers flag. A header carries the
//! original time, valid up to the last imported sequence in the stream's metadata: otherwise any writer could
//! antedate events.

use std::collections::HashMap;

use async_nats::jetstream::stream::Config;
use bytes::Bytes;
use dormouse_messages::{Body, Event, Recorded, Sequence, Writer};

use crate::answer::within;
use crate::decode::{IMPORTED_TO, ORIGIN};
use crate::error::LogError;
use crate::log::Log;
use crate::publish::{Fence, MAX_BATCH, Outgoing, PublishError, batch_len};
use crate::streams;

impl Log {
    /// Imports `events`, in order of sequence, and returns their number. Nothing else may write meanwhile. With
    /// `origin`, this log goes on under the identity of the log that the events are from.
    ///
    /// # Errors
    /// When the log is not empty, the events are out of order or cannot be read, or the broker does not store
    /// them.
    pub async fn import<E: std::fmt::Display>(
        &self,
        events: impl Iterator<Item = Result<Recorded, E>>,
        origin: Option<&str>,
    ) -> Result<u64, LogError> {
        let name = self.prefix().log_stream();
        let failed = |why: String| LogError::request("import into", &name, why);
        if self.head().await? != Sequence(0) {
            return Err(failed(
                "it is not empty; use another --prefix or an empty broker".to_owned(),
            ));
        }
        let mut events = events.peekable();
        let first = match events.peek() {
            Some(Ok(first)) => first.sequence.0,
            Some(Err(error)) => return Err(failed(error.to_string())),
            None => return Ok(0),
        };
        let ingress = self.prefix().ingress_stream();
        if self.last_of(&ingress).await? > 0 {
            let why = "it has taken submissions already; use another --prefix or an empty broker";
            return Err(LogError::request("import beside", &ingress, why));
        }
        if first > 1 {
            self.begin(streams::log(self.prefix(), self.inner.replicas), first)
                .await?;
        }
        let mut import = Import {
            log: self,
            waiting: Vec::with_capacity(MAX_BATCH),
            stored: 0,
            next: first,
        };
        let (mut count, mut submissions) = (0, 0);
        for event in events {
            let recorded = event.map_err(|error| failed(error.to_string()))?;
            if recorded.sequence.0 < import.next {
                let why = format!("{} comes after {}", recorded.sequence, import.next - 1);
                return Err(failed(why));
            }
            while import.next < recorded.sequence.0 {
                import.add(self.filler()).await?;
            }
            import.add(self.imported(&recorded)?).await?;
            let taken = match recorded.event() {
                Some(Event::SubmissionReceived(event)) => Some(event.ingress_sequence),
                Some(Event::ServiceMeasured(event)) => event.ingress_sequence,
                Some(Event::SubmissionsRateLimited(event)) => Some(event.last),
                _ => None,
            };
            submissions = submissions.max(taken.unwrap_or_default());
            count += 1;
        }
        import.store().await?;
        self.note_imported(import.next - 1, origin).await?;
        // Admission has recorded the submissions up to here: the ingress continues after them.
        let ingress = streams::ingress(self.prefix(), self.inner.replicas);
        self.begin(ingress, submissions + 1).await?;
        Ok(count)
    }

    async fn last_of(&self, name: &str) -> Result<u64, LogError> {
        let found = within(self.inner.jetstream.get_stream(name)).await;
        let stream = found.map_err(|why| LogError::request("read the state of", name, why))?;
        Ok(stream.cached_info().state.last_sequence)
    }

    async fn begin(&self, mut config: Config, first: u64) -> Result<(), LogError> {
        within(self.inner.jetstream.delete_stream(&config.name))
            .await
            .map_err(|why| LogError::request("begin the stream", &config.name, why))?;
        config.first_sequence = Some(first);
        self.create(&config).await
    }

    async fn note_imported(&self, last: u64, origin: Option<&str>) -> Result<(), LogError> {
        let name = self.prefix().log_stream();
        let failed = |why: String| LogError::request("update the stream", &name, why);
        let jetstream = &self.inner.jetstream;
        let stream = within(jetstream.get_stream(&name)).await.map_err(failed)?;
        let mut config = stream.cached_info().config.clone();
        config.metadata = HashMap::from([(IMPORTED_TO.to_owned(), last.to_string())]);
        if let Some(origin) = origin {
            let key = ORIGIN.to_owned();
            config.metadata.insert(key, origin.to_owned());
        }
        within(jetstream.update_stream(config))
            .await
            .map_err(failed)?;
        self.head().await.map(|_| ())
    }

    fn filler(&self) -> Outgoing {
        Outgoing {
            subject: format!("{}.log.import.0.gap", self.prefix().as_str()),
            id: String::new(),
            type_name: "gap",
            stored_at: None,
            payload: Bytes::new(),
        }
    }

    fn imported(&self, recorded: &Recorded) -> Result<Outgoing, LogError> {
        let prefix = self.prefix();
        let (subject, type_name) = match &recorded.envelope.body {
            Body::Event(event) => {
                let by = recorded
                    .by()
                    .filter(|_| recorded.writer == Writer::Operator);
                let subject = match by {
                    Some(by) => prefix.operator_event(&by.user, event),
                    None => prefix.event(recorded.writer, event),
                };
                (subject, event.type_name())
            }
            Body::Unknown { .. } => (
                format!("{}.log.{}.0.unknown", prefix.as_str(), recorded.writer),
                "unknown",
            ),
        };
        let payload = recorded
            .envelope
            .to_msgpack()
            .map_err(|error| LogError::request("encode", recorded.sequence.to_string(), error))?;
        Ok(Outgoing {
            subject,
            id: recorded.envelope.id.to_string(),
            type_name,
            stored_at: Some(recorded.stored_at),
            payload: payload.into(),
        })
    }
}

struct Import<'a> {
    log: &'a Log,
    waiting: Vec<Outgoing>,
    stored: u64,
    next: u64,
}

impl Import<'_> {
    async fn add(&mut self, message: Outgoing) -> Result<(), LogError> {
        self.waiting.push(message);
        self.next += 1;
        if batch_len(&self.waiting) < self.waiting.len() || self.waiting.len() == MAX_BATCH {
            self.store().await?;
        }
        Ok(())
    }

    async fn store(&mut self) -> Result<(), LogError> {
        let name = self.log.prefix().log_stream();
        let failed = |why: String| LogError::request("import into", &name, why);
        let mut begin = self.next - self.waiting.len() as u64;
        let mut rest = self.waiting.as_slice();
        while !rest.is_empty() {
            let (now, later) = rest.split_at(batch_len(rest).min(rest.len()));
            let fence = Fence {
                filter: self.log.prefix().log(),
                last: self.stored,
                head: None,
            };
            let end = begin + now.len() as u64;
            match self.log.publish_batch(now, &fence).await {
                Ok(last) if last + 1 == end => self.stored = last,
                Ok(last) => {
                    return Err(failed(format!("{} was stored at {last}", end - 1)));
                }
                Err(PublishError::Conflict) => {
                    return Err(failed("someone else writes".to_owned()));
                }
                Err(PublishError::Refused(error)) => return Err(failed(error.to_string())),
                Err(PublishError::Doubt(why)) => return Err(failed(why)),
            }
            begin = end;
            rest = later;
        }
        self.waiting.clear();
        Ok(())
    }
}
