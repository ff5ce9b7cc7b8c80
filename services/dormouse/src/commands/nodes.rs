//! `nodes`, `node show`.

use clap::Args;
use dormouse_messages::NodeId;
use dormouse_projections::queries::{NodeQuery, NodesQuery};

use super::watched;
use crate::cli::list::WatchArg;
use crate::context::Context;
use crate::render;

/// List nodes
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse nodes\n  dormouse nodes --all       # with those that were lost long ago\n  dormouse nodes -o json"
)]
pub struct NodesArgs {
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
pub async fn run(context: &Context, args: NodesArgs) -> anyhow::Result<u8> {
    let request = NodesQuery { all: args.all };
    let log = context.connect_as_holder().await?;
    watched::show(context, &log, "nodes", &request, args.watch, render::nodes).await
}

/// Shows one node.
///
/// # Errors
/// If there is no such node, or the query service does not answer.
pub async fn show(context: &Context, name: &NodeId, watch: WatchArg) -> anyhow::Result<u8> {
    let request = NodeQuery { node: name.clone() };
    let log = context.connect().await?;
    watched::show(context, &log, "node", &request, watch, render::node).await
}
