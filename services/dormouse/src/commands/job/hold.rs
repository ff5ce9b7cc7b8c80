//! `job hold`.

use clap::Args;

use super::change::{self, Change};
use crate::cli::filter::WhichArgs;
use crate::context::Context;

/// Put a job on hold: it saves, releases its containers, and gets none
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job hold ads/lr\n  dormouse job hold --tenant ads --phase queued --yes"
)]
pub struct HoldArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// Also hold a running job without a checkpoint, which then begins again.
    #[arg(long)]
    pub force: bool,
}

/// Runs `job hold`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, args: &HoldArgs) -> anyhow::Result<u8> {
    let change = Change::of_flag("hold", "held", true, args.force);
    change::run(context, &args.which, &change).await
}
