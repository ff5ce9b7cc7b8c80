//! Simulates partitions that are resized in place.
//!
//! 1. A newcomer is ready after its model's delay; the other members pause for the cost of the resize.
//! 2. A leaving training member ends after its step, or under faults at the deadline. A replica leaves
//!    when stopped.
//! 3. A failure hits one member: the last, or the coordinator when alone.

use dormouse_agent_core::state::Announced;
use dormouse_messages::events::{ContainerReady, PartitionResized};
use dormouse_messages::ids::Rank;
use dormouse_messages::{NodeId, Timestamp};

use super::agents::ModelAgents;
use super::faults::{Faults, Saving};
use super::gang::Container;
use super::incarnation::{Due, IncarnationId, after, container_id, exited};

impl ModelAgents {
    pub(super) fn announce(
        &mut self,
        node: &NodeId,
        incarnation: &IncarnationId,
        announced: &Announced,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let model = self.jobs.get(&incarnation.0).map(|job| job.model.clone());
        let (Some(model), Some(gang)) = (model, self.gangs.get_mut(incarnation)) else {
            return;
        };
        let here = |rank: &&Rank| gang.containers.get(rank).is_some_and(|(at, _)| at == node);
        let leavers = announced.leaving.iter().filter(here).copied();
        let leavers: Vec<Rank> = leavers.collect();
        let mut leave = Vec::new();
        for rank in leavers {
            if gang.leaving.insert(rank) && faults.saving() != Saving::Hangs {
                let at = after(now, model.leave_s((incarnation.1, rank)));
                leave.push((at, rank));
            }
        }
        for (at, rank) in leave {
            self.schedule(at, incarnation.clone(), Due::Left(rank));
        }
    }

    pub(super) fn resized(
        &mut self,
        event: &PartitionResized,
        now: Timestamp,
        faults: &mut Faults,
    ) {
        let incarnation: IncarnationId = (event.job.clone(), event.incarnation);
        let gang = self.gangs.get_mut(&incarnation);
        let Some(gang) = gang.filter(|gang| gang.stopping.is_empty()) else {
            return;
        };
        gang.size = event.containers;
        gang.members = Some(event.members.iter().copied().collect());
        let pause_s = match self.jobs.get_mut(&incarnation.0) {
            Some(job) if !gang.served => {
                job.pause(now);
                job.model.resize_s
            }
            _ => return,
        };
        if event.containers > 0 {
            self.work(incarnation, pause_s, now, faults);
        }
    }

    pub(super) fn newcomer_runs(
        &mut self,
        incarnation: &IncarnationId,
        rank: Rank,
        now: Timestamp,
    ) {
        let ready_s = self.ready_s(incarnation, rank);
        let Some(gang) = self.gangs.get_mut(incarnation) else {
            return;
        };
        let stops = gang.stopping.contains(&rank);
        let Some((node, container)) = gang.containers.get_mut(&rank).filter(|_| !stops) else {
            return;
        };
        if *container == Container::Runs {
            return;
        }
        *container = Container::Runs;
        let node = node.clone();
        self.runs(incarnation, rank, node);
        self.schedule(after(now, ready_s), incarnation.clone(), Due::Ready(rank));
    }

    pub(super) fn ready_s(&self, incarnation: &IncarnationId, rank: Rank) -> f64 {
        let job = self.jobs.get(&incarnation.0);
        job.map_or(0.0, |job| job.model.ready_s((incarnation.1, rank)))
    }

    pub(super) fn ready(&mut self, incarnation: &IncarnationId, rank: Rank) {
        let place = self
            .gangs
            .get(incarnation)
            .and_then(|it| it.containers.get(&rank));
        let Some((node, _)) = place.cloned() else {
            return;
        };
        let ready = ContainerReady {
            container: container_id(incarnation, rank),
            node: node.clone(),
            after_ms: 0,
            token_blake3: None,
        };
        self.says(node, ready);
    }

    pub(super) fn left(&mut self, incarnation: &IncarnationId, rank: Rank, code: i32) {
        self.end(incarnation, rank, exited(code));
    }

    /// Fails a member: the last one, or the only one.
    pub(super) fn one_dies(&mut self, incarnation: &IncarnationId, now: Timestamp) {
        let Some(gang) = self.gangs.get(incarnation) else {
            return;
        };
        let Some(rank) = gang.containers.keys().next_back().copied() else {
            return;
        };
        let served = gang.served;
        if let Some(job) = self.jobs.get_mut(&incarnation.0) {
            match rank {
                // Unsaved work is lost with the coordinator.
                Rank(0) if !served => job.die(),
                _ => job.pause(now),
            }
        }
        self.left(incarnation, rank, 1);
    }
}
