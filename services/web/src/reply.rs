//! Forms of replies.

use std::convert::Infallible;

use bytes::Bytes;
use futures::stream::unfold;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use serde::Serialize;
use serde_json::json;
use tokio::sync::mpsc;

use crate::error::AnswerError;

/// A whole body, or a stream.
pub type Body = UnsyncBoxBody<Bytes, Infallible>;
/// A reply of the server.
pub type Reply = Response<Body>;

/// Creates a whole body.
pub fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).boxed_unsync()
}

/// Creates a reply of a content type.
pub fn of_kind(status: StatusCode, kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(whole(bytes));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// Creates a line of text.
pub fn text(status: StatusCode, text: &str) -> Reply {
    of_kind(status, "text/plain; charset=utf-8", format!("{text}\n"))
}

/// Creates an empty reply.
pub fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// Creates a JSON reply.
pub fn json(status: StatusCode, answer: &impl Serialize) -> Reply {
    match serde_json::to_vec(answer) {
        Ok(bytes) => of_kind(status, "application/json", bytes),
        Err(error) => AnswerError::internal(error).into_reply(),
    }
}

/// Creates a stream of JSON lines.
pub fn lines(first: Bytes, rest: mpsc::Receiver<Result<Bytes, AnswerError>>) -> Reply {
    let told = unfold((Some(first), rest), |(first, mut rest)| async move {
        let line = match first {
            Some(line) => line,
            None => rest.recv().await?.ok()?,
        };
        Some((Ok(Frame::data(line)), (None, rest)))
    });
    let mut reply = of_kind(StatusCode::OK, "application/x-ndjson", Bytes::new());
    *reply.body_mut() = StreamBody::new(told).boxed_unsync();
    reply
}

impl AnswerError {
    /// Converts to a reply.
    #[must_use]
    pub fn into_reply(self) -> Reply {
        let body = json!({"error": {"code": self.code, "message": self.message}});
        of_kind(self.status, "application/json", body.to_string())
    }
}
