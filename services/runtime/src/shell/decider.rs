//! The actor that performs the effects of a decider's machine (`dormouse_shell::Shell`). The machine decides
//! everything.

mod signals;

use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::fut::wrap_future;
use actix::{ActorContext, ActorFutureExt, Addr, AsyncContext, Context, SpawnHandle};
use dormouse_messages::{CodecError, Decider, Sequence, Timestamp};
use dormouse_shell::{Append, ClockAnchor, Effect, Failure, Halt, Outcome, Shell, Snapshot, Task};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::aside::aside;
use crate::clock::host_time;
use crate::clock_anchor::MarkFile;
use crate::counters::{Counters, value};
use crate::decode::LogItem;
use crate::lease::LeaseState;
use crate::log::Log;
use crate::observations::Inputs;
use crate::publish::{self, Fence, Place};
use crate::shell::appending::{Appended, AppenderActor, Chain, Link};
use crate::shell::options::{ServiceError, ServiceOptions};
use crate::snapshot::Snapshots;
use crate::spans::{DecideSpan, append_span, decide_span};
use crate::trace::Cause;

const WAKE_FLOOR: Duration = Duration::from_millis(10);

/// A slow decision this fast saves the round trip for the head.
const QUICK: Duration = Duration::from_millis(20);

/// Limits the warnings about rejected events.
const TELL_EVERY: Duration = Duration::from_secs(10);

const LINKS: usize = 32;

pub(crate) struct Parts<D: Decider> {
    pub decider: Arc<D>,
    pub log: Log,
    pub options: ServiceOptions,
    pub inputs: Option<Box<dyn Inputs<D::State>>>,
    pub snapshots: Option<Snapshots>,
    pub snapshot: Snapshot<D::State>,
    pub mark_file: Option<MarkFile>,
    pub mark: Option<ClockAnchor>,
    pub lease: Option<watch::Receiver<LeaseState>>,
    pub refused: Option<watch::Sender<Option<String>>>,
    pub shutdown: CancellationToken,
}

pub(crate) struct DeciderActor<D: Decider> {
    shell: Shell<D>,
    log: Log,
    options: ServiceOptions,
    inputs: Option<Box<dyn Inputs<D::State>>>,
    lease: Option<watch::Receiver<LeaseState>>,
    refused: Option<watch::Sender<Option<String>>>,
    shutdown: CancellationToken,
    appender: Option<Addr<AppenderActor>>,
    counters: Counters,
    told: Option<Instant>,
    wake: Option<SpawnHandle>,
    snapshots: Option<Snapshots>,
    mark_file: Option<MarkFile>,
    result: Option<oneshot::Sender<Result<(), ServiceError>>>,
}

impl<D: Decider> DeciderActor<D> {
    pub fn new(parts: Parts<D>, result: oneshot::Sender<Result<(), ServiceError>>) -> Self {
        let every = parts
            .snapshots
            .as_ref()
            .map(|_| parts.options.snapshot_every);
        let build = parts.options.build.clone();
        let mut shell = Shell::new(parts.decider, parts.snapshot, build, every);
        if parts.lease.is_none() {
            shell.activate();
        }
        if let Some(mark) = parts.mark {
            shell.recall(mark);
        }
        Self {
            shell,
            log: parts.log,
            options: parts.options,
            inputs: parts.inputs,
            lease: parts.lease,
            refused: parts.refused,
            shutdown: parts.shutdown,
            appender: None,
            counters: Counters::new(D::WRITER),
            told: None,
            wake: None,
            snapshots: parts.snapshots,
            mark_file: parts.mark_file,
            result: Some(result),
        }
    }

    fn advance(&mut self, context: &mut Context<Self>) {
        let started = Instant::now();
        let inputs = &mut self.inputs;
        self.shell.host_shows(host_time());
        self.shell.advance(self.options.clock.now(), |state| {
            inputs
                .as_mut()
                .map(|inputs| inputs.observe(state))
                .unwrap_or_default()
        });
        let took = started.elapsed();
        for effect in self.shell.take_effects() {
            self.perform(effect, took, context);
        }
    }

