//! `node fence`.

use clap::Args;
use dormouse_messages::events::NodeFenced;
use dormouse_messages::{Event, NodeId};
use dormouse_projections::queries::NodeDetail;
use serde_json::json;

use super::row::unchanged;
use crate::commands::common::{agents, caught_up, operator, query};
use crate::context::Context;
use crate::error::Coded;

/// Declare that a node's containers have ended, since its power is off: they are replaced at once
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse node fence n1 --reason 'its power is off'\n\nRefused while the node's agent answers; `node drain` moves its jobs."
)]
pub struct FenceArgs {
    /// Node.
    pub name: NodeId,
    /// Evidence; recorded on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Fence even if the node's agent answers: its containers may run twice for a moment.
    #[arg(long)]
    pub force: bool,
}

/// Runs `node fence NAME`. Jobs start elsewhere at once: live containers would run twice.
///
/// # Errors
/// If there is no such node, its agent answers, or the event cannot be appended.
pub async fn run(context: &Context, args: &FenceArgs) -> anyhow::Result<u8> {
    let FenceArgs {
        name,
        reason,
        force,
    } = args.clone();
    let log = context.connect().await?;
    caught_up(&log).await?;
    let node: NodeDetail = query(&log, "node", json!({"node": name})).await?;
    if node.row.lost_at.is_some() {
        return unchanged(context, &format!("{name} is lost already"));
    }
    if !force && agents::answers(&log, &name).await {
        let why = format!(
            "the agent of {name} answers, so what runs there has not ended and would run twice; `dormouse node drain {name}` moves it, or stop the agent first, or say it all the same with --force"
        );
        return Err(Coded::new("not_ended", why).into());
    }
    let fenced = NodeFenced {
        node: name.clone(),
        incarnation: node.agent_incarnation,
        reason,
    };
    let said = format!("{name} is lost: what ran there is started elsewhere");
    operator::append_to(log, context, vec![Event::from(fenced)], &said).await
}
