//! Which agents answer: a node counts as up until its lease ends, however long its agent is gone.

use dormouse_messages::NodeId;
use dormouse_node_agent::logs::CONTAINERS;
use dormouse_runtime::{ApiError, Log};
use futures::StreamExt;
use futures::stream::iter;

/// How many are asked at once.
const AT_ONCE: usize = 64;

/// Whether the agent of a node answers, if only that it does not understand.
pub async fn answers(log: &Log, node: &NodeId) -> bool {
    let answer = log.ask_node(node, CONTAINERS, None, Vec::new()).await;
    !matches!(answer, Err(ApiError::NodeSilent { .. }))
}

/// Those of these nodes whose agents do not answer, in order.
pub async fn silent<'a>(log: &Log, nodes: &[&'a NodeId]) -> Vec<&'a NodeId> {
    let asked = iter(nodes).map(|node| async { (*node, answers(log, node).await) });
    let answered = asked.buffered(AT_ONCE);
    let silent = answered.filter_map(|(node, answers)| async move { (!answers).then_some(node) });
    silent.collect().await
}
