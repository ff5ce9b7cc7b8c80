//! Streamed bodies, each tied to its visit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use crate::in_flight::InFlight;
use crate::upstream::{Sender, Upstream};

/// An upload stalled for longer is given up, since it occupies a replica.
const UPLOAD_IDLE: Duration = Duration::from_secs(60);

/// A silent replica is given up after this; event streams may pause for long.
pub const ANSWER_IDLE: Duration = Duration::from_secs(600);

/// Reason for an aborted body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
}

/// A body with an idle timeout.
struct Watched {
    body: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    const fn new(body: Incoming, limit: Duration) -> Self {
        Self {
            body,
            limit,
            timer: None,
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Ready(frame) => {
                self.timer = None;
                Poll::Ready(frame.map(|frame| frame.map_err(BodyError::from)))
            }
            Poll::Pending => {
                let limit = self.limit;
                let timer = self.timer.get_or_insert_with(|| {
                    Box::pin(tokio::time::sleep_until(Instant::now() + limit))
                });
                ready!(timer.as_mut().poll(context));
                Poll::Ready(Some(Err(BodyError::Idle(limit))))
            }
        }
    }
}

/// A request's body.
pub struct Outbound(Option<Watched>);

impl Outbound {
    #[must_use]
    pub const fn empty() -> Self {
        Self(None)
    }

    #[must_use]
    pub fn new(body: Incoming) -> Self {
        if body.is_end_stream() {
            Self(None)
        } else {
            Self(Some(Watched::new(body, UPLOAD_IDLE)))
        }
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.0 {
            Some(watched) => watched.poll(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|it| it.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let hint = self.0.as_ref().map(|it| it.body.size_hint());
        hint.unwrap_or_else(|| SizeHint::with_exact(0))
    }
}

/// A replica's answer, which ends the visit.
pub struct Inbound {
    body: Watched,
    rest: Option<Rest>,
}

struct Rest {
    visit: InFlight,
    upstream: Arc<Upstream>,
    sender: Sender,
    thread: usize,
}

impl Inbound {
    #[must_use]
    pub const fn new(
        body: Incoming,
        visit: InFlight,
        upstream: Arc<Upstream>,
        sender: Sender,
        thread: usize,
    ) -> Self {
        Self {
            body: Watched::new(body, ANSWER_IDLE),
            rest: Some(Rest {
                visit,
                upstream,
                sender,
                thread,
            }),
        }
    }

    fn whole(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest.upstream.keep(rest.thread, rest.sender);
            rest.visit.answered();
        }
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(self.body.poll(context));
        match &frame {
            None => self.whole(),
            Some(Err(_)) => {
                if let Some(rest) = self.rest.take() {
                    rest.visit.broken_off();
                }
            }
            Some(Ok(_)) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.body.size_hint()
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        // An answer of known length is not polled for its end.
        if self.body.body.is_end_stream() {
            self.whole();
        }
    }
}

/// Body of an answer.
pub enum Answer {
    Own(Full<Bytes>),
    Passed(Inbound),
}

impl Answer {
    #[must_use]
    pub fn empty() -> Self {
        Self::Own(Full::default())
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Own(body) => {
                let frame = ready!(Pin::new(body).poll_frame(context));
                Poll::Ready(frame.map(|frame| frame.map_err(|never| match never {})))
            }
            Self::Passed(body) => Pin::new(body).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(body) => body.is_end_stream(),
            Self::Passed(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(body) => body.size_hint(),
            Self::Passed(body) => body.size_hint(),
        }
    }
}
