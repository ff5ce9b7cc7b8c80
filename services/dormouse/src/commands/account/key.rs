//! `account key`: prints the key of a tenant, or the token of a service.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_gateway::{Key, read_secret};
use dormouse_messages::{JobId, TenantId};
use serde_json::json;

use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

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

/// Print a tenant's key or a service's token for the gateway
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse account key ads --secret gateway.secret > ads.key       # the operator, for the tenant\n  dormouse account key ads/model --key ads.key                     # the tenant, for a service's callers\n  curl -H \"Authorization: Bearer $(dormouse account key ads/model --key ads.key)\" http://serving.example.org/ads/model/"
)]
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

/// Runs `account key`.
///
/// # Errors
/// If the secret or key file is unusable.
pub fn run(context: &Context, args: &KeyArgs) -> anyhow::Result<u8> {
    let key = match &args.of {
        KeyOf::Tenant(tenant) => match &args.secret {
            Some(secret) => Key::of_tenant(&read_secret(secret)?, tenant),
            None => bail!("a tenant's key follows from the gateways' secret; give --secret FILE"),
        },
        KeyOf::Service(job) => {
            let tenant = TenantId::new(job.tenant())?;
            let key = match (&args.key, &args.secret) {
                (Some(key), _) => read_key(key)?,
                (None, Some(secret)) => Key::of_tenant(&read_secret(secret)?, &tenant),
                (None, None) => bail!(
                    "a service's token follows from its tenant's key; give --key FILE, or the operator's --secret FILE"
                ),
            };
            key.token_of(job)
        }
    };
    match context.output()? {
        Output::Table | Output::Wide => print::line(key)?,
        Output::Json => print::line(json!({"key": key.to_string()}))?,
        Output::Yaml => print::yaml(&json!({"key": key.to_string()}).to_string())?,
    }
    Ok(DONE)
}

/// Reads a file with a key.
///
/// # Errors
/// If the file is unusable.
pub fn read_key(path: &Path) -> anyhow::Result<Key> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).with_context(|| format!("the key {shown}"))?;
    let key = Key::parse(&text);
    key.with_context(|| format!("{shown} is no key: it is not 64 hexadecimal digits"))
}
