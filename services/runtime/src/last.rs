//! The last event of a type, read from the log's leader without following the log.

use async_nats::jetstream::stream::LastRawMessageErrorKind;
use dormouse_messages::{Envelope, Event, Writer};

use crate::error::LogError;
use crate::log::{Log, within};

impl Log {
    /// The last event that `writer` wrote under its only shard and the subject name `name`, such
    /// as `cluster.configured`; `None` where there is none that this build reads.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn last_event(&self, writer: Writer, name: &str) -> Result<Option<Event>, LogError> {
        let subject = format!("{}.log.{writer}.0.{name}", self.prefix().as_str());
        let failed = |why: String| LogError::request("read the last event of", &subject, why);
        let stream = self.stream().await.map_err(failed)?;
        let read = async {
            match stream.get_last_raw_message_by_subject(&subject).await {
                Ok(message) => Ok(Some(message.payload)),
                Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => Ok(None),
                Err(error) => Err(error),
            }
        };
        let payload = within(read).await.map_err(failed)?;
        let recorded = payload.and_then(|payload| Envelope::from_msgpack(&payload).ok());
        Ok(recorded.and_then(|envelope| match envelope.body {
            dormouse_messages::Body::Event(event) => Some(event),
            dormouse_messages::Body::Unknown { .. } => None,
        }))
    }
}
