//! Connections to one replica, kept per container, since another may reuse the port, and per thread, so that
//! one thread drives a request and its connection.

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

/// Shorter than servers' idle timeouts (gunicorn: 2 s, uvicorn: 5 s), since a close could lose a request.
const IDLE: Duration = Duration::from_millis(1_500);

/// A connection to a lost node would take minutes to fail.
const CONNECT: Duration = Duration::from_secs(2);

/// A connection for requests.
pub type Sender = SendRequest<Outbound>;

/// A replica's connections.
pub struct Upstream {
    pub container: ContainerId,
    pub replica: Replica,
    address: SocketAddr,
    ended: CancellationToken,
    idle: Vec<Mutex<Vec<(Sender, Instant)>>>,
}

/// A refused or timed-out connection.
#[derive(Debug, thiserror::Error)]
#[error("{container} at {address} takes no connection: {why}")]
pub struct ConnectError {
    container: ContainerId,
    address: SocketAddr,
    why: String,
}

impl Upstream {
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

    pub async fn kept(&self, thread: usize) -> Option<Sender> {
        loop {
            let (mut sender, since) = self.pop(thread)?;
            // The connection's task may still be finishing the last answer.
            if since.elapsed() < IDLE && sender.ready().await.is_ok() {
                return Some(sender);
            }
        }
    }

    fn pop(&self, thread: usize) -> Option<(Sender, Instant)> {
        let idle = self.idle.get(thread)?;
        idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// When no connection opens within two seconds.
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

    pub fn keep(&self, thread: usize, sender: Sender) {
        if sender.is_closed() || self.ended.is_cancelled() {
            return;
        }
        if let Some(idle) = self.idle.get(thread) {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.push((sender, Instant::now()));
        }
    }

    pub fn close_idle(&self, all: bool) {
        for idle in &self.idle {
            let mut idle = idle.lock().unwrap_or_else(PoisonError::into_inner);
            idle.retain(|(sender, since)| !all && since.elapsed() < IDLE && !sender.is_closed());
        }
    }

    pub fn end(&self) {
        self.ended.cancel();
        self.close_idle(true);
    }

    pub async fn ended(&self) {
        self.ended.cancelled().await;
    }
}
