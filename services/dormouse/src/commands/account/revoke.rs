//! `account revoke`.

use anyhow::bail;
use clap::Args;
use dormouse_runtime::accounts::Principal;
use serde_json::json;

use super::holder::{Holder, HolderArg};
use super::keys::{coded, connect_to_change, note, print_one, revoked, tenant_of};
use crate::context::Context;

/// Revoke every key of a name and close its connections
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse account revoke operator-olga --keys keys\n  dormouse account revoke ads/alice --keys keys"
)]
pub struct RevokeArgs {
    #[command(flatten)]
    pub holder: HolderArg,
}

/// Runs `account revoke`.
///
/// # Errors
/// If the brokers refuse.
pub async fn run(context: &Context, args: &RevokeArgs) -> anyhow::Result<u8> {
    let HolderArg { name, keys } = &args.holder;
    let Holder { principal, user } = name;
    if matches!(principal, Principal::System) {
        bail!("without the brokers' own key no account could be changed any more; rotate it");
    }
    let (accounts, _turn) = connect_to_change(context, keys).await?;
    let count = accounts.revoke(principal, user).await.map_err(coded)?;
    let revoked = revoked(user, tenant_of(principal), count)?;
    note(context, keys, revoked).await;
    let answer = json!({"name": user, "revoked": count});
    let keys = if count == 1 { "key" } else { "keys" };
    print_one(
        context,
        &answer,
        &format!("{user}: {count} {keys} revoked, its connections are closed"),
    )
}
