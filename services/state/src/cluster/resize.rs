//! Partitions resized in place.

use dormouse_messages::Rank;
use dormouse_messages::events::{PartitionResizeRequested, PartitionResized, ResizeCause};

use super::{ClusterState, asked, of_incarnation};
use crate::incarnation::{ContainerPhase, PartitionContainer};

impl ClusterState {
    pub(super) fn resize(&mut self, event: &PartitionResizeRequested) {
        let now = self.now;
        let sequence = self.sequence;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(partition) = of_incarnation(&mut job.partition, event.incarnation) else {
            return;
        };
        let Some(members) = &mut partition.members else {
            return;
        };
        partition.last_event = sequence;
        members.requested(event, sequence, now);
        let mut replaced = false;
        // All places of a joining container may have been given up.
        let superseded = job.superseded.remove(&event.incarnation);
        let assigned = job.assignment.as_ref();
        let assigned = assigned.filter(|it| it.incarnation == event.incarnation);
        for rank in &event.join {
            let own = assigned.and_then(|it| it.places.get(rank).or_else(|| it.dropped.get(rank)));
            let superseded = superseded.as_ref().and_then(|places| places.get(rank));
            if let Some(place) = own.or(superseded) {
                let container = asked(&self.nodes, place.clone(), sequence);
                partition.containers.insert(*rank, container);
                partition.numbered = partition.numbered.max(rank.next());
            }
        }
        if let Some(assignment) = &mut job.assignment {
            assignment.dropped.clear();
            for rank in &event.leave {
                let own = assignment.incarnation == event.incarnation;
                if own && assignment.places.remove(rank).is_some() {
                    replaced = true;
                    assignment.lost += 1;
                }
            }
        }
        if event.cause == ResizeCause::Unready {
            job.deaths.one_more(now);
        }
        if replaced {
            self.last_trigger = sequence;
        }
    }

    pub(super) fn resized(&mut self, event: &PartitionResized) {
        let now = self.now;
        let Some(job) = self.jobs.get_mut(&event.job) else {
            return;
        };
        let Some(partition) = of_incarnation(&mut job.partition, event.incarnation) else {
            return;
        };
        let Some(members) = &mut partition.members else {
            return;
        };
        partition.last_event = self.sequence;
        members.resized(event, now);
        let joins = |rank: &Rank| {
            let change = members.change.as_ref();
            change.is_some_and(|change| change.join.contains(rank))
        };
        let is_over = |rank: &Rank, container: &PartitionContainer| {
            !members.current.contains(rank) && !joins(rank) && !container.holds_room()
        };
        let over: Vec<Rank> = partition
            .containers
            .iter()
            .filter(|(r, c)| is_over(r, c))
            .map(|(r, _)| *r)
            .collect();
        let mut replaced = false;
        for rank in over {
            let Some(container) = partition.containers.remove(&rank) else {
                continue;
            };
            if let Some(assignment) = &mut job.assignment
                && assignment.incarnation == event.incarnation
                && assignment.places.remove(&rank).is_some()
            {
                replaced = true;
                assignment.lost += 1;
                if matches!(
                    container.phase,
                    ContainerPhase::Exited { evicted: false, .. }
                ) {
                    job.deaths.one_more(now);
                }
            }
        }
        if let Some(assignment) = job.assignment.as_mut().filter(|_| replaced) {
            assignment.displaced = !self.nodes.hold(&job.needs, assignment);
        }
        self.serves(&event.job);
        self.transit_ended();
        if replaced {
            self.last_trigger = self.sequence;
        }
    }
}
