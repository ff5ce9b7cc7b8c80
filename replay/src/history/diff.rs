//! Finds the first differing decision of two policies, or of two logs (two builds on the same inputs).
//!
//! The other policy decides each allocation again from its recorded basis; [`super::whatif`] simulates the
//! consequences. Two logs are compared up to the first difference, after which their states differ.
//!
//! | class | meaning |
//! |---|---|
//! | `equal` | the same containers for every job |
//! | `equal_value` | other containers, the same objective within the proven gaps |
//! | `better`, `worse` | the second objective is larger, or smaller |
//! | `infeasible` | the first state and policy do not allow the second decision |
//! | `other_type` | only one of the two changes containers |

mod answer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use dormouse_messages::events::Outcome;
use dormouse_messages::{Decider, Event, JobId, Recorded, Sequence, Timestamp, Writer};
use dormouse_optimizer::Optimizer;

pub use answer::{Class, DecisionDiff, DiffAnswer, Side};

use super::changes::{ChangeError, Changes};
use super::explain::restarts;
use super::fork::Fork;
use super::whatif::Differs;

/// Compares a log's decisions with another policy's decisions from the same states.
pub struct PolicyDiff<'a> {
    changes: &'a Changes,
    before: Fork,
    tail: VecDeque<Arc<Recorded>>,
    answer: DiffAnswer,
}

impl<'a> PolicyDiff<'a> {
    /// Compares with the policy fields of `changes`; without changes, with this build.
    #[must_use]
    pub fn new(changes: &'a Changes) -> Self {
        Self {
            changes,
            before: Fork::default(),
            tail: VecDeque::new(),
            answer: DiffAnswer::default(),
        }
    }

    /// Begins with the states of a slice.
    #[must_use]
    pub fn starting_from(mut self, fork: Fork) -> Self {
        self.before = fork;
        self
    }

    /// Reads the next event of the log.
    ///
    /// # Errors
    /// A change does not fit.
    pub fn read(&mut self, recorded: &Arc<Recorded>) -> Result<(), ChangeError> {
        let decision = recorded
            .event()
            .filter(|_| recorded.writer == Writer::Optimizer);
        if let Some((event, basis)) = decision.and_then(|event| Some((event, event.basis()?))) {
            while let Some(next) = self.tail.front().filter(|it| it.sequence <= basis.asof) {
                self.before.read(next);
                self.tail.pop_front();
            }
            // A decision whose basis precedes the slice cannot be repeated.
            if self.before.sequence <= basis.asof {
                self.compare(recorded, event)?;
            }
        }
        self.tail.push_back(Arc::clone(recorded));
        Ok(())
    }

    fn compare(&mut self, recorded: &Recorded, event: &Event) -> Result<(), ChangeError> {
        let Some(basis) = event.basis() else {
            return Ok(());
        };
        let mut other = self.before.cluster.clone();
        other.policy = self.changes.policy(&other.policy)?;
        let again = Optimizer::default().decide_within(&other, basis.now, basis.budget);
        let Some(mut right) = again.proposals.into_iter().next().map(|it| it.event) else {
            return Ok(());
        };
        right.set_basis(None);
        let left = Of {
            sequence: Some(recorded.sequence),
            at: basis.now,
            build: basis.build.clone(),
            event: event.clone(),
        };
        let right = Of {
            sequence: None,
            at: basis.now,
            build: "this one".to_owned(),
            event: right,
        };
        note(&mut self.answer, &self.before, &left, &right);
        Ok(())
    }

    /// Returns the comparison.
    #[must_use]
    pub fn finish(self) -> DiffAnswer {
        self.answer
    }
}

/// Compares two logs, allocation by allocation, up to the first difference.
#[must_use]
pub fn logs(left: &[Arc<Recorded>], right: &[Arc<Recorded>]) -> DiffAnswer {
    let mut answer = DiffAnswer::default();
    let (mut before, mut place) = (Fork::default(), 0);
    for (first, second) in decisions(left).zip(decisions(right)) {
        let asof = first.event().and_then(Event::basis).map(|it| it.asof);
        while let Some(next) = left.get(place).filter(|it| Some(it.sequence) <= asof) {
            before.read(next);
            place += 1;
        }
        if let (Some(first), Some(second)) = (Of::recorded(first), Of::recorded(second)) {
            note(&mut answer, &before, &first, &second);
        }
        if answer.first.is_some() {
            break;
        }
    }
    answer
}

fn decisions(log: &[Arc<Recorded>]) -> impl Iterator<Item = &Arc<Recorded>> {
    let own = log.iter().filter(|it| it.writer == Writer::Optimizer);
    own.filter(|it| it.event().and_then(Event::basis).is_some())
}

struct Of {
    sequence: Option<Sequence>,
    at: Timestamp,
    build: String,
    event: Event,
}

impl Of {
    fn recorded(recorded: &Recorded) -> Option<Self> {
        let event = recorded.event()?;
        let basis = event.basis()?;
        Some(Self {
            sequence: Some(recorded.sequence),
            at: basis.now,
            build: basis.build.clone(),
            event: event.clone(),
        })
    }

