//! The shell around a decider: an actix system of three actors.
//!
//! ```text
//!   Follower ── batches ──▶ Core (folds, decides) ── messages ──▶ Scribe (appends)
//!                            ▲ │  ▲                                  │
//!              observations ─┘ │  └────────── stored / not ──────────┘
//!                              └─ slow decisions on a thread of their own
//! ```
//!
//! 1. Core folds every event, and decides only when it is active (holds the lease), has folded
//!    up to the head, and has folded its own last append.
//! 2. What the inputs observed is appended first, like a decision, without a basis.
//! 3. A decision's events carry its basis. One event is one message. Several are a chain: the
//!    first is fenced by the folded state, each next by the acknowledgement of the one before;
//!    whoever writes in between makes the rest fail. From [`BATCH_FROM`] on they are one atomic
//!    batch.
//! 4. A slow decision is made on a copy of the state while the log is folded on; if it does not
//!    hold any more it is discarded and made again.
//! 5. On a conflict, a time-out or any doubt nothing is believed: fold to the head, decide again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use actix::prelude::*;
use dormouse_messages::{
    Basis, Decider, Decision, Event, Fold, Proposal, Recorded, Sequence, Timestamp,
};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, SystemClock};
use crate::decode::Followed;
use crate::inputs::Inputs;
use crate::lease::{Lease, LeaseState};
use crate::log::Log;
use crate::publish::{self, Fence, MAX_BATCH, Outgoing, Place, PublishError, status_subject};
use crate::snapshot::Snapshots;
use crate::spans::{self, AppendSpan};
use crate::trace;

/// An atomic batch costs 20 to 27 ms on one server at any size, a chained event some 0.1 ms.
const BATCH_FROM: usize = 200;
/// Events folded at once, between two looks at what else there is to do.
const FOLD_BATCH: usize = 1_024;
/// After a refusal that will not pass by itself.
const BACK_OFF: Duration = Duration::from_secs(1);
/// A state's hash is recorded every so many decisions.
const HASH_EVERY: u64 = 1_000;

/// How a service runs.
#[derive(Clone)]
pub struct ServiceOptions {
    /// How long a lost active copy keeps the others waiting; `None`: always active.
    pub lease_ttl: Option<Duration>,
    /// Names this copy in the lease.
    pub holder: String,
    /// Recorded in every basis.
    pub build: String,
    /// Where snapshots go; `None`: none are kept.
    pub snapshots: Option<std::path::PathBuf>,
    /// Events between two snapshots.
    pub snapshot_every: u64,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Default for ServiceOptions {
    fn default() -> Self {
        Self {
            lease_ttl: Some(Duration::from_secs(2)),
            holder: format!("pid-{}", std::process::id()),
            build: build().to_owned(),
            snapshots: None,
            snapshot_every: 50_000,
            clock: Arc::new(SystemClock),
        }
    }
}

/// This build's name.
#[must_use]
pub fn build() -> &'static str {
    concat!("dormouse-", env!("CARGO_PKG_VERSION"))
}

/// Why a service ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The log holds an event in a version that this build does not know.
    #[error("event {sequence} is a {type_name}, which this build does not know; install the build that wrote it")]
    TooNew {
        /// Where.
        sequence: Sequence,
        /// Its type.
        type_name: String,
    },
    /// The log went back.
    #[error("the log no longer holds what it delivered before; start the service again")]
    LogLost,
    /// The service's thread.
    #[error("the service's thread has failed; see its log")]
    Thread,
}

/// Runs a service until `shutdown`, or until it cannot go on.
///
/// # Errors
/// Why it cannot go on.
pub async fn run_service<D: Decider>(
    decider: D,
    log: Log,
    options: ServiceOptions,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    shutdown: CancellationToken,
) -> Result<(), ServiceError> {
    let (done, ended) = oneshot::channel();
    // A thread of its own: services of one process do not wait for each other.
    std::thread::Builder::new()
        .name(D::WRITER.as_str().to_owned())
        .spawn(move || {
            let system = System::new();
            let _ = done.send(system.block_on(live(decider, log, options, inputs, shutdown)));
        })
        .map_err(|_| ServiceError::Thread)?;
    ended.await.map_err(|_| ServiceError::Thread)?
}

