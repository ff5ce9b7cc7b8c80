//! Where the page listens, and who may look at it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use dormouse_messages::Event;

/// A shorter token could be guessed.
const LEAST_TOKEN: usize = 16;

/// Who may look at the page.
#[derive(Debug, Clone)]
pub enum Access {
    /// Everybody on this machine.
    Loopback,
    /// Who knows the token.
    Token {
        /// The token.
        token: String,
        /// The certificates and their key, in PEM; without them the page is for this machine.
        tls: Option<(PathBuf, PathBuf)>,
    },
}

/// A page.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where it listens; port 0 is any free one.
    pub listen: SocketAddr,
    /// Names by which browsers reach it, besides its address.
    pub hosts: Vec<String>,
    /// Who may look.
    pub access: Access,
    /// What an event says, in a line.
    pub describe: fn(&Event) -> String,
    /// This build: answers of another one may differ.
    pub build: String,
}

/// Why a page does not start.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It would be open to a network.
    #[error(
        "{0} can be reached from other machines: the page needs a token (--page-token FILE) and TLS (--page-cert FILE, --page-key FILE); or give an address such as 127.0.0.1:8090"
    )]
    Open(SocketAddr),
    /// The token is too short.
    #[error("{0} holds fewer than {LEAST_TOKEN} characters; make one with: openssl rand -hex 32")]
    ShortToken(PathBuf),
    /// A file cannot be read.
    #[error("{path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The certificate or its key is none.
    #[error("{certificate} and {key} are no certificate and key in PEM: {why}")]
    Tls {
        /// The certificates.
        certificate: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The address cannot be had.
    #[error("the page cannot listen at {listen}; name another address")]
    Listen {
        /// The address.
        listen: SocketAddr,
        /// Why.
        source: std::io::Error,
    },
}

impl Access {
    /// From the files that are given: all of them, or on this machine the token or none.
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
    match token.len() < LEAST_TOKEN {
        true => Err(ConfigError::ShortToken(path.to_owned())),
        false => Ok(token.to_owned()),
    }
}
