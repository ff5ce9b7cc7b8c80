//! Configuration of a gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dormouse_messages::GatewayId;
use dormouse_runtime::{AppendError, LogError};
use http::Uri;
use http::uri::Authority;

use crate::access::{SECRET_BYTES, Trust};
use crate::target::Names;

/// A killed gateway delays drains this long; one that could not renew joins again.
pub const LEASE: Duration = Duration::from_secs(5);

/// Configuration of a gateway.
#[derive(Clone)]
pub struct Config {
    pub name: GatewayId,
    /// Port 0: any free one.
    pub listen: SocketAddr,
    /// Public address; services get names below its host. Default: the listening address.
    pub url: Option<Uri>,
    pub trust: Trust,
    pub wait: Duration,
    /// Serving threads; 0: one per processor.
    pub threads: usize,
    /// Time for running requests at a stop.
    pub grace: Duration,
    /// `None`: every start reads the whole log.
    pub keep: Option<Keep>,
}

impl Config {
    /// Returns a gateway that trusts every caller.
    #[must_use]
    pub const fn new(name: GatewayId, listen: SocketAddr) -> Self {
        Self {
            name,
            listen,
            url: None,
            trust: Trust::Loopback,
            // A service's first replica starts within this.
            wait: Duration::from_secs(30),
            threads: 0,
            grace: Duration::from_secs(10),
            keep: None,
        }
    }
}

/// Snapshots of the routes.
#[derive(Debug, Clone)]
pub struct Keep {
    pub dir: PathBuf,
    /// Snapshots of other builds are ignored.
    pub build: String,
    /// Events between snapshots.
    pub every: u64,
}

impl Keep {
    /// Keeps snapshots in `dir`, for this build.
    #[must_use]
    pub const fn new(dir: PathBuf, build: String) -> Self {
        Self {
            dir,
            build,
            every: 5_000,
        }
    }
}

/// A gateway that cannot run.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    #[error("the gateway {name} cannot listen at {listen}: {why}; give another --listen")]
    Listen {
        name: GatewayId,
        listen: SocketAddr,
        why: std::io::Error,
    },
    #[error(
        "the gateway {name} would believe everybody who reaches {listen}; give --secret FILE, or listen on 127.0.0.1"
    )]
    NoSecret { name: GatewayId, listen: SocketAddr },
    #[error("the secret {path} cannot be used: {why}; `openssl rand -hex 32` makes one")]
    Secret { path: PathBuf, why: String },
    #[error("{url} is no address of a gateway; give --url such as http://serving.example.org")]
    Url { url: String },
    #[error("the gateway's threads do not start: {0}")]
    Threads(std::io::Error),
    #[error(transparent)]
    Log(#[from] LogError),
    #[error(transparent)]
    Append(#[from] AppendError),
}

/// Reads the gateways' secret: 64 hexadecimal digits.
///
/// # Errors
/// The problem with the file.
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

/// Returns the public address of a gateway, and its names.
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
        let host = if listen.ip().is_loopback() {
            "localhost".to_owned()
        } else {
            SocketAddr::new(listen.ip(), 0)
                .to_string()
                .trim_end_matches(":0")
                .to_owned()
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
