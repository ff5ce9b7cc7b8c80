//! Verifies a log: repeats every decision from its basis and compares.
//!
//! One fold per service follows the log to each decision's `asof`. Events with equal `asof` and `now`
//! are one decision; a crash leaves a prefix, decided again later. Services are verified in parallel,
//! slow decisions on copies of their states.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_admission::Admission;
use dormouse_archiver::Archiver;
use dormouse_autoscaler::Autoscaler;
use dormouse_checkpointer::Checkpointer;
use dormouse_messages::events::Basis;
use dormouse_messages::{Decider, Event, Fold, Proposal, Recorded, Sequence, Timestamp, Writer};
use dormouse_optimizer::Optimizer;
use dormouse_placer::Placer;
use dormouse_slurm::Slurm;
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

use crate::audit::restarts::Restarts;
use crate::history::slice::States;
use crate::lagging::Lagging;
use crate::parallel_readers::{ParallelReaders, Reader};

/// A decision that differs from its basis, or a broken invariant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub sequence: Sequence,
    #[serde(rename = "type")]
    pub type_name: String,
    pub build: String,
    pub what: String,
}

/// The result of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    pub events: u64,
    /// All decisions read: verified, and in findings.
    pub decisions: u64,
    pub verified: u64,
    /// Decisions at the beginning of a slice whose basis precedes its states.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub before_slice: u64,
    /// Refused as not permitted, or removed from a file; no findings.
    #[serde(default, skip_serializing_if = "dormouse_messages::is_default")]
    pub missing: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_missing: Option<Sequence>,
    pub findings: Vec<Finding>,
}

impl Report {
    fn absorb(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.verified += other.verified;
        self.before_slice += other.before_slice;
        self.findings.extend(other.findings);
    }
}

#[derive(Default)]
struct ServiceVerifier<D: Decider> {
    lagging: Lagging<D>,
    report: Report,
    decided_asof: Option<Sequence>,
    begun: Sequence,
    newest: Option<Made>,
    slow: Vec<(D::State, Made)>,
    /// The last state with checked invariants, and the events folded since.
    checked: (D::State, Vec<Arc<Recorded>>),
}

/// Between whole checks only [`Fold::check_since`] runs. After a broken check each event is examined.
const CHECK_EVERY: usize = 64;

/// Bounds an idle service's delay: a minute at a thousand events per second, longer than any decision
/// takes.
const MOST_WAITING: usize = 65_536;

const SLOW_AT_ONCE: usize = 128;

struct Made {
    asof: Sequence,
    now: Timestamp,
    events: Vec<Arc<Recorded>>,
}

impl Made {
    fn judge<D: Decider>(&self, decider: &D, state: &D::State) -> Report {
        let mut report = Report::default();
        let mut again: Option<VecDeque<Proposal>> = None;
        for recorded in &self.events {
            let Some((event, basis)) = decided(recorded) else {
                continue;
            };
            let again = again.get_or_insert_with(|| {
                let decision = decider.decide_again(state, basis.now, basis.budget);
                decision.proposals.into()
            });
            let again = again.pop_front();
            let mut bare = event.clone();
            bare.set_basis(None);
            match decider.verify(state, &bare, again.as_ref().map(|it| &it.event)) {
                Ok(()) => report.verified += 1,
                Err(what) => report.findings.push(finding(recorded, what)),
            }
        }
        report
    }
}

fn decided(recorded: &Recorded) -> Option<(&Event, &Basis)> {
    let event = recorded.event()?;
    Some((event, event.basis()?))
}

fn finding(recorded: &Recorded, what: String) -> Finding {
    let event = recorded.event();
    let basis = event.and_then(Event::basis);
    Finding {
        sequence: recorded.sequence,
        type_name: event.map_or("", Event::type_name).to_owned(),
        build: basis.map_or_else(String::new, |basis| basis.build.clone()),
        what,
    }
}

impl<D: Decider> ServiceVerifier<D> {
    /// Several deciders fold the same state, so only the optimizer checks it.
    fn checks() -> bool {
        D::WRITER == Writer::Optimizer || D::State::NAME != ClusterState::NAME
    }

