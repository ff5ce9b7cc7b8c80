//! `node show`.

use clap::Args;
use dormouse_projections::queries::NodeQuery;

use crate::cli::filter::WatchArg;
use crate::cli::node::NodeArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render;

/// Show a node
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse node show n1\n  dormouse node show n1 -o json")]
pub struct ShowArgs {
    #[command(flatten)]
    pub node: NodeArg,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `node show`.
///
/// # Errors
/// If there is no such node, or the query service does not answer.
pub async fn run(context: &Context, args: &ShowArgs) -> anyhow::Result<u8> {
    let request = NodeQuery {
        node: args.node.name.clone(),
    };
    let log = context.connect().await?;
    watched::show(context, &log, "node", &request, args.watch, render::node).await
}
