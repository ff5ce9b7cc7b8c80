//! `alloc …`: a file each command; `view` has what the commands show.

pub mod add;
pub mod dry_run;
pub mod list;
pub mod pause;
pub mod remove;
pub mod show;
mod view;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dormouse_messages::QueueId;
use dormouse_state::{ClusterState, SlurmQueueState};

use crate::context::Context;
use crate::error::Coded;

/// Ask Slurm for nodes while jobs wait for them
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse alloc add gpu --partition gpu --node cpu=32,memory=240Gi,gpu=4 --time-limit 4h\n  dormouse alloc list\n  dormouse alloc dry-run gpu\n\n`dormouse serve slurm` submits; docs/slurm.md is the guide."
)]
pub enum AllocCommand {
    #[command(alias = "ls")]
    List(list::ListArgs),
    #[command(aliases = ["describe", "get", "info"])]
    Show(show::ShowArgs),
    Add(add::AddArgs),
    #[command(aliases = ["delete", "rm"])]
    Remove(remove::RemoveArgs),
    Pause(pause::PauseArgs),
    DryRun(dry_run::DryRunArgs),
}

/// A queue argument.
#[derive(Debug, Clone, Args)]
pub struct QueueArg {
    /// Name of the queue.
    pub queue: QueueId,
}

/// Runs `alloc …`.
///
/// # Errors
/// If there is no such queue, or the cluster does not answer.
pub async fn run(context: &Context, command: &AllocCommand) -> anyhow::Result<u8> {
    match command {
        AllocCommand::List(args) => list::run(context, *args).await,
        AllocCommand::Show(args) => show::run(context, args).await,
        AllocCommand::Add(args) => add::run(context, args).await,
        AllocCommand::Remove(args) => remove::run(context, args).await,
        AllocCommand::Pause(args) => pause::run(context, args).await,
        AllocCommand::DryRun(args) => dry_run::run(context, args).await,
    }
}

async fn folded(context: &Context) -> anyhow::Result<ClusterState> {
    let log = context.connect().await?;
    let folded = log.folded::<ClusterState>().await;
    Ok(folded.context("the queues cannot be read")?.state)
}

fn known<'a>(state: &'a ClusterState, queue: &QueueId) -> Result<&'a SlurmQueueState, Coded> {
    state.slurm.get(queue).ok_or_else(|| {
        let message = format!("there is no queue {queue}; `dormouse alloc list` shows the queues");
        Coded::new("not_found", message)
    })
}
