//! Nodes with their containers, compact for a thousand nodes.

use std::collections::BTreeMap;

use dormouse_messages::{Amounts, JobId, NodeId};
use dormouse_projections::ReadModel;
use dormouse_projections::nodes::{ContainerState, Node, NodeState, containers};
use serde::Serialize;

/// The nodes of a moment.
#[derive(Debug, Default, Serialize)]
pub struct NodeMap {
    /// Jobs with containers; nodes refer to their index.
    jobs: Vec<JobId>,
    nodes: Vec<MapNode>,
}

/// Name, state, share of the scarcest resource; each job's index, containers and share.
#[derive(Debug, Serialize)]
struct MapNode(NodeId, NodeState, f64, Vec<(usize, u32, f64)>);

/// Returns the nodes of a moment, without long lost ones.
pub fn of(model: &ReadModel) -> NodeMap {
    let mut by_node: BTreeMap<&NodeId, BTreeMap<usize, (u32, Amounts)>> = BTreeMap::new();
    let mut jobs: Vec<JobId> = Vec::new();
    for container in containers(model.state()) {
        if container.state == ContainerState::Reserved {
            continue;
        }
        if jobs.last() != Some(container.job) {
            jobs.push(container.job.clone());
        }
        let on = by_node.entry(container.node).or_default();
        let (count, held) = on.entry(jobs.len() - 1).or_default();
        *count += 1;
        held.add(container.demand, 1);
    }
    let nodes = model.nodes().filter(|(_, node)| {
        let lost = node.lost();
        let lost = lost.map(|lost| model.cluster.now.seconds_since(lost.at));
        lost.is_none_or(|lost_s| lost_s < 3_600.0)
    });
    let nodes = nodes.map(|(name, node)| {
        let here = by_node.remove(name).unwrap_or_default();
        let here = here
            .into_iter()
            .map(|(job, (count, held))| (job, count, taken(&held, &node)));
        MapNode(
            name.clone(),
            node.state(),
            taken(&node.load.used, &node),
            here.collect(),
        )
    });
    let nodes = nodes.collect();
    NodeMap { jobs, nodes }
}

#[expect(clippy::cast_precision_loss, reason = "a figure to look at")]
fn taken(amounts: &Amounts, node: &Node<'_>) -> f64 {
    let parts = amounts.iter().map(|(resource, amount)| {
        let capacity = node.present.capacity.get(resource).max(1);
        amount as f64 / capacity as f64
    });
    let part = parts.fold(0.0, f64::max);
    (part * 1e4).round() / 1e4
}
