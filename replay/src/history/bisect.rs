//! Finds the first event after which a predicate holds: a job's phase, a metric's bound, or a broken
//! invariant.
//!
//! A lasting predicate (a job was seen, has ended) is checked at the end of each block of [`BLOCK`]
//! events, and the block then halved. Other predicates may fail again, so they are checked after every
//! event, unless [`Bisect::some`] accepts any place.

mod predicate;

use std::sync::Arc;

use dormouse_admission::AdmissionState;
use dormouse_messages::{Event, Fold, Recorded, Sequence, TenantId, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

pub use predicate::{Metric, Predicate, PredicateError, Side};

use super::redact::{SeenError, seen_by};
use super::slice::States;

/// Events kept for halving: twelve halvings.
pub const BLOCK: usize = 4096;

/// A place at which the predicate begins to hold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub sequence: Sequence,
    pub at: Timestamp,
    /// The type without prefix and version.
    pub event: String,
    pub subject: String,
    pub before: String,
    pub after: String,
    /// True for the first place; false for any place at which the value changed.
    pub exact: bool,
    pub looked: Looked,
    pub folds: u64,
    /// Parts of a block that were folded again for halving.
    pub halves: u64,
}

/// The search method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Looked {
    OneByOne,
    /// Checked at the ends of blocks, then halved.
    Halving,
    /// The predicate held before the first event of a slice.
    Before,
}

impl Found {
    /// Hides other tenants' names.
    ///
    /// # Errors
    /// A name cannot be removed.
    pub fn seen_by(self, viewer: &TenantId) -> Result<Self, SeenError> {
        seen_by(self, Some(viewer))
    }
}

#[derive(Clone)]
struct World {
    model: ReadModel,
    folds: Option<Box<(AdmissionState, ClusterState)>>,
}

/// Searches for the first place.
pub struct Bisect {
    predicate: Predicate,
    halves: bool,
    world: World,
    copy: World,
    block: Vec<Arc<Recorded>>,
    last: Option<String>,
    named: u64,
    sliced: bool,
    folded: u64,
    read: u64,
    found: Option<Found>,
}

impl Bisect {
    /// Searches for the first place at which `predicate` holds.
    #[must_use]
    pub fn new(predicate: Predicate) -> Self {
        let folds = (predicate == Predicate::Broken).then(Box::default);
        let world = World {
            model: ReadModel::default(),
            folds,
        };
        Self {
            halves: predicate.stays(),
            predicate,
            copy: world.clone(),
            world,
            block: Vec::new(),
            last: None,
            named: 0,
            sliced: false,
            folded: 0,
            read: 0,
            found: None,
        }
    }

    /// Accepts any place, and checks only the ends of blocks.
    #[must_use]
    pub fn some(mut self) -> Self {
        self.halves = true;
        self
    }

    /// Begins with a slice's states.
    #[must_use]
    pub fn starting_from(mut self, states: States) -> Self {
        if let Some(folds) = &mut self.world.folds {
            **folds = (states.fork.admission, states.fork.cluster);
        }
        self.world.model = states.model;
        self.copy = self.world.copy();
        self.sliced = true;
        let (holds, shown) = self.world.look(&self.predicate);
        if holds {
            self.found = Some(Found {
                sequence: states.fork.sequence,
                at: states.fork.now,
                event: String::new(),
                subject: String::new(),
                before: "not known: it is before the slice".to_owned(),
                after: shown,
                exact: false,
                looked: Looked::Before,
                folds: 0,
                halves: 0,
            });
        }
        self
    }

    /// Reads the next event; true once the place is found.
    pub fn read(&mut self, recorded: &Arc<Recorded>) -> bool {
        if self.found.is_some() {
            return true;
        }
        self.read += 1;
        self.world.fold(recorded);
        self.folded += 1;
        if self.halves {
            let admitted = match recorded.event() {
                Some(Event::JobAdmitted(event)) => Some(&event.job),
                _ => None,
            };
            let named = admitted.is_some() && admitted == self.predicate.job();
            self.named += u64::from(named);
            self.block.push(Arc::clone(recorded));
            if self.block.len() >= BLOCK {
                self.end_block();
            }
            return self.found.is_some();
        }
        let (holds, shown) = self.world.look(&self.predicate);
        if holds {
            let before = self.last.take();
            let before = before.unwrap_or_else(|| self.beginning());
            let at = self.world.model.cluster.now;
            self.found = Some(Found {
                // The predicate may have held and failed before the slice.
                exact: !self.sliced,
                ..self.place((recorded, at), before, shown, (Looked::OneByOne, 0))
            });
            return true;
        }
        self.last = Some(shown);
        false
    }

