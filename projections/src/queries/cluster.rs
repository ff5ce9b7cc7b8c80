//! The query `cluster`.

use std::collections::BTreeMap;

use dormouse_messages::events::{LogArchived, LogFilled};
use dormouse_messages::policy::Policy;
use dormouse_messages::{Amounts, Build, Epoch, Format, Sequence, Timestamp};
use dormouse_state::Gate;
use serde::{Deserialize, Serialize};

use crate::ReadModel;
use crate::cluster::LastAllocation;
use crate::nodes::{NodeState, used as nodes_used};

/// The cluster at a glance.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ClusterAnswer {
    pub policy: Policy,
    /// 0 for the default policy.
    pub policy_sequence: Sequence,
    pub log: LogHead,
    pub nodes: NodeCounts,
    /// On nodes not lost.
    pub resources: BTreeMap<String, ResourceUse>,
    pub jobs: BTreeMap<String, u64>,
    /// Including cancellations and revisions.
    pub refused: u64,
    pub containers: u64,
    pub epoch: Epoch,
    pub allocations_decided: u64,
    pub allocations_kept: u64,
    pub placements_refused: u64,
    /// By choice.
    pub adjusted: f64,
    /// By lost nodes or revised bounds.
    pub forced: f64,
    pub allocation: Option<LastAllocation>,
    #[serde(default)]
    pub events: BTreeMap<String, u64>,
    pub builds: BuildsAnswer,
    #[serde(default)]
    pub archive: ArchiveAnswer,
}

/// The log's archive.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ArchiveAnswer {
    pub newest: Option<LogArchived>,
    /// Events after the newest segment.
    pub waiting: u64,
    /// Age of the newest segment's end, or of the log without one.
    pub lag_s: f64,
    /// The last change of how full the log is.
    pub filled: Option<LogFilled>,
}

/// The builds that run, and the log's format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildsAnswer {
    pub format: Format,
    /// By service and instance.
    pub processes: BTreeMap<String, Build>,
    pub gate: Gate,
}

/// The folded end of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LogHead {
    pub head: Sequence,
    pub at: Timestamp,
    pub quiet_s: f64,
    pub events: u64,
    pub flagged: u64,
    pub last_flagged: Option<FlaggedEvent>,
}

/// An unused event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlaggedEvent {
    pub sequence: Sequence,
    pub reason: String,
}

/// Nodes by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeCounts {
    pub up: u32,
    pub drained: u32,
    #[serde(default)]
    pub quarantined: u32,
    pub lost: u32,
}

/// One resource, in log units (thousandths; bytes).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceUse {
    pub used: u64,
    pub capacity: u64,
    /// Running or not.
    #[serde(default)]
    pub allocated: u64,
    /// Running partitions, until their end; at most `used`.
    #[serde(default)]
    pub running: u64,
}

pub(super) fn cluster(model: &ReadModel, now: Timestamp) -> ClusterAnswer {
    let overview = &model.cluster;
    let mut nodes = NodeCounts::default();
    let mut containers = 0;
    for (_, node) in model.nodes() {
        match node.state() {
            NodeState::Up => nodes.up += 1,
            NodeState::Drained => nodes.drained += 1,
            NodeState::Quarantined => nodes.quarantined += 1,
            NodeState::Lost => nodes.lost += 1,
        }
        containers += u64::from(node.load.containers);
    }
    let capacity = model.capacity();
    let used = nodes_used(model.state());
    let (mut allocated, mut running) = (Amounts::new(), Amounts::new());
    for (id, job) in model.jobs.live() {
        if let Some(request) = job.request(id, model.state()) {
            allocated.add(&request.amounts(job.target), 1);
            running.add(&request.amounts(job.now), 1);
        }
    }
    let resources = capacity.iter().map(|(resource, capacity)| {
        let usage = ResourceUse {
            used: used.get(resource),
            capacity,
            allocated: allocated.get(resource),
            running: running.get(resource).min(used.get(resource)),
        };
        (resource.name().to_owned(), usage)
    });
    let counts = model.jobs.counts().iter();
    let (adjusted, forced) = model.timelines.adjustments();
    let flagged = overview.last_flagged.as_ref();
    ClusterAnswer {
        policy: overview.policy.clone(),
        policy_sequence: overview.policy_sequence,
        log: LogHead {
            head: overview.head,
            at: overview.now,
            quiet_s: now.seconds_since(overview.now).max(0.0),
            events: overview.events,
            flagged: overview.flagged,
            last_flagged: flagged.map(|(sequence, reason)| FlaggedEvent {
                sequence: *sequence,
                reason: reason.clone(),
            }),
        },
        nodes,
        resources: resources.collect(),
        jobs: counts
            .map(|(phase, count)| (phase.as_str().to_owned(), count))
            .collect(),
        refused: model.jobs.refused_total(),
        containers,
        epoch: overview.epoch,
        allocations_decided: overview.decided,
        allocations_kept: overview.kept,
        placements_refused: overview.placements_refused,
        adjusted,
        forced,
        allocation: overview.allocation.as_deref().cloned(),
        events: overview
            .by_type()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), count))
            .collect(),
        builds: builds(model, now),
        archive: archive(model, now),
    }
}

fn archive(model: &ReadModel, now: Timestamp) -> ArchiveAnswer {
    let overview = &model.cluster;
    let newest = overview.archived.as_deref();
    let last = newest.map_or(Sequence(0), |it| it.last);
    let since = newest.map_or(overview.begun, |it| it.ended);
    ArchiveAnswer {
        newest: newest.cloned(),
        waiting: overview.head.0.saturating_sub(last.0),
        lag_s: now.seconds_since(since).max(0.0),
        filled: overview.filled.clone(),
    }
}

fn builds(model: &ReadModel, now: Timestamp) -> BuildsAnswer {
    let state = model.state();
    BuildsAnswer {
        format: state.builds.format,
        processes: state.builds.builds(),
        gate: state.builds.gate(state.policy.upgrades, now),
    }
}
