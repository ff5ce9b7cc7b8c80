//! `node drain`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::NodeDrained;

use super::row::{row, unchanged};
use crate::cli::duration::Limit;
use crate::cli::node::NodeArg;
use crate::commands::common::operator;
use crate::context::Context;

/// Move everything off a node and place nothing on it
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse node drain n1\n  dormouse node drain n1 --reason 'a new disk' --deadline 1h\n\nA job without a checkpoint stays until it ends, or until the deadline."
)]
pub struct DrainArgs {
    #[command(flatten)]
    pub node: NodeArg,
    /// Reason; shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Time after which the remaining containers start elsewhere.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Limit>,
}

/// Runs `node drain NAME`.
///
/// # Errors
/// If there is no such node or the event cannot be appended.
pub async fn run(context: &Context, args: &DrainArgs) -> anyhow::Result<u8> {
    let node = args.node.name.clone();
    let changes = args.reason.is_some() || args.deadline.is_some();
    let is_drained = row(context, &args.node.name).await?.drained_at.is_some();
    if is_drained && !changes {
        return unchanged(context, &format!("{node} is drained already"));
    }
    let deadline_s = args.deadline.map(|deadline| deadline.0);
    let said = match deadline_s {
        None => format!(
            "{node} is drained: what can move, moves; a job without a checkpoint stays until it ends"
        ),
        Some(s) => format!("{node} is drained: what can move, moves; the rest is stopped in {s} s"),
    };
    let event = NodeDrained {
        node,
        reason: args.reason.clone(),
        deadline_s,
    };
    operator::append(context, Event::from(event), &said).await
}
