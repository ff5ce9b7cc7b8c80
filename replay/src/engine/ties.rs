//! What ties a node's agent to the brokers, and what happens when that is cut.
//!
//! ```text
//!   whole ──▶ cut (either way, or both) or the agent killed ──▶ whole again
//!                │ the fence: what runs there ends        what it could not say is said,
//!                │ the lease: the node is lost            what it did not hear is heard
//! ```
//!
//! 1. An agent that is killed leaves its containers running; its keeper holds the fence. One that is cut
//!    off holds it itself. Who comes back before it adopts what runs.
//! 2. An agent that does not hear starts and stops nothing; one that cannot speak keeps what it has to
//!    say. A renewal needs both.
//! 3. The brokers count the lease from a later moment than the agent: it is not answered what they saw.
//! 4. An agent that comes back after the fence joins anew; after the loss, it first ends what is left.

use std::collections::BTreeMap;

use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{NodeId, Timestamp};

use super::faults::{Faults, Plant};

/// How an agent is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It neither hears nor speaks.
    Whole,
    /// It hears the log; nothing that it says arrives.
    Mute,
    /// What it says arrives; it hears nothing.
    Deaf,
    /// It was killed. Its containers run on.
    Killed,
}

/// A node's tie.
#[derive(Debug, Clone, Default)]
pub struct Tie {
    cut: Option<Cut>,
    /// How often it was cut or mended: what was due before is void.
    changes: u64,
}

/// What is due of a tie that is still cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// When what runs there ends; never where that is forgotten.
    pub fence: Option<Timestamp>,
    /// When the node is lost.
    pub loss: Timestamp,
    /// Of which change.
    pub of: u64,
}

/// All ties.
#[derive(Debug, Clone, Default)]
pub struct Ties(BTreeMap<NodeId, Tie>);

impl Ties {
    fn of(&self, node: &NodeId) -> Option<&Tie> {
        self.0.get(node)
    }

    /// Whether the node's agent hears the log.
    pub fn hears(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| matches!(tie.cut, None | Some(Cut::Mute)))
    }

    /// Whether what the agent says is stored, and it hears so.
    pub fn speaks(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| matches!(tie.cut, None | Some(Cut::Deaf)))
    }

    /// Cuts a tie that is whole.
    pub fn cut(
        &mut self,
        node: &NodeId,
        cut: Cut,
        term: LeaseTerm,
        now: Timestamp,
        faults: &mut Faults,
    ) -> Option<Deadlines> {
        let tie = self.0.entry(node.clone()).or_default();
        if tie.cut.is_some() {
            return None;
        }
        tie.cut = Some(cut);
        tie.changes += 1;
        // The last renewal was up to a quarter of the lease ago; the next one may still arrive.
        let renewed_ms = faults.up_to(term.lease_ms / 4);
        let seen_ms = match cut {
            Cut::Deaf => renewed_ms.saturating_sub(faults.up_to(term.lease_ms / 4)),
            Cut::Whole | Cut::Mute | Cut::Killed => renewed_ms,
        };
        let since = |ago_ms: u64, span_ms: u64| now.plus_ms(span_ms.saturating_sub(ago_ms));
        let fence = since(renewed_ms, term.fence_ms + term.grace_ms());
        let forgotten = faults.plant() == Some(Plant::Unfenced);
        Some(Deadlines {
            fence: (!forgotten).then_some(fence),
            loss: since(seen_ms, term.lease_ms),
            of: tie.changes,
        })
    }

    /// Whether a deadline of this change still counts.
    pub fn counts(&self, node: &NodeId, of: u64) -> bool {
        let tie = self.of(node);
        tie.is_some_and(|tie| tie.cut.is_some() && tie.changes == of)
    }

    /// The node dies with its agent.
    pub fn die(&mut self, node: &NodeId) {
        let tie = self.0.entry(node.clone()).or_default();
        tie.cut = None;
        tie.changes += 1;
    }

    /// The tie is whole again; how it was cut.
    pub fn mend(&mut self, node: &NodeId) -> Option<Cut> {
        let tie = self.0.get_mut(node)?;
        let cut = tie.cut.take()?;
        tie.changes += 1;
        Some(cut)
    }
}
