//! The state machine: what a service does next, after everything that may have changed it.
//!
//! 1. While it stops, it waits for what is in flight, writes a last snapshot and ends.
//! 2. While it may not append (see `core`) or pauses after a failure, it only folds.
//! 3. A slow decision that has reached the head is appended if it still holds, else made again.
//! 4. Otherwise it decides, if something has happened since it last did: here, or for a slow
//!    decider on another thread, on a copy of the state.
//! 5. What was observed outside the log goes behind what was decided: both were made from the
//!    same prefix.

use std::sync::Arc;
use std::time::Duration;

use dormouse_messages::events::{Basis, Budget};
use dormouse_messages::{Decider, Event, Fold, Proposal, Sequence, Timestamp};

use crate::core::{Core, Halt, Made, Snapshot, state_hash};
use crate::followed::Followed;
use crate::host::{HostTime, Mark};

/// So many slow decisions may be discarded in a row before the next one has less time.
const DISCARDS: u32 = 2;

/// What permissions or limits forbid does not change by itself.
const REFUSED_PAUSE: Duration = Duration::from_secs(5);

/// After so many failures in a row the pauses grow no further.
const MOST_FAILURES: u32 = 20;

/// A pause after a conflict, for each failure in a row: the other copy is at work.
const CONFLICT_PAUSE: Duration = Duration::from_millis(10);

/// A pause after a doubt, for each failure in a row: the broker has a moment to recover.
const DOUBT_PAUSE: Duration = Duration::from_millis(50);

/// Something that was observed outside the log.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The event to append.
    pub event: Event,
    /// The trace that it continues.
    pub traceparent: Option<String>,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The event; a decision's has its basis.
    pub event: Event,
    /// What caused it, the main one first; nothing for an observation.
    pub causes: Vec<Sequence>,
    /// The trace that an observation continues.
    pub traceparent: Option<String>,
}

/// Events to append, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Append {
    /// The fence: the last own sequence on which all of them build.
    pub expected: Sequence,
    /// When they were decided, by the time of the log: never earlier than what is folded, and where the
    /// service was away, later than what they were decided on by as much as its host's clocks say.
    pub time: Timestamp,
    /// When the decision began, and how many of the first drafts it proposed.
    pub decided: Option<(Timestamp, usize)>,
    /// The events.
    pub drafts: Vec<Draft>,
}

/// Why an append failed, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failure {
    /// The fence: another copy appended before.
    Conflict,
    /// For good, with the reason.
    Refused(String),
    /// Perhaps stored, perhaps not, perhaps later; with the reason.
    Doubt(String),
}

/// What is known of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The last sequence that was acknowledged.
    pub last: Option<Sequence>,
    /// What went wrong with what was not.
    pub failure: Option<Failure>,
}

/// What is to be done. [`Shell`] names the input that answers each of them.
pub enum Effect<D: Decider> {
    /// Append this: [`Shell::answered`].
    Append(Append),
    /// Ask the log's leader how far it reaches, for as long as it takes: [`Shell::head`].
    AskHead,
    /// Run this on another thread: [`Shell::made`].
    Decide(Task<D>),
    /// Look again when the clock shows this time, instead of at any named before: [`Shell::woken`].
    WakeAt(Option<Timestamp>),
    /// Look again after this time: [`Shell::resumed`].
    Pause(Duration),
    /// Keep this: [`Shell::saved`].
    Save(Snapshot<D::State>),
    /// Keep this, too, for [`Shell::recall`] in the next life. Nothing waits for it.
    Keep(Mark),
    /// A decision was made; it led to events or not.
    Decided,
    /// A slow decision was discarded: the log has overtaken it.
    Discarded {
        /// What it was made from.
        asof: Sequence,
    },
    /// All is done.
    End,
}

/// A slow decision to be made.
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
    /// Makes it.
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

/// How much was folded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Folded {
    /// Events.
    pub events: u64,
    /// Messages that are none, and events that are not believed.
    pub flagged: u64,
    /// The first event that is not believed, and why.
    pub doubt: Option<(Sequence, String)>,
}

struct Slow {
    made: Made,
    /// Whether the log's head of that time has been folded, or need not be.
    at_head: bool,
}

/// The machine around one decider.
pub struct Shell<D: Decider> {
    decider: Arc<D>,
    core: Core<D::State>,
    effects: Vec<Effect<D>>,
    /// Something was folded, or a time was reached, since the last decision.
    undecided: bool,
    /// Something may have been observed.
    unobserved: bool,
    /// A slow decision is being made.
    deciding: bool,
    slow: Option<Slow>,
    /// Slow decisions discarded one after the other.
    discarded: u32,
    /// Pauses that are not over: nothing is appended meanwhile.
    pauses: u32,
    /// Appends that failed one after the other.
    failures: u32,
    /// Why the last append was refused for good.
    refused: Option<String>,
    /// Write a snapshot after so many events; never without.
    snapshot_every: Option<u64>,
    snapshot_due: Sequence,
    saving: bool,
    build: String,
    stopping: bool,
    ended: bool,
    /// When to look again, by the time of the log.
    wake: Option<Timestamp>,
}

