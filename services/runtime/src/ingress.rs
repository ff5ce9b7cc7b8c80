//! The tenants' ingress: fetched, recorded by a fair queue (`dormouse_shell::intake`), removed once on the
//! log.
//!
//! 1. The stream holds unrecorded messages only.
//! 2. Recorded messages are removed per tenant, so that the stream's bounds limit the waiting ones.
//! 3. Waiting messages are checked with every change of the state ([`Inputs::waits`]).
//! 4. A shortened or new stream is fetched from its beginning, and older records remove nothing of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use dormouse_messages::intake::{Arrival, RateLimited, Rates, Stand};
use dormouse_messages::subject::IngressSubject;
use dormouse_messages::{Event, Fold, Timestamp};
use dormouse_shell::Observation;
use dormouse_shell::intake::{Lines, Taken};
use tokio::sync::{Notify, Semaphore, mpsc};

use crate::answer::within;
use crate::clock::{Clock, SystemClock};
use crate::counters::IntakeCounters;
use crate::decode::RawMessage;
use crate::fetch::{self, Fetched, Source};
use crate::log::Log;
use crate::observations::Inputs;
use crate::rollback::{self, Rollback, Verdict, Word};

/// Limits the disk writes, one per removal.
const REMOVE_EVERY: Duration = Duration::from_millis(50);

const ROOM_KIB: u32 = 32 << 10;

const AROUND_BYTES: usize = 256;

const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Accessors for the submissions in a state.
pub struct IntakeOf<S> {
    /// Returns a tenant's ingress state and rates.
    pub stand: fn(&S, &str) -> (Stand, Rates),
    pub received: fn(&S, &Arrival) -> Event,
    pub rate_limited: fn(&str, &RateLimited) -> Event,
}

/// The ingress as an input of a decider.
pub struct IngressSource<S> {
    log: Log,
    intake: IntakeOf<S>,
    fetching: Option<Fetching>,
    lines: Lines,
    changed: Arc<Notify>,
    kept: Arc<Kept>,
    wakes: Timestamp,
    counters: IntakeCounters,
}

#[derive(Default)]
struct Kept {
    recorded: Mutex<BTreeMap<String, u64>>,
    more: Notify,
    fetched: AtomicU64,
    went_back: AtomicBool,
}

impl<S: Fold> IngressSource<S> {
    /// Creates the ingress of `log`.
    #[must_use]
    pub fn new(log: Log, intake: IntakeOf<S>) -> Self {
        Self {
            log,
            intake,
            fetching: None,
            lines: Lines::default(),
            changed: Arc::new(Notify::new()),
            kept: Arc::default(),
            wakes: Timestamp::default(),
            counters: IntakeCounters::new(),
        }
    }

    fn fetch_from(&mut self, from: u64) {
        if self.fetching.is_none() {
            let (log, kept) = (self.log.clone(), Arc::clone(&self.kept));
            let changed = Arc::clone(&self.changed);
            self.log.spawn(look_after(log, kept, changed));
        }
        self.fetching = Some(ingress(&self.log, from, Arc::clone(&self.changed)));
    }

    fn fetch(&mut self) {
        if self.kept.went_back.swap(false, Ordering::Relaxed) {
            tracing::warn!(
                "the ingress stream begins anew; what it holds is taken from its beginning"
            );
            self.lines.clear();
            // The shared state belongs to the former stream.
            drop(self.kept.take());
            self.kept.fetched.store(0, Ordering::Relaxed);
            self.fetch_from(1);
        }
        if self.fetching.is_none() {
            self.fetch_from(1);
        }
        while let Some(messages) = self.fetching.as_mut().and_then(Fetching::next) {
            for message in &messages {
                self.kept
                    .fetched
                    .fetch_max(message.sequence, Ordering::Relaxed);
                self.lines.push(arrival(&self.log, message));
            }
        }
        if let Some(from) = self.lines.fetch_again() {
            self.fetch_from(from);
        }
    }

