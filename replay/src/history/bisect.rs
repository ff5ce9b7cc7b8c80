//! The first event after which something is so: a job is in a phase, a metric is beyond a value, a
//! service's invariant is broken.
//!
//! 1. The log is folded from its beginning, or from a slice's states, up to the place and no further.
//! 2. What stays so once it is so (a job has been seen, has ended) is looked for only at the end of each
//!    block of [`BLOCK`] events, and then within that block by halving, each half folded from a copy of
//!    the read model.
//! 3. Everything else crosses back and forth, so that halving would find some crossing only. It is
//!    looked at after every event, and the place is the first. Who is content with some place asks
//!    for that ([`Bisect::some`]): then it is halved, too.

mod predicate;

use std::sync::Arc;

use dormouse_admission::AdmissionState;
use dormouse_messages::{Event, Fold, Recorded, Sequence, TenantId, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_state::ClusterState;
use serde::{Deserialize, Serialize};

pub use predicate::{Metric, Predicate, PredicateError, Side};

use super::seen::{SeenError, seen_by};
use super::slice::States;

/// Events that are kept to be folded again: twelve halves.
pub const BLOCK: usize = 4096;

/// The place that was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// The event with which it became so.
    pub sequence: Sequence,
    /// When.
    pub at: Timestamp,
    /// Its type, without prefix and version.
    pub event: String,
    /// What it is about.
    pub subject: String,
    /// How it was before.
    pub before: String,
    /// How it is since.
    pub after: String,
    /// Whether it is the first place, else some place: before it was not so, since it is.
    pub exact: bool,
    /// How it was looked for.
    pub looked: Looked,
    /// Events that were folded, those that were folded again too.
    pub folds: u64,
    /// Parts of a block that were folded again from a copy, to halve it.
    pub halves: u64,
}

/// How a place was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Looked {
    /// After every event.
    OneByOne,
    /// At the ends of blocks, and then by halving.
    Halving,
    /// It was so before the first event of a slice.
    Before,
}

impl Found {
    /// What a tenant may see: its own names, others as amounts.
    ///
    /// # Errors
    /// When a name cannot be taken out.
    pub fn seen_by(self, viewer: &TenantId) -> Result<Self, SeenError> {
        seen_by(self, Some(viewer))
    }
}

/// What the predicate is looked at in.
#[derive(Clone)]
struct World {
    model: ReadModel,
    folds: Option<Box<(AdmissionState, ClusterState)>>,
}

/// Looks for the first place.
pub struct Bisect {
    predicate: Predicate,
    halves: bool,
    world: World,
    /// The world before the block.
    copy: World,
    block: Vec<Arc<Recorded>>,
    last: Option<String>,
    /// Jobs that came under the name.
    named: u64,
    sliced: bool,
    folded: u64,
    read: u64,
    found: Option<Found>,
}

impl Bisect {
    /// Looks for the first place at which this is so.
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

    /// Some place is enough: it is looked at the ends of blocks only.
    #[must_use]
    pub fn some(mut self) -> Self {
        self.halves = true;
        self
    }

    /// Begins with the states of a slice. What is so there already was so before it.
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

    /// The next event of the log; whether the place is found, so that nothing more need be read.
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
                // Before a slice it may have been so, and not have been so again.
                exact: !self.sliced,
                ..self.place((recorded, at), before, shown, (Looked::OneByOne, 0))
            });
            return true;
        }
        self.last = Some(shown);
        false
    }

    /// What was found, and how many events were read.
    #[must_use]
    pub fn finish(mut self) -> (Option<Found>, u64) {
        if self.found.is_none() && self.halves {
            self.end_block();
        }
        (self.found, self.read)
    }

    fn beginning(&self) -> String {
        match self.sliced {
            true => "not known: it is before the slice".to_owned(),
            false => "the beginning of the log".to_owned(),
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

    /// Whether it is so at the end of the block; then where in it.
    fn end_block(&mut self) {
        let block = std::mem::take(&mut self.block);
        if !self.world.look(&self.predicate).0 {
            self.copy = self.world.copy();
            return;
        }
        // It is not so in `low`, which is the world before the event `from`; it is so after `to`.
        let (mut low, mut from, mut to) = (self.copy.copy(), 0, block.len());
        let mut halves = 0;
        while to - from > 1 {
            let middle = from.midpoint(to);
            let mut half = low.copy();
            block[from..middle].iter().for_each(|it| half.fold(it));
            self.folded += (middle - from) as u64;
            halves += 1;
            match half.look(&self.predicate).0 {
                true => to = middle,
                false => (low, from) = (half, middle),
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
        // A job that took the name of one that had ended may have hidden that end.
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

    /// Cheap: without the timelines, which nothing is looked at in.
    fn copy(&self) -> Self {
        Self {
            model: self.model.moment(),
            folds: self.folds.clone(),
        }
    }

    /// Whether it is so, and how it is.
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