async fn live<D: Decider>(
    decider: D,
    log: Log,
    options: ServiceOptions,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    shutdown: CancellationToken,
) -> Result<(), ServiceError> {
    let (ended_tx, ended) = oneshot::channel();
    let snapshots = options.snapshots.clone().map(|dir| {
        Snapshots::new(dir, D::State::NAME, D::State::VERSION, &options.build, log.identity())
    });
    let (state, folded, own_last) = match snapshots.as_ref().and_then(Snapshots::load::<D::State>) {
        Some(loaded) => loaded,
        None => (D::State::default(), Sequence(0), 0),
    };
    let active = Arc::new(AtomicBool::new(options.lease_ttl.is_none()));
    let woken = inputs.as_ref().map(|inputs| inputs.woken());
    let core = Core {
        decider: Arc::new(decider),
        scribe: None,
        state,
        folded,
        stored_at: Timestamp::default(),
        own_last,
        must_fold: Sequence(0),
        caught_up: false,
        busy: false,
        active: Arc::clone(&active),
        decided_at: None,
        wake: None,
        decisions: 0,
        discarded: 0,
        inputs,
        snapshots,
        snapshot_at: folded.0,
        ended: Some(ended_tx),
        log: log.clone(),
        options: options.clone(),
    }
    .start();
    actix::spawn(follow(log.follow(folded.next()), core.clone()));
    if let Some(woken) = woken {
        let core = core.clone();
        actix::spawn(async move {
            loop {
                woken.notified().await;
                core.do_send(Look);
            }
        });
    }
    let lease = options.lease_ttl.map(|ttl| {
        let key = format!("service.{}", D::WRITER);
        let lease = log.leases().seek(&key, &options.holder, 0, ttl);
        actix::spawn(hold(lease, active, core.clone(), shutdown.clone()))
    });
    tokio::select! {
        ended = ended => return ended.map_err(|_| ServiceError::Thread)?,
        () = shutdown.cancelled() => {}
    }
    let _ = core.send(Leave).await;
    if let Some(lease) = lease {
        let _ = tokio::time::timeout(Duration::from_secs(2), lease).await;
    }
    Ok(())
}

/// Follows the service's lease: whoever holds it is active.
async fn hold<D: Decider>(
    lease: Lease,
    active: Arc<AtomicBool>,
    core: Addr<Core<D>>,
    shutdown: CancellationToken,
) {
    let mut state = lease.watch();
    loop {
        let held = matches!(*state.borrow_and_update(), LeaseState::Held { .. });
        if active.swap(held, Ordering::SeqCst) != held {
            let gauge = metrics::gauge!("dormouse_active", "service" => D::WRITER.as_str());
            gauge.set(f64::from(u8::from(held)));
            tracing::info!(service = %D::WRITER, active = held, "the lease has changed hands");
            if held {
                core.do_send(Activated);
            }
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() { break },
            () = shutdown.cancelled() => break,
        }
    }
    lease.release().await;
}

/// The follower: hands the log on in batches, no faster than they are folded.
async fn follow<D: Decider>(mut log: mpsc::Receiver<Followed>, core: Addr<Core<D>>) {
    let mut batch = Vec::with_capacity(FOLD_BATCH);
    while log.recv_many(&mut batch, FOLD_BATCH).await > 0 {
        if core.send(Batch(std::mem::take(&mut batch))).await.is_err() {
            return;
        }
    }
    core.do_send(LogLost);
}

#[derive(Message)]
#[rtype(result = "()")]
struct Batch(Vec<Followed>);

/// Look whether there is something to do.
#[derive(Message)]
#[rtype(result = "()")]
struct Look;

