//! The queues of Slurm allocations, folded.

use std::collections::BTreeMap;

use dormouse_messages::events::{SlurmEvent, SlurmRequested};
use dormouse_messages::slurm::{SlurmQueue, node_name};
use dormouse_messages::{JobId, NodeId, QueueId, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// The state of an allocation at Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SlurmPhase {
    /// Not yet submitted.
    Requested,
    /// In Slurm's queue.
    Waiting {
        /// Empty until Slurm says one.
        reason: String,
        starts_at: Option<Timestamp>,
    },
    Running {
        hosts: String,
        ends_at: Option<Timestamp>,
    },
    /// Until the cluster has forgotten its nodes.
    Ended,
}

/// An allocation that is not over for the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmAllocation {
    pub slot: u32,
    pub nodes: u32,
    /// The first of the jobs for which it was requested.
    pub jobs: Vec<JobId>,
    pub requested_at: Timestamp,
    pub slurm_job: Option<u64>,
    pub phase: SlurmPhase,
    pub released: bool,
    pub joined: bool,
    /// A container started on a node.
    pub used: bool,
    /// The newest start, join or exit of a container on its nodes.
    pub used_at: Timestamp,
    /// The newest event about it.
    pub last: Sequence,
}

impl SlurmAllocation {
    /// Reports whether Slurm has yet to start it.
    #[must_use]
    pub const fn is_pending(&self) -> bool {
        matches!(
            self.phase,
            SlurmPhase::Requested | SlurmPhase::Waiting { .. }
        )
    }

    /// Returns the names of its nodes.
    pub fn node_names<'a>(&self, queue: &'a QueueId) -> impl Iterator<Item = NodeId> + use<'a> {
        let slot = self.slot;
        (0..self.nodes).filter_map(move |rank| node_name(queue, slot, rank))
    }
}

/// A queue and its allocations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmQueueState {
    pub settings: SlurmQueue,
    /// Its allocations are given back, then it is forgotten.
    pub removed: bool,
    /// Failures in a row.
    pub failures: u32,
    pub last_failure: Option<String>,
    pub last_number: u64,
    /// By number.
    pub allocations: BTreeMap<u64, SlurmAllocation>,
}

impl SlurmQueueState {
    /// Returns the reason for which the queue asks for nothing.
    #[must_use]
    pub fn paused(&self) -> Option<String> {
        let failed = self.failures >= self.settings.pause_after;
        match &self.last_failure {
            _ if self.removed => Some("it is removed".to_owned()),
            _ if self.settings.paused => Some("an operator paused it".to_owned()),
            Some(why) if failed => Some(format!("{} failures in a row: {why}", self.failures)),
            _ => None,
        }
    }

    /// Returns the lowest free slot.
    #[must_use]
    pub fn free_slot(&self, taken: &[u32]) -> Option<u32> {
        let used = |slot: &u32| {
            let mut slots = self.allocations.values().map(|it| it.slot);
            taken.contains(slot) || slots.any(|it| it == *slot)
        };
        (0..self.settings.most).find(|slot| !used(slot))
    }

    fn failed(&mut self, why: String) {
        self.failures = self.failures.saturating_add(1);
        self.last_failure = Some(why);
    }
}

/// All queues, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlurmQueues {
    queues: BTreeMap<QueueId, SlurmQueueState>,
    by_node: BTreeMap<NodeId, (QueueId, u64)>,
}

impl SlurmQueues {
    /// Returns a queue.
    #[must_use]
    pub fn get(&self, queue: &QueueId) -> Option<&SlurmQueueState> {
        self.queues.get(queue)
    }

