//! Messages of a stream with one message a subject, read by direct requests, since agents may create no
//! consumer. `code` and `states` store larger values in pieces.

use std::collections::BTreeMap;

use async_nats::jetstream::ErrorCode;
use async_nats::{Request, StatusCode};
use bytes::Bytes;
use dormouse_messages::Timestamp;
use serde_json::json;

use crate::answer::{Reply, ReplyError};
use crate::connection::NoAnswer;
use crate::log::Log;

/// Half of the default message limit of a broker.
pub(crate) const PIECE_BYTES: usize = 512 << 10;

/// Number of pieces in flight.
pub(crate) const IN_FLIGHT: usize = 8;

/// The broker's limit of subjects per answer.
const PART: usize = 100_000;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PieceError {
    #[error(
        "the broker has no stream for them; `dormouse policy set FILE --ensure-streams` makes one"
    )]
    NoStream,
    #[error("a piece is missing")]
    Absent,
    #[error("the broker denies them to this key")]
    Denied,
    #[error("the broker has no room for them")]
    Full,
    #[error("{0}")]
    Unanswered(String),
}

#[derive(Debug, Clone)]
pub(crate) struct Pieces {
    log: Log,
    stream: String,
}

impl From<NoAnswer> for PieceError {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::Denied => Self::Denied,
            NoAnswer::Nobody => Self::NoStream,
            why => Self::Unanswered(why.into_words()),
        }
    }
}

impl From<ReplyError> for PieceError {
    fn from(error: ReplyError) -> Self {
        let is = |code: ErrorCode| error.err_code == code.0;
        if is(ErrorCode::STREAM_NOT_FOUND) {
            return Self::NoStream;
        }
        if is(ErrorCode::STREAM_STORE_FAILED) || is(ErrorCode::INSUFFICIENT_RESOURCES) {
            return Self::Full;
        }
        Self::Unanswered(error.description)
    }
}

impl Pieces {
    pub fn new(log: Log, stream: String) -> Self {
        Self { log, stream }
    }

    fn api(&self, call: &str) -> String {
        let own = self.log.inner.own.as_ref();
        let api = own.map_or("$JS.API", |own| own.api.as_str());
        format!("{api}.{call}.{}", self.stream)
    }

    async fn ask(&self, subject: &str, payload: Bytes) -> Result<async_nats::Message, PieceError> {
        let request = Request::new().payload(payload);
        let asked = self.log.inner.connection.ask(subject, request).await;
        Ok(asked?)
    }

    async fn ask_api(&self, subject: &str, payload: Bytes) -> Result<Reply, PieceError> {
        let answer = self.ask(subject, payload).await?;
        Ok(Reply::read(&answer).map_err(PieceError::Unanswered)??)
    }

    /// Returns the message of a subject, and its time.
    pub async fn get(&self, subject: &str) -> Result<(Bytes, Option<Timestamp>), PieceError> {
        let asked = format!("{}.{subject}", self.api("DIRECT.GET"));
        let answer = self.ask(&asked, Bytes::new()).await?;
        match answer.status {
            None => {}
            Some(StatusCode::NOT_FOUND) => return Err(PieceError::Absent),
            Some(status) => {
                let why = answer.description.unwrap_or_default();
                return Err(PieceError::Unanswered(format!("{status} {why}")));
            }
        }
        let headers = answer.headers.as_ref();
        let stored = headers.and_then(|headers| headers.get_last("Nats-Time-Stamp"));
        let stored = stored.and_then(|stored| stored.as_str().parse().ok());
        Ok((answer.payload, stored))
    }

    /// Replaces the message of a subject.
    pub async fn put(&self, subject: &str, bytes: Bytes) -> Result<(), PieceError> {
        self.ask_api(subject, bytes).await.map(|_| ())
    }

    /// Returns the subjects that match `filter`, with their numbers of messages.
    pub async fn list(&self, filter: &str) -> Result<BTreeMap<String, u64>, PieceError> {
        let mut all = BTreeMap::new();
        loop {
            let asked = json!({"subjects_filter": filter, "offset": all.len()}).to_string();
            let answer = self.ask_api(&self.api("STREAM.INFO"), asked.into()).await?;
            let part = answer.state.and_then(|state| state.subjects);
            let part = part.unwrap_or_default();
            let is_last = part.len() < PART;
            all.extend(part);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Removes the messages of subjects that match `filter`.
    pub async fn purge(&self, filter: &str) -> Result<(), PieceError> {
        let asked = json!({ "filter": filter }).to_string();
        let purge = self.api("STREAM.PURGE");
        self.ask_api(&purge, asked.into()).await.map(|_| ())
    }
}

/// Returns the pieces of `bytes`, in order.
pub(crate) fn pieces(bytes: &Bytes) -> impl ExactSizeIterator<Item = Bytes> + '_ {
    let count = bytes.len().div_ceil(PIECE_BYTES);
    (0..count).map(move |index| {
        let end = bytes.len().min((index + 1) * PIECE_BYTES);
        bytes.slice(index * PIECE_BYTES..end)
    })
}
