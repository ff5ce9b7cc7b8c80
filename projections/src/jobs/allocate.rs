//! Applies allocations and placements to jobs.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::events::{
    AllocationDecided, PartitionResized, PlacedContainer, PlacementDecided, RemovedContainer,
    Waiting,
};
use dormouse_messages::{Incarnation, NodeId, Rank, Sequence, Timestamp};

use super::{Gang, JobTable, Live, Phase};

impl JobTable {
    pub(super) fn allocate(&mut self, event: &AllocationDecided, at: Timestamp) {
        for allocation in &event.jobs {
            self.update(&allocation.job, |job, live| {
                let stops = allocation.containers == 0 || !live.in_place;
                let less = allocation.containers < allocation.previous;
                live.preempted = stops && less && allocation.made_for.is_some();
                job.preempted += u32::from(live.preempted);
                job.epoch = event.epoch;
                job.allocated(allocation, at);
            });
        }
        self.wait(&event.outcome.waiting, at);
    }

    pub(super) fn wait(&mut self, waiting: &[Waiting], at: Timestamp) {
        for waiting in waiting {
            self.update(&waiting.job, |job, _| {
                if job.note != waiting.reason || job.code != waiting.code {
                    job.note.clone_from(&waiting.reason);
                    job.code.clone_from(&waiting.code);
                }
                job.target = 0;
                if matches!(job.phase, Phase::Queued | Phase::Placed) {
                    job.enter(Phase::Waiting, at);
                }
            });
        }
    }

    pub(super) fn place(&mut self, event: &PlacementDecided, sequence: Sequence) {
        for created in event.create.chunk_by(|a, b| a.job == b.job) {
            self.update(&created[0].job, |_, live| {
                let in_place = live.in_place;
                for container in created {
                    let gang = live.gang_mut(container.incarnation, sequence);
                    if in_place {
                        gang.place(container)
                    } else {
                        gang.add(&container.node)
                    }
                }
            });
        }
        for removed in event.remove.chunk_by(|a, b| a.job == b.job) {
            self.update(&removed[0].job, |job, live| {
                let running = job.incarnation;
                if live.in_place {
                    live.take_back_in_place(removed, running);
                    return;
                }
                // A running gang keeps its places.
                for container in removed.iter().filter(|c| c.incarnation > running) {
                    live.take_back(container.incarnation, &container.node);
                }
            });
        }
    }
}

impl Live {
    /// False while the containers of a requeued job stop.
    pub const fn is_on_hold(&self) -> bool {
        self.on_hold && !self.requeued
    }

    fn gang_mut(&mut self, incarnation: Incarnation, placed: Sequence) -> &mut Gang {
        let gangs = &mut self.gangs;
        let found = gangs
            .iter()
            .position(|gang| gang.incarnation == incarnation);
        let index = found.unwrap_or_else(|| {
            gangs.push(Gang {
                incarnation,
                placed,
                nodes: Vec::new(),
                places: BTreeMap::new(),
                taken_back: BTreeSet::new(),
            });
            gangs.len() - 1
        });
        let gang = &mut gangs[index];
        // Partitions resized in place are placed in steps.
        if gang.placed != placed && !self.in_place {
            gang.placed = placed;
            gang.nodes.clear();
        }
        gang
    }

    /// Leaving containers of the running incarnation keep their places until they exit.
    fn take_back_in_place(&mut self, removed: &[RemovedContainer], running: Incarnation) {
        for gang in &mut self.gangs {
            let life = gang.incarnation;
            let its = removed.iter().filter(|it| it.incarnation == life);
            if life == running {
                gang.taken_back.extend(its.map(|it| it.rank));
            } else {
                its.for_each(|it| gang.leave(it.rank));
            }
        }
        self.gangs.retain(|gang| !gang.nodes.is_empty());
    }

    /// A rank is never reused.
    pub(super) fn gone(&mut self, incarnation: Incarnation, rank: Rank) {
        if !self.in_place {
            return;
        }
        let gangs = self.gangs.iter_mut();
        for gang in gangs.filter(|gang| gang.incarnation == incarnation) {
            gang.leave(rank);
            gang.taken_back.remove(&rank);
        }
    }

    pub(super) fn resized(&mut self, event: &PartitionResized) {
        let gangs = self.gangs.iter_mut();
        for gang in gangs.filter(|gang| gang.incarnation == event.incarnation) {
            gang.resized(&event.members);
        }
    }

    fn take_back(&mut self, incarnation: Incarnation, node: &NodeId) {
        for gang in &mut self.gangs {
            if gang.incarnation == incarnation {
                gang.nodes.retain_mut(|(name, count)| {
                    if name == node {
                        *count = count.saturating_sub(1);
                    }
                    *count > 0
                });
            }
        }
        self.gangs.retain(|gang| !gang.nodes.is_empty());
    }
}

impl Gang {
    fn place(&mut self, container: &PlacedContainer) {
        // A used rank keeps its place.
        if let Entry::Vacant(place) = self.places.entry(container.rank) {
            place.insert(container.node.clone());
            self.add(&container.node);
        }
    }

    fn leave(&mut self, rank: Rank) {
        let Some(node) = self.places.remove(&rank) else {
            return;
        };
        self.nodes.retain_mut(|(name, count)| {
            *count -= u32::from(*name == node);
            *count > 0
        });
    }

    /// Ranks above the members are still to join, unless taken back.
    fn resized(&mut self, members: &[Rank]) {
        let last = members.iter().max();
        let is_over = |rank: &Rank| {
            let comes = last.is_none_or(|last| rank > last) && !self.taken_back.contains(rank);
            !comes && !members.contains(rank)
        };
        let over: Vec<Rank> = self
            .places
            .keys()
            .filter(|it| is_over(it))
            .copied()
            .collect();
        for rank in over {
            self.leave(rank);
            self.taken_back.remove(&rank);
        }
    }

    fn add(&mut self, node: &NodeId) {
        match self.nodes.iter_mut().rfind(|(name, _)| name == node) {
            Some((_, count)) => *count += 1,
            None => self.nodes.push((node.clone(), 1)),
        }
    }
}
