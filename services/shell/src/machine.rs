//! The state machine's steps, in order of precedence.
//!
//! 1. While stopping: wait for work in flight, save, end.
//! 2. Without the right to append (see `core`), or in a pause: only fold.
//! 3. Append a slow decision at the head if valid, else decide again.
//! 4. Decide after news: here, or on another thread.
//! 5. Append observations after the decision, on the same prefix.

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::events::{Basis, Budget};
use dormouse_messages::{Decider, Event, Fold, Proposal, Sequence, Timestamp};

use crate::core::{Core, Halt, Made, Snapshot, state_hash};
use crate::host::{ClockAnchor, HostTime};
use crate::log_item::LogItem;

/// Number of discards in a row after which the budget shrinks.
const DISCARDS: u32 = 2;

/// Permissions and limits do not change quickly.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// Number of failures in a row after which pauses stop growing.
const MOST_FAILURES: u32 = 20;

/// Per failure in a row, since the other copy is at work.
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// Per failure in a row, since the broker needs time to recover.
const DOUBT_PAUSE: Duration = Duration::from_millis(50);

/// An observation from outside the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    pub event: Event,
    pub traceparent: Option<String>,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    pub event: Event,
    /// The main cause first; empty for an observation.
    pub causes: Vec<Sequence>,
    pub traceparent: Option<String>,
}

/// Events to append, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// The fence.
    pub expected: Sequence,
    /// The last folded event.
    pub folded: Sequence,
    /// Log time, advanced by the host's clocks after an absence.
    pub time: Timestamp,
    /// Start of the decision, and its number of drafts.
    pub decided: Option<(Timestamp, usize)>,
    pub drafts: Vec<Draft>,
}

/// Reason for a failed append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure<R = String> {
    Conflict,
    Refused(R),
    /// Stored now, later, or never.
    Doubt(String),
}

impl<R> Failure<R> {
    /// Changes the reason of a refusal.
    pub fn map<S>(self, refused: impl FnOnce(R) -> S) -> Failure<S> {
        match self {
            Self::Conflict => Failure::Conflict,
            Self::Refused(why) => Failure::Refused(refused(why)),
            Self::Doubt(why) => Failure::Doubt(why),
        }
    }
}

/// Outcome of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    pub last: Option<Sequence>,
    pub failure: Option<Failure>,
}

/// Work for the driver, with the answering input of [`Shell`].
pub enum Effect<D: Decider> {
    /// Append these events: [`Shell::answered`].
    Append(Append),
    /// Ask the leader for the head until an answer comes: [`Shell::head`].
    AskHead,
    /// Decide on another thread: [`Shell::made`].
    Decide(Task<D>),
    /// Wake at this time, replacing the former one: [`Shell::woken`].
    WakeAt(Option<Timestamp>),
    /// Wake after this delay: [`Shell::resumed`].
    Pause(Duration),
    /// Save the snapshot: [`Shell::saved`].
    Save(Snapshot<D::State>),
    /// Keep the mark for [`Shell::recall`]; not answered.
    Keep(ClockAnchor),
    /// A decision was made, with or without events.
    Decided,
    /// The log has overtaken a slow decision.
    Discarded {
        asof: Sequence,
    },
    End,
}

/// A slow decision to compute.
pub struct Task<D: Decider> {
    decider: Arc<D>,
    state: D::State,
    asof: Sequence,
    own_last: Sequence,
    now: Timestamp,
    started: Timestamp,
    budget: Option<Budget>,
    hash_due: bool,
}

impl<D: Decider> Task<D> {
    /// Computes the decision.
    #[must_use]
    pub fn run(self) -> Made {
        let decision = self
            .decider
            .decide_within(&self.state, self.now, self.budget);
        let hashed = self.hash_due && !decision.proposals.is_empty();
        Made {
            decision,
            asof: self.asof,
            own_last: self.own_last,
            now: self.now,
            started: self.started,
            state_hash: hashed.then(|| state_hash(&self.state)).flatten(),
            budget: self.budget,
        }
    }
}

