//! `serve webhook`: posts tenants' events to their webhooks.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use dormouse_gateway::{Key, read_secret};
use dormouse_runtime::ServiceOptions;
use dormouse_webhook::{Config, Secret};

use super::CommonArgs;
use super::role::TakeoverArg;
use crate::context::Context;

/// Post tenants' events to their webhooks
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve webhook --secret gateway.secret\n\nRun two copies: the second stands by and takes over within seconds."
)]
pub struct WebhookArgs {
    /// File with the gateways' secret: 64 hexadecimal digits.
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: PathBuf,
    #[command(flatten)]
    pub takeover: TakeoverArg,
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Runs `serve webhook`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(context: &Context, args: &WebhookArgs) -> anyhow::Result<u8> {
    let started = args.common.start(context, "webhook", None).await?;
    let secret = read_secret(&args.secret)?;
    let config = Config {
        holder: ServiceOptions::default().holder,
        takeover: args.takeover.takeover,
        secret_of: Arc::new(move |tenant| {
            Secret::new(Key::of_tenant(&secret, tenant).webhook_secret())
        }),
    };
    let run =
        |log, shutdown| async move { Ok(dormouse_webhook::run(log, config, shutdown).await?) };
    started.run(run).await
}
