//! Read models at every moment of a log.
//!
//! 1. Each event is folded, packed ([`chunks`]) and indexed ([`index`]).
//! 2. A model is kept every [`APART`] events; unchanged jobs are shared. Above [`MOST_KEPT`] models or
//!    [`MOST_JOBS`] queued jobs, which are not shared, every second one is dropped.
//! 3. A moment is the nearest earlier model plus the events in between; recent moments are cached.
//!
//! A place is a number of events. Only the head has whole timelines.

mod chunks;
mod index;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use dormouse_messages::{Fold, Recorded, Sequence, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_replay::history::explain::{ExplainError, Explainer, Explanation, Subject};
use dormouse_replay::history::fork::Fork;
use dormouse_replay::history::slice::States;
use dormouse_replay::history::whatif::History;
use serde::Serialize;
use tokio::sync::watch;

use chunks::{Chunks, Part};
pub use index::{Decision, Index};

/// Distance of kept models, so that a moment is folded within milliseconds.
const APART: usize = 10_000;
const MOST_KEPT: usize = 128;
/// Sum over the kept models, whose queues hold about 1 KiB per job.
const MOST_JOBS: usize = 200_000;
const RECENT: usize = 12;
const FORKS_APART: usize = 50_000;
/// Each fork holds the deciders' whole state.
const MOST_FORKS: usize = 4;

/// The position of a log.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Head {
    pub log: String,
    pub first: Sequence,
    pub head: Sequence,
    /// Log time of the first event.
    pub begun: Timestamp,
    /// Log time of the last event.
    pub now: Timestamp,
    pub events: usize,
    pub read: bool,
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

type Forked = Arc<(usize, Fork, Arc<ReadModel>)>;

/// Every moment of a log.
pub struct Past {
    inner: RwLock<Inner>,
    recent: Mutex<VecDeque<(usize, Arc<ReadModel>)>>,
    forks: Mutex<Vec<Forked>>,
    folding: Mutex<()>,
    told: watch::Sender<Head>,
}

impl Past {
    /// Creates an unread log; `live` if more events may come.
    #[must_use]
    pub fn new(log: &str, live: bool) -> Self {
        Self::starting_from(log, live, States::default())
    }

    /// Creates a log that starts from `states`.
    #[must_use]
    pub fn starting_from(log: &str, live: bool, states: States) -> Self {
        let head = Head {
            log: log.to_owned(),
            live,
            ..Head::default()
        };
        let inner = Inner {
            head: head.clone(),
            apart: APART,
            most_jobs: MOST_JOBS,
            ..Inner::default()
        };
        let past = Self {
            inner: RwLock::new(inner),
            recent: Mutex::default(),
            forks: Mutex::default(),
            folding: Mutex::default(),
            told: watch::Sender::new(head),
        };
        past.begin(states);
        past
    }

    /// Lets an unread log start from `states`.
    pub fn begin(&self, states: States) {
        let first = Arc::new(states.model.moment());
        let forked = Arc::new((0, states.fork, Arc::clone(&first)));
        let mut forks = self.forks.lock().unwrap_or_else(PoisonError::into_inner);
        *forks = vec![forked];
        drop(forks);
        let mut inner = self.write_inner();
        (inner.model, inner.first) = (states.model, first);
    }

    fn read_inner(&self) -> RwLockReadGuard<'_, Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_inner(&self) -> RwLockWriteGuard<'_, Inner> {
        self.inner.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds events.
    ///
    /// # Errors
    /// When the events cannot be stored.
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

    /// Adds a message that is no event.
    pub fn flag(&self, sequence: Sequence, why: String) {
        self.write_inner().model.flag(sequence, why);
    }

    /// Notes that the initial log has been read.
    pub fn caught_up(&self) {
        let mut inner = self.write_inner();
        inner.head.read = true;
        let head = inner.head.clone();
        drop(inner);
        self.told.send_replace(head);
    }

    /// Names a log whose name comes with its events.
    pub fn name(&self, log: &str) {
        log.clone_into(&mut self.write_inner().head.log);
    }

    /// Watches the head.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Head> {
        self.told.subscribe()
    }

    /// Returns the head.
    #[must_use]
    pub fn head(&self) -> Head {
        self.read_inner().head.clone()
    }

    /// Reads the index.
    pub fn indexed<T>(&self, look: impl FnOnce(&Index) -> T) -> T {
        look(&self.read_inner().index)
    }

    /// Reads the newest model, with whole timelines.
    pub fn newest<T>(&self, look: impl FnOnce(&ReadModel) -> T) -> T {
        look(&self.read_inner().model)
    }

    /// Returns the read models after `sequence`.
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

    /// Returns the events at these places.
    ///
    /// # Errors
    /// When the events cannot be read back.
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

    /// Explains a subject after `sequence`, with at most `solves` solver runs; `tell` gets intermediate
    /// results.
    ///
    /// # Errors
    /// When the subject is not on the log, or the events cannot be read back.
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
        let part = self.read_inner().chunks.part(forked.0, place);
        part.read(|recorded| explainer.read(recorded))?;
        Ok(explainer.explain_step_by_step(tell))
    }

    /// Returns the log up to `to`, to be forked.
    ///
    /// # Errors
    /// When the events cannot be read back.
    pub fn history(&self, to: Sequence) -> io::Result<History> {
        let place = self.indexed(|index| index.place(to));
        let begun = self.read_inner().head.first > Sequence(1);
        let mut history = if begun {
            let first = self.fork(0)?;
            let (fork, model) = (first.1.clone(), (*first.2).clone());
            History::starting_from(States { fork, model })
        } else {
            History::default()
        };
        let part = self.read_inner().chunks.part(0, place);
        part.read(|recorded| history.read(recorded))?;
        Ok(history)
    }

    /// Returns the deciders' states at the multiple of [`FORKS_APART`] before a place.
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
        // A repeated delivery.
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
