//! Arguments of gateways, for `serve gateway`, `up` and `key`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dormouse_messages::GatewayId;

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