    fn perform(&mut self, effect: Effect<D>, took: Duration, context: &mut Context<Self>) {
        match effect {
            Effect::Append(append) => self.append(append, context),
            Effect::AskHead => self.ask_head(context),
            Effect::Decide(task) => self.decide_aside(task, context),
            Effect::WakeAt(at) => self.set_wake(at, context),
            Effect::Pause(pause) => {
                context.run_later(pause, |actor, context| {
                    actor.shell.resumed();
                    actor.advance(context);
                });
            }
            Effect::Save(snapshot) => self.save(snapshot, context),
            Effect::Keep(mark) => {
                if let Some(file) = &self.mark_file {
                    file.keep(mark);
                }
            }
            Effect::Decided => {
                self.counters.decisions.increment(1);
                if !D::SLOW {
                    self.counters.decided(took);
                }
            }
            Effect::Discarded { asof } => {
                tracing::info!(service = %D::WRITER, %asof, "discarded: overtaken by the log");
                self.counters.discarded.increment(1);
            }
            Effect::End => self.end(Ok(()), context),
        }
    }

    fn decide_aside(&mut self, task: Task<D>, context: &mut Context<Self>) {
        let begun = Instant::now();
        let deciding = wrap_future::<_, Self>(aside("decision", move || task.run()));
        context.spawn(deciding.map(move |made, actor, context| match made {
            Ok(made) => {
                let took = begun.elapsed();
                actor.counters.decided(took);
                actor.shell.made(made, took <= QUICK);
                actor.advance(context);
            }
            Err(_) => actor.end(Err(ServiceError::Panicked(D::WRITER.as_str())), context),
        }));
    }

    fn append(&mut self, append: Append, context: &mut Context<Self>) {
        let Some(appender) = self.appender.clone() else {
            return;
        };
        let is_trimmed = append.expected < self.log.first();
        let fence = Fence {
            filter: self.log.prefix().writer(D::WRITER, None),
            last: append.expected.0,
            head: is_trimmed.then_some(append.folded.0),
        };
        let links = match self.links(append) {
            Ok(links) => links,
            Err(error) => {
                tracing::error!(service = %D::WRITER, %error, "what was decided cannot be encoded");
                self.settled(Outcome {
                    last: None,
                    failure: Some(Failure::Refused(error.to_string())),
                });
                return self.perform_waiting(context);
            }
        };
        let sending = wrap_future::<_, Self>(appender.send(Chain { fence, links }));
        context.spawn(sending.map(|appended, actor, context| match appended {
            Ok(appended) => actor.answered(appended, context),
            Err(_) => actor.end(Err(ServiceError::Panicked(D::WRITER.as_str())), context),
        }));
    }

    fn perform_waiting(&mut self, context: &mut Context<Self>) {
        for effect in self.shell.take_effects() {
            self.perform(effect, Duration::ZERO, context);
        }
    }

    fn links(&self, append: Append) -> Result<Vec<Link>, CodecError> {
        let decision = append.decided.map(|(started, count)| {
            let causes = append.drafts.iter().take(count);
            let causes: Vec<Sequence> = causes
                .filter_map(|draft| draft.causes.first().copied())
                .collect();
            self.decide_span(started, &causes, count)
        });
        tracing::debug!(service = %D::WRITER, events = append.drafts.len(), "appending");
        let mut links = Vec::with_capacity(append.drafts.len());
        for (index, draft) in append.drafts.into_iter().enumerate() {
            let decided = append.decided.is_some_and(|(_, count)| index < count);
            let parent = draft.traceparent.as_deref().and_then(Cause::published);
            let causes = self.log.contexts(&draft.causes);
            let decision = decision.as_ref().filter(|_| decided);
            let span = append_span(D::WRITER, &draft.event, parent, causes, decision);
            let place = Place {
                writer: D::WRITER,
                name: D::WRITER.as_str(),
                expected: append.expected.0,
                index,
            };
            let traceparent = Some(span.traceparent());
            let prefix = self.log.prefix();
            let message = publish::outgoing(prefix, &place, append.time, traceparent, draft.event)?;
            links.push(Link { message, span });
        }
        Ok(links)
    }

