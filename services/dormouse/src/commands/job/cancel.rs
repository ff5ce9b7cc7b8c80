//! `job cancel`.

use clap::Args;
use serde_json::Map;

use super::change::{self, Change};
use crate::cli::filter::WhichArgs;
use crate::context::Context;

/// Cancel a job, or all that match
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job cancel ads/lr\n  dormouse job cancel --tenant ads --phase queued --name 'lr-*'"
)]
pub struct CancelArgs {
    #[command(flatten)]
    pub which: WhichArgs,
}

/// Runs `job cancel`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, args: &CancelArgs) -> anyhow::Result<u8> {
    let change = Change::new("cancel", "cancel", Map::new());
    change::run(context, &args.which, &change).await
}
