//! Reads a log for an explanation. [`Explainer`] keeps the state behind the last allocation, which must lead to
//! the same decision again, and the events since.

use std::collections::VecDeque;
use std::sync::Arc;

use dormouse_messages::{
    Decider as _, Epoch, Event, JobId, LogClock, NodeId, Recorded, Sequence, TenantId, Timestamp,
    Writer,
};
use dormouse_optimizer::{Made, Optimizer};
use dormouse_projections::ReadModel;

use super::answer::{Cause, DecisionRef, Gives, PastResize};
use super::resizes::Resizes;
use super::submitted::Submitted;
use crate::history::fork::Fork;
use crate::history::redact::{self, SeenError};
use crate::parallel_readers::ParallelReaders;

/// The default number of decisions in a search; more than a job among fifty needs.
pub const SOLVES: usize = 120;
const FOLDED_LIMIT: usize = 10_000;

/// The subject of an explanation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    Job(JobId),
    Tenant(TenantId),
    Node(NodeId),
    Epoch(Epoch),
}

/// An error instead of an explanation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The subject is not on the log, or hidden from the tenant.
    #[error("there is no {what} up to event {at}; {instead}")]
    NotThere {
        what: String,
        at: Sequence,
        instead: String,
    },
    #[error(transparent)]
    NotSeen(#[from] SeenError),
}

#[derive(Clone)]
pub(crate) struct Decided {
    pub recorded: Arc<Recorded>,
    pub before: Fork,
    pub causes: Vec<Cause>,
}

/// Reads a log, then explains.
pub struct Explainer {
    pub(super) subject: Subject,
    pub(super) viewer: Option<TenantId>,
    pub(super) solves: usize,
    pub(super) before: Fork,
    pub(super) tail: VecDeque<Arc<Recorded>>,
    /// The last events before `tail`, since a decision may answer a postponed cause.
    folded: VecDeque<Arc<Recorded>>,
    pub(super) decided: Option<Decided>,
    done: bool,
    pub(super) resizes: Resizes,
    pub(super) submitted: Submitted,
    pub(super) reading: ParallelReaders<ReadModel>,
    log_clock: LogClock,
    pub(crate) model: ReadModel,
    pub(crate) head: Fork,
}

impl Explainer {
    /// Prepares one explanation for a tenant or the operator; `solves` limits the decisions of the
    /// search.
    #[must_use]
    pub fn new(subject: Subject, viewer: Option<TenantId>, solves: usize) -> Self {
        Self {
            subject,
            viewer,
            solves,
            before: Fork::default(),
            tail: VecDeque::new(),
            folded: VecDeque::new(),
            decided: None,
            done: false,
            resizes: Resizes::default(),
            submitted: Submitted::default(),
            reading: ParallelReaders::default(),
            log_clock: LogClock::default(),
            model: ReadModel::default(),
            head: Fork::default(),
        }
    }

    /// Begins with the states of a snapshot.
    #[must_use]
    pub fn starting_from(mut self, fork: Fork, model: ReadModel) -> Self {
        self.before = fork;
        self.log_clock = model.queues.cluster.clock.clone();
        self.reading = ParallelReaders::starting_from(model);
        self
    }

    /// Reads the next event of the log.
    pub fn read(&mut self, recorded: &Arc<Recorded>) {
        if self.done {
            return;
        }
        let fact = self.log_clock.read(recorded);
        self.reading.read(recorded);
        self.tail.push_back(Arc::clone(recorded));
        if let Subject::Job(job) = &self.subject {
            let known = (&self.folded, &self.tail);
            self.resizes
                .read(job, &fact, |causes| self::causes(known, causes));
            self.submitted.read(job, recorded);
        }
        let event = recorded
            .event()
            .filter(|_| recorded.writer == Writer::Optimizer);
        let Some((event, basis)) = event.and_then(|event| Some((event, event.basis()?))) else {
            return;
        };
        if let (Subject::Epoch(asked), Event::AllocationDecided(event)) = (&self.subject, event) {
            self.done = event.epoch == *asked;
        }
        let causes = causes((&self.folded, &self.tail), &basis.causes);
        while self
            .tail
            .front()
            .is_some_and(|next| next.sequence <= basis.asof)
        {
            if let Some(next) = self.tail.pop_front() {
                self.before.read(&next);
                self.folded.push_back(next);
            }
        }
        let too_many = self.folded.len().saturating_sub(FOLDED_LIMIT);
        self.folded.drain(..too_many);
        // The state may be large, and is copied only when needed.
        self.decided = Some(Decided {
            recorded: Arc::clone(recorded),
            before: Fork::default(),
            causes,
        });
    }

    pub(crate) fn decided(&self) -> Option<&Decided> {
        self.decided.as_ref()
    }

    pub(crate) fn place(&self) -> (Sequence, Timestamp) {
        (self.head.sequence, self.head.now)
    }

