//! The server: a thread of its own, so that no question of a browser holds up a service.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::config::{Access, Config, ConfigError};
use crate::guard::Guard;
use crate::past::Past;
use crate::routes::{self, Site};
use crate::tls;

/// Connections at once: some people with some tabs each.
const CONNECTIONS: usize = 256;
/// A client that has not shaken hands, or sent the head of a request, by then is let go.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the page shows, and whether somebody looks.
#[derive(Clone)]
pub struct Page {
    /// The log.
    pub past: Arc<Past>,
    wanted: watch::Sender<bool>,
}

impl Page {
    /// Of a log that is still to be read.
    #[must_use]
    pub fn new(past: Past) -> Self {
        Self {
            past: Arc::new(past),
            wanted: watch::Sender::new(false),
        }
    }

    /// Resolves when somebody has asked for something: until then the log need not be read.
    pub async fn wanted(&self) {
        let _ = self.wanted.subscribe().wait_for(|wanted| *wanted).await;
    }

    /// Somebody has asked for something.
    pub fn want(&self) {
        self.wanted
            .send_if_modified(|wanted| !std::mem::replace(wanted, true));
    }
}

/// A server that has its address.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    guard: Arc<Guard>,
    site: Site,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// When it is taken, or open to a network without token and TLS.
    pub fn bind(config: Config, page: Page) -> Result<Self, ConfigError> {
        let tls = match &config.access {
            Access::Loopback if !config.listen.ip().is_loopback() => {
                return Err(ConfigError::Open(config.listen));
            }
            Access::Loopback => None,
            Access::Token {
                certificate, key, ..
            } => Some(tls::acceptor(certificate, key)?),
        };
        let failed = |source| ConfigError::Listen {
            listen: config.listen,
            source,
        };
        let listener = std::net::TcpListener::bind(config.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self {
            guard: Guard::new(address, &config.hosts, &config.access),
            site: Site {
                page,
                describe: config.describe,
                build: config.build.into(),
            },
            listener,
            address,
            tls,
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a browser is given to open.
    #[must_use]
    pub fn url(&self) -> String {
        match self.tls {
            Some(_) => format!("https://{}/", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    /// Serves until `shutdown`, on a thread of its own.
    ///
    /// # Errors
    /// When there is no thread to be had, or the listener breaks.
    pub async fn run(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (done, ended) = tokio::sync::oneshot::channel();
        let serve = move || {
            let _ = done.send(runtime.block_on(self.serve(shutdown)));
            // An answer that is being worked out is nobody's any more.
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("page".to_owned())
            .spawn(serve)?;
        ended.await.unwrap_or(Ok(()))
    }

    /// Streams of events have no end: connections end with the runtime.
    async fn serve(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let free = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => return Ok(()),
            };
            let Ok((stream, _)) = accepted else {
                // Without files left to open, others must end first.
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            let Ok(place) = Arc::clone(&free).try_acquire_owned() else {
                continue;
            };
            let (site, guard) = (self.site.clone(), Arc::clone(&self.guard));
            let tls = self.tls.clone();
            tokio::spawn(async move {
                match tls {
                    None => connection(stream, site, guard).await,
                    Some(tls) => {
                        if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                            connection(stream, site, guard).await;
                        }
                    }
                }
                drop(place);
            });
        }
    }
}

/// Serves a connection until it ends; how it ends is the client's.
async fn connection<S>(stream: S, site: Site, guard: Arc<Guard>)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        let (site, guard) = (site.clone(), Arc::clone(&guard));
        async move {
            let mut reply = match guard.refuse(&request) {
                Some(refusal) => refusal,
                None => routes::route(site, &guard, request).await,
            };
            Guard::protect(&mut reply);
            Ok::<_, Infallible>(reply)
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .serve_connection(TokioIo::new(stream), service);
    if let Err(error) = served.await {
        tracing::debug!(%error, "a connection of the page ended");
    }
}
