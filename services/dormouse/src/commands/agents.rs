//! Which agents answer: a node counts as up until its lease ends, however long its agent is gone.

use dormouse_messages::NodeId;
use dormouse_node_agent::logs::CONTAINERS;
use dormouse_runtime::{ApiError, Log};
use futures::StreamExt;
use futures::stream::iter;

/// How many are asked at once.
const AT_ONCE: usize = 64;

/// Whether the agent of a node answers, if only that it does not understand.
///
/// # Errors
/// Why it does not.
pub async fn answers(log: &Log, node: &NodeId) -> Result<(), ApiError> {
    match log.ask_node(node, CONTAINERS, None, Vec::new()).await {
        Err(silent @ ApiError::NodeSilent { .. }) => Err(silent),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Those of these nodes whose agents do not answer, in order.
pub async fn silent<'a>(log: &Log, nodes: &[&'a NodeId]) -> Vec<&'a NodeId> {
    let asked = iter(nodes).map(|node| async { (*node, answers(log, node).await) });
    let answered = asked.buffered(AT_ONCE);
    let silent =
        answered.filter_map(|(node, answer)| async move { answer.is_err().then_some(node) });
    silent.collect().await
}
