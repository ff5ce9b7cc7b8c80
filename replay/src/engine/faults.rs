//! What goes wrong, and when: every disturbance of a simulated cluster is drawn here.
//!
//! A calm cluster ([`Faults::none`]) draws nothing: every service follows the log at once, every
//! decision takes no time, every checkpoint is saved.

use dormouse_messages::Sequence;

use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// What happens to a service that has just decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It appends what it decided, and is told so.
    Lives {
        /// How late the answer comes.
        answer_us: u64,
    },
    /// The broker answers nothing in time: a prefix of its events was stored.
    Doubt {
        /// How many of them are stored.
        stored: usize,
        /// Until it gives the answer up.
        answer_us: u64,
    },
    /// It dies after a prefix of its events was stored.
    Crashes {
        /// How many of them are stored.
        stored: usize,
        /// Until it is started again.
        down_us: u64,
        /// Whether it starts from its snapshot, if there is one, or from the whole log.
        from_snapshot: bool,
    },
}

/// What becomes of a checkpoint that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    /// It is saved in the time that the model says.
    Saves,
    /// The agent reports a failure.
    Fails,
    /// Nothing is ever heard of it.
    Hangs,
}

/// How likely each fault is, each time that it could happen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    /// A service notices late that something was appended.
    pub late: f64,
    /// A service decides on a prefix that ends before the head.
    pub lagging: f64,
    /// A service is woken though nothing has happened.
    pub spurious: f64,
    /// A service dies while it appends.
    pub crash: f64,
    /// An append is not answered in time.
    pub doubt: f64,
    /// An append is answered late.
    pub late_answer: f64,
    /// A second copy of a service takes itself for the active one, in a turn of its own.
    pub second_copy: f64,
    /// A service writes a snapshot.
    pub snapshot: f64,
    /// A solver takes long.
    pub slow: f64,
    /// A gang starts late, now and then later than the checkpointer waits.
    pub slow_start: f64,
    /// A container dies by itself.
    pub container: f64,
    /// A checkpoint fails.
    pub save_fails: f64,
    /// A checkpoint hangs.
    pub save_hangs: f64,
    /// Another broker leads, whose clock is off.
    pub leader: f64,
    /// A host's clock is off.
    pub host_clock: f64,
}

impl Rates {
    /// High enough that a run of some hundred decisions meets each of them.
    pub const TORTURE: Self = Self {
        late: 0.3,
        lagging: 0.3,
        spurious: 0.1,
        crash: 0.05,
        doubt: 0.05,
        late_answer: 0.2,
        second_copy: 0.3,
        snapshot: 0.1,
        slow: 0.3,
        slow_start: 0.1,
        container: 0.1,
        save_fails: 0.15,
        save_hangs: 0.1,
        leader: 0.01,
        host_clock: 0.3,
    };
}

/// A mistake that could have been made, planted to see that the trials find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// The broker takes what a stale copy appends: its fence is left out.
    StaleAppends,
    /// What was stored without an answer is sent once more, and stored once more.
    DoubledRetries,
    /// The brokers' stamps are believed, whatever the writers' clocks say.
    RawStamps,
    /// Nobody ends the containers of an agent that is cut off.
    Unfenced,
    /// A renewal of which nothing was heard counts.
    UnheardRenewals,
    /// What was asked of a node before it was lost is started when it is back.
    VoidStarts,
    /// A keeper says that a dead agent's containers have ended before they have.
    EarlyWord,
    /// A start that its node could not make is told as a failure of the job.
    BlamedStarts,
    /// What an engine was slow to start is taken for what never ran.
    UntrackedStarts,
    /// After a start of its host an agent takes what its disk names for running.
    StaleMarks,
    /// The clock by which containers are ended stands still with their host.
    StandingClocks,
    /// A second agent does not wait for the end of a lease that nobody renews.
    StolenLeases,
    /// That another append is in flight is taken for a refusal: what was to be stored is left out.
    InProcessRefused,
    /// What is sent again has neither its id nor its fence.
    BareRetries,
    /// What arrives long after it was sent is stored, whatever was stored meanwhile.
    UnfencedLatecomers,
    /// A new leader answers before it has applied what is in its log.
    EagerLeaders,
}

impl Plant {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::StaleAppends,
        Self::DoubledRetries,
        Self::RawStamps,
        Self::Unfenced,
        Self::UnheardRenewals,
        Self::VoidStarts,
        Self::EarlyWord,
        Self::BlamedStarts,
        Self::UntrackedStarts,
        Self::StaleMarks,
        Self::StandingClocks,
        Self::StolenLeases,
        Self::InProcessRefused,
        Self::BareRetries,
        Self::UnfencedLatecomers,
        Self::EagerLeaders,
    ];
}

/// Draws the faults of one run.
#[derive(Debug, Clone)]
pub struct Faults {
    rates: Option<Rates>,
    random: Random,
    plant: Option<Plant>,
}

