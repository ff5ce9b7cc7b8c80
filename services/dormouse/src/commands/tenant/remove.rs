//! `tenant remove`.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::TenantRemoved;
use dormouse_projections::queries::{TenantQuery, TenantRow};
use serde_json::json;

use super::TenantArg;
use crate::commands::account::keys;
use crate::commands::common::{caught_up, operator, query};
use crate::context::{Context, Credentials};
use crate::error::Coded;

/// Forget a tenant that has no jobs: revoke its keys; drop its weight, bounds, grants and webhook
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenant remove ads --keys keys\n  dormouse tenant remove ads --keys keys --reason 'the team has left'\n\nIts keys and those of its people are revoked first."
)]
pub struct RemoveArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    /// Reason; on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Folder with the cluster's root key, if the brokers keep accounts.
    #[arg(long, env = "DORMOUSE_KEYS", value_name = "DIR")]
    pub keys: Option<PathBuf>,
}

/// Runs `tenant remove`.
///
/// # Errors
/// If there is no such tenant, it has live jobs, or the event cannot be appended.
pub async fn run(context: &Context, args: &RemoveArgs) -> anyhow::Result<u8> {
    let name = &args.tenant.name;
    let log = context.connect().await?;
    caught_up(&log).await?;
    let request = json!(TenantQuery {
        tenant: name.clone(),
    });
    let row: TenantRow = query(&log, "tenant", request).await?;
    let jobs = row.released_jobs + row.queued_jobs + row.held_jobs;
    if jobs > 0 {
        let why = format!(
            "{name} has jobs that live ({jobs}): wait for them, or cancel them with `dormouse job cancel --tenant {name} --yes`"
        );
        return Err(Coded::new("has_jobs", why).into());
    }
    // A folder without a root key was made by the script.
    let folder = args.keys.as_ref();
    let folder = folder.filter(|folder| keys::keeps_root(folder));
    let said = match (folder, context.credentials()) {
        (Some(folder), _) => {
            let revoked = keys::revoke_tenant(context, folder, name).await?;
            let keys = if revoked.is_empty() {
                "it had no key".to_owned()
            } else {
                format!("the keys of {} are revoked", revoked.join(", "))
            };
            format!("{name} is forgotten; {keys}")
        }
        (None, Credentials::Creds) => bail!(
            "the keys of {name} are revoked with it: name the owner's folder of keys with --keys DIR"
        ),
        (None, Credentials::Nkey) => format!(
            "{name} is forgotten; its keys stand in the brokers' file of accounts: write the file without them and reload the brokers"
        ),
        (None, Credentials::None) => format!("{name} is forgotten"),
    };
    let removed = TenantRemoved {
        tenant: name.clone(),
        reason: args.reason.clone(),
    };
    operator::append_to(log, context, vec![Event::from(removed)], &said).await
}
