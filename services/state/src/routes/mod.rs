//! The routes, a fold of the log: services and their usable replicas.
//!
//! A replica is usable from `container.ready` until it must leave (`partition.resize_requested`,
//! `partition.stop_requested`), is unready, has exited, or its node is lost. A leaving replica is remembered
//! until its exit, for `gateway.unrouted`.

mod served;

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    ContainerExited, ContainerReady, GatewayUnrouted, JobAdmitted, JobRevised,
    PartitionResizeRequested, PlacedContainer,
};
use dormouse_messages::{
    ContainerId, Event, Fold, GatewayId, Incarnation, Incarnations, JobId, NodeId,
    PlacementAuthority, Recorded, Sequence,
};
use serde::{Deserialize, Serialize};

pub use served::{Phase, Replica, Served};

/// Address of a usable replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usable {
    pub container: ContainerId,
    pub address: String,
    pub port: u16,
}

/// A leaving replica, as one gateway sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaving {
    pub container: ContainerId,
    /// The request to answer; `None` if nobody waits.
    pub answers: Option<Sequence>,
    pub grace_s: u32,
}

/// The route table.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Routes {
    services: BTreeMap<JobId, Served>,
    addresses: BTreeMap<NodeId, String>,
    incarnations: Incarnations,
    authority: PlacementAuthority,
    joined: BTreeSet<GatewayId>,
    changes: u64,
}

impl Fold for Routes {
    const NAME: &'static str = "routes";
    const VERSION: u32 = 5;

    fn evolve(&mut self, recorded: &Recorded) {
        let Some(event) = recorded.event() else {
            return;
        };
        if !self.authority.validates(event) {
            return;
        }
        if self.fold(event, recorded.sequence) {
            self.changes += 1;
        }
    }

    fn rejects(&self, recorded: &Recorded) -> Option<String> {
        self.authority.rejects(recorded.event()?)
    }

    fn check_invariants(&self) -> Result<(), String> {
        for (job, served) in &self.services {
            for (rank, replica) in &served.replicas {
                if replica.phase == Phase::Ready && !self.addresses.contains_key(&replica.node) {
                    return Err(format!("{job}/{rank} is used on a node without address"));
                }
            }
        }
        Ok(())
    }
}

impl Routes {
    /// Returns the number of changes.
    #[must_use]
    pub const fn changes(&self) -> u64 {
        self.changes
    }

    /// Reports whether leaving replicas wait for `gateway`.
    #[must_use]
    pub fn has_joined(&self, gateway: &GatewayId) -> bool {
        self.joined.contains(gateway)
    }

    /// Returns the services by job.
    #[must_use]
    pub const fn services(&self) -> &BTreeMap<JobId, Served> {
        &self.services
    }

    /// Returns the usable replicas of `job`.
    pub fn usable<'a>(&'a self, job: &'a JobId) -> impl Iterator<Item = Usable> + 'a {
        let served = self.services.get(job).into_iter();
        served.flat_map(move |served| {
            let ready = served.replicas.iter();
            let ready = ready.filter(|(_, replica)| replica.phase == Phase::Ready);
            ready.filter_map(move |(rank, replica)| {
                Some(Usable {
                    container: served.container(job, *rank),
                    address: self.addresses.get(&replica.node)?.clone(),
                    port: replica.port,
                })
            })
        })
    }

