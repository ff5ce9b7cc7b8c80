//! `webhook set`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::WebhookConfigured;
use dormouse_messages::{Event, TenantId};

use crate::commands::common::operator;
use crate::context::Context;

/// Post a tenant's events to an address, from here on
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse webhook set ads https://hooks.example.org/dormouse\n\n`dormouse serve webhook` posts; docs/clients.md says what a receiver checks."
)]
pub struct SetArgs {
    /// Tenant.
    pub tenant: TenantId,
    /// Address, https://… or http://….
    pub url: String,
}

/// Runs `webhook set`.
///
/// # Errors
/// If the address is wrong, or the event cannot be appended.
pub async fn run(context: &Context, args: &SetArgs) -> anyhow::Result<u8> {
    let url = &args.url;
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| url.strip_prefix(scheme))
        .map(|rest| rest.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => bail!(
            "{url}: name and password in an address would stand on the log; receivers check the signature instead"
        ),
        Some(host) if !host.is_empty() && !url.contains(char::is_whitespace) => {}
        _ => bail!(
            "{url} is no address that can be posted to; write https://HOST/PATH or http://HOST/PATH"
        ),
    }
    let event = WebhookConfigured {
        tenant: args.tenant.clone(),
        url: Some(url.clone()),
    };
    let said = format!(
        "events of {} go to {url} while `dormouse serve webhook` runs somewhere (`up` runs none)",
        args.tenant
    );
    operator::append(context, Event::from(event), &said).await
}