    fn decide_span(&self, started: Timestamp, causes: &[Sequence], count: usize) -> DecideSpan {
        // The first cause is the parent.
        let shown = causes.get(..causes.len().min(LINKS)).unwrap_or(causes);
        decide_span(D::WRITER, started, self.log.contexts(shown), count)
    }

    fn answered(&mut self, appended: Appended, context: &mut Context<Self>) {
        self.counters.appends.increment(appended.stored as u64);
        self.counters.appended(appended.took);
        match &appended.error {
            None => {}
            Some(Failure::Conflict) => {
                self.counters.conflicts.increment(1);
                tracing::info!(service = %D::WRITER, own_last = %self.shell.own_last(), "conflict: another copy appended; deciding again");
            }
            Some(Failure::Doubt(why)) => {
                self.counters.doubts.increment(1);
                tracing::warn!(service = %D::WRITER, why, "in doubt whether an append was stored; deciding again");
            }
            Some(Failure::Refused(error)) => {
                tracing::error!(service = %D::WRITER, %error, "cannot append what was decided");
            }
        }
        let failure = appended.error;
        let failure = failure.map(|failure| failure.map(|error| error.to_string()));
        let last = appended.last.map(Sequence);
        self.settled(Outcome { last, failure });
        self.advance(context);
    }

    fn settled(&mut self, outcome: Outcome) {
        self.shell.answered(outcome);
        if let Some(told) = &self.refused {
            let refused = self.shell.refused().map(str::to_owned);
            told.send_if_modified(|before| {
                let changed = *before != refused;
                *before = refused;
                changed
            });
        }
    }

    fn ask_head(&mut self, context: &mut Context<Self>) {
        let log = self.log.clone();
        let asking = wrap_future::<_, Self>(async move { log.head_patiently().await });
        context.spawn(asking.map(|head, actor, context| {
            actor.shell.head(head);
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
            actor.shell.woken();
            actor.advance(context);
        }));
    }

    fn fold(&mut self, batch: &[LogItem]) -> Result<(), ServiceError> {
        let folded = self.shell.followed(batch).map_err(|halt| match halt {
            Halt::UnknownVersion(unknown) => ServiceError::UnknownVersion {
                sequence: unknown.sequence,
                type_name: unknown.type_name,
                build: self.options.build.clone(),
            },
            Halt::NewerFormat(newer) => ServiceError::NewerFormat(newer),
            Halt::Contradiction { sequence, what } => ServiceError::Contradiction {
                service: D::WRITER.as_str(),
                sequence,
                what,
            },
        })?;
        if let Some((sequence, why)) = &folded.doubt
            && self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY)
        {
            self.told = Some(Instant::now());
            tracing::warn!(service = %D::WRITER, %sequence, why, "an event is not believed");
        }
        if folded.events + folded.flagged > 0 {
            if self.inputs.as_ref().is_some_and(|inputs| inputs.waits()) {
                self.shell.observed();
            }
            self.counters.folded.increment(folded.events);
            self.counters.flagged.increment(folded.flagged);
            let now = self.options.clock.now();
            let lag = now.ms_since(self.shell.stored_at());
            self.counters.lag(Duration::from_millis(lag));
            self.counters.own_head.set(value(self.shell.own_last().0));
            let folded = self.shell.folded();
            self.counters.folded_sequence.set(value(folded.0));
        }
        Ok(())
    }

    fn set_active(&mut self, active: bool) {
        if self.shell.is_active() != active {
            tracing::info!(service = %D::WRITER, active, "the lease");
            self.counters.active.set(f64::from(u8::from(active)));
        }
        self.shell.lease(active);
    }

    fn end(&mut self, result: Result<(), ServiceError>, context: &mut Context<Self>) {
        self.counters.active.set(0.0);
        if let Some(sender) = self.result.take() {
            let _ = sender.send(result);
        }
        context.stop();
    }
}