/// The lease was acquired: what others wrote may not be folded yet.
#[derive(Message)]
#[rtype(result = "()")]
struct Activated;

#[derive(Message)]
#[rtype(result = "()")]
struct Head(Option<Sequence>);

#[derive(Message)]
#[rtype(result = "()")]
struct Decided {
    decision: Decision,
    asof: Sequence,
    now: Timestamp,
    started: SystemTime,
}

#[derive(Message)]
#[rtype(result = "()")]
struct Stored(Result<Sequence, PublishError>);

#[derive(Message)]
#[rtype(result = "()")]
struct LogLost;

#[derive(Message)]
#[rtype(result = "()")]
struct Leave;

#[derive(Message)]
#[rtype(result = "()")]
struct Append {
    messages: Vec<Pending>,
    fence: Fence,
}

/// A message with its span and the tenant's subject.
struct Pending {
    outgoing: Outgoing,
    span: AppendSpan,
    status: Option<String>,
}

/// Folds and decides.
struct Core<D: Decider> {
    decider: Arc<D>,
    scribe: Option<Addr<Scribe<D>>>,
    state: D::State,
    folded: Sequence,
    stored_at: Timestamp,
    /// The last sequence of the writer's subjects, as folded: the fence.
    own_last: u64,
    /// Nothing is decided before this is folded.
    must_fold: Sequence,
    caught_up: bool,
    /// An append or a slow decision is under way.
    busy: bool,
    active: Arc<AtomicBool>,
    decided_at: Option<Sequence>,
    wake: Option<Timestamp>,
    decisions: u64,
    discarded: u32,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    snapshots: Option<Snapshots>,
    snapshot_at: u64,
    ended: Option<oneshot::Sender<Result<(), ServiceError>>>,
    log: Log,
    options: ServiceOptions,
}

impl<D: Decider> Actor for Core<D> {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Context<Self>) {
        // Batches wait in the follower; acknowledgements must not be refused.
        ctx.set_mailbox_capacity(1_024);
        self.scribe = Some(
            Scribe {
                core: ctx.address(),
                log: self.log.clone(),
            }
            .start(),
        );
    }
}

impl<D: Decider> Core<D> {
    fn fold(&mut self, recorded: &Arc<Recorded>, ctx: &mut Context<Self>) {
        if let dormouse_messages::Body::Unknown { type_name } = &recorded.envelope.body
            && Event::is_other_version(type_name)
        {
            let error = ServiceError::TooNew {
                sequence: recorded.sequence,
                type_name: type_name.clone(),
            };
            self.end(Err(error), ctx);
            return;
        }
        self.state.evolve(recorded);
        self.folded = recorded.sequence;
        self.stored_at = recorded.stored_at;
        if recorded.writer == D::WRITER {
            self.own_last = recorded.sequence.0;
        }
    }

    fn end(&mut self, result: Result<(), ServiceError>, ctx: &mut Context<Self>) {
        if let Err(error) = &result {
            tracing::error!(service = %D::WRITER, %error, "the service stops");
        }
        if let Some(ended) = self.ended.take() {
            let _ = ended.send(result);
        }
        ctx.stop();
    }

    fn now(&self) -> Timestamp {
        self.options.clock.now().max(self.stored_at)
    }