/// Counts of folded items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    pub events: u64,
    pub flagged: u64,
    pub doubt: Option<(Sequence, String)>,
}

struct Slow {
    made: Made,
    at_head: bool,
}

/// The machine of one decider.
pub struct Shell<D: Decider> {
    decider: Arc<D>,
    core: Core<D::State>,
    effects: Vec<Effect<D>>,
    undecided: bool,
    unobserved: bool,
    deciding: bool,
    slow: Option<Slow>,
    discarded: u32,
    pauses: u32,
    failures: u32,
    refused: Option<String>,
    snapshot_every: Option<u64>,
    snapshot_due: Sequence,
    saving: bool,
    build: String,
    stopping: bool,
    ended: bool,
    wake: Option<Timestamp>,
}

impl<D: Decider> Shell<D> {
    /// Creates an inactive service from `snapshot`.
    pub fn new(
        decider: Arc<D>,
        snapshot: Snapshot<D::State>,
        build: impl Into<String>,
        snapshot_every: Option<u64>,
    ) -> Self {
        let core = Core::new(snapshot, D::WRITER);
        let snapshot_due = after(core.folded, snapshot_every);
        Self {
            decider,
            core,
            effects: Vec::new(),
            undecided: true,
            unobserved: true,
            deciding: false,
            slow: None,
            discarded: 0,
            pauses: 0,
            failures: 0,
            refused: None,
            snapshot_every,
            snapshot_due,
            saving: false,
            build: build.into(),
            stopping: false,
            ended: false,
            wake: None,
        }
    }

    /// Returns the last folded sequence.
    pub fn folded(&self) -> Sequence {
        self.core.folded
    }

    /// Returns the last own folded sequence.
    pub fn own_last(&self) -> Sequence {
        self.core.own_last
    }

    /// Returns the broker's time of that event.
    pub fn stored_at(&self) -> Timestamp {
        self.core.stored_at
    }

    /// Reports whether this is the active copy.
    pub fn is_active(&self) -> bool {
        self.core.active
    }

    /// Returns the reason for a permanent refusal, for an operator.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// Returns the folded state.
    pub fn state(&self) -> &D::State {
        &self.core.state
    }

    /// Returns the new effects.
    pub fn take_effects(&mut self) -> Vec<Effect<D>> {
        std::mem::take(&mut self.effects)
    }

    /// Takes a part of the log, in order.
    ///
    /// # Errors
    /// An unknown version, or an event that makes the fold contradictory. The service must stop and discard
    /// the state.
    pub fn followed(&mut self, batch: &[LogItem]) -> Result<Folded, Halt> {
        let mut folded = Folded::default();
        for followed in batch {
            let doubt = match followed {
                LogItem::Event(recorded) => self.core.state.rejects(recorded),
                LogItem::Flagged { .. } | LogItem::CaughtUp(_) => None,
            };
            self.undecided |= match followed {
                LogItem::Event(recorded) => recorded
                    .event()
                    .is_none_or(|event| self.decider.concerns(event)),
                LogItem::Flagged { .. } => true,
                LogItem::CaughtUp(_) => false,
            };
            self.core.fold(followed)?;
            match (followed, doubt) {
                (LogItem::Event(recorded), Some(why)) => {
                    folded.flagged += 1;
                    folded.doubt.get_or_insert((recorded.sequence, why));
                }
                (LogItem::Event(_), None) => folded.events += 1,
                (LogItem::Flagged { .. }, _) => folded.flagged += 1,
                (LogItem::CaughtUp(_), _) => {}
            }
        }
        if !self.saving && self.snapshot_every.is_some() && self.core.folded >= self.snapshot_due {
            self.save();
        }
        Ok(folded)
    }

    /// Notes the gain or loss of the lease.
    pub fn lease(&mut self, held: bool) {
        if self.core.active == held {
            return;
        }
        self.core.active = held;
        self.undecided = true;
        self.unobserved = true;
        if held {
            self.ask_head();
        }
    }

    /// Activates this copy without a lease.
    pub fn activate(&mut self) {
        self.core.active = true;
    }

