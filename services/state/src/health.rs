//! Starts that fail for reasons of a node's own: what is known of a node, and of a job.

use std::collections::BTreeSet;

use dormouse_messages::events::{NodeFault, NodeFaulted, NodeQuarantined};
use dormouse_messages::{Incarnation, JobId, NodeId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// Faults of one node that are kept: more than are needed to judge it.
const FAULTS_KEPT: usize = 8;

/// Failed starts in a row that make a node suspect.
const SUSPECT: usize = 3;

/// Lives in a row that end so, for a reason that may be the job's, until it is taken for the job's.
const JOBS_OWN: u32 = 5;

/// Lives in a row that may begin too late until that is the job's own doing.
const LATE: u32 = 5;

/// A start that failed for a reason of the node's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Of which job.
    pub job: JobId,
    /// Of which of its lives.
    pub incarnation: Incarnation,
    /// What was wrong.
    pub fault: NodeFault,
    /// In words.
    pub reason: String,
    /// The event.
    pub at: Sequence,
}

/// Why a node is out of use for a while.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    /// In words.
    pub reason: String,
    /// Until when.
    pub until: Timestamp,
    /// The event.
    pub at: Sequence,
}

/// What is known of a node's health.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Starts that failed since the last one that did not, the newest last.
    pub faults: Vec<Fault>,
    /// Quarantines since then.
    pub quarantines: u32,
    /// The one it is in.
    pub quarantine: Option<Quarantine>,
}

/// What is known of a job whose starts fail for reasons of nodes, or come too late.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFaults {
    /// Lives in a row that ended so.
    pub lives: u32,
    /// Of those, how many for a reason that may be the job's.
    pub dubious: u32,
    /// The last of them.
    pub last: Incarnation,
    /// Where.
    pub nodes: BTreeSet<NodeId>,
    /// Lives that were given up before they ran, perhaps since brokers or agents were away.
    pub late: u32,
}

impl Health {
    /// A start has failed.
    pub fn faulted(&mut self, event: &NodeFaulted, at: Sequence) {
        self.faults.push(Fault {
            job: event.job.clone(),
            incarnation: event.incarnation,
            fault: event.fault,
            reason: event.reason.clone(),
            at,
        });
        if self.faults.len() > FAULTS_KEPT {
            self.faults.remove(0);
        }
    }

    /// It is put out of use.
    pub fn quarantined(&mut self, event: &NodeQuarantined, at: Sequence) {
        self.faults.clear();
        self.quarantines = self.quarantines.saturating_add(1);
        self.quarantine = Some(Quarantine {
            reason: event.reason.clone(),
            until: event.until,
            at,
        });
    }

    /// Whether starts have failed there since the last one that did not.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        !self.faults.is_empty() || self.quarantines > 0
    }

    /// A container has started: whatever was wrong is over.
    pub fn started(&mut self) {
        self.faults.clear();
        self.quarantines = 0;
    }

    /// Whether the node is to be put out of use: several starts in a row have failed, in more than
    /// one life, or so many that one life has tried again and again, as the replicas of a service do.
    /// What may be a job's doing counts only where two tenants say so: one of them with wrong images must
    /// not take one node after another from all.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        let lives: BTreeSet<_> = self
            .faults
            .iter()
            .map(|it| (&it.job, it.incarnation))
            .collect();
        let tenants: BTreeSet<_> = self.faults.iter().map(|it| it.job.tenant()).collect();
        let is_the_nodes = self.faults.iter().any(|it| !it.fault.may_be_the_jobs());
        let again = lives.len() >= 2 || self.faults.len() >= FAULTS_KEPT;
        self.faults.len() >= SUSPECT && again && (tenants.len() >= 2 || is_the_nodes)
    }
}

impl StartFaults {
    /// A start has failed; those of one life count once.
    pub fn faulted(&mut self, event: &NodeFaulted) {
        self.nodes.insert(event.node.clone());
        if event.incarnation > self.last {
            self.last = event.incarnation;
            self.lives = self.lives.saturating_add(1);
            self.dubious += u32::from(event.fault.may_be_the_jobs());
        }
    }

    /// Whether another life may begin too late at no cost: brokers or agents were away, or the start
    /// takes longer than it may.
    #[must_use]
    pub const fn may_be_late(&self) -> bool {
        self.late < LATE
    }

    /// Whether it is the job after all.
    #[must_use]
    pub const fn are_the_jobs(&self) -> bool {
        self.dubious >= JOBS_OWN
    }
}
