//! One service in memory: its fold, its decider, and the basis that the live shell would record.

use std::sync::Arc;

use dormouse_messages::{Basis, Decider, Fold, Proposal, Recorded, Sequence, Timestamp, Writer};

/// The build that decisions of a simulated cluster name.
const BUILD: &str = "simulated";

/// A service.
pub struct Service<D: Decider> {
    decider: D,
    state: D::State,
    folded: Sequence,
    decided_at: Option<Sequence>,
    /// When it wants to decide again on a silent log.
    pub wake: Option<Timestamp>,
}

impl<D: Decider> Service<D> {
    /// A service that has folded nothing.
    pub fn new(decider: D) -> Self {
        Self {
            decider,
            state: D::State::default(),
            folded: Sequence(0),
            decided_at: None,
            wake: None,
        }
    }

    /// Folds one event; the invariant that is broken then, if any.
    pub fn fold(&mut self, recorded: &Arc<Recorded>, check: bool) -> Option<String> {
        self.state.evolve(recorded);
        self.folded = recorded.sequence;
        let broken = check.then(|| self.state.check_invariants().err()).flatten();
        broken.map(|what| format!("{}: {what}", D::State::NAME))
    }

    /// Decides, unless nothing has happened since it last did and its wake is not due.
    pub fn decide(&mut self, now: Timestamp) -> Vec<(Writer, Proposal)> {
        let due = self.wake.is_some_and(|wake| wake <= now);
        if self.decided_at == Some(self.folded) && !due {
            return Vec::new();
        }
        self.decided_at = Some(self.folded);
        let decision = self.decider.decide(&self.state, now);
        self.wake = decision.next_wake;
        let asof = self.folded;
        let budget = self.decider.budget();
        let with_basis = decision.proposals.into_iter().map(|mut proposal| {
            proposal.event.set_basis(Some(Basis {
                asof,
                now,
                causes: proposal.causes.clone(),
                build: BUILD.to_owned(),
                state_hash: None,
                seed: 0,
                budget,
            }));
            (D::WRITER, proposal)
        });
        with_basis.collect()
    }
}
