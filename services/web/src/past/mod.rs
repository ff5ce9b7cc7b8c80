//! Every moment of a log: the read models after each of its events.
//!
//! 1. Each event is folded into the head's model, packed away ([`chunks`]) and noted in the
//!    [`index`].
//! 2. The model is kept every [`APART`] events without its timelines; jobs that have not changed
//!    since are shared by all of them. When there are [`MOST_KEPT`], or they know of [`MOST_JOBS`]
//!    together, every second one goes: what the queues know of a job that waits is not shared.
//! 3. The moment after an event is the nearest kept model before it, and the events between. The
//!    moments that were last asked for are kept, too: playing on folds what is new.
//!
//! A place is a number of events: place 0 is before the first one. Timelines are the head's, cut
//! where the moment is.

mod chunks;
mod index;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_replay::history::explain::{Clock, ExplainError, Explainer, Explanation, Subject};
use dormouse_replay::history::fork::Fork;
use dormouse_replay::history::slice::States;
use dormouse_replay::history::whatif::History;
use serde::Serialize;
use tokio::sync::watch;

use chunks::{Chunks, Part};
pub use index::{Decision, Index};

/// Events between two models that are kept: a moment is then folded in milliseconds.
const APART: usize = 10_000;
/// Models that are kept at most.
const MOST_KEPT: usize = 128;
/// Jobs that wait or run, in all of these together: of each the queues know some 1 KiB.
const MOST_JOBS: usize = 200_000;
/// Moments that were asked for last.
const RECENT: usize = 12;
/// Events between two forks that are kept for explanations.
const FORKS_APART: usize = 50_000;
/// Forks that are kept at most: each holds all that the deciders know.
const MOST_FORKS: usize = 4;

/// Where the log stands.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Head {
    /// Which log it is.
    pub log: String,
    /// The first event.
    pub first: Sequence,
    /// The last event.
    pub head: Sequence,
    /// The broker's time of the first event.
    pub begun: Timestamp,
    /// The broker's time of the last event.
    pub now: Timestamp,
    /// Events that were read.
    pub events: usize,
    /// Whether what was on the log when reading began has been read.
    pub read: bool,
    /// Whether more may come.
    pub live: bool,
}

#[derive(Default)]
struct Inner {
    head: Head,
    index: Index,
    chunks: Chunks,
    model: ReadModel,
    first: Arc<ReadModel>,
    kept: Vec<(usize, Arc<ReadModel>)>,
    apart: usize,
    most_jobs: usize,
}

/// A fork, with the read models at its place.
type Forked = Arc<(usize, Fork, Arc<ReadModel>)>;

/// Every moment of a log.
pub struct Past {
    inner: RwLock<Inner>,
    recent: Mutex<VecDeque<(usize, Arc<ReadModel>)>>,
    forks: Mutex<Vec<Forked>>,
    folding: Mutex<()>,
    told: watch::Sender<Head>,
    clock: Option<Clock>,
}

impl Past {
    /// Of the log called `log`, of which nothing is read yet; `live` if more may always come.
    #[must_use]
    pub fn new(log: &str, live: bool) -> Self {
        Self::starting_from(log, live, States::default())
    }

    /// What time had stopped is explained within that time, by this clock.
    #[must_use]
    pub const fn timed(mut self, clock: Clock) -> Self {
        self.clock = Some(clock);
        self
    }

    /// The same of a log whose beginning is these states.
    #[must_use]
    pub fn starting_from(log: &str, live: bool, states: States) -> Self {
        let head = Head {
            log: log.to_owned(),
            live,
            ..Head::default()
        };
        let first = Arc::new(states.model.moment());
        let forked = Arc::new((0, states.fork, Arc::clone(&first)));
        let inner = Inner {
            head: head.clone(),
            model: states.model,
            first,
            apart: APART,
            most_jobs: MOST_JOBS,
            ..Inner::default()
        };
        Self {
            inner: RwLock::new(inner),
            recent: Mutex::default(),
            forks: Mutex::new(vec![forked]),
            folding: Mutex::default(),
            told: watch::Sender::new(head),
            clock: None,
        }
    }

    fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next events of the log.
    ///
    /// # Errors
    /// When they cannot be kept.
    pub fn push(&self, events: impl IntoIterator<Item = Arc<Recorded>>) -> io::Result<()> {
        let mut inner = self.write_inner();
        for recorded in events {
            inner.push(recorded)?;
        }
        let head = inner.head.clone();
        drop(inner);
        self.told.send_replace(head);
        Ok(())
    }

    /// A message of the log that is no event.
    pub fn flag(&self, sequence: Sequence, why: String) {
        self.write_inner().model.flag(sequence, why);
    }

    /// What was on the log when reading began has been read.
    pub fn caught_up(&self) {
        let mut inner = self.write_inner();
        inner.head.read = true;
        let head = inner.head.clone();
        drop(inner);
        self.told.send_replace(head);
    }

    /// Names the log, where its name is known only from its events.
    pub fn name(&self, log: &str) {
        log.clone_into(&mut self.write_inner().head.log);
    }

    /// Where the log stands, and every change of it.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Head> {
        self.told.subscribe()
    }

    /// Where the log stands.
    #[must_use]
    pub fn head(&self) -> Head {
        self.read_inner().head.clone()
    }

    /// What `look` finds in the index.
    pub fn indexed<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.read_inner().index)
    }

    /// What `look` finds in the newest model, the only one with whole timelines.
    pub fn newest<T>(&self, look: impl FnOnce(&ReadModel) -> T) -> T {
        look(&self.read_inner().model)
    }

    /// The read models after the event `sequence`, or after the last one before it.
    ///
    /// # Errors
    /// When the events cannot be read back.
    pub fn at(&self, sequence: Sequence) -> io::Result<Arc<ReadModel>> {
        let place = self.indexed(|index| index.place(sequence));
        self.at_place(place)
    }

    fn at_place(&self, place: usize) -> io::Result<Arc<ReadModel>> {
        let (from, base, _) = self.nearest(place);
        if from == place {
            return Ok(base);
        }
        drop(base);
        // A page asks several things of a moment at once: one of them folds, the others wait.
        let _folding = self.folding.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, base, part) = self.nearest(place);
        if from == place {
            return Ok(base);
        }
        let mut model = (*base).clone();
        drop(base);
        part.read(|recorded| model.evolve(recorded))?;
        let model = Arc::new(model);
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((place, Arc::clone(&model)));
        if recent.len() > RECENT {
            recent.pop_front();
        }
        Ok(model)
    }

    /// The nearest model at or before a place, and the events from there to it.
    fn nearest(&self, place: usize) -> (usize, Arc<ReadModel>, Part) {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let before = recent.iter().filter(|(at, _)| *at <= place);
        let recent = before.max_by_key(|(at, _)| *at).cloned();
        let inner = self.read_inner();
        let kept = inner.kept.partition_point(|(at, _)| *at <= place);
        let kept = kept.checked_sub(1).map(|last| inner.kept[last].clone());
        let first = (0, Arc::clone(&inner.first));
        let candidates = [recent, kept, Some(first.clone())].into_iter().flatten();
        let (from, model) = candidates.max_by_key(|(at, _)| *at).unwrap_or(first);
        let part = inner.chunks.part(from, place);
        (from, model, part)
    }

    /// The events at these places, in order.
    ///
    /// # Errors
    /// When they cannot be read back.
    pub fn events(&self, places: &[usize]) -> io::Result<Vec<Arc<Recorded>>> {
        let mut found = Vec::with_capacity(places.len());
        for together in places.chunk_by(|a, b| a / chunks::EVENTS == b / chunks::EVENTS) {
            let (Some(first), Some(last)) = (together.first(), together.last()) else {
                continue;
            };
            let part = self.read_inner().chunks.part(*first, last + 1);
            let mut place = *first;
            part.read(|recorded| {
                if together.binary_search(&place).is_ok() {
                    found.push(Arc::clone(recorded));
                }
                place += 1;
            })?;
        }
        Ok(found)
    }

    /// Why something is as it is after the event `sequence`; `solves` decisions may be made to look
    /// for changes, and `tell` hears what is known meanwhile.
    ///
    /// # Errors
    /// When there is no such thing on the log, or the events cannot be read back.
    pub fn explain(
        &self,
        subject: Subject,
        sequence: Sequence,
        solves: usize,
        tell: impl FnMut(&Explanation),
    ) -> io::Result<Result<Explanation, ExplainError>> {
        let (place, from) = self.indexed(|index| {
            let (mut place, mut from) = index.explained_from(sequence);
            if let Subject::Epoch(epoch) = subject
                && let Some(decision) = index.epoch(epoch)
            {
                place = decision.place + 1;
                from = decision.from;
            }
            (place, from)
        });
        let forked = self.fork(from)?;
        let mut explainer = Explainer::new(subject, None, solves)
            .starting_from(forked.1.clone(), (*forked.2).clone());
        if let Some(clock) = self.clock {
            explainer = explainer.timed(clock);
        }
        let part = self.read_inner().chunks.part(forked.0, place);
        part.read(|recorded| explainer.read(recorded))?;
        Ok(explainer.explain_step_by_step(tell))
    }

    /// The log up to the event `to`, to be forked.
    ///
    /// # Errors
    /// When the events cannot be read back.
    pub fn history(&self, to: Sequence) -> io::Result<History> {
        let place = self.indexed(|index| index.place(to));
        let begun = self.read_inner().head.first > Sequence(1);
        let mut history = match begun {
            true => {
                let first = self.fork(0)?;
                let (fork, model) = (first.1.clone(), (*first.2).clone());
                History::starting_from(States { fork, model })
            }
            false => History::default(),
        };
        let part = self.read_inner().chunks.part(0, place);
        part.read(|recorded| history.read(recorded))?;
        Ok(history)
    }

    /// What the deciders know at a multiple of [`FORKS_APART`] at or before a place.
    fn fork(&self, place: usize) -> io::Result<Forked> {
        let wanted = place - place % FORKS_APART;
        let mut forks = self.forks.lock().unwrap_or_else(PoisonError::into_inner);
        let known = forks.iter().filter(|fork| fork.0 <= wanted);
        let nearest = known.max_by_key(|fork| fork.0).cloned();
        let nearest =
            nearest.ok_or_else(|| io::Error::other("no state before the log is known"))?;
        if nearest.0 == wanted {
            return Ok(nearest);
        }
        let mut fork = nearest.1.clone();
        let part = self.read_inner().chunks.part(nearest.0, wanted);
        part.read(|recorded| fork.read(recorded))?;
        let forked = Arc::new((wanted, fork, self.at_place(wanted)?));
        forks.push(Arc::clone(&forked));
        if forks.len() > MOST_FORKS {
            forks.remove(1);
        }
        Ok(forked)
    }
}

