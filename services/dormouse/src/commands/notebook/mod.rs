//! `notebook …`: a file each command.

pub mod list;
pub mod open;

use clap::Subcommand;

use crate::context::Context;

/// Open a notebook, or list them
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse notebook open ads/analysis\n  dormouse notebook list"
)]
pub enum NotebookCommand {
    Open(open::OpenArgs),
    #[command(alias = "ls")]
    List(list::ListArgs),
}

/// Runs `notebook …`.
///
/// # Errors
/// If there is no such notebook, or the cluster does not answer.
pub async fn run(context: &Context, command: &NotebookCommand) -> anyhow::Result<u8> {
    match command {
        NotebookCommand::Open(args) => open::run(context, args).await,
        NotebookCommand::List(args) => list::run(context, args).await,
    }
}
