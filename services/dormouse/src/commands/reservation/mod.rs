//! `reservation …`: a file each command.

pub mod list;
pub mod remove;
pub mod set;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use dormouse_messages::ReservationId;
use dormouse_state::ClusterState;

use crate::context::Context;

/// Keep nodes or amounts for tenants, for jobs, or for nobody (maintenance), from a time to a time
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse reservation set maintenance --nodes n3,n4 --from 2026-12-01T08:00:00Z --for 4h --reason \"a new driver\"\n  dormouse reservation set course --amounts gpu=16 --from 2026-12-07T09:00:00Z --for 2h --every 7d --tenant students\n  dormouse reservation list"
)]
pub enum ReservationCommand {
    #[command(alias = "ls")]
    List(list::ListArgs),
    #[command(aliases = ["add", "create"])]
    Set(Box<set::SetArgs>),
    #[command(aliases = ["delete", "rm"])]
    Remove(remove::RemoveArgs),
}

/// A reservation argument.
#[derive(Debug, Clone, Args)]
pub struct ReservationArg {
    /// Name of the reservation.
    pub name: ReservationId,
}

/// Runs `reservation …`.
///
/// # Errors
/// If the reservation makes no sense, or the cluster does not answer.
pub async fn run(context: &Context, command: &ReservationCommand) -> anyhow::Result<u8> {
    match command {
        ReservationCommand::List(args) => list::run(context, *args).await,
        ReservationCommand::Set(args) => set::run(context, args).await,
        ReservationCommand::Remove(args) => remove::run(context, args).await,
    }
}

async fn folded(context: &Context) -> anyhow::Result<ClusterState> {
    let log = context.connect().await?;
    let folded = log.folded::<ClusterState>().await;
    Ok(folded.context("the reservations cannot be read")?.state)
}
