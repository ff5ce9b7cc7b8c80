//! Allocations to give back.

use std::collections::BTreeSet;

use dormouse_messages::events::SlurmReleased;
use dormouse_messages::{Decision, NodeId, Proposal, QueueId, Timestamp};
use dormouse_state::{ClusterState, SlurmAllocation, SlurmPhase, SlurmQueueState};

use crate::demand::Demand;

enum Verdict {
    Keep,
    Until(Timestamp),
    Release { reason: String, in_vain: bool },
}

/// Adds the releases, and the time of the next one.
pub fn decide(state: &ClusterState, demand: &Demand<'_>, now: Timestamp, decision: &mut Decision) {
    let used = used_nodes(state);
    for (name, queue) in state.slurm.iter() {
        let live = queue.allocations.iter();
        let live = live.filter(|(_, it)| !it.released && it.phase != SlurmPhase::Ended);
        for (number, allocation) in live {
            let look = Look {
                state,
                name,
                queue,
                allocation,
                wanted: demand.wants(name),
                used: &used,
            };
            match look.verdict(now) {
                Verdict::Keep => {}
                Verdict::Until(at) => {
                    decision.next_wake = decision.next_wake.into_iter().chain([at]).min();
                }
                Verdict::Release { reason, in_vain } => {
                    let event = SlurmReleased {
                        queue: name.clone(),
                        number: *number,
                        reason,
                        in_vain,
                        basis: None,
                    };
                    decision
                        .proposals
                        .push(Proposal::new(event, allocation.last));
                }
            }
        }
    }
}

struct Look<'a> {
    state: &'a ClusterState,
    name: &'a QueueId,
    queue: &'a SlurmQueueState,
    allocation: &'a SlurmAllocation,
    wanted: bool,
    used: &'a BTreeSet<&'a NodeId>,
}

impl Look<'_> {
    fn verdict(&self, now: Timestamp) -> Verdict {
        let release = |reason: String| Verdict::Release {
            reason,
            in_vain: false,
        };
        if self.queue.removed {
            return release("the queue is removed".to_owned());
        }
        let idle_s = self.queue.settings.idle_s;
        let idle_at = self.allocation.used_at.plus_ms(u64::from(idle_s) * 1000);
        if self.allocation.is_pending() {
            // A job that starts elsewhere, or ends, is often followed by the next one.
            return match self.wanted {
                true => Verdict::Keep,
                false if idle_at <= now => release("no job waits for it".to_owned()),
                false => Verdict::Until(idle_at),
            };
        }
        let mut names = self.allocation.node_names(self.name);
        if names.any(|node| self.used.contains(&node)) {
            return Verdict::Keep;
        }
        if self.is_drained() {
            return release("its nodes are drained and empty".to_owned());
        }
        // A gang waits for the rest of its allocations.
        let mut others = self.queue.allocations.values();
        if self.wanted && others.any(|it| it.is_pending() && !it.released) {
            return Verdict::Keep;
        }
        if now < idle_at {
            return Verdict::Until(idle_at);
        }
        let joined = self.allocation.joined;
        let in_vain = !joined || (self.wanted && !self.allocation.used);
        Verdict::Release {
            reason: match (joined, in_vain) {
                (false, _) => format!("no node joined within {idle_s} s"),
                (true, true) => format!("a job waits, and starts nothing on it within {idle_s} s"),
                (true, false) => format!("no container for {idle_s} s"),
            },
            in_vain,
        }
    }

    fn is_drained(&self) -> bool {
        let nodes = self.allocation.node_names(self.name);
        let mut nodes = nodes.map(|node| self.state.nodes.get(&node));
        nodes.all(|node| node.is_some_and(|node| node.drained))
    }
}

/// Returns the nodes of all placed or running containers.
fn used_nodes(state: &ClusterState) -> BTreeSet<&NodeId> {
    let mut used = BTreeSet::new();
    for job in state.jobs.values() {
        used.extend(job.held().map(|(node, _)| node));
        let places = job.assignment.iter().flat_map(|it| it.places.values());
        used.extend(places.map(|place| &place.node));
    }
    used
}
