//! `cluster …`: a file each command.

pub mod doctor;
pub mod init;
pub mod prune;
pub mod status;
pub mod upgrade;

use clap::Subcommand;

use crate::context::Context;

/// Set up, show, check, clean and upgrade the cluster
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse cluster status\n  dormouse cluster doctor\n  dormouse cluster prune --older-than 7d"
)]
pub enum ClusterCommand {
    Init(init::InitArgs),
    #[command(aliases = ["show", "info"])]
    Status(status::StatusArgs),
    #[command(alias = "check")]
    Doctor(doctor::DoctorArgs),
    Prune(prune::PruneArgs),
    Upgrade(upgrade::UpgradeArgs),
}

/// Runs `cluster …`.
///
/// # Errors
/// Those of the command.
pub async fn run(context: &Context, command: &ClusterCommand) -> anyhow::Result<u8> {
    match command {
        ClusterCommand::Init(args) => init::run(context, args),
        ClusterCommand::Status(args) => status::run(context, *args).await,
        ClusterCommand::Doctor(_) => doctor::run(context).await,
        ClusterCommand::Prune(args) => prune::run(context, args).await,
        ClusterCommand::Upgrade(_) => upgrade::run(context).await,
    }
}