    /// Steps 1 and 2.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let ready = self.active.load(Ordering::SeqCst) && self.caught_up && !self.busy;
        if !ready || self.folded < self.must_fold {
            return;
        }
        if let Some(inputs) = &mut self.inputs {
            let observed = inputs.observed(&self.state);
            if !observed.is_empty() {
                self.append_observed(observed, ctx);
                return;
            }
        }
        let now = self.now();
        let woken = self.wake.is_some_and(|wake| wake <= now);
        if self.decided_at == Some(self.folded) && !woken {
            self.sleep(now, ctx);
            return;
        }
        self.decided_at = Some(self.folded);
        self.decide(now, ctx);
    }

    fn sleep(&self, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(wake) = self.wake {
            let pause = Duration::from_millis(wake.ms_since(now) + 1);
            ctx.run_later(pause, |core, ctx| core.look(ctx));
        }
    }

    fn decide(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        self.decisions += 1;
        let asof = self.folded;
        let started = wall();
        if !D::SLOW {
            let decision = self.decider.decide(&self.state, now);
            self.decided(decision, asof, now, started, ctx);
            return;
        }
        self.busy = true;
        let (decider, state, core) = (Arc::clone(&self.decider), self.state.clone(), ctx.address());
        let decide = move || {
            let decision = decider.decide(&state, now);
            core.do_send(Decided {
                decision,
                asof,
                now,
                started,
            });
        };
        let spawned = std::thread::Builder::new().name(format!("{}-solve", D::WRITER)).spawn(decide);
        if let Err(error) = spawned {
            tracing::error!(%error, "cannot start a thread for the solver");
            self.busy = false;
            self.decided_at = None;
            ctx.run_later(BACK_OFF, |core, ctx| core.look(ctx));
        }
    }

    fn decided(
        &mut self,
        decision: Decision,
        asof: Sequence,
        now: Timestamp,
        started: SystemTime,
        ctx: &mut Context<Self>,
    ) {
        self.wake = decision.next_wake;
        if decision.proposals.is_empty() {
            self.sleep(now, ctx);
            return;
        }
        metrics::counter!("dormouse_decisions_total", "service" => D::WRITER.as_str()).increment(1);
        let name = format!("decide {}", D::WRITER);
        let causes = decision.proposals.iter().flat_map(|proposal| proposal.causes.iter().copied());
        let causes: Vec<Sequence> = causes.take(16).collect();
        let span = spans::decide_span(name, started, self.log.contexts(&causes), decision.proposals.len());
        let sampled = self.decisions.is_multiple_of(HASH_EVERY);
        let state_hash = sampled.then(|| rmp_serde::to_vec_named(&self.state).ok()).flatten();
        let basis = Basis {
            asof,
            now,
            causes: Vec::new(),
            build: self.options.build.clone(),
            state_hash: state_hash.map(|state| blake3::hash(&state).to_hex().to_string()),
            seed: 0,
            budget: self.decider.budget(),
        };
        let mut pending = Vec::with_capacity(decision.proposals.len());
        for Proposal { mut event, causes } in decision.proposals {
            let append = spans::append_span(&event, None, self.log.contexts(&causes), Some(&span));
            event.set_basis(Some(Basis {
                causes,
                ..basis.clone()
            }));
            pending.push((event, append));
        }
        self.append(pending, now, ctx);
    }

    fn append_observed(&mut self, observed: Vec<crate::inputs::Observed>, ctx: &mut Context<Self>) {
        let pending = observed.into_iter().map(|observed| {
            let parent = observed.traceparent.as_deref().and_then(trace::parse);
            let span = spans::append_span(&observed.event, parent, Vec::new(), None);
            (observed.event, span)
        });
        let pending = pending.collect();
        self.append(pending, self.now(), ctx);
    }

    /// Step 3.
    fn append(&mut self, events: Vec<(Event, AppendSpan)>, time: Timestamp, ctx: &mut Context<Self>) {
        let prefix = self.log.prefix();
        let mut messages = Vec::with_capacity(events.len());
        for (index, (event, span)) in events.into_iter().enumerate() {
            let place = Place {
                writer: D::WRITER,
                name: D::WRITER.as_str(),
                expected: self.own_last,
                index,
            };
            let status = status_subject(prefix, &event);
            match publish::outgoing(prefix, &place, time, Some(span.traceparent()), event) {
                Ok(outgoing) => messages.push(Pending {
                    outgoing,
                    span,
                    status,
                }),
                Err(error) => {
                    tracing::error!(service = %D::WRITER, %error, "an event cannot be encoded");
                    span.failed(&error.to_string());
                    break;
                }
            }
        }
        let fence = Fence {
            filter: prefix.writer(D::WRITER, None),
            last: self.own_last,
        };
        if messages.is_empty() {
            self.decided_at = None;
            ctx.run_later(BACK_OFF, |core, ctx| core.look(ctx));
        } else if let Some(scribe) = &self.scribe {
            self.busy = true;
            scribe.do_send(Append { messages, fence });
        }
    }

    /// Step 5: where the head is, nobody but the log can say.
    fn doubt(&mut self, ctx: &mut Context<Self>) {
        self.busy = true;
        self.decided_at = None;
        let (log, core) = (self.log.clone(), ctx.address());
        actix::spawn(async move {
            core.do_send(Head(log.head().await.ok()));
        });
    }

    fn snapshot(&mut self, force: bool) {
        let Some(snapshots) = &self.snapshots else { return };
        let grown = self.folded.0.saturating_sub(self.snapshot_at);
        if grown >= self.options.snapshot_every || (force && grown > 0) {
            self.snapshot_at = self.folded.0;
            snapshots.save(&self.state, self.folded, self.own_last, force);
        }
    }
}

