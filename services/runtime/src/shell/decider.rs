//! The actor that folds and decides.
//!
//! `advance` is the loop's one step. It runs after everything that may have changed what can be
//! done: a batch folded, an append answered, a slow decision made, the lease gained, a time
//! reached, something observed.

mod signals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::fut::wrap_future;
use actix::{ActorContext, ActorFutureExt, Addr, AsyncContext, Context, SpawnHandle};
use dormouse_messages::events::Budget;
use dormouse_messages::{Decider, Event, Sequence, Timestamp};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::counters::{Counters, value};
use crate::decode::Followed;
use crate::inputs::Inputs;
use crate::lease::LeaseState;
use crate::log::Log;
use crate::publish::{Fence, PublishError};
use crate::shell::appending::{AppenderActor, Chain, Link, Outcome};
use crate::shell::core::{Core, Made, state_hash};
use crate::shell::status::Status;
use crate::shell::{ServiceError, ServiceOptions};
use crate::snapshot::{Snapshot, Snapshots};
use crate::spans::{AppendSpan, DecideSpan, append_span, decide_span};
use crate::trace;

/// A wake-up that is due already is not answered more often than this.
const WAKE_FLOOR: Duration = Duration::from_millis(10);

/// A slow decision that took no longer is appended as one that was made in place is: on what is
/// folded, without asking how far the log reaches. The question costs a round trip, with every
/// allocation of an idle cluster.
const QUICK: Duration = Duration::from_millis(20);

/// So many slow decisions may be discarded in a row before the next one has less time.
const DISCARDS: u32 = 2;

/// What permissions or limits forbid does not change by itself.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// What the actor is made of.
pub(crate) struct Parts<D: Decider> {
    pub decider: Arc<D>,
    pub log: Log,
    pub options: ServiceOptions,
    pub inputs: Option<Box<dyn Inputs<D::State>>>,
    pub snapshots: Option<Snapshots>,
    pub snapshot: Snapshot<D::State>,
    pub lease: Option<watch::Receiver<LeaseState>>,
    pub shutdown: CancellationToken,
}

pub(crate) struct DeciderActor<D: Decider> {
    decider: Arc<D>,
    core: Core<D::State>,
    log: Log,
    options: ServiceOptions,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    lease: Option<watch::Receiver<LeaseState>>,
    shutdown: CancellationToken,
    appender: Option<Addr<AppenderActor>>,
    status: Status,
    counters: Counters,
    /// Something was folded, or a time was reached, since the last decision.
    undecided: bool,
    /// Something may have been observed.
    unobserved: bool,
    /// A slow decision is being made.
    deciding: bool,
    /// A slow decision that waits for the fold to reach the head.
    slow: Option<Slow>,
    /// Slow decisions discarded one after the other.
    discarded: u32,
    wake: Option<SpawnHandle>,
    /// Nothing is appended before this, after failures.
    paused: bool,
    failures: u32,
    stopping: bool,
    snapshots: Option<Snapshots>,
    snapshot_due: u64,
    snapshotting: bool,
    result: Option<oneshot::Sender<Result<(), ServiceError>>>,
}

struct Slow {
    made: Made,
    started: Timestamp,
    /// Whether the log's head of that time has been folded, or need not be: see [`QUICK`].
    at_head: bool,
}

impl<D: Decider> DeciderActor<D> {
    pub fn new(parts: Parts<D>, result: oneshot::Sender<Result<(), ServiceError>>) -> Self {
        let mut core = Core::new(parts.snapshot, D::WRITER);
        core.active = parts.lease.is_none();
        Self {
            decider: parts.decider,
            snapshot_due: core.folded.0 + parts.options.snapshot_every,
            core,
            status: Status::new(parts.log.clone()),
            log: parts.log,
            options: parts.options,
            inputs: parts.inputs,
            lease: parts.lease,
            shutdown: parts.shutdown,
            appender: None,
            counters: Counters::new(D::WRITER),
            undecided: true,
            unobserved: true,
            deciding: false,
            slow: None,
            discarded: 0,
            wake: None,
            paused: false,
            failures: 0,
            stopping: false,
            snapshots: parts.snapshots,
            snapshotting: false,
            result: Some(result),
        }
    }

