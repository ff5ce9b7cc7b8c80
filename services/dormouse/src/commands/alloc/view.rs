//! Queues and allocations as the commands show them.

use dormouse_messages::Timestamp;
use dormouse_messages::slurm::SlurmQueue;
use dormouse_state::{ClusterState, SlurmAllocation, SlurmPhase};
use serde::{Deserialize, Serialize};

/// A queue.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueueView {
    pub queue: String,
    pub settings: SlurmQueue,
    /// The reason for which it asks for nothing.
    pub paused: Option<String>,
    /// Failures in a row.
    pub failures: u32,
    pub last_failure: Option<String>,
    pub allocations: Vec<AllocationView>,
}

/// An allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AllocationView {
    pub number: u64,
    /// `requested`, `waiting`, `running`, `leaving` or `ended`.
    pub state: String,
    pub slurm_job: Option<u64>,
    pub nodes: Vec<String>,
    /// Slurm's names of the nodes.
    pub hosts: Option<String>,
    /// Slurm's reason to wait.
    pub reason: Option<String>,
    pub starts_at: Option<Timestamp>,
    pub ends_at: Option<Timestamp>,
    /// The first of the jobs for which it was requested.
    pub jobs: Vec<String>,
}

/// Returns all queues.
pub fn queues(state: &ClusterState) -> Vec<QueueView> {
    let queues = state.slurm.iter().map(|(name, queue)| QueueView {
        queue: name.to_string(),
        settings: queue.settings.clone(),
        paused: queue.paused(),
        failures: queue.failures,
        last_failure: queue.last_failure.clone(),
        allocations: queue
            .allocations
            .iter()
            .map(|(number, it)| {
                let nodes = it.node_names(name).map(|node| node.to_string());
                allocation(*number, it, nodes.collect())
            })
            .collect(),
    });
    queues.collect()
}

fn allocation(number: u64, it: &SlurmAllocation, nodes: Vec<String>) -> AllocationView {
    let mut view = AllocationView {
        number,
        state: String::new(),
        slurm_job: it.slurm_job,
        nodes,
        hosts: None,
        reason: None,
        starts_at: None,
        ends_at: None,
        jobs: it.jobs.iter().map(ToString::to_string).collect(),
    };
    let state = match &it.phase {
        SlurmPhase::Requested => "requested",
        SlurmPhase::Waiting { reason, starts_at } => {
            view.reason = Some(reason.clone()).filter(|reason| !reason.is_empty());
            view.starts_at = *starts_at;
            "waiting"
        }
        SlurmPhase::Running { hosts, ends_at } => {
            view.hosts = Some(hosts.clone());
            view.ends_at = *ends_at;
            "running"
        }
        SlurmPhase::Ended => "ended",
    };
    let is_leaving = it.released && it.phase != SlurmPhase::Ended;
    (if is_leaving { "leaving" } else { state }).clone_into(&mut view.state);
    view
}