/// The wall clock of spans.
#[expect(clippy::disallowed_methods, reason = "spans are measured, not decided")]
fn wall() -> SystemTime {
    SystemTime::now()
}

impl<D: Decider> Handler<Batch> for Core<D> {
    type Result = ();

    fn handle(&mut self, Batch(batch): Batch, ctx: &mut Context<Self>) {
        let folded = batch.len() as u64;
        for followed in batch {
            match followed {
                Followed::Event(recorded) => {
                    self.caught_up = false;
                    self.fold(&recorded, ctx);
                }
                Followed::Flagged { sequence, stored_at, writer, why } => {
                    tracing::warn!(service = %D::WRITER, %sequence, why, "an event is flagged and passed");
                    metrics::counter!("dormouse_flagged_total", "service" => D::WRITER.as_str()).increment(1);
                    self.folded = sequence;
                    self.stored_at = stored_at;
                    if writer == Some(D::WRITER) {
                        self.own_last = sequence.0;
                    }
                }
                Followed::CaughtUp(_) => self.caught_up = true,
            }
        }
        metrics::counter!("dormouse_events_folded_total", "service" => D::WRITER.as_str()).increment(folded);
        self.snapshot(false);
        self.look(ctx);
    }
}

impl<D: Decider> Handler<Look> for Core<D> {
    type Result = ();

    fn handle(&mut self, _: Look, ctx: &mut Context<Self>) {
        self.look(ctx);
    }
}

impl<D: Decider> Handler<Activated> for Core<D> {
    type Result = ();

    fn handle(&mut self, _: Activated, ctx: &mut Context<Self>) {
        if !self.busy {
            self.doubt(ctx);
        }
    }
}

impl<D: Decider> Handler<Head> for Core<D> {
    type Result = ();

    fn handle(&mut self, Head(head): Head, ctx: &mut Context<Self>) {
        match head {
            Some(head) => {
                self.busy = false;
                self.must_fold = head;
                self.look(ctx);
            }
            None => {
                ctx.run_later(Duration::from_millis(200), |core, ctx| core.doubt(ctx));
            }
        }
    }
}

impl<D: Decider> Handler<Decided> for Core<D> {
    type Result = ();

    /// Step 4.
    fn handle(&mut self, decided: Decided, ctx: &mut Context<Self>) {
        self.busy = false;
        if !self.decider.still_valid(&self.state, &decided.decision) {
            self.discarded += 1;
            metrics::counter!("dormouse_decisions_discarded_total", "service" => D::WRITER.as_str()).increment(1);
            tracing::info!(service = %D::WRITER, discarded = self.discarded, "a decision came too late and is made again");
            self.decided_at = None;
            self.look(ctx);
            return;
        }
        self.discarded = 0;
        let later = decided.asof != self.folded;
        self.decided(decided.decision, decided.asof, decided.now, decided.started, ctx);
        if later && !self.busy {
            self.decided_at = None;
            self.look(ctx);
        }
    }
}