    /// Takes the next step, if there is one.
    fn advance(&mut self, context: &mut Context<Self>) {
        if self.stopping {
            self.stop_when_quiet(context);
            return;
        }
        if self.paused || !self.core.may_append() {
            return;
        }
        let mut links = Vec::new();
        if let Some(slow) = self.slow.take_if(|slow| slow.at_head) {
            self.finish_slow(slow, &mut links, context);
        }
        if links.is_empty() && self.slow.is_none() && !self.deciding && self.undecided {
            self.undecided = false;
            if D::SLOW {
                if self.decider.is_due(&self.core.state) {
                    self.decide_aside(context);
                }
            } else {
                self.decide_here(&mut links, context);
            }
        }
        self.observe(&mut links);
        if !links.is_empty() {
            self.append(links, context);
        }
    }

    fn decide_here(&mut self, links: &mut Vec<Link>, context: &mut Context<Self>) {
        let started = self.options.clock.now();
        let now = self.core.now(self.options.clock.now());
        let made = make(
            &*self.decider,
            &self.core.state,
            self.core.folded,
            now,
            self.decider.budget(),
            self.core.hash_due(),
        );
        self.decided(made, started, links, context);
    }

    /// Decides on another thread, on a copy of the state.
    fn decide_aside(&mut self, context: &mut Context<Self>) {
        self.deciding = true;
        let started = self.options.clock.now();
        let now = self.core.now(self.options.clock.now());
        let decider = Arc::clone(&self.decider);
        let (state, folded) = (self.core.state.clone(), self.core.folded);
        let hash_due = self.core.hash_due();
        let budget = self.decider.budget().map(|budget| self.hurried(budget));
        let begun = Instant::now();
        let deciding = wrap_future::<_, Self>(tokio::task::spawn_blocking(move || {
            make(&*decider, &state, folded, now, budget, hash_due)
        }));
        context.spawn(deciding.map(move |made, actor, context| {
            actor.deciding = false;
            match made {
                Ok(made) if made.decision.proposals.is_empty() => {
                    actor.decided(made, started, &mut Vec::new(), context);
                    actor.advance(context);
                }
                Ok(made) => {
                    let at_head = begun.elapsed() <= QUICK;
                    actor.slow = Some(Slow {
                        made,
                        started,
                        at_head,
                    });
                    match at_head {
                        true => actor.advance(context),
                        false => actor.fold_to_head(context),
                    }
                }
                Err(_) => actor.end(Err(ServiceError::Panicked(D::WRITER.as_str())), context),
            }
        }));
    }

    /// After [`DISCARDS`] discards in a row, half the time for each further one: a cluster in which
    /// something always ends while the solver runs is to be decided on as well.
    fn hurried(&self, budget: Budget) -> Budget {
        let halvings = self.discarded.saturating_sub(DISCARDS - 1).min(16);
        let seconds = budget
            .seconds
            .map(|seconds| seconds / f64::from(1u32 << halvings));
        Budget { seconds, ..budget }
    }

    /// A slow decision is at the head: it still holds, or is made again.
    fn finish_slow(&mut self, slow: Slow, links: &mut Vec<Link>, context: &mut Context<Self>) {
        if self
            .decider
            .still_valid(&self.core.state, &slow.made.decision)
        {
            self.discarded = 0;
            self.decided(slow.made, slow.started, links, context);
        } else {
            self.discarded += 1;
            tracing::info!(service = %D::WRITER, asof = %slow.made.asof, "discarded: overtaken by the log");
            self.counters.discarded.increment(1);
            self.undecided = true;
        }
    }

