//! Bodies of answers. A replica's body is tied to its visit.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;
use hyper::body::Incoming;

use crate::body::{BodyError, Watched};
use crate::in_flight::InFlight;
use crate::upstream::{Sender, Upstream};

/// A silent replica is given up after this; event streams may pause for long.
pub const ANSWER_IDLE: Duration = Duration::from_secs(600);

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
