//! A client connection that detects unread output.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Start of a stall in writing.
#[derive(Clone)]
pub struct Stalls {
    began: Instant,
    /// Milliseconds since `began` plus one; 0 while writable.
    since: Arc<AtomicU64>,
}

impl Default for Stalls {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            since: Arc::default(),
        }
    }
}

impl Stalls {
    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX - 1) + 1
    }

    pub async fn longer_than(&self, limit: Duration) {
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        loop {
            tokio::time::sleep(limit / 4).await;
            let since = self.since.load(Ordering::Relaxed);
            if since > 0 && self.now().saturating_sub(since) >= limit_ms {
                return;
            }
        }
    }

    fn note<T>(&self, written: &Poll<T>) {
        let since = self.since.load(Ordering::Relaxed);
        match written {
            Poll::Ready(_) if since > 0 => self.since.store(0, Ordering::Relaxed),
            Poll::Pending if since == 0 => self.since.store(self.now(), Ordering::Relaxed),
            _ => {}
        }
    }
}

/// A connection that records stalls.
pub struct Watched {
    stream: TcpStream,
    stalls: Stalls,
}

impl Watched {
    #[must_use]
    pub const fn new(stream: TcpStream, stalls: Stalls) -> Self {
        Self { stream, stalls }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.stalls.note(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.stalls.note(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