    /// Takes a decision: its wake-up, its events.
    fn decided(
        &mut self,
        made: Made,
        started: Timestamp,
        links: &mut Vec<Link>,
        context: &mut Context<Self>,
    ) {
        self.counters.decisions.increment(1);
        let took = self.options.clock.now().ms_since(started);
        self.counters.decided(Duration::from_millis(took));
        self.set_wake(made.decision.next_wake, context);
        if made.decision.proposals.is_empty() {
            return;
        }
        let causes: Vec<Sequence> = made
            .decision
            .proposals
            .iter()
            .filter_map(|proposal| proposal.causes.first().copied())
            .collect();
        let decision = self.decide_span(started, &causes, made.decision.proposals.len());
        let log = self.log.clone();
        let mut spans: Vec<AppendSpan> = Vec::new();
        let trace = |event: &Event, causes: &[Sequence]| {
            let span = append_span(event, None, log.contexts(causes), Some(&decision));
            let traceparent = span.traceparent();
            spans.push(span);
            traceparent
        };
        match self
            .core
            .prepare(log.prefix(), &self.options.build, made, trace)
        {
            Ok(messages) => links.extend(
                messages
                    .into_iter()
                    .zip(spans)
                    .map(|(message, span)| Link { message, span }),
            ),
            Err(error) => {
                tracing::error!(service = %D::WRITER, %error, "a decision cannot be encoded");
                self.pause(REFUSED_PAUSE, context);
            }
        }
    }

    fn decide_span(&self, started: Timestamp, causes: &[Sequence], count: usize) -> DecideSpan {
        // The first cause is the parent; a span with a thousand links helps nobody.
        let shown = causes.get(..causes.len().min(32)).unwrap_or(causes);
        decide_span(
            format!("decide {}", D::WRITER),
            started,
            self.log.contexts(shown),
            count,
        )
    }

    /// Adds what was observed. Behind what was decided: both were made from the same prefix.
    fn observe(&mut self, links: &mut Vec<Link>) {
        let Some(inputs) = self.inputs.as_mut().filter(|_| self.unobserved) else {
            return;
        };
        let observations = inputs.observe(&self.core.state);
        // Level-triggered: as long as there is something, there may be more.
        self.unobserved = !observations.is_empty();
        let now = self.core.now(self.options.clock.now());
        for observation in observations {
            let parent = observation.traceparent.as_deref().and_then(trace::parse);
            let span = append_span(&observation.event, parent, Vec::new(), None);
            let message = self.core.message(
                self.log.prefix(),
                links.len(),
                now,
                span.traceparent(),
                observation.event,
            );
            match message {
                Ok(message) => links.push(Link { message, span }),
                Err(error) => tracing::error!(%error, "an observation cannot be encoded"),
            }
        }
    }

    fn append(&mut self, links: Vec<Link>, context: &mut Context<Self>) {
        let Some(appender) = &self.appender else {
            return;
        };
        self.core.appending = true;
        let fence = Fence {
            filter: self.log.prefix().writer(D::WRITER, None),
            last: self.core.own_last.0,
        };
        let sending = wrap_future::<_, Self>(appender.send(Chain { fence, links }));
        context.spawn(sending.map(|outcome, actor, context| {
            actor.core.appending = false;
            match outcome {
                Ok(outcome) => actor.answered(outcome, context),
                Err(_) => actor.end(Err(ServiceError::Panicked(D::WRITER.as_str())), context),
            }
        }));
    }

    fn answered(&mut self, outcome: Outcome, context: &mut Context<Self>) {
        self.counters.appends.increment(outcome.stored as u64);
        self.counters.appended(outcome.took);
        if let Some(last) = outcome.last {
            self.core.await_folded(Sequence(last));
        }
        let Some(error) = outcome.error else {
            self.failures = 0;
            return self.advance(context);
        };
        self.undecided = true;
        self.unobserved = true;
        self.failures = self.failures.saturating_add(1);
        let pause = match &error {
            PublishError::Conflict => {
                self.counters.conflicts.increment(1);
                tracing::info!(service = %D::WRITER, own_last = %self.core.own_last, "conflict: another copy appended; deciding again");
                Duration::from_millis(u64::from(self.failures.min(20)) * 10)
            }
            PublishError::Doubt(why) => {
                self.counters.doubts.increment(1);
                tracing::warn!(service = %D::WRITER, why, "in doubt whether an append was stored; deciding again");
                Duration::from_millis(u64::from(self.failures.min(20)) * 50)
            }
            PublishError::Refused(error) => {
                tracing::error!(service = %D::WRITER, %error, "cannot append what was decided");
                REFUSED_PAUSE
            }
        };
        self.pause(pause, context);
        self.fold_to_head(context);
    }

