//! Model agents of partitions that are resized in place.
//!
//! 1. A newcomer starts like any container, and is ready after the time that its model takes.
//! 2. A training member that is to leave ends after its step; under faults it may not, and is stopped
//!    at the deadline. A replica leaves when it is asked to stop.
//! 3. The others never stop, but for the time that a change of the members costs.
//! 4. What dies by itself is one member: the last, at times the chief.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    ContainerReady, ContainerStarted, PartitionLeaveRequested, PartitionResizeRequested,
    PartitionResized,
};
use dormouse_messages::ids::Rank;
use dormouse_messages::{Event, NodeId, Timestamp};

use super::agents::{Container, Due, Gang, LifeId, ModelAgents, after, container_id, exited};
use super::faults::{Faults, Saving};
use super::ties::Missed;

/// Where a container of a life stands.
fn gang_node(gangs: &BTreeMap<LifeId, Gang>, life: &LifeId, rank: Rank) -> Option<NodeId> {
    let place = gangs.get(life)?.containers.get(&rank);
    place.map(|(node, _)| node.clone())
}

impl ModelAgents {
    pub(super) fn resize(
        &mut self,
        event: &PartitionResizeRequested,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let life: LifeId = (event.job.clone(), event.incarnation);
        let placed = self.placed.get(&life).cloned().unwrap_or_default();
        let model = self.jobs.get(&life.0).map(|job| job.model.clone());
        let (Some(model), Some(gang)) = (model, self.gangs.get_mut(&life)) else {
            return;
        };
        let mut newcomers = Vec::new();
        for rank in &event.join {
            let place = placed.iter().rev().find(|(placed, _)| placed == rank);
            if let Some((_, node)) = place.filter(|(_, node)| !self.dead.contains(node)) {
                gang.containers
                    .insert(*rank, (node.clone(), Container::Asked));
                newcomers.push(*rank);
            }
        }
        let leavers: Vec<Rank> = match gang.served {
            true => Vec::new(),
            false => event.leave.clone(),
        };
        for rank in newcomers {
            let at = after(now, model.join_s((life.1, rank)) + faults.start_delay_s());
            self.schedule(at, life.clone(), Due::Joined(rank));
        }
        for rank in leavers {
            let node = gang_node(&self.gangs, &life, rank);
            if let Some(node) = node.filter(|node| !self.ties.hears(node)) {
                self.ties.misses(&node, Missed::Leave(life.clone(), rank));
                continue;
            }
            if faults.saving() != Saving::Hangs {
                let at = after(now, model.leave_s((life.1, rank)));
                self.schedule(at, life.clone(), Due::Left(rank));
            }
        }
    }

    pub(super) fn leave(&mut self, event: &PartitionLeaveRequested, now: Timestamp) {
        let life: LifeId = (event.job.clone(), event.incarnation);
        for rank in &event.ranks {
            let node = gang_node(&self.gangs, &life, *rank);
            match node.filter(|node| !self.ties.hears(node)) {
                Some(node) => self.ties.misses(&node, Missed::Leave(life.clone(), *rank)),
                None => self.schedule(now, life.clone(), Due::Left(*rank)),
            }
        }
    }

    /// The members are others now: they go on together after the time that this costs.
    pub(super) fn resized(
        &mut self,
        event: &PartitionResized,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let life: LifeId = (event.job.clone(), event.incarnation);
        let Some(gang) = self.gangs.get_mut(&life).filter(|gang| !gang.stopping) else {
            return;
        };
        gang.size = event.containers;
        let pause_s = match self.jobs.get_mut(&life.0) {
            Some(job) if !gang.served => {
                job.pause(now);
                job.model.resize_s
            }
            _ => return,
        };
        if event.containers > 0 {
            self.work(life, pause_s, now, faults);
        }
    }

    pub(super) fn joined(&mut self, life: &LifeId, rank: Rank, now: Timestamp) -> Option<Event> {
        let ready_s = self.ready_s(life, rank);
        let gang = self.gangs.get_mut(life).filter(|gang| !gang.stopping)?;
        let (node, container) = gang.containers.get_mut(&rank)?;
        if *container == Container::Runs || !self.ties.hears(node) {
            return None;
        }
        *container = Container::Runs;
        let started = ContainerStarted {
            container: container_id(life, rank),
            job: life.0.clone(),
            incarnation: life.1,
            rank,
            node: node.clone(),
            pid: 0,
        };
        self.schedule(after(now, ready_s), life.clone(), Due::Ready(rank));
        Some(Event::from(started))
    }

    /// From a container's start until it is ready.
    pub(super) fn ready_s(&self, life: &LifeId, rank: Rank) -> f64 {
        let job = self.jobs.get(&life.0);
        job.map_or(0.0, |job| job.model.ready_s((life.1, rank)))
    }

    pub(super) fn ready(&self, life: &LifeId, rank: Rank) -> Option<Event> {
        let gang = self.gangs.get(life)?;
        let (node, _) = gang.containers.get(&rank)?;
        Some(Event::from(ContainerReady {
            container: container_id(life, rank),
            job: life.0.clone(),
            incarnation: life.1,
            rank,
            node: node.clone(),
            after_ms: 0,
            token_blake3: None,
        }))
    }

    /// One container ends.
    pub(super) fn left(&mut self, life: &LifeId, rank: Rank, code: i32) -> Option<Event> {
        let gang = self.gangs.get_mut(life)?;
        let (node, _) = gang.containers.remove(&rank)?;
        Some(exited(life, rank, node, code))
    }

    /// A member dies by itself: the last one, or the only one.
    pub(super) fn one_dies(&mut self, life: &LifeId, now: Timestamp) -> Option<Event> {
        let gang = self.gangs.get(life)?;
        let rank = *gang.containers.keys().next_back()?;
        let served = gang.served;
        if let Some(job) = self.jobs.get_mut(&life.0) {
            match rank {
                // With the chief, what was not saved is lost.
                Rank(0) if !served => job.die(),
                _ => job.pause(now),
            }
        }
        self.left(life, rank, 1)
    }
}