    /// Restores an earlier process's mark ([`Effect::Keep`]), which affects only the written time.
    pub fn recall(&mut self, mark: ClockAnchor) {
        self.core.recall(mark);
    }

    /// Notes the host's clocks, before each step.
    pub fn host_shows(&mut self, host: HostTime) {
        self.core.host.shows(host);
    }

    /// Notes the outcome of the append in flight.
    pub fn answered(&mut self, outcome: Outcome) {
        self.core.appending = false;
        if let Some(last) = outcome.last {
            self.core.await_folded(last);
        }
        let Some(failure) = outcome.failure else {
            self.failures = 0;
            self.refused = None;
            return;
        };
        self.unobserved = true;
        self.failures = self.failures.saturating_add(1);
        let times = self.failures.min(MOST_FAILURES);
        let pause = match failure {
            Failure::Conflict => CONFLICT_PAUSE * times,
            Failure::Doubt(_) => DOUBT_PAUSE * times,
            Failure::Refused(why) => {
                self.refused = Some(why);
                REFUSED_PAUSE
            }
        };
        self.pause(pause);
        self.ask_head();
    }

    /// Notes the log's head.
    pub fn head(&mut self, head: Sequence) {
        self.core.asking = self.core.asking.saturating_sub(1);
        self.core.await_folded(head);
        if let Some(slow) = &mut self.slow {
            slow.at_head = true;
        }
    }

    /// Notes a slow decision; `quick` skips the question for the head.
    pub fn made(&mut self, made: Made, quick: bool) {
        self.deciding = false;
        if made.decision.proposals.is_empty() {
            self.decided(made);
            return;
        }
        let at_head = quick;
        self.slow = Some(Slow { made, at_head });
        if !at_head {
            self.ask_head();
        }
    }

    /// Notes the time of [`Effect::WakeAt`].
    pub fn woken(&mut self) {
        self.wake = None;
        self.undecided = true;
    }

    /// Notes the end of an [`Effect::Pause`].
    pub fn resumed(&mut self) {
        self.pauses = self.pauses.saturating_sub(1);
    }

    /// Notes possible new observations.
    pub fn observed(&mut self) {
        self.unobserved = true;
    }

    /// Notes the end of a save.
    pub fn saved(&mut self) {
        self.saving = false;
    }

    /// Starts the stop: finish work in flight, save, end.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes the next step. `clock` is monotonic; `observe` returns the observations missing in the state.
    pub fn advance(
        &mut self,
        clock: Timestamp,
        observe: impl FnOnce(&D::State) -> Vec<Observation>,
    ) {
        let (moved, mark) = self.core.look_at(clock);
        self.effects.extend(mark.map(Effect::Keep));
        if moved && self.wake.is_some() {
            self.wake_again();
        }
        if self.stopping {
            return self.stop_when_quiet();
        }
        if self.pauses > 0 || !self.core.may_append() {
            return;
        }
        let mut append = Append {
            expected: self.core.own_last,
            folded: self.core.folded,
            time: self.core.written(clock),
            decided: None,
            drafts: Vec::new(),
        };
        if let Some(slow) = self.slow.take_if(|slow| slow.at_head) {
            self.finish_slow(slow.made, &mut append);
        }
        let free = append.drafts.is_empty() && self.slow.is_none() && !self.deciding;
        if free && self.undecided {
            self.undecided = false;
            self.decide(clock, &mut append);
        }
        if self.unobserved {
            let observed = observe(&self.core.state);
            // Level-triggered: there may be more observations.
            self.unobserved = !observed.is_empty();
            append.drafts.extend(observed.into_iter().map(|it| Draft {
                event: it.event,
                causes: Vec::new(),
                traceparent: it.traceparent,
            }));
        }
        if !append.drafts.is_empty() {
            self.core.appending = true;
            self.effects.push(Effect::Append(append));
        }
    }