    fn outcome(&self) -> Option<&Outcome> {
        match &self.event {
            Event::AllocationDecided(event) => Some(&event.outcome),
            Event::AllocationUnchanged(event) => Some(&event.outcome),
            _ => None,
        }
    }

    fn jobs(&self, before: &Fork) -> BTreeMap<JobId, u32> {
        let there = before.cluster.jobs.keys();
        let mut jobs: BTreeMap<JobId, u32> = there
            .map(|job| (job.clone(), before.containers(job)))
            .collect();
        if let Event::AllocationDecided(event) = &self.event {
            jobs.extend(event.jobs.iter().map(|it| (it.job.clone(), it.containers)));
        }
        jobs
    }

    fn side(&self) -> Option<Side> {
        let outcome = self.outcome()?;
        Some(Side {
            sequence: self.sequence,
            at: self.at,
            type_name: self.event.subject_name().to_owned(),
            objective: outcome.solver.objective,
            gap: outcome.solver.gap,
            utilization: outcome.utilization.total,
            fairness_loss: outcome.fairness_loss,
            fairness_loss_bound: outcome.fairness_loss_bound,
            adjusted_jobs: outcome.adjusted_jobs,
            adjustment_bound: outcome.adjustment_bound,
            build: self.build.clone(),
        })
    }
}

fn note(answer: &mut DiffAnswer, before: &Fork, left: &Of, right: &Of) {
    let (Some(first), Some(second)) = (left.side(), right.side()) else {
        return;
    };
    let (was, is) = (left.jobs(before), right.jobs(before));
    let class = class(before, (&first, &was), (&second, &is), right);
    answer.compared += 1;
    *answer.classes.entry(class).or_default() += 1;
    if class == Class::Equal || answer.first.is_some() {
        return;
    }
    let names: BTreeSet<&JobId> = was.keys().chain(is.keys()).collect();
    let jobs = names.into_iter().map(|job| Differs {
        job: job.to_string(),
        left: was.get(job).copied(),
        right: is.get(job).copied(),
    });
    let jobs: Vec<Differs> = jobs.filter(|it| it.left != it.right).collect();
    answer.first = Some(DecisionDiff {
        sequence: left.sequence.unwrap_or_default(),
        class,
        explained: explained(&first, &second, &jobs, class),
        left: first,
        right: second,
        jobs,
    });
}

fn class(
    before: &Fork,
    (first, was): (&Side, &BTreeMap<JobId, u32>),
    (second, is): (&Side, &BTreeMap<JobId, u32>),
    right: &Of,
) -> Class {
    if was == is {
        return Class::Equal;
    }
    if breaks_bounds(first, second, right) {
        return Class::Infeasible;
    }
    if !has_room(before, right) {
        return Class::Infeasible;
    }
    if first.type_name != second.type_name {
        return Class::OtherType;
    }
    let size = first.objective.abs().max(second.objective.abs());
    let within = (first.gap.max(second.gap)) * size + 1e-9;
    match second.objective - first.objective {
        more if more > within => Class::Better,
        more if more < -within => Class::Worse,
        _ => Class::EqualValue,
    }
}

fn has_room(before: &Fork, of: &Of) -> bool {
    match &of.event {
        Event::AllocationDecided(event) => {
            Optimizer::fits(&before.cluster, event, before.now).is_ok()
        }
        _ => true,
    }
}

/// The bounds do not apply to forced or unbounded decisions.
fn breaks_bounds(first: &Side, second: &Side, right: &Of) -> bool {
    let exempt = right.outcome().is_none_or(|it| it.forced || it.unbounded);
    !exempt
        && (second.adjusted_jobs > first.adjustment_bound
            || second.fairness_loss > first.fairness_loss_bound + 1e-9)
}

fn explained(left: &Side, right: &Side, jobs: &[Differs], class: Class) -> Vec<String> {
    let count = |count: Option<u32>| count.unwrap_or(0);
    let mut said: Vec<String> = jobs
        .iter()
        .map(|it| {
            format!(
                "{}: {} containers in the first, {} in the second",
                it.job,
                count(it.left),
                count(it.right)
            )
        })
        .collect();
    for (name, side) in [("the first", left), ("the second", right)] {
        said.push(format!(
            "{name} restarts {}; fairness loss {:.3} of at most {:.3}; utilization {:.3}; objective {:.4}, gap {:.4}",
            restarts(side.adjusted_jobs, side.adjustment_bound),
            side.fairness_loss,
            side.fairness_loss_bound,
            side.utilization,
            side.objective,
            side.gap
        ));
    }
    said.push(
        match class {
            Class::Equal => "they are the same",
            Class::EqualValue => "within the gaps that were proven both are worth the same",
            Class::Better => "the second is worth more",
            Class::Worse => "the second is worth less",
            Class::Infeasible => {
                "the first one's state and policy do not allow the second: its bounds on restarts or on the loss, or its room"
            }
            Class::OtherType => "one of them changes containers, the other one keeps them",
        }
        .to_owned(),
    );
    said
}