impl Inner {
    fn push(&mut self, recorded: Arc<Recorded>) -> io::Result<()> {
        // What is delivered once more is there already.
        if self.head.events > 0 && recorded.sequence <= self.head.head {
            return Ok(());
        }
        self.model.evolve(&recorded);
        let at = self.model.cluster.now;
        self.index.push(&recorded, at);
        if self.head.events == 0 {
            self.head.first = recorded.sequence;
            self.head.begun = at;
        }
        self.head.head = recorded.sequence;
        self.head.now = at;
        self.head.events += 1;
        self.chunks.push(recorded)?;
        if self.head.events.is_multiple_of(self.apart) {
            let moment = Arc::new(self.model.moment());
            self.kept.push((self.head.events, moment));
            self.thin();
        }
        Ok(())
    }

    /// Lets every second one go until they are few enough.
    fn thin(&mut self) {
        while self.kept.len() > MOST_KEPT || self.kept_jobs() > self.most_jobs {
            self.apart *= 2;
            let apart = self.apart;
            self.kept.retain(|(at, _)| at.is_multiple_of(apart));
        }
    }

    fn kept_jobs(&self) -> usize {
        let jobs = self.kept.iter().map(|(_, model)| model.queues.jobs.len());
        jobs.sum()
    }
}

#[cfg(test)]
mod tests;
