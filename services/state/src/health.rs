//! Failed starts, by node and by job.

use std::collections::BTreeSet;

use dormouse_messages::events::{NodeFault, NodeFaulted, NodeQuarantined};
use dormouse_messages::{Incarnation, JobId, NodeId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

const FAULTS_KEPT: usize = 8;

/// Failed starts in a row.
const SUSPECT: usize = 3;

/// Dubious incarnations in a row that count as the job's own fault.
const JOBS_OWN: u32 = 5;

/// Late incarnations in a row that are forgiven.
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

/// A node's failed starts and quarantine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Since the last success, oldest first.
    pub faults: Vec<Fault>,
    /// Since the last success.
    pub quarantines: u32,
    pub quarantine: Option<Quarantine>,
}

/// A job's late starts, and failures because of nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartFaults {
    pub incarnations: u32,
    /// Possibly the job's fault.
    pub dubious: u32,
    pub last: Incarnation,
    pub nodes: BTreeSet<NodeId>,
    /// Abandoned before running, perhaps because brokers or agents were absent.
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

    /// Reports failures since the last success.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        !self.faults.is_empty() || self.quarantines > 0
    }

    /// Records a success.
    pub fn started(&mut self) {
        self.faults.clear();
        self.quarantines = 0;
    }

    /// Reports whether to quarantine the node: several starts in a row failed, in two incarnations or often
    /// in one (as with replicas). Faults possibly caused by a job need two tenants, so one tenant's wrong
    /// image cannot exclude all nodes.
    #[must_use]
    pub fn is_suspect(&self) -> bool {
        let incarnations: BTreeSet<_> = self
            .faults
            .iter()
            .map(|it| (&it.job, it.incarnation))
            .collect();
        let tenants: BTreeSet<_> = self.faults.iter().map(|it| it.job.tenant()).collect();
        let is_the_nodes = self.faults.iter().any(|it| !it.fault.may_be_the_jobs());
        let again = incarnations.len() >= 2 || self.faults.len() >= FAULTS_KEPT;
        self.faults.len() >= SUSPECT && again && (tenants.len() >= 2 || is_the_nodes)
    }
}

impl StartFaults {
    /// Records a failure, once per incarnation.
    pub fn faulted(&mut self, event: &NodeFaulted) {
        self.nodes.insert(event.node.clone());
        if event.incarnation > self.last {
            self.last = event.incarnation;
            self.incarnations = self.incarnations.saturating_add(1);
            self.dubious += u32::from(event.fault.may_be_the_jobs());
        }
    }

    /// Reports whether another late start is forgiven.
    #[must_use]
    pub const fn may_be_late(&self) -> bool {
        self.late < LATE
    }

    /// Reports whether the job is at fault.
    #[must_use]
    pub const fn are_the_jobs(&self) -> bool {
        self.dubious >= JOBS_OWN
    }
}
