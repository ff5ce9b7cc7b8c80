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

use dormouse_messages::events::Key;
use dormouse_messages::ids::Rank;
use dormouse_messages::policy::LeaseTerm;
use dormouse_messages::{Event, NodeId, TaskRanges, Timestamp};

use super::agents::LifeId;
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

/// Something that was asked of a node and not heard.
#[derive(Debug, Clone)]
pub enum Missed {
    /// Tasks to run.
    Tasks(LifeId, Rank, TaskRanges),
    /// A container that is to leave.
    Leave(LifeId, Rank),
}

/// A node's tie.
#[derive(Debug, Clone, Default)]
pub struct Tie {
    cut: Option<Cut>,
    fenced: bool,
    lost: bool,
    /// How often it was cut or mended: what was due before is void.
    changes: u64,
    /// What it could not say yet.
    outbox: Vec<Event>,
    /// What it did not hear yet.
    pub missed: Vec<Missed>,
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

/// How an agent comes back.
#[derive(Debug)]
pub struct Back {
    /// What it has to say, in order.
    pub says: Vec<Event>,
    /// What it has missed.
    pub missed: Vec<Missed>,
    /// Whether it joins anew.
    pub joins: bool,
    /// Whether it was lost: what is left there ends first.
    pub lost: bool,
}

/// All ties.
#[derive(Debug, Clone, Default)]
pub struct Ties(BTreeMap<NodeId, Tie>);

impl Ties {
    fn of(&self, node: &NodeId) -> Option<&Tie> {
        self.0.get(node)
    }

    /// Whether the node's agent acts on the log.
    pub fn hears(&self, node: &NodeId) -> bool {
        self.of(node).is_none_or(|tie| {
            let hears = matches!(tie.cut, None | Some(Cut::Mute));
            hears && !tie.fenced
        })
    }

    /// Whether what the agent says arrives.
    fn speaks(&self, node: &NodeId) -> bool {
        let tie = self.of(node);
        tie.is_none_or(|tie| matches!(tie.cut, None | Some(Cut::Deaf)))
    }

    /// Passes on what nodes can say now; the rest waits.
    pub fn said(&mut self, events: Vec<Event>) -> Vec<Event> {
        let mut passed = Vec::new();
        for event in events {
            let node = match event.key() {
                Key::Node(node) => node.clone(),
                _ => continue,
            };
            match self.speaks(&node) {
                true => passed.push(event),
                false => self.0.entry(node).or_default().outbox.push(event),
            }
        }
        passed
    }

    /// Keeps what a node will say when it can.
    pub fn keeps(&mut self, node: &NodeId, events: Vec<Event>) {
        let tie = self.0.entry(node.clone()).or_default();
        tie.outbox.extend(events);
    }

    /// Notes what a node does not hear.
    pub fn misses(&mut self, node: &NodeId, missed: Missed) {
        self.0.entry(node.clone()).or_default().missed.push(missed);
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
    fn counts(&mut self, node: &NodeId, of: u64) -> Option<&mut Tie> {
        let tie = self.0.get_mut(node);
        tie.filter(|tie| tie.cut.is_some() && tie.changes == of)
    }

    /// The fence is due: whether it still counts.
    pub fn fence(&mut self, node: &NodeId, of: u64) -> bool {
        let tie = self.counts(node, of);
        tie.map(|tie| tie.fenced = true).is_some()
    }

    /// The lease has ended: whether it still counts.
    pub fn lose(&mut self, node: &NodeId, of: u64) -> bool {
        let tie = self.counts(node, of);
        tie.map(|tie| tie.lost = true).is_some()
    }

    /// The node dies with its agent.
    pub fn die(&mut self, node: &NodeId) {
        let changes = self.of(node).map_or(0, |tie| tie.changes);
        let tie = Tie {
            changes: changes + 1,
            ..Tie::default()
        };
        self.0.insert(node.clone(), tie);
    }

    /// The tie is whole again.
    pub fn mend(&mut self, node: &NodeId) -> Option<Back> {
        let tie = self.0.get_mut(node)?;
        let cut = tie.cut.take()?;
        tie.changes += 1;
        let fenced = std::mem::take(&mut tie.fenced);
        let lost = std::mem::take(&mut tie.lost);
        Some(Back {
            says: std::mem::take(&mut tie.outbox),
            missed: std::mem::take(&mut tie.missed),
            joins: fenced || lost || cut == Cut::Killed,
            lost,
        })
    }
}
