//! Verified replay: every recorded decision is made again from its basis and compared. One that a clock
//! stopped is checked instead: its problem is posed again, and feasibility, figures and bound are held
//! against that.
//!
//! For each service one fold lags behind the log: before a decision is made again it is advanced
//! to the decision's `asof`, the prefix it was made from. Events with the same `asof` and `now`
//! are one decision; what a crash cut off it is a prefix, and decided again later. The services are
//! verified beside each other, a thread each.

use std::collections::VecDeque;
use std::sync::Arc;

use dormouse_admission::Admission;
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::{Decider, Event, Fold, Proposal, Recorded, Sequence, Timestamp, Writer};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use serde::{Deserialize, Serialize};

use crate::beside::{Beside, Reader};
use crate::history::slice::States;

/// A decision that is not what its basis gives, or a broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Where.
    pub sequence: Sequence,
    /// Which type of event.
    #[serde(rename = "type")]
    pub type_name: String,
    /// The build that decided.
    pub build: String,
    /// What is wrong.
    pub what: String,
}

/// What verification found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Events read.
    pub events: u64,
    /// Decisions read: those that came out again, those that were checked, and those of the findings.
    pub decisions: u64,
    /// Decisions that came out the same.
    pub verified: u64,
    /// Decisions that the solver's time had stopped, and whose problem, figures and bound hold.
    #[serde(default)]
    pub checked: u64,
    /// Decisions at the beginning of a slice that were made from less than its states: they cannot be
    /// made again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before_slice: u64,
    /// What did not: empty on a healthy log.
    pub findings: Vec<Finding>,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks for a reference"
)]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// One service's decisions.
struct Lagging<D: Decider> {
    decider: D,
    report: Report,
    state: D::State,
    folded: Sequence,
    /// Where its state began.
    begun: Sequence,
    waiting: VecDeque<Arc<Recorded>>,
    current: Option<Current>,
    /// The state that all of its invariants were checked on last, and what was folded since.
    checked: (D::State, Vec<Arc<Recorded>>),
}

/// All invariants are checked after so many events; in between only those that a later event may mend. An
/// event that broke one of the others is then found among them.
const CHECK_EVERY: usize = 64;

/// The decision whose events are being compared.
struct Current {
    asof: Sequence,
    now: Timestamp,
    proposals: VecDeque<Proposal>,
}

impl<D: Decider + Default> Default for Lagging<D> {
    fn default() -> Self {
        Self {
            decider: D::default(),
            report: Report::default(),
            state: D::State::default(),
            folded: Sequence(0),
            begun: Sequence(0),
            waiting: VecDeque::new(),
            current: None,
            checked: Default::default(),
        }
    }
}

impl<D: Decider> Lagging<D> {
    /// Whether its state's invariants are checked after every event: optimizer, placer and
    /// checkpointer fold the same one.
    const CHECKS: bool = !matches!(D::WRITER, Writer::Placer | Writer::Checkpointer);

    /// Begins with a state from a snapshot.
    fn begin(&mut self, state: D::State, at: Sequence) {
        self.checked.0 = state.clone();
        self.state = state;
        (self.folded, self.begun) = (at, at);
    }

    fn check(&mut self, recorded: &Arc<Recorded>) {
        let Some(event) = recorded.event().filter(|_| recorded.writer == D::WRITER) else {
            return;
        };
        let Some(basis) = event.basis() else { return };
        let finding = |what: String| Finding {
            sequence: recorded.sequence,
            type_name: event.type_name().to_owned(),
            build: basis.build.clone(),
            what,
        };
        if basis.asof < self.begun {
            self.report.before_slice += 1;
            return;
        }
        self.report.decisions += 1;
        if basis.asof >= self.folded {
            self.advance(basis.asof);
            if let Some(checked) = self.decider.check(&self.state, event) {
                match checked {
                    Ok(()) => self.report.checked += 1,
                    Err(what) => self.report.findings.push(finding(what)),
                }
                return;
            }
        }
        let same = |current: &Current| current.asof == basis.asof && current.now == basis.now;
        if !self.current.as_ref().is_some_and(same) {
            if basis.asof < self.folded {
                let what = format!(
                    "its basis {} lies before that of an earlier decision",
                    basis.asof
                );
                self.report.findings.push(finding(what));
                return;
            }
            self.advance(basis.asof);
            let decision = self
                .decider
                .decide_again(&self.state, basis.now, basis.budget);
            self.current = Some(Current {
                asof: basis.asof,
                now: basis.now,
                proposals: decision.proposals.into(),
            });
        }
        let again = self
            .current
            .as_mut()
            .and_then(|current| current.proposals.pop_front());
        let mut bare: Event = event.clone();
        bare.set_basis(None);
        match self.decider.verify(
            &self.state,
            &bare,
            again.as_ref().map(|proposal| &proposal.event),
        ) {
            Ok(()) => self.report.verified += 1,
            Err(what) => self.report.findings.push(finding(what)),
        }
    }

