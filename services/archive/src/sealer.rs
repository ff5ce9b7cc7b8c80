//! Seals the next segment of the log when the policy asks for it, and observes so for the archiver.
//!
//! Two copies never harm each other: objects are named by their digests, and a manifest's number is taken
//! once.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dormouse_archiver::ArchiverState;
use dormouse_messages::events::{Fill, LogArchived, LogFilled, LogTrimmed};
use dormouse_messages::policy::ArchivePolicy;
use dormouse_messages::{Event, Sequence, Timestamp};
use dormouse_runtime::{
    Bounds, Clock, Inputs, Log, LogItem, LogRoom, Observation, SteadyClock, SystemClock, aside,
};
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::manifest::{FORMAT, Manifest, Sealed};
use crate::segment::{LOOKAHEAD, Range, make};
use crate::store::Archive;

/// Limits the warnings about an archive that does not answer.
const SAY_EVERY: Duration = Duration::from_secs(60);

const HOUR_MS: u64 = 3_600_000;

/// A filling log is sealed when a new segment lets this part of its events go: each has its price, the states.
const PART: u64 = 8;

/// Settings of a sealer.
#[derive(Debug, Clone)]
pub struct SealerOptions {
    /// Time between two looks at the log's head.
    pub poll: Duration,
    /// Age of an event before it is sealed, longer than a decision takes.
    pub settle: Duration,
    /// Name of the build, recorded in every manifest.
    pub build: String,
    /// A folder on the disk of the log's only broker, if it is this machine's.
    pub disk: Option<PathBuf>,
}

impl SealerOptions {
    /// Returns the settings of a cluster.
    #[must_use]
    pub fn new(build: String) -> Self {
        Self {
            poll: Duration::from_secs(15),
            settle: Duration::from_secs(120),
            build,
            disk: None,
        }
    }
}

/// Seals segments; the archiver's input.
pub struct Sealer {
    wanted: watch::Sender<Option<Wanted>>,
    sealed: Arc<Mutex<VecDeque<LogArchived>>>,
    room: Arc<Mutex<Option<LogRoom>>>,
    changed: Arc<Notify>,
    task: AbortHandle,
}

#[derive(Debug, Clone, PartialEq)]
struct Wanted {
    policy: ArchivePolicy,
    /// The newest segment that the log knows.
    archived: u64,
    trimmed: Option<LogTrimmed>,
    fill: Fill,
    held_from: Sequence,
}

impl Sealer {
    /// Starts the sealer, which begins its work with the first observation.
    #[must_use]
    pub fn start(log: Log, archive: Archive, options: SealerOptions) -> Self {
        let (wanted, wishes) = watch::channel(None);
        let work = Work::new(log, archive, options, wishes);
        let (sealed, room) = (Arc::clone(&work.sealed), Arc::clone(&work.room));
        let changed = Arc::clone(&work.changed);
        let task = tokio::spawn(work.run()).abort_handle();
        Self {
            wanted,
            sealed,
            room,
            changed,
            task,
        }
    }
}

/// Seals everything up to the log's head, without waiting for a segment's size or age. For a log at rest: a
/// decision that is under way would have an earlier basis than the segment's states.
///
/// # Errors
/// The log or the archive does not answer, or the archive is another log's.
pub async fn seal_now(log: Log, archive: Archive, build: String) -> Result<(), ArchiveError> {
    let (_, wishes) = watch::channel(None);
    let mut work = Work::new(log, archive, SealerOptions::new(build), wishes);
    let head = work.log.head().await?;
    // Another copy may seal meanwhile.
    loop {
        work.refresh(0).await?;
        if work.next() > head || work.seal(head, head).await? {
            return Ok(());
        }
    }
}

impl Drop for Sealer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Inputs<ArchiverState> for Sealer {
    fn observe(&mut self, state: &ArchiverState) -> Vec<Observation> {
        let wanted = Wanted {
            policy: state.policy,
            archived: state.archived(),
            trimmed: state.trimmed.clone(),
            fill: state.fill(),
            held_from: state.held_from(),
        };
        let archived = wanted.archived;
        let filled = lock(&self.room).and_then(|room| filled(&room, state.fill()));
        self.wanted.send_if_modified(|before| {
            let is_new = before.as_ref() != Some(&wanted);
            *before = Some(wanted);
            is_new
        });
        let mut sealed = lock(&self.sealed);
        while sealed.front().is_some_and(|it| it.number <= archived) {
            sealed.pop_front();
        }
        let news = sealed.iter().map(|event| Event::from(event.clone()));
        let news = news.chain(filled.map(Event::from));
        let news = news.map(|event| Observation {
            event,
            traceparent: None,
        });
        news.collect()
    }

    fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

/// Returns the event that the log is not as full as it says.
fn filled(room: &LogRoom, before: Fill) -> Option<LogFilled> {
    let mut event = LogFilled {
        fill: before,
        bytes: room.bytes,
        most_bytes: room.most_bytes,
        bound: room.bound,
    };
    event.fill = dormouse_archiver::fill(before, event.percent());
    (event.fill != before).then_some(event)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Work {
    log: Log,
    archive: Archive,
    options: SealerOptions,
    wanted: watch::Receiver<Option<Wanted>>,
    sealed: Arc<Mutex<VecDeque<LogArchived>>>,
    room: Arc<Mutex<Option<LogRoom>>>,
    changed: Arc<Notify>,
    newest: Option<Sealed>,
    /// Those of `newest`.
    folds: Option<Folds>,
    /// The segment whose states this process has put on the broker.
    published: u64,
    /// The log's head at looks that are younger than the time to settle.
    heads: VecDeque<(Instant, Sequence)>,
    /// The log's head at the newest older look.
    settled: Sequence,
}

impl Work {
    fn new(
        log: Log,
        archive: Archive,
        options: SealerOptions,
        wanted: watch::Receiver<Option<Wanted>>,
    ) -> Self {
        Self {
            log,
            archive,
            options,
            wanted,
            sealed: Arc::default(),
            room: Arc::default(),
            changed: Arc::default(),
            newest: None,
            folds: None,
            published: 0,
            heads: VecDeque::new(),
            settled: Sequence(0),
        }
    }

    async fn run(mut self) {
        let mut said: Option<Instant> = None;
        loop {
            let wanted = self.wanted.borrow_and_update().clone();
            if let Some(wanted) = wanted
                && let Err(error) = self.look(&wanted).await
                && said.is_none_or(|said| said.elapsed() > SAY_EVERY)
            {
                said = Some(Instant::now());
                tracing::warn!(%error, "the log is not archived and trimmed; trying again");
            }
            let wait = tokio::time::timeout(self.options.poll, self.wanted.changed());
            if matches!(wait.await, Ok(Err(_))) {
                return;
            }
        }
    }

    /// Seals due segments, and trims archived ones.
    async fn look(&mut self, wanted: &Wanted) -> Result<(), ArchiveError> {
        let head = self.log.head().await?;
        let room = self.measure(wanted).await?;
        // A list of a bucket costs money: another copy's segments are known by the log, or by a number that is
        // taken.
        if self.number() == 0 || self.number() != wanted.archived {
            self.refresh(wanted.archived).await?;
        }
        let now = Instant::now();
        self.heads.push_back((now, head));
        let is_old =
            |(at, _): &mut (Instant, Sequence)| now.duration_since(*at) >= self.options.settle;
        while let Some((_, head)) = self.heads.pop_front_if(is_old) {
            self.settled = head;
        }
        let settled = self.settled;
        while let Some(last) = self.due(wanted, &room, settled).await? {
            if !self.seal(last, head).await? {
                self.refresh(wanted.archived).await?;
            }
        }
        match &wanted.trimmed {
            Some(trimmed) if self.log.first() < trimmed.first => self.trim(trimmed).await,
            _ => Ok(()),
        }
    }

    /// Measures the log, for the next observation.
    async fn measure(&self, wanted: &Wanted) -> Result<LogRoom, ArchiveError> {
        let room = self.log.room(Bounds {
            policy_bytes: wanted.policy.log_bytes(),
            disk: self.options.disk.as_deref(),
        });
        let room = room.await?;
        room.show();
        *lock(&self.room) = Some(room);
        if let Some(event) = filled(&room, wanted.fill) {
            let (percent, bytes) = (event.percent(), event.bytes);
            match event.fill {
                Fill::Roomy => tracing::info!(percent, bytes, "the log has room again"),
                Fill::Filling => {
                    tracing::warn!(percent, bytes, bound = ?event.bound, "the log is filling: it is archived and trimmed sooner");
                }
                Fill::Full => {
                    tracing::error!(percent, bytes, bound = ?event.bound, "the log is full: submissions are refused until it has room; `dormouse cluster doctor` says what holds it");
                }
            }
            self.changed.notify_one();
        }
        Ok(room)
    }

    /// Trims the log, if the archive holds what goes.
    async fn trim(&self, trimmed: &LogTrimmed) -> Result<(), ArchiveError> {
        let sealed = self.archive.manifest(trimmed.number).await?;
        let manifest = &sealed.manifest;
        if sealed.digest != trimmed.manifest || manifest.last.next() != trimmed.first {
            return Err(ArchiveError::Damaged {
                place: self.archive.place(),
                object: format!("manifest {}", trimmed.number),
                why: "it is not the one of which the log says that its events may go".to_owned(),
            });
        }
        self.archive.has(&manifest.segment).await?;
        let first = self.log.trim(trimmed.first, SystemClock.now()).await?;
        if first >= trimmed.first {
            tracing::info!(%first, number = trimmed.number, "trimmed the log");
        } else {
            tracing::info!(%first, wanted = %trimmed.first, "a reader still waits for the events that are to go");
        }
        Ok(())
    }

    /// Reads the newest manifest, and observes those that the log does not know.
    async fn refresh(&mut self, archived: u64) -> Result<(), ArchiveError> {
        let number = self.archive.newest_number().await?;
        if number != self.number() {
            let newest = self.archive.manifest(number).await?;
            let log = self.log.identity();
            if newest.manifest.log != log {
                return Err(ArchiveError::OtherLog {
                    place: self.archive.place(),
                    archived: newest.manifest.log,
                    log,
                });
            }
            (self.newest, self.folds) = (Some(newest), None);
        }
        self.publish().await?;
        for unknown in archived + 1..=number {
            if !lock(&self.sealed).iter().any(|it| it.number == unknown) {
                let sealed = self.archive.manifest(unknown).await?;
                self.tell(&sealed);
            }
        }
        Ok(())
    }

    /// Puts the newest states on the broker, before the log says that their segment is archived.
    async fn publish(&mut self) -> Result<(), ArchiveError> {
        let Some(newest) = self.newest.as_ref().map(|it| it.manifest.clone()) else {
            return Ok(());
        };
        if self.published == newest.number {
            return Ok(());
        }
        let folds = match self.folds.take() {
            Some(folds) => folds,
            None => self.archive.folds_at(&newest).await?,
        };
        let published = folds.publish(&self.log, &self.options.build).await;
        self.folds = Some(folds);
        published?;
        self.published = newest.number;
        Ok(())
    }

    fn tell(&self, sealed: &Sealed) {
        lock(&self.sealed).push_back(sealed.event(&self.archive.place()));
        self.changed.notify_one();
    }

    /// Returns the number of the newest segment; 0 before the first.
    fn number(&self) -> u64 {
        self.newest.as_ref().map_or(0, |it| it.manifest.number)
    }

    fn next(&self) -> Sequence {
        let newest = self.newest.as_ref();
        newest.map_or(Sequence(1), |it| it.manifest.last.next())
    }

    /// Returns the last event of the segment that is due.
    async fn due(
        &self,
        wanted: &Wanted,
        room: &LogRoom,
        settled: Sequence,
    ) -> Result<Option<Sequence>, ArchiveError> {
        let (first, policy) = (self.next(), wanted.policy);
        if settled < first {
            return Ok(None);
        }
        let full = Sequence(first.0 + u64::from(policy.segment_events) - 1);
        if settled >= full {
            return Ok(Some(full));
        }
        let held = settled.0.saturating_sub(wanted.held_from.0);
        if wanted.fill > Fill::Roomy && PART * held >= room.messages {
            return Ok(Some(settled));
        }
        let most_ms = u64::from(policy.segment_hours) * HOUR_MS;
        let old = self.stored_at(first).await?;
        let age_ms = old.map_or(0, |at| SteadyClock.now().ms_since(at));
        Ok((age_ms >= most_ms).then_some(settled))
    }

    async fn stored_at(&self, sequence: Sequence) -> Result<Option<Timestamp>, ArchiveError> {
        let mut items = self.log.read(sequence, sequence).await?;
        Ok(match items.recv().await {
            Some(LogItem::Event(recorded)) => Some(recorded.stored_at),
            Some(LogItem::Flagged { stored_at, .. }) => Some(stored_at),
            Some(LogItem::CaughtUp(_)) | None => None,
        })
    }

    /// Seals the segment up to `last`; false if another copy has.
    async fn seal(&mut self, last: Sequence, head: Sequence) -> Result<bool, ArchiveError> {
        let begun = Instant::now();
        let newest = self.newest.as_ref().map(|it| it.manifest.clone());
        let folds = match (self.folds.take(), newest) {
            (Some(folds), _) => folds,
            (None, None) => Folds::default(),
            (None, Some(newest)) => self.archive.folds_at(&newest).await?,
        };
        let range = Range {
            log: self.log.identity(),
            first: self.next(),
            last,
        };
        let to = Sequence(head.0.min(last.0 + LOOKAHEAD));
        let items = self.log.read(folds.sequence().next(), to).await?;
        let making = aside("seal", {
            let range = range.clone();
            move || make(&range, folds, items)
        });
        let segment = making.await.map_err(|_| ArchiveError::Panicked)??;
        let object = self.archive.put_segment(segment.bytes, range.first, last);
        let object = object.await?;
        let mut states = Vec::with_capacity(segment.encoded.len());
        for state in segment.encoded {
            states.push(self.archive.put_state(state, last).await?);
        }
        let newest = self.newest.as_ref();
        let number = self.number() + 1;
        let manifest = Manifest {
            format: FORMAT,
            log: range.log,
            number,
            first: range.first,
            last,
            events: segment.events,
            flagged: segment.flagged,
            began: segment.began,
            ended: segment.ended,
            segment: object,
            asof: segment.asof,
            asof_time: segment.asof_time,
            asof_stored_at: segment.asof_stored_at,
            states,
            decisions: segment.decisions,
            build: self.options.build.clone(),
            previous: newest.map(|it| it.digest.clone()),
        };
        if !self.archive.seal(&manifest).await? {
            return Ok(false);
        }
        let sealed = self.archive.manifest(number).await?;
        tracing::info!(number, first = %manifest.first, %last, bytes = manifest.segment.bytes, took = ?begun.elapsed(), "archived a segment of the log");
        (self.newest, self.folds) = (Some(sealed.clone()), Some(segment.folds));
        self.publish().await?;
        self.tell(&sealed);
        Ok(true)
    }
}