    /// Holds appending back for a while.
    fn pause(&mut self, pause: Duration, context: &mut Context<Self>) {
        self.paused = true;
        self.undecided = true;
        context.run_later(pause, |actor, context| {
            actor.paused = false;
            actor.advance(context);
        });
    }

    /// Asks how far the log reaches; nothing is appended until that much is folded.
    fn fold_to_head(&mut self, context: &mut Context<Self>) {
        self.core.asking += 1;
        let log = self.log.clone();
        let asking = wrap_future::<_, Self>(async move {
            loop {
                match log.head().await {
                    Ok(head) => return head,
                    Err(error) => tracing::debug!(%error, "the head is not known"),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        context.spawn(asking.map(|head, actor, context| {
            actor.core.asking -= 1;
            actor.core.await_folded(head);
            if let Some(slow) = &mut actor.slow {
                slow.at_head = true;
            }
            actor.advance(context);
        }));
    }

    fn set_wake(&mut self, at: Option<Timestamp>, context: &mut Context<Self>) {
        if let Some(wake) = self.wake.take() {
            context.cancel_future(wake);
        }
        let Some(at) = at else { return };
        let wait = Duration::from_millis(at.ms_since(self.options.clock.now()) + 1);
        self.wake = Some(context.run_later(wait.max(WAKE_FLOOR), |actor, context| {
            actor.wake = None;
            actor.undecided = true;
            actor.advance(context);
        }));
    }

    fn fold(&mut self, batch: &[Followed]) -> Result<(), ServiceError> {
        let showing = self.core.active && self.core.is_caught_up();
        let (mut folded, mut flagged) = (0, 0);
        for followed in batch {
            let own = self
                .core
                .fold(followed)
                .map_err(|unknown| ServiceError::UnknownVersion {
                    sequence: unknown.sequence,
                    type_name: unknown.type_name,
                    build: self.options.build.clone(),
                })?;
            match followed {
                Followed::Event(recorded) => {
                    folded += 1;
                    if own.is_some() && showing {
                        self.status.show(recorded);
                    }
                }
                Followed::Flagged { .. } => flagged += 1,
                Followed::CaughtUp(_) => {}
            }
        }
        if folded + flagged > 0 {
            self.undecided = true;
            self.counters.folded.increment(folded);
            self.counters.flagged.increment(flagged);
            let lag = self.options.clock.now().ms_since(self.core.stored_at);
            self.counters.lag(Duration::from_millis(lag));
            self.counters.own_head.set(value(self.core.own_last.0));
            self.counters.folded_sequence.set(value(self.core.folded.0));
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool, context: &mut Context<Self>) {
        if self.core.active == active {
            return;
        }
        tracing::info!(service = %D::WRITER, active, "the lease");
        self.core.active = active;
        self.counters.active.set(f64::from(u8::from(active)));
        self.undecided = true;
        self.unobserved = true;
        if active {
            self.fold_to_head(context);
        }
    }

    fn end(&mut self, result: Result<(), ServiceError>, context: &mut Context<Self>) {
        self.counters.active.set(0.0);
        if let Some(sender) = self.result.take() {
            let _ = sender.send(result);
        }
        context.stop();
    }
}

fn make<D: Decider>(
    decider: &D,
    state: &D::State,
    asof: Sequence,
    now: Timestamp,
    budget: Option<Budget>,
    hash_due: bool,
) -> Made {
    let decision = decider.decide_within(state, now, budget);
    let hashed = hash_due && !decision.proposals.is_empty();
    Made {
        decision,
        asof,
        now,
        state_hash: hashed.then(|| state_hash(state)).flatten(),
        budget,
    }
}