    fn advance(&mut self, to: Sequence) {
        while let Some(recorded) = self
            .waiting
            .front()
            .filter(|next| next.sequence <= to)
            .cloned()
        {
            self.waiting.pop_front();
            self.state.evolve(&recorded);
            self.folded = recorded.sequence;
            if Self::CHECKS {
                self.check_state(recorded);
            }
        }
    }

    fn check_state(&mut self, recorded: Arc<Recorded>) {
        let (before, since) = &mut self.checked;
        since.push(recorded);
        if since.len() == CHECK_EVERY || self.state.check_since(before).is_err() {
            self.check_whole_state();
        }
    }

    /// Checks all invariants, and finds after which event one is broken.
    fn check_whole_state(&mut self) {
        let (mut state, since) = std::mem::take(&mut self.checked);
        if self.state.check_invariants().is_err() {
            for recorded in since {
                state.evolve(&recorded);
                let Err(what) = state.check_invariants() else {
                    continue;
                };
                self.report.findings.push(Finding {
                    sequence: recorded.sequence,
                    type_name: recorded.event().map_or("", Event::type_name).to_owned(),
                    build: String::new(),
                    what: format!("{}: {what}", D::State::NAME),
                });
            }
        }
        self.checked.0 = self.state.clone();
    }
}

impl<D: Decider> Reader for Lagging<D> {
    fn read(&mut self, recorded: &Arc<Recorded>) {
        self.check(recorded);
        self.waiting.push_back(Arc::clone(recorded));
    }
}

impl<D: Decider + Default> Beside<Lagging<D>> {
    fn begin(&mut self, state: D::State, at: Sequence) {
        let mut lagging = Lagging::default();
        lagging.begin(state, at);
        *self = Self::starting_from(lagging);
    }

    /// What was found, once the log has ended: its end is folded as well.
    fn report(self) -> Report {
        let mut lagging = self.finish();
        lagging.advance(Sequence(u64::MAX));
        if Lagging::<D>::CHECKS {
            lagging.check_whole_state();
        }
        lagging.report
    }
}

/// Verifies the decisions of every service.
#[derive(Default)]
pub struct Verifier {
    events: u64,
    admission: Beside<Lagging<Admission>>,
    optimizer: Beside<Lagging<Optimizer>>,
    placer: Beside<Lagging<Placer>>,
    checkpointer: Beside<Lagging<Checkpointer>>,
    autoscaler: Beside<Lagging<Autoscaler>>,
}

impl Verifier {
    /// Begins with the states of a slice.
    #[must_use]
    pub fn starting_from(mut self, states: &States) -> Self {
        let fork = &states.fork;
        self.admission.begin(fork.admission.clone(), fork.sequence);
        self.optimizer.begin(fork.cluster.clone(), fork.sequence);
        self.placer.begin(fork.cluster.clone(), fork.sequence);
        self.checkpointer.begin(fork.cluster.clone(), fork.sequence);
        self.autoscaler
            .begin(fork.autoscaler.clone(), fork.sequence);
        self
    }

    /// The next event of the log.
    pub fn read(&mut self, recorded: &Arc<Recorded>) {
        self.events += 1;
        self.admission.read(recorded);
        self.optimizer.read(recorded);
        self.placer.read(recorded);
        self.checkpointer.read(recorded);
        self.autoscaler.read(recorded);
    }

    /// What was found.
    #[must_use]
    pub fn finish(self) -> Report {
        let mut report = Report {
            events: self.events,
            ..Report::default()
        };
        for of_service in [
            self.admission.report(),
            self.optimizer.report(),
            self.placer.report(),
            self.checkpointer.report(),
            self.autoscaler.report(),
        ] {
            report.decisions += of_service.decisions;
            report.verified += of_service.verified;
            report.checked += of_service.checked;
            report.before_slice += of_service.before_slice;
            report.findings.extend(of_service.findings);
        }
        report.findings.sort_by_key(|finding| finding.sequence);
        report
    }
}