impl<D: Decider> Handler<Stored> for Core<D> {
    type Result = ();

    fn handle(&mut self, Stored(result): Stored, ctx: &mut Context<Self>) {
        self.busy = false;
        match result {
            Ok(sequence) => {
                self.must_fold = self.must_fold.max(sequence);
                self.look(ctx);
            }
            Err(PublishError::Conflict) => {
                metrics::counter!("dormouse_conflicts_total", "service" => D::WRITER.as_str()).increment(1);
                tracing::info!(service = %D::WRITER, "another append came first; folding and deciding again");
                self.doubt(ctx);
            }
            Err(PublishError::Doubt(why)) => {
                tracing::warn!(service = %D::WRITER, why, "an append is in doubt; folding and deciding again");
                self.doubt(ctx);
            }
            Err(error) => {
                let error = crate::error::AppendError::from(error);
                tracing::error!(service = %D::WRITER, %error, "the broker refuses an event; trying again in a second");
                self.busy = true;
                ctx.run_later(BACK_OFF, |core, ctx| core.doubt(ctx));
            }
        }
    }
}

impl<D: Decider> Handler<LogLost> for Core<D> {
    type Result = ();

    fn handle(&mut self, _: LogLost, ctx: &mut Context<Self>) {
        self.end(Err(ServiceError::LogLost), ctx);
    }
}

impl<D: Decider> Handler<Leave> for Core<D> {
    type Result = ();

    fn handle(&mut self, _: Leave, ctx: &mut Context<Self>) {
        self.snapshot(true);
        self.end(Ok(()), ctx);
    }
}

/// Appends, one decision at a time.
struct Scribe<D: Decider> {
    core: Addr<Core<D>>,
    log: Log,
}

impl<D: Decider> Actor for Scribe<D> {
    type Context = Context<Self>;
}

impl<D: Decider> Handler<Append> for Scribe<D> {
    type Result = ();

    fn handle(&mut self, append: Append, _: &mut Context<Self>) {
        let (log, core) = (self.log.clone(), self.core.clone());
        actix::spawn(async move {
            let started = Instant::now();
            let stored = append_all(&log, append).await;
            metrics::histogram!("dormouse_append_seconds", "service" => D::WRITER.as_str())
                .record(started.elapsed().as_secs_f64());
            core.do_send(Stored(stored));
        });
    }
}

/// Step 3: a chain, or atomic batches.
async fn append_all(log: &Log, Append { messages, mut fence }: Append) -> Result<Sequence, PublishError> {
    let mut rest = messages;
    while !rest.is_empty() {
        let batched = rest.len() >= BATCH_FROM;
        let outgoing: Vec<Outgoing> = rest.iter().take(MAX_BATCH).map(|pending| pending.outgoing.clone()).collect();
        let count = if batched { publish::batch_len(&outgoing) } else { 1 };
        let tail = rest.split_off(count.min(rest.len()));
        let stored = match (batched, outgoing.first()) {
            (true, _) => log.publish_batch(outgoing.get(..count).unwrap_or(&outgoing), &fence).await,
            (false, Some(only)) => log.publish(only, &fence).await,
            (false, None) => break,
        };
        match stored {
            Ok(last) => {
                fence.last = last;
                let first = last + 1 - rest.len() as u64;
                for (sequence, pending) in (first..).zip(rest) {
                    if let Some(status) = pending.status {
                        // A copy for the tenant to watch; the log is what counts.
                        log.status(status, &pending.outgoing).await;
                    }
                    pending.span.stored(sequence);
                }
            }
            Err(error) => {
                for pending in rest {
                    pending.span.failed("not stored");
                }
                return Err(error);
            }
        }
        rest = tail;
    }
    Ok(Sequence(fence.last))
}
