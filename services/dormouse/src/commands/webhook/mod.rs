//! `webhook …`: a file each command.

pub mod list;
pub mod remove;
pub mod secret;
pub mod set;

use clap::Subcommand;

use crate::context::Context;

/// Post a tenant's events to an address, signed and in order
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse webhook list\n  dormouse webhook set ads https://hooks.example.org/dormouse"
)]
pub enum WebhookCommand {
    #[command(alias = "ls")]
    List(list::ListArgs),
    Set(set::SetArgs),
    #[command(aliases = ["delete", "rm"])]
    Remove(remove::RemoveArgs),
    Secret(secret::SecretArgs),
}

/// Runs `webhook …`.
///
/// # Errors
/// If the cluster does not answer, or an argument is wrong.
pub async fn run(context: &Context, command: &WebhookCommand) -> anyhow::Result<u8> {
    match command {
        WebhookCommand::List(args) => list::run(context, *args).await,
        WebhookCommand::Set(args) => set::run(context, args).await,
        WebhookCommand::Remove(args) => remove::run(context, args).await,
        WebhookCommand::Secret(args) => secret::run(context, args),
    }
}
