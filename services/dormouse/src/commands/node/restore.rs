//! `node restore`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::NodeRestored;
use dormouse_projections::nodes::NodeState;

use super::row::{row, unchanged};
use crate::cli::node::NodeArg;
use crate::commands::common::operator;
use crate::context::Context;

/// Use a drained node again
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse node restore n1")]
pub struct RestoreArgs {
    #[command(flatten)]
    pub node: NodeArg,
}

/// Runs `node restore NAME`.
///
/// # Errors
/// If there is no such node or the event cannot be appended.
pub async fn run(context: &Context, args: &RestoreArgs) -> anyhow::Result<u8> {
    let node = args.node.name.clone();
    let row = row(context, &args.node.name).await?;
    if row.drained_at.is_none() && row.state != NodeState::Quarantined {
        return unchanged(
            context,
            &format!("{node} is neither drained nor quarantined"),
        );
    }
    let said = match row.state {
        NodeState::Lost => {
            format!("{node} is lost now; it takes containers again when its agent is back")
        }
        _ => format!("{node} takes containers again"),
    };
    operator::append(context, Event::from(NodeRestored { node }), &said).await
}
