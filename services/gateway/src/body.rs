//! Streamed bodies with a limit on silence, and the bodies of requests.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

/// An upload stalled for longer is given up, since it occupies a replica.
const UPLOAD_IDLE: Duration = Duration::from_secs(60);

/// Reason for an aborted body.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    #[error("nothing came for {} s", .0.as_secs())]
    Idle(Duration),
}

/// A body with an idle timeout.
pub struct Watched {
    pub body: Incoming,
    limit: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Watched {
    pub const fn new(body: Incoming, limit: Duration) -> Self {
        Self {
            body,
            limit,
            timer: None,
        }
    }

    pub fn poll(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
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
