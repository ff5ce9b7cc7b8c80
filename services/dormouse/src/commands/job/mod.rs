//! `job …`: a file each command.
//!
//! `change` carries out what `cancel`, `hold`, `release`, `requeue` and `update` request; `selection` finds the
//! jobs that a filter names.

pub mod cancel;
mod change;
pub mod events;
pub mod exec;
pub mod hold;
pub mod list;
pub mod logs;
pub mod release;
pub mod requeue;
pub mod selection;
pub mod show;
pub mod update;
pub mod wait;

use clap::{Args, Subcommand};

use crate::cli::job_name::NamedJob;
use crate::cli::log_range::LogFileArg;
use crate::context::Context;

/// Show jobs, or act on them
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse job list\n  dormouse job show ads/lr\n  dormouse job logs ads/lr -f\n  dormouse job cancel ads/lr"
)]
pub enum JobCommand {
    #[command(aliases = ["ls", "ps", "queue"])]
    List(list::ListArgs),
    #[command(aliases = ["describe", "get", "inspect", "status"])]
    Show(show::ShowArgs),
    Logs(logs::LogsArgs),
    #[command(aliases = ["attach", "ssh"])]
    Exec(exec::ExecArgs),
    Events(events::EventsArgs),
    Wait(wait::WaitArgs),
    #[command(aliases = ["delete", "kill", "stop", "rm", "scancel"])]
    Cancel(cancel::CancelArgs),
    #[command(alias = "suspend")]
    Hold(hold::HoldArgs),
    #[command(aliases = ["resume", "unsuspend"])]
    Release(release::ReleaseArgs),
    #[command(alias = "restart")]
    Requeue(requeue::RequeueArgs),
    #[command(aliases = ["edit", "scale"])]
    Update(update::UpdateArgs),
}

/// A job argument.
#[derive(Debug, Clone, Args)]
pub struct JobArg {
    /// tenant/name; a bare name is of DORMOUSE_TENANT, the key's tenant, or `default`.
    pub id: NamedJob,
}

/// A job, now or in an exported log.
#[derive(Debug, Clone, Args)]
pub struct JobHistoryArgs {
    #[command(flatten)]
    pub job: JobArg,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `job …`.
///
/// # Errors
/// If the job is unknown, or the cluster does not answer.
pub async fn run(context: &Context, command: &JobCommand) -> anyhow::Result<u8> {
    match command {
        JobCommand::List(args) => list::run(context, args).await,
        JobCommand::Show(args) => show::run(context, args).await,
        JobCommand::Logs(args) => logs::run(context, args).await,
        JobCommand::Exec(args) => exec::run(context, args).await,
        JobCommand::Events(args) => events::run(context, args).await,
        JobCommand::Wait(args) => wait::run(context, args).await,
        JobCommand::Cancel(args) => cancel::run(context, args).await,
        JobCommand::Hold(args) => hold::run(context, args).await,
        JobCommand::Release(args) => release::run(context, args).await,
        JobCommand::Requeue(args) => requeue::run(context, args).await,
        JobCommand::Update(args) => update::run(context, args).await,
    }
}