    fn observation(&self, state: &S, taken: Taken) -> Observation {
        match taken {
            Taken::Received(arrival) => Observation {
                event: (self.intake.received)(state, &arrival),
                traceparent: arrival.traceparent,
            },
            Taken::RateLimited(tenant, rate_limited) => Observation {
                event: (self.intake.rate_limited)(&tenant, &rate_limited),
                traceparent: None,
            },
        }
    }
}

impl<S: Fold> Inputs<S> for IngressSource<S> {
    fn observe(&mut self, state: &S) -> Vec<Observation> {
        self.fetch();
        let now = SystemClock.now();
        let stand = |tenant: &str| (self.intake.stand)(state, tenant);
        let (taken, wake) = self.lines.take(now, stand);
        self.kept.add(self.lines.recorded());
        if let Some(wake) = wake.filter(|wake| *wake != self.wakes) {
            self.wakes = wake;
            self.wake_at(wake, now);
        }
        let (waiting, at_once) = self.lines.figures();
        self.counters.look(waiting, at_once);
        self.counters.taken(&taken, now);
        let taken = taken.into_iter();
        taken.map(|it| self.observation(state, it)).collect()
    }

    fn waits(&self) -> bool {
        self.lines.waits()
    }

    fn changed(&self) -> Arc<Notify> {
        Arc::clone(&self.changed)
    }
}

impl<S> IngressSource<S> {
    fn wake_at(&self, wake: Timestamp, now: Timestamp) {
        let changed = Arc::clone(&self.changed);
        let wait = Duration::from_millis(wake.ms_since(now).max(1));
        self.log.spawn(async move {
            tokio::time::sleep(wait).await;
            changed.notify_one();
        });
    }
}

impl Kept {
    fn add(&self, recorded: BTreeMap<String, u64>) {
        if recorded.is_empty() {
            return;
        }
        let mut waiting = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(recorded);
        drop(waiting);
        self.more.notify_one();
    }

    fn goes_back(&self, changed: &Notify) {
        self.went_back.store(true, Ordering::Relaxed);
        changed.notify_one();
    }

    fn take(&self) -> BTreeMap<String, u64> {
        let mut waiting = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *waiting)
    }
}

async fn look_after(log: Log, kept: Arc<Kept>, changed: Arc<Notify>) {
    let stream = log.prefix().ingress_stream();
    let mut known = Known::default();
    let mut look = tokio::time::interval(LOOK_EVERY);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The source and this task hold the state.
    while Arc::strong_count(&kept) > 1 {
        tokio::select! {
            () = kept.more.notified() => {
                let recorded = kept.take();
                let least = recorded.values().copied().max().unwrap_or(0);
                let is_same = known.is_same(&log, &stream, least).await;
                if is_same == Some(false) {
                    kept.goes_back(&changed);
                }
                for (tenant, recorded) in recorded.into_iter().filter(|_| is_same == Some(true)) {
                    if let Err(why) = remove(&log, &stream, &tenant, recorded).await {
                        tracing::debug!(tenant, why, "what is recorded stays in the ingress for now");
                    }
                }
                tokio::time::sleep(REMOVE_EVERY).await;
            }
            _ = look.tick() => {
                let fetched = kept.fetched.load(Ordering::Relaxed);
                match known.is_same(&log, &stream, fetched).await {
                    Some(true) => {}
                    Some(false) => kept.goes_back(&changed),
                    None => look.reset_after(rollback::APART),
                }
            }
        }
    }
}

#[derive(Default)]
struct Known {
    created: Option<i128>,
    rollback: Rollback,
}

impl Known {
    /// `None`: ask again. A new stream becomes the known one.
    async fn is_same(&mut self, log: &Log, stream: &str, least: u64) -> Option<bool> {
        let found = within(log.inner.jetstream.get_stream(stream)).await.ok()?;
        let info = found.cached_info();
        let created = info.created.unix_timestamp_nanos();
        let leader = info.cluster.as_ref().and_then(|it| it.leader.clone());
        let leader = leader.unwrap_or_default();
        let head = info.state.last_sequence;
        let before = *self.created.get_or_insert(created);
        let word = match (created == before, head >= least) {
            (true, true) => Word::Holds,
            (true, false) => Word::Ends { leader, head },
            (false, _) => Word::Another {
                leader,
                mark: created,
            },
        };
        match self.rollback.hear(word, Instant::now()) {
            Verdict::Same => Some(true),
            Verdict::Unsettled => None,
            Verdict::WentBack => {
                self.created = Some(created);
                Some(false)
            }
        }
    }
}

