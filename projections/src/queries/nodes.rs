//! The queries `nodes` and `node`.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::Gpu;
use dormouse_messages::reservation::ReservationPhase;
use dormouse_messages::{Amounts, By, Incarnation, JobId, NodeId, Rank, ReservationId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::ReadModel;
use crate::nodes::{ContainerState, GpuDoubt, Node, NodeState, containers};
use dormouse_state::{NodePhase, ReservationState};

/// Seconds of listing a lost node.
pub const LOST_LISTED_S: u32 = 3_600;

/// The query's parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodesQuery {
    pub all: bool,
}

/// The nodes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NodesAnswer {
    pub nodes: Vec<NodeRow>,
    #[serde(default)]
    pub left_out: u32,
}

/// A row of the node list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    pub node: NodeId,
    pub state: NodeState,
    pub reason: String,
    pub capacity: Amounts,
    pub used: Amounts,
    pub containers: u32,
    pub running: u32,
    pub reserved: u32,
    pub runtime: String,
    pub address: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taints: BTreeSet<String>,
    pub joined_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drained_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
}

/// The query's parameters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeQuery {
    pub node: NodeId,
}

/// Everything known about one node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeDetail {
    #[serde(flatten)]
    pub row: NodeRow,
    pub agent_incarnation: u64,
    #[serde(default)]
    pub gpus: Vec<Gpu>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub gpu_doubts: BTreeMap<String, GpuDoubt>,
    pub placed: Vec<NodeContainer>,
}

/// A container on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeContainer {
    pub job: JobId,
    pub incarnation: Incarnation,
    pub rank: Rank,
    pub state: ContainerState,
}

pub(super) fn nodes(model: &ReadModel, query: NodesQuery, now: Timestamp) -> NodesAnswer {
    let long_ago = |lost: Timestamp| now.seconds_since(lost) > f64::from(LOST_LISTED_S);
    let mut answer = NodesAnswer::default();
    for (name, node) in model.nodes() {
        if node.lost().is_some_and(|lost| long_ago(lost.at)) && !query.all {
            answer.left_out += 1
        } else {
            answer.nodes.push(row(model, name, &node))
        }
    }
    answer
}

pub(super) fn node(model: &ReadModel, query: &NodeQuery) -> Result<NodeDetail, QueryError> {
    let node = model.node(&query.node).ok_or_else(|| {
        QueryError::not_found(format!(
            "there is no node {}; `dormouse nodes` lists those that have joined",
            query.node
        ))
    })?;
    let here = containers(model.state()).filter(|it| it.node == &query.node);
    let placed = here.map(|container| NodeContainer {
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        state: container.state,
    });
    Ok(NodeDetail {
        row: row(model, &query.node, &node),
        agent_incarnation: node.present.incarnation,
        gpus: node.present.gpus.clone(),
        gpu_doubts: node.past.gpu_doubts.clone(),
        placed: placed.collect(),
    })
}

fn row(model: &ReadModel, name: &NodeId, node: &Node<'_>) -> NodeRow {
    let (present, past, load) = (node.present, node.past, &node.load);
    NodeRow {
        node: name.clone(),
        state: node.state(),
        reason: reason(node, stay(model, name, node), &reserved(model, name)),
        capacity: present.capacity.clone(),
        used: load.used.clone(),
        containers: load.containers,
        running: load.running,
        reserved: load.reserved,
        runtime: past.runtime.clone(),
        address: present.address.clone(),
        labels: present.labels.clone(),
        taints: present.taints.clone(),
        joined_at: past.joined,
        drained_at: node.drain().map(|drain| drain.at),
        lost_at: node.lost().map(|lost| lost.at),
        last_seen: node.lost().map(|lost| lost.last_seen),
    }
}

