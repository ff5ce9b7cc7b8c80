//! `webhook remove`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::WebhookConfigured;

use super::list::configured;
use crate::commands::common::operator;
use crate::commands::tenant::TenantArg;
use crate::context::Context;
use crate::error::Coded;

/// Stop posting a tenant's events
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse webhook remove ads")]
pub struct RemoveArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
}

/// Runs `webhook remove`.
///
/// # Errors
/// If the tenant has none, or the event cannot be appended.
pub async fn run(context: &Context, args: &RemoveArgs) -> anyhow::Result<u8> {
    let tenant = &args.tenant.name;
    if configured(context).await?.get(tenant).is_none() {
        let message = format!("{tenant} has no webhook; `dormouse webhook list` shows who has one");
        return Err(Coded::new("not_found", message).into());
    }
    let event = WebhookConfigured {
        tenant: tenant.clone(),
        url: None,
    };
    let said = format!("events of {tenant} go nowhere");
    operator::append(context, Event::from(event), &said).await
}
