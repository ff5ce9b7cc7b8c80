//! `webhook secret`.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_gateway::{Key, read_secret};
use dormouse_messages::TenantId;
use dormouse_webhook::Secret;
use serde_json::json;

use crate::commands::account::key::read_key;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Print the secret that a tenant's receiver needs to check signatures
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse webhook secret ads --secret gateway.secret     # the operator, for the tenant\n  dormouse webhook secret ads --key ads.key               # the tenant"
)]
pub struct SecretArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// File with the gateways' secret (the operator's).
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// File with the tenant's key.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}

/// Runs `webhook secret`.
///
/// # Errors
/// If the secret or key file is unusable.
pub fn run(context: &Context, args: &SecretArgs) -> anyhow::Result<u8> {
    let key = match (&args.key, &args.secret) {
        (Some(key), _) => read_key(key)?,
        (None, Some(secret)) => {
            let secret = read_secret(secret).context("the gateways' secret")?;
            Key::of_tenant(&secret, &args.tenant)
        }
        (None, None) => bail!(
            "a webhook's secret follows from its tenant's key; give --key FILE, or the operator's --secret FILE"
        ),
    };
    let secret = Secret::new(key.webhook_secret()).to_string();
    print::value(context.output()?, &json!({"secret": secret}), |_, _| {
        secret.clone()
    })?;
    Ok(DONE)
}