/// Counts containers of jobs without adjustment, which do not leave.
fn stay(model: &ReadModel, name: &NodeId, node: &Node<'_>) -> u32 {
    if !node.present.drained {
        return 0;
    }
    let stays = |job: &JobId| model.queues.jobs.get(job).is_some_and(|it| !it.adjustable);
    let here = containers(model.state()).filter(|it| it.node == name && stays(it.job));
    let containers = node.load.containers;
    u32::try_from(here.count()).map_or(containers, |it| it.min(containers))
}

fn leaving(containers: u32, stay: u32) -> String {
    let counted = |count: u32, one: &str, more: &str| match count {
        1 => format!("1 container {one}"),
        count => format!("{count} containers {more}"),
    };
    let leave = containers - stay;
    let leaves = (leave > 0).then(|| counted(leave, "leaves", "leave"));
    let stays = (stay > 0).then(|| {
        let stays = counted(stay, "stays until it ends", "stay until they end");
        format!("{stays}, without a checkpoint")
    });
    let both: Vec<String> = leaves.into_iter().chain(stays).collect();
    if both.is_empty() {
        "empty".to_owned()
    } else {
        both.join("; ")
    }
}

/// Describes the reservations of a node.
fn reserved(model: &ReadModel, name: &NodeId) -> String {
    let said = |(name, it): (&ReservationId, &ReservationState)| {
        let occurrence = it.occurrence?;
        let why = it.settings.reason.as_ref();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let (from, until) = (occurrence.from.to_words(), occurrence.until.to_words());
        match occurrence.phase {
            ReservationPhase::Planned => Some(format!("; reserved as {name} from {from}{why}")),
            ReservationPhase::Approaching => Some(format!("; empties for {name} from {from}{why}")),
            ReservationPhase::Active => Some(format!("; reserved as {name} until {until}{why}")),
            ReservationPhase::Over => None,
        }
    };
    model
        .state()
        .reservations
        .of_node(name)
        .filter_map(said)
        .collect()
}

fn reason(node: &Node<'_>, stay: u32, reserved: &str) -> String {
    let short = |time: Timestamp| time.to_words();
    if let Some(lost) = node.lost() {
        if matches!(node.present.phase, NodePhase::Returning { .. }) {
            return "its agent is back; waits for its recovery to be recorded".to_owned();
        }
        if let Some(how) = &lost.fenced {
            let at = short(lost.at);
            return format!("its containers have ended, {at}: {how}; its jobs restart elsewhere");
        }
        // The node may never have renewed.
        let seen = Some(lost.last_seen).filter(|seen| *seen > Timestamp::default());
        let seen = seen.map(|at| format!("last seen {}; ", short(at)));
        let seen = seen.unwrap_or_default();
        return format!("its lease ended; {seen}its jobs restart elsewhere");
    }
    if let Some(drain) = node.drain() {
        let why = drain.reason.as_ref();
        let why = why.map_or_else(String::new, |why| format!(" ({why})"));
        let containers = node.load.containers;
        let by = node.present.leave_by.filter(|_| containers > 0);
        let by = by.map_or_else(String::new, |by| {
            format!(", at the latest by {}", short(by))
        });
        let rest = leaving(containers, stay);
        let operator = drain.by.as_ref();
        let operator = operator.map_or_else(|| "the operator".to_owned(), By::to_string);
        let at = short(drain.at);
        return format!("drained by {operator} at {at}{why}; {rest}{by}");
    }
    if let Some(quarantine) = &node.present.health.quarantine {
        let until = short(quarantine.until);
        return format!("quarantined until {until}: {}", quarantine.reason);
    }
    let up = node
        .past
        .joined
        .map(|at| format!("up since {}{reserved}", short(at)));
    up.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stays_on_a_drained_node_is_not_said_to_leave() {
        assert_eq!(leaving(0, 0), "empty");
        assert_eq!(leaving(2, 0), "2 containers leave");
        let without = "without a checkpoint";
        let one = format!("1 container stays until it ends, {without}");
        assert_eq!(leaving(1, 1), one);
        let both = format!("1 container leaves; 2 containers stay until they end, {without}");
        assert_eq!(leaving(3, 2), both);
    }
}
