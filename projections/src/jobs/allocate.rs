//! What an allocation and a placement do to the jobs that they list.

use dormouse_messages::events::{AllocationDecided, PlacementDecided, Waiting};
use dormouse_messages::{Incarnation, NodeId, Sequence, Timestamp};

use super::{Gang, JobTable, Live, Phase};

impl JobTable {
    pub(super) fn allocate(&mut self, event: &AllocationDecided, at: Timestamp) {
        for allocation in &event.jobs {
            self.update(&allocation.job, |job, live| {
                let stops = allocation.containers == 0 || !live.in_place;
                let less = allocation.containers < allocation.previous;
                job.preempted += u32::from(stops && less && allocation.made_for.is_some());
                job.epoch = event.epoch;
                job.allocated(allocation, at);
            });
        }
        self.wait(&event.outcome.waiting, at);
    }

    pub(super) fn wait(&mut self, waiting: &[Waiting], at: Timestamp) {
        for waiting in waiting {
            self.update(&waiting.job, |job, _| {
                // The same words come with every decision: copy them only when they change.
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
                for container in created {
                    let gang = live.gang_mut(container.incarnation, sequence);
                    gang.add(&container.node);
                }
            });
        }
        for removed in event.remove.chunk_by(|a, b| a.job == b.job) {
            self.update(&removed[0].job, |job, live| {
                let running = job.incarnation;
                // The running gang stands until it stops; only a later one is taken back.
                for container in removed.iter().filter(|c| c.incarnation > running) {
                    live.take_back(container.incarnation, &container.node);
                }
            });
        }
    }
}

impl Live {
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
            });
            gangs.len() - 1
        });
        let gang = &mut gangs[index];
        if gang.placed != placed {
            gang.placed = placed;
            gang.nodes.clear();
        }
        gang
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
    fn add(&mut self, node: &NodeId) {
        // A gang is placed node by node: the last entry is nearly always the one.
        match self.nodes.iter_mut().rfind(|(name, _)| name == node) {
            Some((_, count)) => *count += 1,
            None => self.nodes.push((node.clone(), 1)),
        }
    }
}
