//! Decides which allocations to ask of Slurm, and which to give back. The crate is pure and does no I/O.
//!
//! Folds the shared [`ClusterState`]. Appends `slurm.requested` and `slurm.released`; Slurm's answers are
//! observed (`dormouse-slurm-client`).
//!
//! 1. Waiting jobs, oldest first, are placed on free capacity: of the nodes, and of allocations whose nodes
//!    have yet to join ([`demand`]).
//! 2. A job without room asks the first queue whose nodes can hold the job for the fewest allocations. The
//!    allocations of a gang are requested together, as the gang starts together.
//! 3. An allocation is given back ([`release`]) if its queue is removed, if its nodes are drained and empty, if
//!    no container used it for `idle_s`, or if no job waits for it while it waits in Slurm.
//!
//! Invariant: a queue has at most `most` allocations, each in a slot of its own, until the cluster has forgotten
//! the nodes of the slot. The optimizer decides which jobs get the capacity.

mod demand;
mod release;

use dormouse_messages::{Decider, Decision, Timestamp, Writer};
use dormouse_state::ClusterState;

/// The decider of Slurm allocations.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slurm;

impl Decider for Slurm {
    type State = ClusterState;

    const WRITER: Writer = Writer::Slurm;

    fn decide(&self, state: &ClusterState, now: Timestamp) -> Decision {
        let mut decision = Decision::default();
        if state.slurm.is_empty() {
            return decision;
        }
        let demand = demand::Demand::of(state);
        release::decide(state, &demand, now, &mut decision);
        decision.proposals.extend(demand.requests());
        decision
    }
}

#[cfg(test)]
mod tests;