    /// Returns the place and the number of events read.
    #[must_use]
    pub fn finish(mut self) -> (Option<Found>, u64) {
        if self.found.is_none() && self.halves {
            self.end_block();
        }
        (self.found, self.read)
    }

    fn beginning(&self) -> String {
        if self.sliced {
            "not known: it is before the slice".to_owned()
        } else {
            "the beginning of the log".to_owned()
        }
    }

    fn place(
        &self,
        (recorded, at): (&Recorded, Timestamp),
        before: String,
        after: String,
        (looked, halves): (Looked, u64),
    ) -> Found {
        Found {
            sequence: recorded.sequence,
            at,
            event: recorded.event().map_or("", Event::subject_name).to_owned(),
            subject: recorded.envelope.subject.to_string(),
            before,
            after,
            exact: true,
            looked,
            folds: self.folded,
            halves,
        }
    }

    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if !self.world.look(&self.predicate).0 {
            self.copy = self.world.copy();
            return;
        }
        // The predicate fails in `low`, the state before the event `from`, and holds after `to`.
        let (mut low, mut from, mut to) = (self.copy.copy(), 0, block.len());
        let mut halves = 0;
        while to - from > 1 {
            let middle = from.midpoint(to);
            let mut half = low.copy();
            block[from..middle].iter().for_each(|it| half.fold(it));
            self.folded += (middle - from) as u64;
            halves += 1;
            if half.look(&self.predicate).0 {
                to = middle
            } else {
                (low, from) = (half, middle);
            }
        }
        let Some(recorded) = block.get(from) else {
            return;
        };
        let (_, before) = low.look(&self.predicate);
        low.fold(recorded);
        self.folded += 1;
        let (_, after) = low.look(&self.predicate);
        let at = low.model.cluster.now;
        let before = match (self.read, from) {
            (read, 0) if read <= block.len() as u64 => self.beginning(),
            _ => before,
        };
        // A reused name may have hidden an earlier end.
        let exact = self.predicate.stays() && self.named <= 1;
        self.found = Some(Found {
            exact,
            ..self.place((recorded, at), before, after, (Looked::Halving, halves))
        });
    }
}

impl World {
    fn fold(&mut self, recorded: &Recorded) {
        self.model.evolve(recorded);
        if let Some(folds) = &mut self.folds {
            folds.0.evolve(recorded);
            folds.1.evolve(recorded);
        }
    }

    /// Copies without the timelines, which no predicate reads.
    fn copy(&self) -> Self {
        Self {
            model: self.model.moment(),
            folds: self.folds.clone(),
        }
    }

    fn look(&self, predicate: &Predicate) -> (bool, String) {
        let not_there = || (false, "not there".to_owned());
        match predicate {
            Predicate::Seen(id) => match self.model.jobs.get(id) {
                Some(job) => (true, job.phase.as_str().to_owned()),
                None => not_there(),
            },
            Predicate::Job(id, phase) => match self.model.jobs.get(id) {
                Some(job) => (job.phase == *phase, job.phase.as_str().to_owned()),
                None => not_there(),
            },
            Predicate::Containers(id, count) => match self.model.jobs.get(id) {
                Some(job) => (job.now == *count, job.now.to_string()),
                None => not_there(),
            },
            Predicate::Metric(metric, side, bound) => {
                let Some(value) = metric.value(&self.model) else {
                    return (false, "not known yet".to_owned());
                };
                let holds = match side {
                    Side::Above => value > *bound,
                    Side::Below => value < *bound,
                };
                (holds, value.to_string())
            }
            Predicate::Broken => {
                let Some(folds) = &self.folds else {
                    return (false, String::new());
                };
                let checked = folds.0.check_invariants();
                let checked = checked.and_then(|()| folds.1.check_invariants());
                match checked.and_then(|()| self.model.check_invariants()) {
                    Ok(()) => (false, "every invariant holds".to_owned()),
                    Err(what) => (true, what),
                }
            }
        }
    }
}
