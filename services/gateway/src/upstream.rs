//! Connections to one replica, kept for the next request.
//!
//! They belong to the container, not to its address: another one may serve at the same port later.
//! Each thread keeps its own, so that a request and its connection are driven by one thread.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_messages::ContainerId;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::balance::Replica;
use crate::body::Outbound;

/// Shorter than any server keeps an idle connection (gunicorn: 2 s, uvicorn: 5 s): a request sent
/// while the other side closes would be lost.
const IDLE: Duration = Duration::from_millis(1_500);

/// A replica that runs accepts within a round trip; a node that is gone would take minutes.
const CONNECT: Duration = Duration::from_secs(2);

/// A connection that requests are sent on.
pub type Sender = SendRequest<Outbound>;

/// One replica, as requests reach it.
pub struct Upstream {
    /// The container.
    pub container: ContainerId,
    /// The replica within its service.
    pub replica: Replica,
    address: SocketAddr,
    ended: CancellationToken,
    idle: Vec<Mutex<Vec<(Sender, Instant)>>>,
}

/// A replica that cannot be connected to.
#[derive(Debug, thiserror::Error)]
#[error("{container} at {address} takes no connection: {why}")]
pub struct ConnectError {
    container: ContainerId,
    address: SocketAddr,
    why: String,
}

impl Upstream {
    /// The replica `container` at `address`, used by so many threads.
    #[must_use]
    pub fn new(container: ContainerId, address: SocketAddr, threads: usize) -> Self {
        Self {
            replica: (container.incarnation, container.rank),
            container,
            address,
            ended: CancellationToken::new(),
            idle: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// A connection that was kept by this thread, if there is one.
    pub async fn kept(&self, thread: usize) -> Option<Sender> {
        loop {
            let (mut sender, since) = self.pop(thread)?;
            // The end of its last answer may still be on its way to the connection's own task.
            if since.elapsed() < IDLE && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn pop(&self, thread: usize) -> Option<(Sender, Instant)> {
        let idle = self.idle.get(thread)?;
        idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// A new connection.
    ///
    /// # Errors
    /// When there is none within two seconds.
    pub async fn connect(&self) -> Result<Sender, ConnectError> {
        let failed = |why: String| ConnectError {
            container: self.container.clone(),
            address: self.address,
            why,
        };
        let connected = tokio::time::timeout(CONNECT, TcpStream::connect(self.address)).await;
        let stream = connected
            .map_err(|_| failed("no answer within 2 s".to_owned()))?
            .map_err(|error| failed(error.to_string()))?;
        // A small request is not to wait for an acknowledgement of the one before.
        let _ = stream.set_nodelay(true);
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let ended = self.ended.clone();
        tokio::spawn(async move {
            tokio::select! {
                _ = connection.with_upgrades() => {}
                () = ended.cancelled() => {}
            }
        });
        Ok(sender)
    }

    /// Keeps a connection whose answer has ended.
    pub fn keep(&self, thread: usize, sender: Sender) {
        if sender.is_closed() || self.ended.is_cancelled() {
            return;
        }
        if let Some(idle) = self.idle.get(thread) {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((sender, Instant::now()));
        }
    }

    /// Closes kept connections: those that are too old, or all.
    pub fn close_idle(&self, all: bool) {
        for idle in &self.idle {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(sender, since)| !all && since.elapsed() < IDLE && !sender.is_closed());
        }
    }

    /// Ends every connection, whatever is under way on it.
    pub fn end(&self) {
        self.ended.cancel();
        self.close_idle(true);
    }

    /// Resolves when every connection is to end.
    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}
