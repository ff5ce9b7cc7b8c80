//! Arguments of gateways, for `serve gateway`, `up` and `key`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dormouse_messages::{GatewayId, JobId, TenantId};

/// Parses an address that only this machine reaches.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(
        "everybody who reaches it is believed; give an address of this machine alone, such as 127.0.0.1:8080"
            .to_owned(),
    )
    }
}

fn wait(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.0..=3_600.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("from 0 to 3600 seconds".to_owned())
    }
}

fn url(text: &str) -> Result<String, String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        Ok(text.to_owned())
    } else {
        Err("an address such as http://serving.example.org".to_owned())
    }
}

/// Arguments of `serve gateway`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Of a gateway")]
pub struct GatewayArgs {
    /// Name of the gateway; no other gateway may write under this name.
    #[arg(
        long,
        env = "DORMOUSE_GATEWAY",
        value_name = "NAME",
        required_if_eq("service", "gateway")
    )]
    pub name: Option<GatewayId>,
    /// Address on which the gateway listens.
    #[arg(
        long,
        env = "DORMOUSE_GATEWAY_LISTEN",
        default_value = "127.0.0.1:8080",
        value_name = "ADDRESS"
    )]
    pub listen: SocketAddr,
    /// URL for clients; services have names of their own below this host. Default: the listen address.
    #[arg(long, env = "DORMOUSE_GATEWAY_URL", value_name = "URL", value_parser = url)]
    pub url: Option<String>,
    /// File with the gateways' secret: 64 hexadecimal digits. All keys and the webhooks' secrets derive from
    /// this secret.
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Seconds for which a request waits for a replica.
    #[arg(long, env = "DORMOUSE_GATEWAY_WAIT", default_value = "30", value_name = "SECONDS", value_parser = wait)]
    pub wait: Duration,
}

/// The owner of a gateway key or token.
#[derive(Debug, Clone)]
pub enum KeyOf {
    /// A tenant; its key opens all its services.
    Tenant(TenantId),
    /// One service; its token opens only this service.
    Service(JobId),
}

impl std::str::FromStr for KeyOf {
    type Err = dormouse_messages::ids::IdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.contains('/') {
            text.parse().map(Self::Service)
        } else {
            text.parse().map(Self::Tenant)
        }
    }
}

/// Arguments of `key`.
#[derive(Debug, Clone, Args)]
pub struct KeyArgs {
    /// A tenant, or a service as TENANT/NAME.
    #[arg(value_name = "ID")]
    pub of: KeyOf,
    /// File with the gateways' secret (the operator's).
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// File with the tenant's key, from which the tokens of its services derive.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}
