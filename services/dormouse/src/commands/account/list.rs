//! `account list`.

use clap::Args;
use dormouse_runtime::accounts::Claims;
use serde_json::json;

use super::keys::{KeysArg, coded, connect, print_one};
use crate::context::Context;
use crate::error::DONE;

/// List the accounts that the brokers keep, each with its keys
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse account list --keys keys")]
pub struct ListArgs {
    #[command(flatten)]
    pub keys: KeysArg,
}

/// Runs `account list`.
///
/// # Errors
/// If the brokers do not answer.
pub async fn run(context: &Context, args: &ListArgs) -> anyhow::Result<u8> {
    let accounts = connect(context, &args.keys)
        .await?
        .list()
        .await
        .map_err(coded)?;
    let row = |name: &str, user: &str, claims: &Claims| {
        let valid = claims.keys.iter().filter(|key| key.user == user).count();
        json!({"account": name, "name": user, "role": claims.role, "keys": valid})
    };
    for (name, claims) in &accounts {
        let mut users: Vec<&str> = claims.keys.iter().map(|key| key.user.as_str()).collect();
        users.sort_unstable();
        users.dedup();
        if users.is_empty() {
            users.push(name);
        }
        for user in users {
            let row = row(name, user, claims);
            let role = claims.role.as_deref().unwrap_or("");
            let keys = match row["keys"].as_u64() {
                Some(0) => "revoked".to_owned(),
                Some(1) => "1 key".to_owned(),
                count => format!("{} keys", count.unwrap_or_default()),
            };
            print_one(context, &row, &format!("{user:<28} {keys:<10} {role}"))?;
        }
    }
    Ok(DONE)
}
