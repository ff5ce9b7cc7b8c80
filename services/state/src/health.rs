//! Failed starts that a node causes, counted for each node and each job.

use std::collections::BTreeSet;

use dormouse_messages::events::{NodeFault, NodeFaulted, NodeQuarantined};
use dormouse_messages::{Incarnation, JobId, NodeId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// More than a judgement needs.
const FAULTS_KEPT: usize = 8;

/// Consecutive failed starts that make a node suspect.
const SUSPECT: usize = 3;

/// Consecutive failed incarnations after which a dubious cause counts as the job's.
const JOBS_OWN: u32 = 5;

/// Consecutive late incarnations that are forgiven.
const LATE: u32 = 5;

/// A start that failed because of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub job: JobId,
    pub incarnation: Incarnation,
    pub fault: NodeFault,
    pub reason: String,
    pub at: Sequence,
}

/// A node's temporary exclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quarantine {
    pub reason: String,
    pub until: Timestamp,
    pub at: Sequence,
}

/// A node's health.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Failed starts since the last success, oldest first.
    pub faults: Vec<Fault>,
    /// Quarantines since the last success.
    pub quarantines: u32,
    pub quarantine: Option<Quarantine>,
}

/// A job's starts that failed because of nodes, or came too late.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFaults {
    /// Consecutive failed incarnations.
    pub lives: u32,
    /// Incarnations among them whose cause may be the job.
    pub dubious: u32,
    pub last: Incarnation,
    pub nodes: BTreeSet<NodeId>,
    /// Incarnations abandoned before they ran, perhaps because brokers or agents were absent.
    pub late: u32,
}

impl Health {
    /// Records a failed start.
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

    /// Records a quarantine.
    pub fn quarantined(&mut self, event: &NodeQuarantined, at: Sequence) {
        self.faults.clear();
        self.quarantines = self.quarantines.saturating_add(1);
        self.quarantine = Some(Quarantine {
            reason: event.reason.clone(),
            until: event.until,
            at,
        });
    }

    /// Reports whether starts have failed since the last success.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        !self.faults.is_empty() || self.quarantines > 0
    }

    /// Records a success, which clears all faults.
    pub fn started(&mut self) {
        self.faults.clear();
        self.quarantines = 0;
    }

    /// Reports whether to quarantine the node: several consecutive starts failed, in two incarnations or
    /// often in one (as with replicas of a service). Faults that the job may cause count only from two
    /// tenants, so that one tenant's wrong image cannot exclude one node after another.
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
    /// Records a failed start, once per incarnation.
    pub fn faulted(&mut self, event: &NodeFaulted) {
        self.nodes.insert(event.node.clone());
        if event.incarnation > self.last {
            self.last = event.incarnation;
            self.lives = self.lives.saturating_add(1);
            self.dubious += u32::from(event.fault.may_be_the_jobs());
        }
    }

    /// Reports whether another late start is forgiven.
    #[must_use]
    pub const fn may_be_late(&self) -> bool {
        self.late < LATE
    }

    /// Reports whether the job itself counts as the cause.
    #[must_use]
    pub const fn are_the_jobs(&self) -> bool {
        self.dubious >= JOBS_OWN
    }
}
