//! Arguments of `webhook …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;

use super::list::WatchArg;
use crate::commands::tenants::TenantArg;

/// Subcommands of `webhook`.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// List the tenants with a webhook, and the addresses
    #[command(after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook list -o json")]
    List(WatchArg),
    /// Post a tenant's events to an address, from here on
    #[command(
        after_help = "Examples:\n  dormouse webhook set ads https://hooks.example.org/dormouse\n\n`dormouse serve webhook` posts; docs/webhooks.md says what a receiver checks."
    )]
    Set(WebhookSetArgs),
    /// Stop posting a tenant's events
    #[command(after_help = "Examples:\n  dormouse webhook remove ads")]
    Remove(TenantArg),
    /// Print the secret with which a tenant's receiver checks signatures
    #[command(
        after_help = "Examples:\n  dormouse webhook secret ads --secret gateway.secret     # the operator, for the tenant\n  dormouse webhook secret ads --key ads.key               # the tenant"
    )]
    Secret(WebhookSecretArgs),
}

/// Arguments of `webhook set`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSetArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// Address, https://… or http://….
    pub url: String,
}

/// Arguments of `webhook secret`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSecretArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// File with the gateways' secret (the operator's).
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// File with the tenant's key.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}
