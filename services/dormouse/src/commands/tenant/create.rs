//! `tenant create`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::TenantGranted;
use dormouse_messages::grants::Grants;
use dormouse_runtime::accounts::Principal;

use super::TenantArg;
use super::entitlement::{EntitlementArgs, budget, budgeted, configured, entitled};
use super::grants::{GrantsArgs, granted, named};
use crate::commands::account::keys::{self, KeysArg};
use crate::commands::common::operator;
use crate::context::Context;
use crate::describe;

/// Make a tenant on running brokers: its account, key and grants
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenant create ads --keys keys\n  dormouse tenant create ads --weight 2 --max-queued 500 --mount /data:ro --keys keys\n\nWrites keys/tenant-NAME.creds for the tenant's programs; `dormouse account add ads/alice` makes a person's key."
)]
pub struct CreateArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    #[command(flatten)]
    pub set: EntitlementArgs,
    #[command(flatten)]
    pub grants: GrantsArgs,
    #[command(flatten)]
    pub keys: KeysArg,
}

/// Runs `tenant create`.
///
/// # Errors
/// If the tenant exists, a number is wrong, or the brokers refuse.
pub async fn run(context: &Context, args: &CreateArgs) -> anyhow::Result<u8> {
    let name = &args.tenant.name;
    let tenant = Principal::Tenant(name.clone());
    let entitlement = configured(name, &args.set, None)?;
    let mut said = format!("{name}: {}", entitled(&entitlement));
    let mut events = vec![Event::from(entitlement)];
    if let Some(budgeted) = budgeted(name, &args.set, None)? {
        said.push_str(&format!(", {}", budget(&budgeted)));
        events.push(Event::from(budgeted));
    }
    if named(&args.grants) {
        let grants = granted(&args.grants, Grants::default())?;
        said.push_str(&format!("; granted {}", describe::grants(&grants)));
        events.push(Event::from(TenantGranted {
            tenant: name.clone(),
            grants,
        }));
    }
    let (connected, _turn) = keys::connect_to_change(context, &args.keys).await?;
    let (path, created) = keys::issue(&connected, &args.keys, &tenant, &tenant.name()).await?;
    events.insert(0, created);
    let owner = keys::owner(context, &args.keys);
    let log = owner.connect().await?;
    let said = format!("{said}; its key is {}", path.display());
    operator::append_to(log, &owner, events, &said).await
}
