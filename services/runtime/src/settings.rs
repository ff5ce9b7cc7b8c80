//! Connection settings.

use std::path::PathBuf;
use std::time::Duration;

use dormouse_messages::Prefix;

/// Connection settings. Secrets are named by file.
#[derive(Debug, Clone)]
pub struct Settings {
    /// URLs, separated by commas.
    pub server: String,
    pub prefix: Prefix,
    /// A credentials file (JWT and seed).
    pub creds: Option<PathBuf>,
    /// A file with an nkey seed.
    pub nkey: Option<PathBuf>,
    /// The provisioned log reader: `node-n0`, `gateway-g0`. `None`: the client creates its own.
    pub reader: Option<String>,
    /// True for a person, whose account may be separate.
    pub person: bool,
    pub tls: Tls,
    /// Client name in the broker's monitoring.
    pub name: String,
    /// Replicas of new streams: 1 or 3.
    pub replicas: usize,
    pub connect_timeout: Duration,
}

/// TLS material.
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Refuses a server without TLS.
    pub required: bool,
    pub ca: Option<PathBuf>,
    pub client: Option<(PathBuf, PathBuf)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            server: "nats://127.0.0.1:4222".to_owned(),
            prefix: Prefix::default(),
            creds: None,
            nkey: None,
            reader: None,
            person: false,
            tls: Tls::default(),
            name: "dormouse".to_owned(),
            replicas: 1,
            connect_timeout: Duration::from_secs(30),
        }
    }
}

/// Reports whether all servers are on this machine.
#[must_use]
pub fn is_local(servers: &str) -> bool {
    servers.split(',').all(|server| {
        let server = server.trim().parse::<async_nats::ServerAddr>();
        let Ok(server) = server else {
            return false;
        };
        let host = server.host().trim_start_matches('[').trim_end_matches(']');
        let address = host.parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

impl Settings {
    /// Returns the defaults for `server` and the client `name`.
    #[must_use]
    pub fn new(server: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            server: server.into(),
            name: name.into(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn what_crosses_a_network_is_not_local() {
        for local in [
            "nats://127.0.0.1:4222",
            "127.0.0.1:4222",
            "tls://localhost:4222, nats://[::1]:4222",
            "nats://user:secret@127.0.0.5",
        ] {
            assert!(is_local(local), "{local}");
        }
        for far in [
            "nats://10.0.0.7:4222",
            "nats-1",
            "nats://localhost.example.org:4222",
            "nats://127.0.0.1:4222,nats://nats-2:4222",
            "",
        ] {
            assert!(!is_local(far), "{far}");
        }
    }
}
