//! `job requeue`.

use clap::Args;

use super::change::{self, Change};
use crate::cli::filter::WhichArgs;
use crate::context::Context;

/// Stop a job after a checkpoint, to start again later
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse job requeue ads/lr")]
pub struct RequeueArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// Also requeue a running job without a checkpoint, which then begins again.
    #[arg(long)]
    pub force: bool,
}

/// Runs `job requeue`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, args: &RequeueArgs) -> anyhow::Result<u8> {
    let change = Change::of_flag("requeue", "requeue", true, args.force);
    change::run(context, &args.which, &change).await
}
