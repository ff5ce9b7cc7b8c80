//! `node remove`.

use clap::Args;
use dormouse_messages::Event;
use dormouse_messages::events::NodeRemoved;
use dormouse_projections::nodes::NodeState;

use super::row::row;
use crate::cli::node::NodeArg;
use crate::commands::common::operator;
use crate::context::Context;
use crate::error::Coded;

/// Forget a node that is lost, or drained and empty
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse node remove n1")]
pub struct RemoveArgs {
    #[command(flatten)]
    pub node: NodeArg,
}

/// Runs `node remove NAME`.
///
/// # Errors
/// If there is no such node, it is in use, or the append fails.
pub async fn run(context: &Context, args: &RemoveArgs) -> anyhow::Result<u8> {
    let node = args.node.name.clone();
    let row = row(context, &node).await?;
    let empty = row.containers == 0 && row.reserved == 0;
    match row.state {
        NodeState::Lost => {}
        NodeState::Drained if empty => {}
        NodeState::Drained => {
            let message = format!("{node} is drained and not empty yet: {}", row.reason);
            return Err(Coded::new("in_use", message).into());
        }
        NodeState::Up | NodeState::Quarantined => {
            let message = format!("{node} is in use; `dormouse node drain {node}` first");
            return Err(Coded::new("in_use", message).into());
        }
    }
    let said = format!("{node} is removed; an agent of that name may join again");
    operator::append(context, Event::from(NodeRemoved { node }), &said).await
}