    fn decide(&mut self, clock: Timestamp, append: &mut Append) {
        let budget = self.decider.budget();
        if !D::SLOW {
            let made = make(&*self.decider, &self.core, clock, budget);
            self.append_decision(made, append);
        } else if self.decider.is_due(&self.core.state) {
            let put_off = self.decider.put_off_until(&self.core.state);
            let now = self.core.now(clock);
            if let Some(until) = put_off.filter(|until| *until > now) {
                self.wake = Some(until);
                return self.wake_again();
            }
            self.deciding = true;
            self.effects.push(Effect::Decide(Task {
                decider: Arc::clone(&self.decider),
                state: self.core.state.clone(),
                asof: self.core.folded,
                own_last: self.core.own_last,
                now,
                started: clock,
                budget: budget.map(|budget| hurried(budget, self.discarded)),
                hash_due: self.core.hash_due(),
            }));
        }
    }

    /// A slow decision is invalid if another copy has appended since.
    fn finish_slow(&mut self, made: Made, append: &mut Append) {
        let alone = made.own_last == self.core.own_last;
        if alone && self.decider.still_valid(&self.core.state, &made.decision) {
            self.discarded = 0;
            self.append_decision(made, append);
        } else {
            self.discarded += 1;
            self.undecided = true;
            self.effects.push(Effect::Discarded { asof: made.asof });
        }
    }

    fn append_decision(&mut self, made: Made, append: &mut Append) {
        let made = self.decided(made);
        if made.decision.proposals.is_empty() {
            return;
        }
        self.core.decisions += 1;
        append.decided = Some((made.started, made.decision.proposals.len()));
        for Proposal { mut event, causes } in made.decision.proposals {
            event.set_basis(Some(Basis {
                asof: made.asof,
                now: made.now,
                causes: causes.clone(),
                build: self.build.clone(),
                state_hash: made.state_hash.clone(),
                budget: made.budget,
            }));
            append.drafts.push(Draft {
                event,
                causes,
                traceparent: None,
            });
        }
    }

    fn decided(&mut self, made: Made) -> Made {
        self.effects.push(Effect::Decided);
        self.wake = made.decision.next_wake;
        self.wake_again();
        made
    }

    /// Reschedules the wake-up, since log time and clock may diverge.
    fn wake_again(&mut self) {
        let at = self.wake.map(|at| self.core.clock_at(at));
        self.effects.push(Effect::WakeAt(at));
    }

    fn pause(&mut self, pause: Duration) {
        self.pauses += 1;
        self.undecided = true;
        self.effects.push(Effect::Pause(pause));
    }

    /// Blocks appends until the head is folded.
    fn ask_head(&mut self) {
        self.core.asking += 1;
        self.effects.push(Effect::AskHead);
    }

    fn save(&mut self) {
        self.saving = true;
        self.snapshot_due = after(self.core.folded, self.snapshot_every);
        self.effects.push(Effect::Save(self.core.snapshot()));
    }

    fn stop_when_quiet(&mut self) {
        if self.core.appending || self.saving || self.ended {
            return;
        }
        match self.snapshot_every.take() {
            Some(_) => self.save(),
            None => {
                self.ended = true;
                self.effects.push(Effect::End);
            }
        }
    }
}

fn after(folded: Sequence, every: Option<u64>) -> Sequence {
    Sequence(folded.0.saturating_add(every.unwrap_or(0).max(1)))
}

/// Halves the budget per discard from [`DISCARDS`] on, so that a busy cluster gets decisions too.
#[must_use]
pub fn hurried(budget: Budget, discarded: u32) -> Budget {
    let halvings = discarded.saturating_sub(DISCARDS - 1).min(16);
    let work = budget.work >> halvings;
    Budget { work, ..budget }
}

fn make<D: Decider>(
    decider: &D,
    core: &Core<D::State>,
    clock: Timestamp,
    budget: Option<Budget>,
) -> Made {
    let now = core.now(clock);
    let decision = decider.decide_within(&core.state, now, budget);
    let hashed = core.hash_due() && !decision.proposals.is_empty();
    Made {
        decision,
        asof: core.folded,
        own_last: core.own_last,
        now,
        started: clock,
        state_hash: hashed.then(|| state_hash(&core.state)).flatten(),
        budget,
    }
}
