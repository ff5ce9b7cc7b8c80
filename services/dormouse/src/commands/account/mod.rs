//! `account …`: a file each command; `holder` names the owner of a key, `keys` works with the brokers and the
//! folder of keys.

pub mod add;
pub mod file;
pub mod holder;
pub mod key;
pub mod keys;
pub mod list;
pub mod revoke;
pub mod rotate;

use clap::Subcommand;

use crate::context::Context;

/// Make, replace and revoke keys of services, nodes, gateways, operators, tenants and people
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse account list --keys keys\n  dormouse account add node-n0 --keys keys\n  dormouse account add ads/alice --role submitter --keys keys\n  dormouse account key ads --secret gateway.secret\n\n`dormouse cluster init` makes the first keys, `dormouse tenant create` those of a tenant. `dormouse account file` is for brokers that read their accounts from a file."
)]
pub enum AccountCommand {
    Add(add::AddArgs),
    #[command(alias = "ls")]
    List(list::ListArgs),
    Rotate(rotate::RotateArgs),
    #[command(aliases = ["delete", "remove"])]
    Revoke(revoke::RevokeArgs),
    Key(key::KeyArgs),
    File(file::FileArgs),
}

/// Runs `account …`.
///
/// # Errors
/// If a file cannot be written, or the brokers refuse.
pub async fn run(context: &Context, command: &AccountCommand) -> anyhow::Result<u8> {
    match command {
        AccountCommand::Add(args) => add::run(context, args).await,
        AccountCommand::List(args) => list::run(context, args).await,
        AccountCommand::Rotate(args) => rotate::run(context, args).await,
        AccountCommand::Revoke(args) => revoke::run(context, args).await,
        AccountCommand::Key(args) => key::run(context, args),
        AccountCommand::File(args) => file::run(context, args),
    }
}
