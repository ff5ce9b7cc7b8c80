//! The server, on its own thread, so that browsers delay no service.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::access::Guard;
use crate::config::{Access, Config, ConfigError};
use crate::routes;
use crate::site::{Page, Site};
use crate::tls;

/// Several people with several tabs.
const CONNECTIONS: usize = 256;
const PATIENCE: Duration = Duration::from_secs(5);

/// A bound server.
pub struct Server {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    guard: Arc<Guard>,
    site: Site,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// When the address is taken, or open to a network without token and TLS.
    pub fn bind(config: Config, page: Page) -> Result<Self, ConfigError> {
        let tls = match &config.access {
            Access::Token {
                tls: Some((certificate, key)),
                ..
            } => Some(tls::acceptor(certificate, key)?),
            _ if !config.listen.ip().is_loopback() => {
                return Err(ConfigError::Open(config.listen));
            }
            _ => None,
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

    /// Returns the listening address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL to open.
    #[must_use]
    pub fn url(&self) -> String {
        match self.tls {
            Some(_) => format!("https://{}/", self.address),
            None => format!("http://{}/", self.address),
        }
    }

    /// Serves until `shutdown`, on its own thread.
    ///
    /// # Errors
    /// When no thread can start, or the listener fails.
    pub async fn run(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (done, ended) = tokio::sync::oneshot::channel();
        let serve = move || {
            let _ = done.send(runtime.block_on(self.serve(shutdown)));
            runtime.shutdown_background();
        };
        std::thread::Builder::new()
            .name("page".to_owned())
            .spawn(serve)?;
        ended.await.unwrap_or(Ok(()))
    }

    /// Serves until `shutdown`; event streams end only with the runtime.
    async fn serve(self, shutdown: CancellationToken) -> std::io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (free, open) = (Arc::new(Semaphore::new(CONNECTIONS)), Open::default());
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = shutdown.cancelled() => return Ok(()),
            };
            let Ok((stream, _)) = accepted else {
                sleep(Duration::from_millis(50)).await;
                continue;
            };
            if free.available_permits() == 0 {
                open.close_one();
            }
            let Ok(place) = Arc::clone(&free).acquire_owned().await else {
                continue;
            };
            let (site, guard) = (self.site.clone(), Arc::clone(&self.guard));
            let (tls, own) = (self.tls.clone(), open.begin());
            tokio::spawn(async move {
                let served = async {
                    match tls {
                        None => connection(stream, site, guard, &own).await,
                        Some(tls) => {
                            if let Ok(Ok(stream)) = timeout(PATIENCE, tls.accept(stream)).await {
                                connection(stream, site, guard, &own).await;
                            }
                        }
                    }
                };
                tokio::select! {
                    () = served => {}
                    () = own.closing.cancelled() => {}
                }
                drop((own, place));
            });
        }
    }
}

/// At the limit the oldest connection without a request is closed, else the oldest, so that idle connections
/// lock nobody out.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<BTreeMap<u64, (CancellationToken, bool)>>>);

struct Own {
    open: Open,
    number: u64,
    closing: CancellationToken,
}

impl Open {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, (CancellationToken, bool)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self) -> Own {
        let mut all = self.all();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        let closing = CancellationToken::new();
        all.insert(number, (closing.clone(), false));
        Own {
            open: self.clone(),
            number,
            closing,
        }
    }

    fn close_one(&self) {
        let all = self.all();
        let silent = all.values().find(|(_, asked)| !asked);
        if let Some((closing, _)) = silent.or_else(|| all.values().next()) {
            closing.cancel();
        }
    }
}

impl Own {
    fn asked(&self) {
        if let Some((_, asked)) = self.open.all().get_mut(&self.number) {
            *asked = true;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.open.all().remove(&self.number);
    }
}

async fn connection<S>(stream: S, site: Site, guard: Arc<Guard>, own: &Own)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request| {
        own.asked();
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
