//! `policy …`: a file each command.

pub mod set;
pub mod show;

use clap::Subcommand;

use crate::context::Context;

/// Show the cluster's policy, or set it
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  dormouse policy show\n  dormouse policy set policy.yaml")]
pub enum PolicyCommand {
    Show(show::ShowArgs),
    #[command(alias = "apply")]
    Set(set::SetArgs),
}

/// Runs `policy …`.
///
/// # Errors
/// Those of the command.
pub async fn run(context: &Context, command: &PolicyCommand) -> anyhow::Result<u8> {
    match command {
        PolicyCommand::Show(_) => show::run(context).await,
        PolicyCommand::Set(args) => set::run(context, args).await,
    }
}