impl Faults {
    /// Nothing goes wrong.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            rates: None,
            random: Random::new(0),
            plant: None,
        }
    }

    /// The faults of a seed.
    #[must_use]
    pub const fn new(seed: u64, rates: Rates) -> Self {
        Self {
            rates: Some(rates),
            random: Random::new(seed),
            plant: None,
        }
    }

    /// The same, with a mistake.
    #[must_use]
    pub const fn with(mut self, plant: Option<Plant>) -> Self {
        self.plant = plant;
        self
    }

    pub(super) const fn plant(&self) -> Option<Plant> {
        self.plant
    }

    /// Any number up to this one.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        self.random.below(most + 1)
    }

    /// Milliseconds after which the log reaches an agent that was cut off; mostly it is there first.
    pub(super) fn behind_ms(&mut self) -> u64 {
        self.up_to(4_000).saturating_sub(2_000)
    }

    fn hits(&mut self, rate: impl Fn(&Rates) -> f64) -> bool {
        let rate = self.rates.as_ref().map_or(0.0, rate);
        self.random.chance(rate)
    }

    /// Microseconds until a service looks at what was appended.
    pub(super) fn notice_us(&mut self) -> u64 {
        match self.hits(|rates| rates.late) {
            // Mostly moments; now and then longer than a lease or a checkpoint.
            true if self.random.chance(0.1) => self.random.below(90 * SECOND),
            true => self.random.below(2 * SECOND),
            false => 0,
        }
    }

    /// How far a service has followed that must have folded `least`.
    pub(super) fn follows(&mut self, least: Sequence, head: Sequence) -> Sequence {
        match self.hits(|rates| rates.lagging) {
            true => {
                let ahead = head.0.saturating_sub(least.0);
                Sequence(least.0 + self.random.below(ahead + 1))
            }
            false => head,
        }
    }

    /// By how many microseconds the stamps of another leader are off, if another one leads from now on.
    pub(super) fn leads(&mut self) -> Option<i64> {
        self.hits(|rates| rates.leader).then(|| self.off_us())
    }

    /// The same where one of several brokers leads from now on, if another clock is another time.
    pub(super) fn leads_next(&mut self) -> Option<i64> {
        self.hits(|rates| 20.0 * rates.leader)
            .then(|| self.off_us())
    }

    /// By how many microseconds a host's clock is off.
    pub(super) fn clock_off_us(&mut self) -> i64 {
        match self.hits(|rates| rates.host_clock) {
            true => self.off_us(),
            false => 0,
        }
    }

    /// A day, minutes or nothing, either way.
    fn off_us(&mut self) -> i64 {
        const S: i64 = 1_000_000;
        let most = *self.random.choose(&[0, 300 * S, 86_400 * S]);
        let off = i64::try_from(self.random.below(2 * most.unsigned_abs() + 1)).unwrap_or(0);
        match self.random.chance(0.5) {
            true => off - most,
            false => *self.random.choose(&[most, -most]),
        }
    }

    /// Whether a service is woken for nothing.
    pub(super) fn wakes(&mut self) -> bool {
        self.hits(|rates| rates.spurious)
    }

    /// Whether a service writes a snapshot now.
    pub(super) fn snapshots(&mut self) -> bool {
        self.hits(|rates| rates.snapshot)
    }

    /// What happens to a service that appends `proposals` events.
    pub(super) fn fate(&mut self, proposals: usize) -> Fate {
        let stored = self.random.below(proposals as u64 + 1);
        let stored = usize::try_from(stored).unwrap_or(proposals);
        if self.hits(|rates| rates.crash) {
            return Fate::Crashes {
                stored,
                down_us: 1 + self.random.below(20 * SECOND),
                from_snapshot: self.random.chance(0.5),
            };
        }
        let answer_us = match self.hits(|rates| rates.late_answer) {
            true => self.random.below(2 * SECOND),
            false => 0,
        };
        match self.hits(|rates| rates.doubt) {
            true => Fate::Doubt { stored, answer_us },
            false => Fate::Lives { answer_us },
        }
    }

    /// Whether what was sent by a host that is cut off arrives when it no longer is.
    pub(super) fn is_sent_late(&mut self) -> bool {
        self.random.chance(0.5)
    }

    /// How many copies of each service there are.
    pub(super) const fn copies(&self) -> usize {
        match self.rates {
            Some(_) => 2,
            None => 1,
        }
    }

    /// Whether the second copy takes itself for the active one now.
    pub(super) fn believes_to_be_active(&mut self) -> bool {
        self.hits(|rates| rates.second_copy)
    }

    /// Microseconds that a solver takes.
    pub(super) fn thinks_us(&mut self) -> u64 {
        match self.hits(|rates| rates.slow) {
            true => 1 + self.random.below(15 * SECOND),
            false => 0,
        }
    }

    /// Seconds by which a gang starts later than its model says.
    pub(super) fn start_delay_s(&mut self) -> f64 {
        match self.hits(|rates| rates.slow_start) {
            true => self.random.between(0.0, 150.0),
            false => 0.0,
        }
    }

    /// After how many seconds of work a container dies, if one does.
    pub(super) fn dies_after_s(&mut self) -> Option<f64> {
        self.hits(|rates| rates.container)
            .then(|| self.random.exponential(60.0))
    }

    /// Whether one task of a batch fails.
    pub(super) fn task_fails(&mut self) -> bool {
        self.hits(|rates| rates.container)
    }

    /// What becomes of a checkpoint.
    pub(super) fn saving(&mut self) -> Saving {
        if self.hits(|rates| rates.save_fails) {
            Saving::Fails
        } else if self.hits(|rates| rates.save_hangs) {
            Saving::Hangs
        } else {
            Saving::Saves
        }
    }
}
