//! `tenant list`, with the short form `tenants`.

use clap::Args;

use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render;

/// List tenants: what each is entitled to, has, and waits for
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse tenant list\n  dormouse tenant list -o wide\n  dormouse tenant list --watch\n\nWEIGHT in brackets: not configured, the policy's. `dormouse tenants` is short for this command."
)]
pub struct ListArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `tenant list`.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    watched::show(context, &log, "tenants", &(), args.watch, render::tenants).await
}
