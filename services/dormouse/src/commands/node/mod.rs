//! `node …`: a file each command; `row` finds a node.

pub mod drain;
pub mod fence;
pub mod label;
pub mod list;
pub mod remove;
pub mod restore;
mod row;
pub mod show;
pub mod taint;

use clap::Subcommand;

use crate::context::Context;

/// Show nodes, or act on them
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse node list\n  dormouse node show n1\n  dormouse node drain n1 --reason 'a new disk'\n  dormouse node restore n1"
)]
pub enum NodeCommand {
    #[command(alias = "ls")]
    List(list::ListArgs),
    #[command(aliases = ["describe", "get", "inspect", "status"])]
    Show(show::ShowArgs),
    #[command(alias = "cordon")]
    Drain(drain::DrainArgs),
    #[command(aliases = ["uncordon", "undrain", "resume"])]
    Restore(restore::RestoreArgs),
    Fence(fence::FenceArgs),
    Label(label::LabelArgs),
    Taint(taint::TaintArgs),
    #[command(aliases = ["delete", "rm"])]
    Remove(remove::RemoveArgs),
}

/// Runs `node …`.
///
/// # Errors
/// If there is no such node, or the cluster does not answer.
pub async fn run(context: &Context, command: &NodeCommand) -> anyhow::Result<u8> {
    match command {
        NodeCommand::List(args) => list::run(context, *args).await,
        NodeCommand::Show(args) => show::run(context, args).await,
        NodeCommand::Drain(args) => drain::run(context, args).await,
        NodeCommand::Restore(args) => restore::run(context, args).await,
        NodeCommand::Fence(args) => fence::run(context, args).await,
        NodeCommand::Label(args) => label::run(context, args).await,
        NodeCommand::Taint(args) => taint::run(context, args).await,
        NodeCommand::Remove(args) => remove::run(context, args).await,
    }
}