    pub(crate) fn not_there(&self, what: String) -> ExplainError {
        self.ask_instead(
            what,
            "`dormouse jobs`, `nodes` and `tenants` list what there is".to_owned(),
        )
    }

    pub(crate) fn no_job(&self, id: &JobId) -> ExplainError {
        let (what, name) = (format!("job {id}"), id.name());
        let node = name.parse().ok();
        let node = node.filter(|it: &NodeId| self.head.cluster.nodes.get(it).is_some());
        let tenants = &self.head.admission.queues.tenants;
        let kind = match node {
            _ if self.viewer.is_some() => None,
            Some(_) => Some("node"),
            None => tenants.contains_key(name).then_some("tenant"),
        };
        match kind {
            Some(kind) => self.ask_instead(
                what,
                format!("{name} is a {kind}: `dormouse explain {kind} {name}`"),
            ),
            None => self.not_there(what),
        }
    }

    fn ask_instead(&self, what: String, instead: String) -> ExplainError {
        let at = self.head.sequence;
        ExplainError::NotThere { what, at, instead }
    }

    pub(crate) fn name(&self, job: &JobId) -> String {
        redact::name(job, self.viewer.as_ref())
    }

    pub(crate) fn sees(&self, tenant: &str) -> bool {
        self.viewer
            .as_ref()
            .is_none_or(|viewer| viewer.as_str() == tenant)
    }
}

impl Decided {
    /// Returns the optimizer with the decision's budget.
    pub fn optimizer(&self) -> Optimizer {
        let budget = self
            .recorded
            .event()
            .and_then(Event::basis)
            .and_then(|basis| basis.budget);
        budget.map_or_else(Optimizer::default, |budget| Optimizer::within(&budget))
    }

    /// Repeats the decision; the result is the same on any machine.
    pub fn made(&self) -> Made {
        let basis = self.recorded.event().and_then(Event::basis);
        let now = basis.map_or(self.before.now, |basis| basis.now);
        self.optimizer().make(&self.before.cluster, now)
    }

    /// Returns a reference to the decision, compared with `made`.
    pub fn reference_by(&self, explainer: &Explainer, made: &Made) -> Option<DecisionRef> {
        let event = self.recorded.event()?;
        let basis = event.basis()?;
        let optimizer = self.optimizer();
        let mut bare = event.clone();
        bare.set_basis(None);
        let remade = match optimizer.verify(&self.before.cluster, &bare, Some(&made.event)) {
            Ok(()) => "equal",
            Err(_) => "differs",
        };
        let epoch = match event {
            Event::AllocationDecided(event) => Some(event.epoch.0),
            _ => None,
        };
        let mut causes = self.causes.clone();
        for cause in &mut causes {
            explainer.hide(cause);
        }
        Some(DecisionRef {
            sequence: self.recorded.sequence,
            epoch,
            build: basis.build.clone(),
            remade: remade.to_owned(),
            causes,
        })
    }
}

impl Explainer {
    /// Returns the job's resizes as the viewer sees them.
    pub(super) fn past_resizes(&self) -> Vec<PastResize> {
        let resizes = &self.resizes;
        let mut all = resizes.all.clone();
        for (resize, job) in all.iter_mut().zip(&resizes.made_for) {
            resize.made_for = job.as_ref().map(|job| self.name(job));
        }
        for (resize, gained) in all.iter_mut().zip(&resizes.gained) {
            let gained = gained.iter().map(|(job, from, to)| Gives {
                job: self.name(job),
                from: *from,
                to: *to,
                loses_s: None,
            });
            resize.gained = gained.collect();
            for cause in &mut resize.causes {
                self.hide(cause);
            }
        }
        all
    }

    pub(crate) fn hide(&self, cause: &mut Cause) {
        let viewer = self.viewer.as_ref();
        let hidden = viewer.and_then(|it| redact::subject(&cause.event, &cause.subject, it));
        if let Some(hidden) = hidden {
            hidden.clone_into(&mut cause.subject);
            cause.by = None;
        }
    }
}

fn causes(
    (folded, tail): (&VecDeque<Arc<Recorded>>, &VecDeque<Arc<Recorded>>),
    causes: &[Sequence],
) -> Vec<Cause> {
    let find = |known: &VecDeque<Arc<Recorded>>, sequence: &Sequence| {
        let place = known.binary_search_by_key(sequence, |recorded| recorded.sequence);
        place.ok().and_then(|place| known.get(place).cloned())
    };
    let cause = |sequence: &Sequence| {
        let known = find(tail, sequence).or_else(|| find(folded, sequence));
        let known = known.as_ref();
        let event = known.and_then(|recorded| recorded.event());
        Cause {
            sequence: *sequence,
            event: event.map_or("", Event::subject_name).to_owned(),
            subject: known.map_or_else(String::new, |it| it.envelope.subject.to_string()),
            by: known.and_then(|recorded| recorded.by()),
        }
    };
    causes.iter().map(cause).collect()
}
