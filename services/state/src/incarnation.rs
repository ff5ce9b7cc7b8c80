//! The incarnation of a job last asked to start.

use std::collections::BTreeMap;

use dormouse_messages::events::StopReason;
use dormouse_messages::{Epoch, Incarnation, NodeId, Rank, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

use crate::members::Members;

/// Node, GPUs and ports of an assigned container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub node: NodeId,
    pub gpus: Vec<String>,
    /// The first port.
    pub port: u16,
}

/// A container's last known phase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerPhase {
    Requested,
    Started,
    Exited {
        success: bool,
        /// Ended by the platform.
        evicted: bool,
        why: String,
        at: Sequence,
    },
    Lost {
        at: Sequence,
    },
}

/// The readiness of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Readiness {
    #[default]
    Unknown,
    Ready,
    Unready {
        at: Sequence,
    },
}

/// A container of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionContainer {
    pub place: Place,
    pub phase: ContainerPhase,
    /// Only if the job asks for readiness.
    pub readiness: Readiness,
}

impl PartitionContainer {
    /// Reports whether the container may hold capacity.
    #[must_use]
    pub fn holds_room(&self) -> bool {
        matches!(
            self.phase,
            ContainerPhase::Requested | ContainerPhase::Started
        )
    }
}

/// The phase of an incarnation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartitionPhase {
    Starting,
    Running,
    Saving {
        since: Timestamp,
        requested: Sequence,
        saved: Option<Sequence>,
        /// The agent's report.
        failed: Option<(Sequence, String)>,
    },
    Stopping {
        reason: StopReason,
        requested: Sequence,
        /// All containers were reported running.
        whole: bool,
    },
}

/// The incarnation last asked to start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Partition {
    pub incarnation: Incarnation,
    pub epoch: Epoch,
    pub requested_at: Timestamp,
    /// Since all containers run.
    pub running_since: Option<Timestamp>,
    /// First progress, from which on saves may be requested.
    pub ready_at: Option<Timestamp>,
    pub last_event: Sequence,
    pub resumed_from: Option<String>,
    pub containers: BTreeMap<Rank, PartitionContainer>,
    /// An incarnation never reuses ranks.
    pub numbered: Rank,
    pub phase: PartitionPhase,
    /// Any container ran, so output may exist.
    pub ran: bool,
    /// Containers reported running, then or later.
    pub begun: u32,
    /// An agent that was to start a container has rejoined.
    pub rejoined: bool,
    pub members: Option<Members>,
}

impl Partition {
    /// Reports whether no container holds capacity.
    #[must_use]
    pub fn is_over(&self) -> bool {
        !self.containers.values().any(PartitionContainer::holds_room)
    }

    /// Returns the first failure. If the containers never ran together, failures after the stop request do
    /// not count.
    #[must_use]
    pub fn first_failure(&self) -> Option<&str> {
        let asked = match self.phase {
            PartitionPhase::Stopping { requested, .. } if self.running_since.is_none() => {
                Some(requested)
            }
            _ => None,
        };
        let exits = self.containers.values();
        let failed = exits.filter_map(|container| match &container.phase {
            ContainerPhase::Exited {
                success: false,
                why,
                at,
                ..
            } if asked.is_none_or(|asked| *at < asked) => Some((*at, why.as_str())),
            _ => None,
        });
        failed.min().map(|(_, why)| why)
    }

    /// Reports whether every container is reported running.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        let mut containers = self.containers.values();
        containers.all(|container| container.phase == ContainerPhase::Started)
    }

    /// Reports whether absent brokers or agents may explain a start time-out: every container was reported
    /// running, or the agent of one has rejoined.
    #[must_use]
    pub fn may_have_been_delayed(&self) -> bool {
        let all = u32::try_from(self.containers.len()).unwrap_or(u32::MAX);
        let have_begun = all > 0 && self.begun >= all;
        self.running_since.is_none() && (have_begun || self.rejoined)
    }

    /// Reports whether every container ran or ended.
    #[must_use]
    pub fn all_started(&self) -> bool {
        let requested = |c: &PartitionContainer| c.phase == ContainerPhase::Requested;
        !self.containers.values().any(requested)
    }
}
