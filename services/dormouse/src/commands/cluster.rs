//! `cluster`: the cluster at a glance; `prune` has `cluster prune`.

use clap::{Args, Subcommand};

use super::prune::PruneArgs;
use super::{prune, watched};
use crate::cli::list::WatchArg;
use crate::context::Context;
use crate::render;

/// Show the cluster at a glance: policy, use, jobs by phase
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster\n  dormouse cluster -o json\n  dormouse cluster prune --older-than 7       # what would be removed on this machine's nodes\n  dormouse cluster prune --older-than 7 --yes"
)]
pub struct ClusterArgs {
    #[command(subcommand)]
    pub command: Option<ClusterCommand>,
}

/// Subcommands of `cluster`.
#[derive(Debug, Clone, Subcommand)]
pub enum ClusterCommand {
    Prune(PruneArgs),
}

/// Shows the cluster's overview.
///
/// # Errors
/// If the query service does not answer.
async fn show(context: &Context) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let once = WatchArg { seconds: None };
    watched::show(context, &log, "cluster", &(), once, render::cluster).await
}

/// Runs `cluster …`.
///
/// # Errors
/// If the query service does not answer, or the files cannot be looked at.
pub async fn run(context: &Context, args: &ClusterArgs) -> anyhow::Result<u8> {
    match &args.command {
        None => show(context).await,
        Some(ClusterCommand::Prune(args)) => prune::run(context, args).await,
    }
}