    /// Returns the leaving replicas of `job`, unreported by `gateway`.
    pub fn leaving<'a>(
        &'a self,
        job: &'a JobId,
        gateway: &'a GatewayId,
    ) -> impl Iterator<Item = Leaving> + 'a {
        let served = self.services.get(job).into_iter();
        served.flat_map(move |served| {
            let replicas = served.replicas.iter();
            replicas.filter_map(move |(rank, replica)| match &replica.phase {
                Phase::Leaving {
                    answers,
                    grace_s,
                    told,
                    ..
                } if !told.contains(gateway) => Some(Leaving {
                    container: served.container(job, *rank),
                    answers: *answers,
                    grace_s: *grace_s,
                }),
                _ => None,
            })
        })
    }

    /// True on a change. Without a wildcard, so that the compiler asks about new events.
    #[expect(clippy::too_many_lines, reason = "one arm an event")]
    fn fold(&mut self, event: &Event, sequence: Sequence) -> bool {
        match event {
            Event::JobAdmitted(it) => self.admitted(it),
            Event::JobRevised(it) => self.revised(it),
            Event::JobCompleted(it) => self.services.remove(&it.job).is_some(),
            Event::JobFailed(it) => self.services.remove(&it.job).is_some(),
            Event::JobCancelled(it) => self.services.remove(&it.job).is_some(),
            Event::ServiceScaled(it) => self.with(&it.job, |served| {
                served.target = it.replicas;
                served.scaled = true;
            }),
            Event::NodeJoined(it) => {
                self.incarnations.joined(&it.node, it.incarnation);
                // Agents of older builds run on this machine.
                let address = if it.address.is_empty() {
                    "127.0.0.1".to_owned()
                } else {
                    it.address.clone()
                };
                let known = self.addresses.insert(it.node.clone(), address.clone());
                known.is_none_or(|known| known != address)
            }
            Event::NodeLost(it) => self.lost(&it.node, it.incarnation),
            Event::NodeFenced(it) => self.lost(&it.node, it.incarnation),
            Event::PlacementDecided(it) => {
                let mut changed = false;
                for placed in &it.create {
                    changed |= self.placed(placed);
                }
                changed
            }
            Event::ContainerReady(it) => self.ready(it),
            Event::ContainerUnready(it) => self.at(&it.container, |replica| {
                if replica.phase == Phase::Ready {
                    replica.phase = Phase::Unready;
                }
            }),
            Event::ContainerExited(it) => self.exited(it),
            Event::PartitionResizeRequested(it) => self.resize_requested(it, sequence),
            Event::PartitionStopRequested(it) => {
                self.in_incarnation(&it.job, it.incarnation, |served| {
                    let grace_s = it.grace_s.unwrap_or(served.service.drain_s);
                    for replica in served.replicas.values_mut() {
                        replica.leave(None, grace_s);
                    }
                })
            }
            Event::PartitionStopped(it) => {
                self.in_incarnation(&it.job, it.incarnation, |served| served.replicas.clear())
            }
            Event::GatewayUnrouted(it) => self.unrouted(it),
            Event::GatewayJoined(it) => self.joined.insert(it.gateway.clone()),
            Event::GatewayLeft(it) => self.joined.remove(&it.gateway),
            Event::GatewayLost(it) => self.joined.remove(&it.gateway),
            Event::ClusterConfigured(_)
            | Event::NodeDrained(_)
            | Event::NodeRestored(_)
            | Event::SubmissionReceived(_)
            | Event::JobRefused(_)
            | Event::JobReleased(_)
            | Event::JobRequeued(_)
            | Event::JobCancelRequested(_)
            | Event::AllocationDecided(_)
            | Event::AllocationUnchanged(_)
            | Event::JobSpeedFitted(_)
            | Event::StartsForecast(_)
            | Event::PlacementRefused(_)
            | Event::NodeRecovered(_)
            | Event::CheckpointRequested(_)
            | Event::PartitionStartRequested(_)
            | Event::PartitionStarted(_)
            | Event::ResizeAbandoned(_)
            | Event::ContainerStarted(_)
            | Event::CheckpointSaved(_)
            | Event::CheckpointFailed(_)
            | Event::Progress(_)
            | Event::TenantConfigured(_)
            | Event::TasksAssigned(_)
            | Event::TasksEnded(_)
            | Event::CheckpointRejected(_)
            | Event::NodeFaulted(_)
            | Event::NodeQuarantined(_)
            | Event::NodeReadmitted(_)
            | Event::PartitionLeaveRequested(_)
            | Event::PartitionResized(_)
            | Event::MemberAcknowledged(_)
            | Event::ServiceMeasured(_)
            | Event::NotebookWarned(_)
            | Event::LogArchived(_)
            | Event::LogTrimmed(_)
            | Event::LogFilled(_)
            | Event::SlurmQueueConfigured(_)
            | Event::SlurmQueueRemoved(_)
            | Event::BudgetConfigured(_)
            | Event::ReservationConfigured(_)
            | Event::ReservationRemoved(_)
            | Event::BudgetLevelChanged(_)
            | Event::ReservationPhaseChanged(_)
            | Event::SlurmRequested(_)
            | Event::SlurmSubmitted(_)
            | Event::SlurmRefused(_)
            | Event::SlurmEstimated(_)
            | Event::SlurmGranted(_)
            | Event::SlurmReleased(_)
            | Event::SlurmEnded(_)
            | Event::ClockStepped(_)
            | Event::WebhookConfigured(_)
            | Event::KeyCreated(_)
            | Event::KeyRotated(_)
            | Event::KeyRevoked(_)
            | Event::UpgradeApproved(_)
            | Event::BuildJoined(_)
            | Event::BuildLeft(_)
            | Event::ClusterUpgraded(_)
            | Event::TenantGranted(_)
            | Event::TenantRemoved(_)
            | Event::SubmissionsRateLimited(_)
            | Event::PlanAccepted(_)
            | Event::PlanMissed(_)
            | Event::PartitionWarned(_)
            | Event::NodeLabelled(_)
            | Event::NodeRemoved(_)
            | Event::NotebookObserved(_)
            | Event::ContainerExecStarted(_)
            | Event::ContainerExecEnded(_)
            | Event::ContainerGpuUsed(_)
            | Event::NodeGpuReconciled(_) => false,
        }
    }

    fn admitted(&mut self, it: &JobAdmitted) -> bool {
        if !it.spec.kind.is_served() {
            return false;
        }
        let served = Served {
            service: it.spec.service.clone().unwrap_or_default(),
            kind: it.spec.kind,
            target: it.spec.containers.min,
            scaled: false,
            incarnation: Incarnation(0),
            replicas: BTreeMap::new(),
        };
        self.services.insert(it.job.clone(), served);
        true
    }

    fn revised(&mut self, it: &JobRevised) -> bool {
        let Some(containers) = it.containers else {
            return false;
        };
        self.with(&it.job, |served| {
            if !served.scaled {
                served.target = containers.min;
            }
        })
    }

    fn placed(&mut self, placed: &PlacedContainer) -> bool {
        self.with(&placed.job, |served| {
            if placed.incarnation < served.incarnation {
                return;
            }
            if placed.incarnation > served.incarnation {
                served.incarnation = placed.incarnation;
                served.replicas.clear();
            }
            let replica = Replica {
                node: placed.node.clone(),
                port: placed.port,
                phase: Phase::Placed,
                token: None,
            };
            served.replicas.insert(placed.rank, replica);
        })
    }

    /// An agent speaks for its own node only.
    fn ready(&mut self, it: &ContainerReady) -> bool {
        let known = self.addresses.contains_key(&it.node);
        self.at(&it.container, |replica| {
            if !known || replica.node != it.node {
                return;
            }
            replica.token.clone_from(&it.token_blake3);
            match &mut replica.phase {
                Phase::Placed | Phase::Unready => replica.phase = Phase::Ready,
                Phase::Leaving { ready, .. } => *ready = true,
                Phase::Ready => {}
            }
        })
    }

    fn exited(&mut self, it: &ContainerExited) -> bool {
        let rank = it.container.rank;
        self.in_incarnation(&it.container.job, it.container.incarnation, |served| {
            served.replicas.remove(&rank);
        })
    }

    fn lost(&mut self, node: &NodeId, incarnation: u64) -> bool {
        if !self.incarnations.ends(node, incarnation) {
            return false;
        }
        let mut changed = false;
        for served in self.services.values_mut() {
            let before = served.replicas.len();
            served.replicas.retain(|_, replica| replica.node != *node);
            changed |= served.replicas.len() != before;
        }
        changed
    }

    fn resize_requested(&mut self, it: &PartitionResizeRequested, sequence: Sequence) -> bool {
        self.in_incarnation(&it.job, it.incarnation, |served| {
            for rank in &it.leave {
                if let Some(replica) = served.replicas.get_mut(rank) {
                    replica.leave(Some(sequence), it.grace_s);
                }
            }
            for rank in &it.stay {
                if let Some(replica) = served.replicas.get_mut(rank) {
                    replica.stay();
                }
            }
        })
    }

    fn unrouted(&mut self, it: &GatewayUnrouted) -> bool {
        self.at(&it.container, |replica| match &mut replica.phase {
            Phase::Leaving { answers, told, .. } if *answers == Some(it.answers) => {
                told.insert(it.gateway.clone());
            }
            _ => {}
        })
    }

    fn with(&mut self, job: &JobId, change: impl FnOnce(&mut Served)) -> bool {
        self.services.get_mut(job).is_some_and(|served| {
            change(served);
            true
        })
    }

    fn in_incarnation(
        &mut self,
        job: &JobId,
        incarnation: Incarnation,
        change: impl FnOnce(&mut Served),
    ) -> bool {
        let served = self.services.get_mut(job);
        served
            .filter(|served| served.incarnation == incarnation)
            .is_some_and(|served| {
                change(served);
                true
            })
    }

    fn at(&mut self, container: &ContainerId, change: impl FnOnce(&mut Replica)) -> bool {
        let ContainerId {
            job,
            incarnation,
            rank,
        } = container;
        self.in_incarnation(job, *incarnation, |served| {
            if let Some(replica) = served.replicas.get_mut(rank) {
                change(replica);
            }
        })
    }
}