    fn begin(&mut self, state: D::State, at: Sequence) {
        self.checked.0 = state.clone();
        self.lagging.state = state;
        (self.lagging.folded, self.begun) = (at, at);
    }

    fn check(&mut self, recorded: &Arc<Recorded>) {
        let own = Some(recorded).filter(|it| it.writer == D::WRITER);
        let Some((_, basis)) = own.and_then(|recorded| decided(recorded)) else {
            return;
        };
        if basis.asof < self.begun {
            self.report.before_slice += 1;
            return;
        }
        self.report.decisions += 1;
        let same = |made: &&mut Made| made.asof == basis.asof && made.now == basis.now;
        if let Some(made) = self.newest.as_mut().filter(same) {
            made.events.push(Arc::clone(recorded));
            return;
        }
        if basis.asof < self.lagging.folded {
            let asof = basis.asof;
            let what = match self.decided_asof {
                Some(before) if asof < before => {
                    format!("its basis {asof} lies before {before}, that of an earlier decision")
                }
                _ => format!("its basis {asof} lies more than {MOST_WAITING} events before it"),
            };
            self.report.findings.push(finding(recorded, what));
            return;
        }
        self.judge_newest();
        self.advance(basis.asof);
        self.decided_asof = Some(basis.asof);
        self.newest = Some(Made {
            asof: basis.asof,
            now: basis.now,
            events: vec![Arc::clone(recorded)],
        });
    }

    fn judge_newest(&mut self) {
        let Some(made) = self.newest.take() else {
            return;
        };
        if !D::SLOW {
            let judged = made.judge(&self.lagging.decider, &self.lagging.state);
            return self.report.absorb(judged);
        }
        self.slow.push((self.lagging.state.clone(), made));
        if self.slow.len() == SLOW_AT_ONCE {
            self.judge_slow();
        }
    }

    fn judge_slow(&mut self) {
        let decider = &self.lagging.decider;
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(self.slow.len());
        let slow = Mutex::new(std::mem::take(&mut self.slow));
        let next = || {
            let mut slow = slow.lock().unwrap_or_else(PoisonError::into_inner);
            slow.pop()
        };
        let work = || {
            let mut report = Report::default();
            while let Some((state, made)) = next() {
                report.absorb(made.judge(decider, &state));
            }
            report
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            self.report.absorb(work());
            for other in others {
                match other.join() {
                    Ok(report) => self.report.absorb(report),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
        });
    }

    fn advance(&mut self, to: Sequence) {
        while let Some(recorded) = self.lagging.fold_next(to) {
            if Self::checks() {
                self.check_state(recorded);
            }
        }
    }

    fn check_state(&mut self, recorded: Arc<Recorded>) {
        let (before, since) = &mut self.checked;
        since.push(recorded);
        if since.len() == CHECK_EVERY || self.lagging.state.check_since(before).is_err() {
            self.check_whole_state();
        }
    }

    fn check_whole_state(&mut self) {
        let (mut state, since) = std::mem::take(&mut self.checked);
        if self.lagging.state.check_invariants().is_err() {
            for recorded in since {
                state.evolve(&recorded);
                let Err(what) = state.check_invariants() else {
                    continue;
                };
                let broken = Finding {
                    build: String::new(),
                    ..finding(&recorded, format!("{}: {what}", D::State::NAME))
                };
                self.report.findings.push(broken);
            }
        }
        self.checked.0 = self.lagging.state.clone();
    }
}

impl<D: Decider> Reader for ServiceVerifier<D> {
    fn read(&mut self, recorded: &Arc<Recorded>) {
        self.check(recorded);
        let waiting = &mut self.lagging.waiting;
        waiting.push_back(Arc::clone(recorded));
        if waiting.len() > MOST_WAITING
            && let Some(oldest) = waiting.front().map(|it| it.sequence)
        {
            self.judge_newest();
            self.advance(oldest);
        }
    }
}

impl<D: Decider + Default> ParallelReaders<ServiceVerifier<D>> {
    fn begin(&mut self, state: D::State, at: Sequence) {
        let mut verifier = ServiceVerifier::default();
        verifier.begin(state, at);
        *self = Self::starting_from(verifier);
    }

