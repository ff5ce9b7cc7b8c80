//! `webhook …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;

use super::list::WatchArg;
use super::tenants::TenantArg;

/// `webhook …`.
#[derive(Debug, Subcommand)]
pub enum WebhookCommand {
    /// The tenants whose events are posted, and where to
    #[command(after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook list -o json")]
    List(WatchArg),
    /// Post a tenant's events to an address, from here on
    #[command(
        after_help = "Examples:\n  dormouse webhook set ads https://hooks.example.org/dormouse\n\n`dormouse serve webhook` posts; docs/webhooks.md says what a receiver checks."
    )]
    Set(WebhookSetArgs),
    /// Post a tenant's events nowhere
    #[command(after_help = "Examples:\n  dormouse webhook remove ads")]
    Remove(TenantArg),
    /// Say the secret that a tenant's receiver checks signatures with
    #[command(
        after_help = "Examples:\n  dormouse webhook secret ads --secret gateway.secret     # the operator, for the tenant\n  dormouse webhook secret ads --key ads.key               # the tenant"
    )]
    Secret(WebhookSecretArgs),
}

/// `webhook set`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSetArgs {
    /// The tenant.
    pub tenant: TenantId,
    /// The address, https://… or http://….
    pub url: String,
}

/// `webhook secret`.
#[derive(Debug, Clone, Args)]
pub struct WebhookSecretArgs {
    /// The tenant.
    pub tenant: TenantId,
    /// File with the gateways' secret (the operator's).
    #[arg(long, env = "DORMOUSE_GATEWAY_SECRET", value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// File with the tenant's key.
    #[arg(long, env = "DORMOUSE_KEY", value_name = "FILE")]
    pub key: Option<PathBuf>,
}
