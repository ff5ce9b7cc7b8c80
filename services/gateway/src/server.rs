//! The listener and the serving threads. Each has its own runtime and drives a request and its replica's
//! connection, without wake-ups of others.

use std::convert::Infallible;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::proxy::{self, Client};
use crate::shared_state::SharedState;
use crate::watched::{Stalls, Watched};

/// Each connection may use two files.
const CONNECTIONS: u64 = 10_000;
const OTHER_FILES: u64 = 100;
/// Longer headers get 431 or 414.
const HEADERS_BYTES: usize = 64 * 1024;
/// Lower, since an HTTP/2 frame may decompress to much more.
const HEADERS_BYTES_H2: u32 = 32 * 1024;
/// Concurrent requests per HTTP/2 connection.
const STREAMS: u32 = 256;
const HEAD: Duration = Duration::from_secs(75);
const UNREAD: Duration = Duration::from_secs(60);
const KEEPALIVE: Duration = Duration::from_secs(60);
const HANDED: usize = 1_024;

/// The threads of a gateway.
pub struct Server {
    threads: Vec<JoinHandle<()>>,
    handed: Vec<mpsc::Sender<std::net::TcpStream>>,
    open: Arc<AtomicUsize>,
    most: usize,
    stop: CancellationToken,
}

impl Server {
    /// Starts the threads, without accepting. After a stop, running requests have `grace`.
    ///
    /// # Errors
    /// When no thread can start.
    pub fn start(hub: &Arc<SharedState>, threads: usize, grace: Duration) -> std::io::Result<Self> {
        let stop = CancellationToken::new();
        let open = Arc::new(AtomicUsize::new(0));
        let mut server = Self {
            threads: Vec::new(),
            handed: Vec::new(),
            open,
            most: most_connections(),
            stop,
        };
        for thread in 0..threads.max(1) {
            let (handed, connections) = mpsc::channel(HANDED);
            let worker = Worker {
                hub: Arc::clone(hub),
                thread,
                grace,
                stop: server.stop.clone(),
                open: Arc::clone(&server.open),
            };
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            let builder = std::thread::Builder::new().name(format!("gateway-{thread}"));
            let spawned = builder.spawn(move || runtime.block_on(worker.serve(connections)))?;
            server.threads.push(spawned);
            server.handed.push(handed);
        }
        Ok(server)
    }

    pub async fn accept(&self, listener: &TcpListener) -> Infallible {
        let mut next = 0;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    self.hand(stream, next);
                    next = (next + 1) % self.handed.len().max(1);
                }
                Err(error) => {
                    // Without free files other connections must end first.
                    if error.kind() != ErrorKind::ConnectionAborted {
                        tracing::warn!(%error, "cannot accept connections");
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                }
            }
        }
    }

    fn hand(&self, stream: TcpStream, thread: usize) {
        if self.open.load(Ordering::Relaxed) >= self.most {
            return turn_away(&stream);
        }
        let Ok(stream) = stream.into_std() else {
            return;
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        if let Some(handed) = self.handed.get(thread)
            && let Err(refused) = handed.try_send(stream)
        {
            self.open.fetch_sub(1, Ordering::Relaxed);
            drop(refused);
        }
    }

    /// Returns when all connections have ended, or after the grace.
    pub async fn stop(self) {
        self.stop.cancel();
        drop(self.handed);
        let join = move || {
            for thread in self.threads {
                let _ = thread.join();
            }
        };
        let _ = tokio::task::spawn_blocking(join).await;
    }
}

/// Returns what the file limit allows, after raising the soft limit.
fn most_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let files = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    let connections = files.map_or(CONNECTIONS, |files| {
        (files.saturating_sub(OTHER_FILES) / 2).min(CONNECTIONS)
    });
    usize::try_from(connections).unwrap_or(usize::MAX)
}

fn turn_away(stream: &TcpStream) {
    let said = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let _ = stream.try_write(said);
}

struct Worker {
    hub: Arc<SharedState>,
    thread: usize,
    grace: Duration,
    stop: CancellationToken,
    open: Arc<AtomicUsize>,
}

impl Worker {
    async fn serve(self, mut connections: mpsc::Receiver<std::net::TcpStream>) {
        // The channel closes with the last connection.
        let (held, mut all_ended) = mpsc::channel::<Infallible>(1);
        loop {
            let stream = tokio::select! {
                stream = connections.recv() => stream,
                () = self.stop.cancelled() => break,
            };
            let Some(Ok(stream)) = stream.map(TcpStream::from_std) else {
                break;
            };
            let (hub, stop) = (Arc::clone(&self.hub), self.stop.clone());
            let (thread, open) = (self.thread, Arc::clone(&self.open));
            let held = held.clone();
            tokio::spawn(async move {
                connection(hub, thread, stream, stop).await;
                open.fetch_sub(1, Ordering::Relaxed);
                drop(held);
            });
        }
        drop(held);
        let _ = tokio::time::timeout(self.grace, all_ended.recv()).await;
    }
}

async fn connection(
    hub: Arc<SharedState>,
    thread: usize,
    stream: TcpStream,
    stop: CancellationToken,
) {
    let unknown = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
    let address = stream.peer_addr().unwrap_or(unknown).ip();
    let _ = stream.set_nodelay(true);
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE);
    let _ = SockRef::from(&stream).set_tcp_keepalive(&keepalive);
    let client = Arc::new(Client {
        hub,
        thread,
        address,
    });
    let service = service_fn(move |request: Request<Incoming>| {
        let client = Arc::clone(&client);
        async move { Ok::<_, Infallible>(proxy::serve(client, request).await) }
    });
    let stalls = Stalls::default();
    let io = TokioIo::new(Watched::new(stream, stalls.clone()));
    let builder = builder();
    let served = builder.serve_connection_with_upgrades(io, service);
    let mut served = pin!(served);
    let mut unread = pin!(stalls.longer_than(UNREAD));
    let mut stopping = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended");
                }
                return;
            }
            () = unread.as_mut() => {
                tracing::debug!(%address, "closed: the client does not read its answer");
                return;
            }
            () = stop.cancelled(), if !stopping => {
                stopping = true;
                served.as_mut().graceful_shutdown();
            }
        }
    }
}

fn builder() -> Builder<TokioExecutor> {
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEADERS_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_header_list_size(HEADERS_BYTES_H2)
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE);
    builder
}
