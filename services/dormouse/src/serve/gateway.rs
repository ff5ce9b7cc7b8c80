//! `serve gateway`: routes requests to services.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use dormouse_gateway::{Config, Gateway, Keep, Trust, read_secret};
use dormouse_messages::GatewayId;

use super::CommonArgs;
use crate::build_id;
use crate::cli::duration::between;
use crate::context::Context;

fn timeout(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO..=Duration::from_hours(1))
}

fn url(text: &str) -> Result<String, String> {
    if text.starts_with("http://") || text.starts_with("https://") {
        Ok(text.to_owned())
    } else {
        Err("an address such as http://serving.example.org".to_owned())
    }
}

/// Route requests to services
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve gateway --name g0 --listen 0.0.0.0:8080 --url http://serving.example.org --secret gateway.secret\n\nGateways all work at once, each under its own name."
)]
pub struct GatewayArgs {
    /// Name of the gateway; no other gateway may write under this name.
    #[arg(long, env = "DORMOUSE_GATEWAY", value_name = "NAME")]
    pub name: GatewayId,
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
    /// File with the gateways' secret: 64 hexadecimal digits, from which all keys and webhooks' secrets derive.
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// Longest wait of a request for a replica.
    #[arg(
        long,
        env = "DORMOUSE_GATEWAY_TIMEOUT",
        default_value = "30s",
        value_name = "TIME",
        value_parser = timeout
    )]
    pub timeout: Duration,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs `serve gateway`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, args: &GatewayArgs) -> anyhow::Result<u8> {
    let reader = Some(format!("gateway-{}", args.name));
    let started = args.common.start(context, "gateway", reader).await?;
    let gateway = Gateway::bind(config(context, args)?).await?;
    let run = |log, shutdown| async move { Ok(gateway.run(log, shutdown).await?) };
    started.run(run).await
}

fn config(context: &Context, args: &GatewayArgs) -> anyhow::Result<Config> {
    let name = args.name.clone();
    let url = args.url.as_deref().map(str::parse).transpose()?;
    let trust = match &args.secret {
        Some(secret) => Trust::Secret(read_secret(secret)?),
        None => Trust::Loopback,
    };
    Ok(Config {
        url,
        trust,
        wait: args.timeout,
        keep: Some(Keep::new(
            context.data.join("gateways").join(name.as_str()),
            build_id::build(),
        )),
        ..Config::new(name, args.listen)
    })
}
