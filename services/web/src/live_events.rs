//! Updates of the head, at most four times a second.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::unfold;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::past::Head;
use crate::reply::{self, Reply};

const APART: Duration = Duration::from_millis(250);
/// Keeps idle connections open through proxies.
const ALIVE: Duration = Duration::from_secs(20);

/// Streams the head as server-sent events, with sequences as ids.
pub fn stream(heads: watch::Receiver<Head>) -> Reply {
    let told = unfold((heads, true), |(mut heads, first)| async move {
        if !first {
            match timeout(ALIVE, heads.changed()).await {
                Err(_) => return Some((frame(":\n\n".to_owned()), (heads, false))),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => sleep(APART).await,
            }
        }
        let head = heads.borrow_and_update().clone();
        let data = serde_json::to_string(&head).unwrap_or_default();
        let text = format!("id: {}\ndata: {data}\n\n", head.head);
        Some((frame(text), (heads, false)))
    });
    let mut reply = reply::of_kind(StatusCode::OK, "text/event-stream", Bytes::new());
    *reply.body_mut() = StreamBody::new(told).boxed_unsync();
    reply
}

fn frame(text: String) -> Result<Frame<Bytes>, Infallible> {
    Ok(Frame::data(Bytes::from(text)))
}
