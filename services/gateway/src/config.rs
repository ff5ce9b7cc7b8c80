//! How a gateway is set up.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_messages::GatewayId;
use dormouse_runtime::{AppendError, LogError};
use http::Uri;
use http::uri::Authority;

use crate::access::{SECRET_BYTES, Trust};
use crate::target::Names;

/// How long a gateway's lease lasts: a killed one holds up the drains of replicas for so long.
/// A gateway renews it three times meanwhile; one that could not, and lives, joins again.
pub const LEASE: Duration = Duration::from_secs(5);

/// How a gateway is set up.
#[derive(Clone)]
pub struct Config {
    /// Its name: no other one writes under it.
    pub name: GatewayId,
    /// Where it listens; port 0 is a free one.
    pub listen: SocketAddr,
    /// Where clients reach it, such as `http://serving.example.org`; services have their own names
    /// below that host. By default where it listens, as `localhost` on loopback.
    pub url: Option<Uri>,
    /// Whom it believes.
    pub trust: Trust,
    /// How long a request waits for a replica.
    pub wait: Duration,
    /// How many threads serve; 0: one a processor.
    pub threads: usize,
    /// How long requests that are under way have to end when the gateway stops.
    pub grace: Duration,
    /// Where it keeps its routes; `None`: it reads the whole log at each start.
    pub keep: Option<Keep>,
}

impl Config {
    /// The gateway `name` at `listen`, which believes everybody who reaches it.
    #[must_use]
    pub const fn new(name: GatewayId, listen: SocketAddr) -> Self {
        Self {
            name,
            listen,
            url: None,
            trust: Trust::Loopback,
            // A replica of a service that had none starts within this, or its program is slow.
            wait: Duration::from_secs(30),
            threads: 0,
            grace: Duration::from_secs(10),
            keep: None,
        }
    }
}

/// Where a gateway keeps its routes.
#[derive(Debug, Clone)]
pub struct Keep {
    /// The folder.
    pub dir: PathBuf,
    /// This build: what another one has kept is not used.
    pub build: String,
    /// Events between two times.
    pub every: u64,
}

impl Keep {
    /// In `dir`, as this build. A busy machine folds 5,000 events in a fraction of a second.
    #[must_use]
    pub const fn new(dir: PathBuf, build: String) -> Self {
        Self {
            dir,
            build,
            every: 5_000,
        }
    }
}

/// Why a gateway does not run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// Its port is taken, or not its own.
    #[error("the gateway {name} cannot listen at {listen}: {why}; give another --listen")]
    Listen {
        /// The gateway.
        name: GatewayId,
        /// Where.
        listen: SocketAddr,
        /// Why not.
        why: std::io::Error,
    },
    /// It would believe everybody.
    #[error(
        "the gateway {name} would believe everybody who reaches {listen}; give --secret FILE, or listen on 127.0.0.1"
    )]
    NoSecret {
        /// The gateway.
        name: GatewayId,
        /// Where it was to listen.
        listen: SocketAddr,
    },
    /// The file of the secret.
    #[error("the secret {path} cannot be used: {why}; `openssl rand -hex 32` makes one")]
    Secret {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// The address that clients are told.
    #[error("{url} is no address of a gateway; give --url such as http://serving.example.org")]
    Url {
        /// As given.
        url: String,
    },
    /// Its threads.
    #[error("the gateway's threads do not start: {0}")]
    Threads(std::io::Error),
    /// The log.
    #[error(transparent)]
    Log(#[from] LogError),
    /// Appending.
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Reads the gateways' secret: 64 hexadecimal digits in a file that only its owner reads.
///
/// # Errors
/// What is wrong with the file.
pub fn read_secret(path: &Path) -> Result<[u8; SECRET_BYTES], GatewayError> {
    let wrong = |why: String| GatewayError::Secret {
        path: path.to_owned(),
        why,
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let parsed = blake3::Hash::from_hex(text.trim());
    let secret = parsed.map_err(|_| wrong("it is not 64 hexadecimal digits".to_owned()))?;
    Ok(*secret.as_bytes())
}

/// Where clients reach a gateway that listens at `listen`, and the names that follow from it.
///
/// # Errors
/// When `url` is no such address.
pub fn names(
    url: Option<&Uri>,
    listen: SocketAddr,
    trust: &Trust,
) -> Result<(String, Names), GatewayError> {
    let strict = matches!(trust, Trust::Loopback);
    let Some(url) = url else {
        let host = match listen.ip().is_loopback() {
            true => "localhost".to_owned(),
            false => SocketAddr::new(listen.ip(), 0)
                .to_string()
                .trim_end_matches(":0")
                .to_owned(),
        };
        let address = format!("http://{host}:{}", listen.port());
        return Ok((address, Names::new(host.trim_matches(['[', ']']), strict)));
    };
    let wrong = || GatewayError::Url {
        url: url.to_string(),
    };
    let plain = url.path() == "/" && url.query().is_none();
    let host = url.authority().map(Authority::host).filter(|_| plain);
    let scheme = url
        .scheme_str()
        .filter(|it| matches!(*it, "http" | "https"));
    let (Some(host), Some(_)) = (host, scheme) else {
        return Err(wrong());
    };
    let address = url.to_string().trim_end_matches('/').to_owned();
    Ok((address, Names::new(host.trim_matches(['[', ']']), strict)))
}
