//! `tenant …`: a file each command; `entitlement` and `grants` hold the values that `create`, `set` and `grant`
//! share.

pub mod create;
pub mod entitlement;
pub mod grant;
mod grants;
pub mod list;
pub mod remove;
pub mod set;
pub mod show;

use clap::{Args, Subcommand};
use dormouse_messages::TenantId;

use crate::context::Context;

/// Show tenants, or set what they may have
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse tenant list\n  dormouse tenant show ads\n  dormouse tenant set ads --weight 3\n  dormouse tenant grant ads --mount /data:ro"
)]
pub enum TenantCommand {
    #[command(alias = "ls")]
    List(list::ListArgs),
    #[command(aliases = ["describe", "get"])]
    Show(show::ShowArgs),
    Create(Box<create::CreateArgs>),
    Set(set::SetArgs),
    Grant(Box<grant::GrantArgs>),
    #[command(aliases = ["delete", "rm"])]
    Remove(remove::RemoveArgs),
}

/// A tenant argument.
#[derive(Debug, Clone, Args)]
pub struct TenantArg {
    /// Tenant name.
    pub name: TenantId,
}

/// Runs `tenant …`.
///
/// # Errors
/// If there is no such tenant, a value is wrong, or the cluster does not answer.
pub async fn run(context: &Context, command: &TenantCommand) -> anyhow::Result<u8> {
    match command {
        TenantCommand::List(args) => list::run(context, *args).await,
        TenantCommand::Show(args) => show::run(context, args).await,
        TenantCommand::Create(args) => create::run(context, args).await,
        TenantCommand::Set(args) => set::run(context, args).await,
        TenantCommand::Grant(args) => grant::run(context, args).await,
        TenantCommand::Remove(args) => remove::run(context, args).await,
    }
}