impl<D: Decider> Shell<D> {
    /// A service that has folded what `snapshot` says. `build` is recorded in every decision. It
    /// stands by until [`Self::lease`].
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

    /// The last sequence folded.
    pub fn folded(&self) -> Sequence {
        self.core.folded
    }

    /// The last own sequence folded.
    pub fn own_last(&self) -> Sequence {
        self.core.own_last
    }

    /// The broker's time of what was folded last.
    pub fn stored_at(&self) -> Timestamp {
        self.core.stored_at
    }

    /// Whether it is the active copy.
    pub fn is_active(&self) -> bool {
        self.core.active
    }

    /// Why the log refuses what is decided, where the last append was refused for good: it is tried
    /// again after a pause, and an operator is to be told meanwhile.
    pub fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    /// What is folded.
    pub fn state(&self) -> &D::State {
        &self.core.state
    }

    /// What is to be done since the last call.
    pub fn take_effects(&mut self) -> Vec<Effect<D>> {
        std::mem::take(&mut self.effects)
    }

    /// A part of the log, in order.
    ///
    /// # Errors
    /// An event of a version that this build does not know: the service has to stop before it. Or one after
    /// which the fold contradicts itself: it has to stop, and nothing of it is kept.
    pub fn followed(&mut self, batch: &[Followed]) -> Result<Folded, Halt> {
        let mut folded = Folded::default();
        for followed in batch {
            let doubt = match followed {
                Followed::Event(recorded) => self.core.state.doubts(recorded),
                Followed::Flagged { .. } | Followed::CaughtUp(_) => None,
            };
            self.core.fold(followed)?;
            match (followed, doubt) {
                (Followed::Event(recorded), Some(why)) => {
                    folded.flagged += 1;
                    folded.doubt.get_or_insert((recorded.sequence, why));
                }
                (Followed::Event(_), None) => folded.events += 1,
                (Followed::Flagged { .. }, _) => folded.flagged += 1,
                (Followed::CaughtUp(_), _) => {}
            }
        }
        self.undecided |= folded != Folded::default();
        if !self.saving && self.snapshot_every.is_some() && self.core.folded >= self.snapshot_due {
            self.save();
        }
        Ok(folded)
    }

    /// The lease was gained or lost.
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

    /// Without a lease every copy is active.
    pub fn activate(&mut self) {
        self.core.active = true;
    }

    /// What an earlier life has kept ([`Effect::Keep`]): it says how long the service was away. Nothing
    /// depends on it but what is written while the log is silent.
    pub fn recall(&mut self, mark: Mark) {
        self.core.recall(mark);
    }

    /// The host's clocks show this. Told before each step, where they are known.
    pub fn host_shows(&mut self, host: HostTime) {
        self.core.host.shows(host);
    }

    /// What became of the append in flight. Only the fold says what is on the log.
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

    /// How far the log reached after the question was asked.
    pub fn head(&mut self, head: Sequence) {
        self.core.asking = self.core.asking.saturating_sub(1);
        self.core.await_folded(head);
        if let Some(slow) = &mut self.slow {
            slow.at_head = true;
        }
    }

    /// A slow decision is made. `quick`: it took so little that the question how far the log
    /// reaches would cost more than it saves.
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

    /// The time of the last [`Effect::WakeAt`] has come.
    pub fn woken(&mut self) {
        self.wake = None;
        self.undecided = true;
    }

    /// An [`Effect::Pause`] is over.
    pub fn resumed(&mut self) {
        self.pauses = self.pauses.saturating_sub(1);
    }

    /// There may be something new to observe.
    pub fn observed(&mut self) {
        self.unobserved = true;
    }

    /// The snapshot is written, or could not be.
    pub fn saved(&mut self) {
        self.saving = false;
    }

    /// Finish what is in flight, write a snapshot, end.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Takes the next step, if there is one. `clock` is a clock that does not step while the machine
    /// runs; which time it shows does not matter. `observe` names what was observed and is not in the
    /// state yet.
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
            // Level-triggered: as long as there is something, there may be more.
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

    /// A slow decision is at the head: it still holds, or is made again. It does not hold where
    /// another copy has appended since: it was made without knowing of that decision.
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

    /// Its wake-up, its events.
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
                seed: 0,
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

    /// The wake-up, by the clock: the log's time may have moved otherwise than the clock.
    fn wake_again(&mut self) {
        let at = self.wake.map(|at| self.core.clock_at(at));
        self.effects.push(Effect::WakeAt(at));
    }

    /// Holds appending back for a while.
    fn pause(&mut self, pause: Duration) {
        self.pauses += 1;
        self.undecided = true;
        self.effects.push(Effect::Pause(pause));
    }

    /// Asks how far the log reaches; nothing is appended until that much is folded.
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

/// After more than [`DISCARDS`] discards in a row, half the time for each further one: a cluster in
/// which something always ends while the solver runs is to be decided on as well.
#[must_use]
pub fn hurried(budget: Budget, discarded: u32) -> Budget {
    let halvings = discarded.saturating_sub(DISCARDS - 1).min(16);
    let seconds = budget
        .seconds
        .map(|seconds| seconds / f64::from(1u32 << halvings));
    Budget { seconds, ..budget }
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
