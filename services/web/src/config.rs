//! Address of the page, and access to it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_messages::Event;

/// Shorter tokens could be guessed.
const LEAST_TOKEN: usize = 16;

/// Access to the page.
#[derive(Debug, Clone)]
pub enum Access {
    Loopback,
    Token {
        token: String,
        /// Certificates and key, in PEM; without them the page is local.
        tls: Option<(PathBuf, PathBuf)>,
    },
}

/// Configuration of a page.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port 0: any free one.
    pub listen: SocketAddr,
    pub hosts: Vec<String>,
    pub access: Access,
    pub describe: fn(&Event) -> String,
    pub build: String,
}

/// A page that cannot start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error(
        "{0} can be reached from other machines: the page needs a token (--page-token FILE) and TLS (--page-cert FILE, --page-key FILE); or give an address such as 127.0.0.1:8090"
    )]
    Open(SocketAddr),
    #[error("{0} holds fewer than {LEAST_TOKEN} characters; make one with: openssl rand -hex 32")]
    ShortToken(PathBuf),
    #[error("{path} cannot be read")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("{certificate} and {key} are no certificate and key in PEM: {why}")]
    Tls {
        certificate: PathBuf,
        key: PathBuf,
        why: String,
    },
    #[error("the page cannot listen at {listen}; name another address")]
    Listen {
        listen: SocketAddr,
        source: std::io::Error,
    },
}

impl Access {
    /// Reads the given files.
    ///
    /// # Errors
    /// When one is missing or cannot be read.
    pub fn read(
        listen: SocketAddr,
        token: Option<&Path>,
        certificate: Option<&Path>,
        key: Option<&Path>,
    ) -> Result<Self, ConfigError> {
        match (token, certificate, key) {
            (None, None, None) if listen.ip().is_loopback() => Ok(Self::Loopback),
            (Some(token), None, None) if listen.ip().is_loopback() => Ok(Self::Token {
                token: read_token(token)?,
                tls: None,
            }),
            (Some(token), Some(certificate), Some(key)) => Ok(Self::Token {
                token: read_token(token)?,
                tls: Some((certificate.to_owned(), key.to_owned())),
            }),
            _ => Err(ConfigError::Open(listen)),
        }
    }
}

fn read_token(path: &Path) -> Result<String, ConfigError> {
    let text = std::fs::read_to_string(path).map_err(|source| ConfigError::File {
        path: path.to_owned(),
        source,
    })?;
    let token = text.trim();
    if token.len() < LEAST_TOKEN {
        Err(ConfigError::ShortToken(path.to_owned()))
    } else {
        Ok(token.to_owned())
    }
}