async fn remove(log: &Log, stream: &str, tenant: &str, recorded: u64) -> Result<(), String> {
    let filter = if tenant.contains('.') {
        tenant.to_owned()
    } else {
        log.prefix().ingress_of(tenant)
    };
    let jetstream = &log.inner.jetstream;
    let stream = within(jetstream.get_stream_no_info(stream)).await?;
    let removed = async {
        stream
            .purge()
            .filter(filter)
            .sequence(recorded + 1)
            .await
            .map(|_| ())
    };
    within(removed).await
}

fn arrival(log: &Log, message: &RawMessage) -> Arrival {
    let subject = message.subject.as_str();
    let parsed = log.prefix().parse_ingress(subject);
    let IngressSubject { tenant, verb, by } = parsed.unwrap_or(IngressSubject {
        tenant: subject,
        verb: "",
        by: None,
    });
    // Clients differ in the case of header names.
    let header = |name: &str| {
        let mut headers = message.headers.as_ref()?.iter();
        let (_, values) = headers.find(|(key, _)| {
            let key: &str = key.as_ref();
            key.eq_ignore_ascii_case(name)
        })?;
        values.first().map(|value| value.as_str().to_owned())
    };
    Arrival {
        sequence: message.sequence,
        at: message.stored_at(),
        tenant: tenant.to_owned(),
        verb: verb.to_owned(),
        by,
        content_type: header("content-type"),
        traceparent: header("traceparent"),
        payload: message.payload.to_vec(),
    }
}

fn ingress(log: &Log, from: u64, changed: Arc<Notify>) -> Fetching {
    let source = Source {
        stream: log.prefix().ingress_stream(),
        filter: String::new(),
        from,
        to: None,
        last_per_subject: false,
        permanent: false,
    };
    let mut fetched = fetch::spawn(log.clone(), source);
    let (out, messages) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(ROOM_KIB as usize));
    let taken = Arc::clone(&room);
    log.spawn(async move {
        while let Some(fetched) = fetched.recv().await {
            if let Fetched::Messages(batch) = fetched {
                let Ok(held) = room.acquire_many(kib_of(&batch)).await else {
                    return;
                };
                held.forget();
                if out.send(batch).is_err() {
                    return;
                }
                changed.notify_one();
            }
        }
    });
    Fetching {
        messages,
        room: taken,
    }
}

/// Bounded by size: in a flood a delivery holds few messages, and other tenants would wait.
struct Fetching {
    messages: mpsc::UnboundedReceiver<Vec<RawMessage>>,
    room: Arc<Semaphore>,
}

impl Fetching {
    fn next(&mut self) -> Option<Vec<RawMessage>> {
        let batch = self.messages.try_recv().ok()?;
        self.room.add_permits(kib_of(&batch) as usize);
        Some(batch)
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.room.close();
    }
}

fn kib_of(batch: &[RawMessage]) -> u32 {
    let bytes = batch.iter().map(|it| it.payload.len() + AROUND_BYTES);
    let kib = bytes.sum::<usize>() / 1024 + 1;
    u32::try_from(kib).unwrap_or(ROOM_KIB).min(ROOM_KIB)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(bytes: usize) -> RawMessage {
        RawMessage {
            sequence: 1,
            stored_nanos: 0,
            subject: "dormouse.in.ads.submit".into(),
            headers: None,
            payload: vec![0; bytes].into(),
            pending: 0,
        }
    }

    #[test]
    fn what_is_held_is_bounded_by_its_size() {
        assert_eq!(kib_of(&[message(0)]), 1);
        assert_eq!(kib_of(&[message(1_000), message(1_000)]), 3);
        let large = vec![message(2 << 20); 100];
        assert_eq!(kib_of(&large), ROOM_KIB);
    }
}