    /// Iterates over the queues, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&QueueId, &SlurmQueueState)> {
        self.queues.iter()
    }

    /// Reports whether no queue is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(crate) fn configured(&mut self, queue: &QueueId, settings: &SlurmQueue) {
        match self.queues.get_mut(queue) {
            Some(known) => {
                known.settings = settings.clone();
                (known.removed, known.failures, known.last_failure) = (false, 0, None);
            }
            None => {
                let new = SlurmQueueState {
                    settings: settings.clone(),
                    removed: false,
                    failures: 0,
                    last_failure: None,
                    last_number: 0,
                    allocations: BTreeMap::new(),
                };
                self.queues.insert(queue.clone(), new);
            }
        }
    }

    pub(crate) fn removed(&mut self, queue: &QueueId) {
        if let Some(known) = self.queues.get_mut(queue) {
            known.removed = true;
        }
        self.forget_if_done(queue);
    }

    fn forget_if_done(&mut self, queue: &QueueId) {
        let done = |it: &SlurmQueueState| it.removed && it.allocations.is_empty();
        if self.queues.get(queue).is_some_and(done) {
            self.queues.remove(queue);
        }
    }

    fn requested(&mut self, event: &SlurmRequested, at: Sequence, now: Timestamp) {
        let Some(known) = self.queues.get_mut(&event.queue) else {
            return;
        };
        let allocation = SlurmAllocation {
            slot: event.slot,
            nodes: event.nodes,
            jobs: event.jobs.clone(),
            requested_at: now,
            slurm_job: None,
            phase: SlurmPhase::Requested,
            released: false,
            joined: false,
            used: false,
            used_at: now,
            last: at,
        };
        for node in allocation.node_names(&event.queue) {
            self.by_node
                .insert(node, (event.queue.clone(), event.number));
        }
        known.last_number = event.number;
        known.allocations.insert(event.number, allocation);
    }

    /// Folds an event; returns the nodes of an allocation that is over or given back.
    pub(crate) fn evolve(
        &mut self,
        event: SlurmEvent<'_>,
        at: Sequence,
        now: Timestamp,
    ) -> Vec<NodeId> {
        if let SlurmEvent::SlurmRequested(event) = event {
            self.requested(event, at, now);
            return Vec::new();
        }
        let (queue, number) = match event {
            SlurmEvent::SlurmRequested(it) => (&it.queue, it.number),
            SlurmEvent::SlurmSubmitted(it) => (&it.queue, it.number),
            SlurmEvent::SlurmRefused(it) => (&it.queue, it.number),
            SlurmEvent::SlurmEstimated(it) => (&it.queue, it.number),
            SlurmEvent::SlurmGranted(it) => (&it.queue, it.number),
            SlurmEvent::SlurmReleased(it) => (&it.queue, it.number),
            SlurmEvent::SlurmEnded(it) => (&it.queue, it.number),
        };
        let Some(known) = self.queues.get_mut(queue) else {
            return Vec::new();
        };
        let Some(allocation) = known.allocations.get_mut(&number) else {
            return Vec::new();
        };
        allocation.last = at;
        match event {
            SlurmEvent::SlurmRequested(_) => {}
            SlurmEvent::SlurmSubmitted(event) => {
                allocation.slurm_job = Some(event.slurm_job);
                allocation.phase = SlurmPhase::Waiting {
                    reason: String::new(),
                    starts_at: None,
                };
            }
            SlurmEvent::SlurmRefused(event) => {
                allocation.phase = SlurmPhase::Ended;
                known.failed(format!("Slurm refuses: {}", event.reason));
            }
            SlurmEvent::SlurmEstimated(event) => {
                allocation.phase = SlurmPhase::Waiting {
                    reason: event.reason.clone(),
                    starts_at: event.starts_at,
                };
            }
            SlurmEvent::SlurmGranted(event) => {
                allocation.used_at = now;
                allocation.phase = SlurmPhase::Running {
                    hosts: event.hosts.clone(),
                    ends_at: event.ends_at,
                };
            }
            SlurmEvent::SlurmReleased(event) => {
                allocation.released = true;
                let nodes = allocation.node_names(queue).collect();
                if event.in_vain {
                    known.failed(event.reason.clone());
                }
                return nodes;
            }
            SlurmEvent::SlurmEnded(event) => {
                allocation.phase = SlurmPhase::Ended;
                let nodes = allocation.node_names(queue).collect();
                if !allocation.joined && !allocation.released {
                    let (state, why) = (&event.state, &event.reason);
                    known.failed(format!("no node joined before its end: {state} {why}"));
                }
                return nodes;
            }
        }
        Vec::new()
    }

    fn of_node(&mut self, node: &NodeId) -> Option<(&mut SlurmQueueState, u64)> {
        let (queue, number) = self.by_node.get(node)?;
        let queue = self.queues.get_mut(queue)?;
        Some((queue, *number))
    }

    pub(crate) fn joined(&mut self, node: &NodeId, now: Timestamp) {
        if let Some((queue, number)) = self.of_node(node)
            && let Some(allocation) = queue.allocations.get_mut(&number)
        {
            (allocation.joined, allocation.used_at) = (true, now);
        }
    }

    /// A container started, or ended, on a node.
    pub(crate) fn used(&mut self, node: &NodeId, now: Timestamp) {
        if let Some((queue, number)) = self.of_node(node)
            && let Some(allocation) = queue.allocations.get_mut(&number)
        {
            (allocation.used, allocation.used_at) = (true, now);
            (queue.failures, queue.last_failure) = (0, None);
        }
    }

    /// Forgets ended allocations without a known node; returns the names of their nodes.
    pub(crate) fn close(&mut self, is_known: impl Fn(&NodeId) -> bool) -> Vec<NodeId> {
        let mut closed = Vec::new();
        for (name, queue) in &mut self.queues {
            queue.allocations.retain(|_, allocation| {
                let is_over = allocation.phase == SlurmPhase::Ended;
                let is_gone = is_over && !allocation.node_names(name).any(|node| is_known(&node));
                if is_gone {
                    closed.extend(allocation.node_names(name));
                }
                !is_gone
            });
        }
        for node in &closed {
            self.by_node.remove(node);
        }
        let names: Vec<QueueId> = self.queues.keys().cloned().collect();
        for name in names {
            self.forget_if_done(&name);
        }
        closed
    }
}
