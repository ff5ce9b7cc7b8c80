//! Reads single messages from the log's leader.

use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::{LastRawMessageError, LastRawMessageErrorKind};
use dormouse_messages::{Event, Sequence, Writer};

use crate::answer::within;
use crate::decode::{LogItem, RawMessage, decode};
use crate::error::LogError;
use crate::log::Log;

impl Log {
    /// Returns the sequence of the operators' last message; 0 if none.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn last_of_operators(&self) -> Result<Sequence, LogError> {
        let filter = self.prefix().writer(Writer::Operator, None);
        let last = self.last_message(&filter).await;
        let last = last.map_err(|why| LogError::request("read the last event of", &filter, why))?;
        Ok(Sequence(last.map_or(0, |message| message.sequence)))
    }

    /// Returns the writer's last readable event named `name`, such as `cluster.configured`.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn last_event_of(
        &self,
        writer: Writer,
        name: &str,
    ) -> Result<Option<Event>, LogError> {
        let filter = format!("{}.log.{writer}.*.{name}", self.prefix().as_str());
        let failed = |why: String| LogError::request("read the last event of", &filter, why);
        match self.last_message(&filter).await.map_err(failed)? {
            None => return Ok(None),
            Some(message) => {
                if let LogItem::Event(recorded) = self.decoded(message) {
                    return Ok(recorded.event().cloned());
                }
            }
        }
        // The last message is flagged, so the last unflagged one counts.
        let (mut found, mut from) = (None, 1);
        while let Some(message) = self.first_message(&filter, from).await.map_err(failed)? {
            from = message.sequence + 1;
            if let LogItem::Event(recorded) = self.decoded(message) {
                found = recorded.event().cloned();
            }
        }
        Ok(found)
    }

    pub(crate) fn decoded(&self, message: StreamMessage) -> LogItem {
        let message = RawMessage {
            sequence: message.sequence,
            stored_nanos: message.time.unix_timestamp_nanos(),
            subject: message.subject,
            headers: Some(message.headers),
            payload: message.payload,
            pending: 0,
        };
        decode(self.prefix(), 0, &message)
    }

    pub(crate) async fn last_message(&self, filter: &str) -> Result<Option<StreamMessage>, String> {
        let stream = self.stream().await?;
        within(async { found(stream.get_last_raw_message_by_subject(filter).await) }).await
    }

    pub(crate) async fn first_message(
        &self,
        filter: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, String> {
        let stream = self.stream().await?;
        within(async { found(stream.get_first_raw_message_by_subject(filter, from).await) }).await
    }
}

fn found(
    read: Result<StreamMessage, LastRawMessageError>,
) -> Result<Option<StreamMessage>, LastRawMessageError> {
    match read {
        Ok(message) => Ok(Some(message)),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
        Err(error) => Err(error),
    }
}
