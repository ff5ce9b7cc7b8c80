//! `cluster status`.

use clap::Args;

use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render;

/// Show the cluster at a glance: policy, use, jobs by phase
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster status\n  dormouse cluster status -o json\n  dormouse cluster status --watch"
)]
pub struct StatusArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `cluster status`.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: StatusArgs) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    watched::show(context, &log, "cluster", &(), args.watch, render::cluster).await
}
