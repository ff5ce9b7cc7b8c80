//! Builds events about containers.

use dormouse_messages::events::{ContainerExited, ContainerStarted, NodeFault, NodeFaulted};
use dormouse_messages::{ContainerId, NodeId};

use crate::Exit;

/// Builds `container.started`.
#[must_use]
pub fn started(container: &ContainerId, node: &NodeId, pid: u32) -> ContainerStarted {
    ContainerStarted {
        container: container.clone(),
        node: node.clone(),
        pid,
    }
}

/// Builds `container.exited`.
#[must_use]
pub fn exited(container: &ContainerId, node: &NodeId, exit: Exit) -> ContainerExited {
    ContainerExited {
        container: container.clone(),
        node: node.clone(),
        exit_code: exit.code,
        signal: exit.signal,
        out_of_memory: exit.out_of_memory,
        reason: exit.reason,
        evicted: exit.evicted,
    }
}

/// Builds `node.faulted`.
#[must_use]
pub fn faulted(
    container: &ContainerId,
    node: &NodeId,
    fault: NodeFault,
    exit: &Exit,
) -> NodeFaulted {
    NodeFaulted {
        node: node.clone(),
        job: container.job.clone(),
        incarnation: container.incarnation,
        rank: container.rank,
        fault,
        reason: exit.reason.clone().unwrap_or_default(),
    }
}
