//! Finds agents that answer: a node counts as up until its lease ends, even without its agent.

use dormouse_messages::NodeId;
use dormouse_node_agent::logs::CONTAINERS;
use dormouse_runtime::{ApiError, Log};
use futures::StreamExt;
use futures::stream::iter;

const AT_ONCE: usize = 64;

/// True if the agent of a node answers, even with an error.
pub async fn answers(log: &Log, node: &NodeId) -> bool {
    let answer = log.ask_node(node, CONTAINERS, None, Vec::new()).await;
    !matches!(answer, Err(ApiError::NodeSilent { .. }))
}

/// Returns the nodes whose agents do not answer, in order.
pub async fn silent<'a>(log: &Log, nodes: &[&'a NodeId]) -> Vec<&'a NodeId> {
    let asked = iter(nodes).map(|node| async { (*node, answers(log, node).await) });
    let answered = asked.buffered(AT_ONCE);
    let silent = answered.filter_map(|(node, answers)| async move { (!answers).then_some(node) });
    silent.collect().await
}
