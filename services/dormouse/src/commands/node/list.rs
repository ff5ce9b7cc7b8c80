//! `node list`, with the short form `nodes`.

use clap::Args;
use dormouse_projections::queries::NodesQuery;

use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render;

/// List nodes
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse node list\n  dormouse node list --all       # with those that were lost long ago\n  dormouse node list -o json\n\n`dormouse nodes` is short for this command."
)]
pub struct ListArgs {
    /// Include nodes lost more than an hour ago.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Lists nodes.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<u8> {
    let request = NodesQuery { all: args.all };
    let log = context.connect_as_holder().await?;
    watched::show(context, &log, "nodes", &request, args.watch, render::nodes).await
}