    fn report(self) -> Report {
        let mut verifier = self.finish();
        verifier.judge_newest();
        verifier.judge_slow();
        verifier.advance(Sequence(u64::MAX));
        if ServiceVerifier::<D>::checks() {
            verifier.check_whole_state();
        }
        verifier.report
    }
}

/// Verifies the decisions of every service.
#[derive(Default)]
pub struct Verifier {
    events: u64,
    last: Option<Sequence>,
    missing: u64,
    first_missing: Option<Sequence>,
    restarts: Restarts,
    restart_findings: Vec<Finding>,
    admission: ParallelReaders<ServiceVerifier<Admission>>,
    optimizer: ParallelReaders<ServiceVerifier<Optimizer>>,
    placer: ParallelReaders<ServiceVerifier<Placer>>,
    checkpointer: ParallelReaders<ServiceVerifier<Checkpointer>>,
    autoscaler: ParallelReaders<ServiceVerifier<Autoscaler>>,
    archiver: ParallelReaders<ServiceVerifier<Archiver>>,
    slurm: ParallelReaders<ServiceVerifier<Slurm>>,
}

impl Verifier {
    /// Begins with the states of a slice.
    #[must_use]
    pub fn starting_from(mut self, states: &States) -> Self {
        let fork = &states.fork;
        self.restarts = Restarts::of(&fork.cluster);
        self.admission.begin(fork.admission.clone(), fork.sequence);
        self.optimizer.begin(fork.cluster.clone(), fork.sequence);
        self.placer.begin(fork.cluster.clone(), fork.sequence);
        self.checkpointer.begin(fork.cluster.clone(), fork.sequence);
        self.autoscaler
            .begin(fork.autoscaler.clone(), fork.sequence);
        self.archiver.begin(fork.archiver.clone(), fork.sequence);
        self.slurm.begin(fork.cluster.clone(), fork.sequence);
        self
    }

    /// Reads the next event of the log.
    pub fn read(&mut self, recorded: &Arc<Recorded>) {
        self.events += 1;
        let next = self.last.map_or(recorded.sequence, Sequence::next);
        if recorded.sequence > next {
            self.missing += recorded.sequence.0 - next.0;
            self.first_missing.get_or_insert(next);
        }
        self.last = Some(recorded.sequence);
        let wrong = self.restarts.read(recorded).into_iter();
        self.restart_findings
            .extend(wrong.map(|what| finding(recorded, what)));
        self.admission.read(recorded);
        self.optimizer.read(recorded);
        self.placer.read(recorded);
        self.checkpointer.read(recorded);
        self.autoscaler.read(recorded);
        self.archiver.read(recorded);
        self.slurm.read(recorded);
    }

    /// Returns the findings.
    #[must_use]
    pub fn finish(self) -> Report {
        let mut report = Report {
            events: self.events,
            missing: self.missing,
            first_missing: self.first_missing,
            findings: self.restart_findings,
            ..Report::default()
        };
        for of_service in [
            self.admission.report(),
            self.optimizer.report(),
            self.placer.report(),
            self.checkpointer.report(),
            self.autoscaler.report(),
            self.archiver.report(),
            self.slurm.report(),
        ] {
            report.absorb(of_service);
        }
        report.findings.sort_by_key(|finding| finding.sequence);
        report
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Envelope;
    use dormouse_messages::events::NodeDrained;

    use super::*;

    #[test]
    fn of_a_service_that_decides_nothing_no_more_than_a_bound_is_kept() {
        let mut verifier = ServiceVerifier::<Autoscaler>::default();
        for sequence in 1..=MOST_WAITING as u64 + 1_000 {
            let at = Timestamp::from_micros(i64::try_from(sequence).expect("few"));
            let event = Event::from(NodeDrained {
                node: "n0".parse().expect("a node"),
                reason: None,
                deadline_s: None,
            });
            let writer = Writer::Operator;
            let envelope = Envelope::new(format!("e-{sequence}"), writer, at, None, event);
            let recorded = Recorded {
                sequence: Sequence(sequence),
                stored_at: at,
                writer,
                envelope,
            };
            verifier.read(&Arc::new(recorded));
        }
        assert_eq!(verifier.lagging.waiting.len(), MOST_WAITING);
        assert_eq!(verifier.lagging.folded, Sequence(1_000));
    }
}
