//! Draws every fault of a simulated cluster. A calm cluster ([`Faults::none`]) draws nothing.

use dormouse_messages::Sequence;

use crate::random::Random;

const SECOND: u64 = 1_000_000;

/// The outcome of a service's append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Survives {
        answer_us: u64,
    },
    /// No answer comes in time, and a prefix of the events is stored.
    Doubt {
        stored: usize,
        answer_us: u64,
    },
    Crashes {
        stored: usize,
        down_us: u64,
        /// Start from the snapshot, if there is one.
        from_snapshot: bool,
    },
}

/// The outcome of a checkpoint request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saving {
    Saves,
    Fails,
    Hangs,
}

/// The probability of each fault at each opportunity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rates {
    pub late: f64,
    /// A service decides on a prefix of the log.
    pub lagging: f64,
    pub spurious: f64,
    pub crash: f64,
    pub doubt: f64,
    pub late_answer: f64,
    /// A second copy of a service takes a turn as if active.
    pub second_copy: f64,
    pub snapshot: f64,
    pub slow: f64,
    pub slow_start: f64,
    /// A container fails.
    pub container: f64,
    pub save_fails: f64,
    pub save_hangs: f64,
    pub leader: f64,
    pub host_clock: f64,
}

impl Rates {
    /// High enough that some hundred decisions meet each fault.
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

/// A plausible bug, planted to prove that the trials find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// The broker ignores fences, and so accepts appends of stale copies.
    StaleAppends,
    DoubledRetries,
    /// Folds trust the brokers' stamps instead of the writers' clocks.
    RawStamps,
    Unfenced,
    /// An unanswered renewal counts.
    UnheardRenewals,
    /// A returning node starts containers that were requested before it was lost.
    VoidStarts,
    /// A supervisor reports a dead agent's containers as ended too early.
    EarlyWord,
    /// A start fault of the node is reported as a failure of the job.
    BlamedStarts,
    /// A container that the engine started slowly is taken for one that never ran.
    UntrackedStarts,
    /// After a reboot, an agent takes the containers on its disk for running ones.
    StaleMarks,
    /// The clock that ends containers stops while the host is suspended.
    StandingClocks,
    /// A second agent does not wait for an abandoned lease to end.
    StolenLeases,
    /// A conflict with an append in flight is taken for a refusal, and the event is left out.
    InProcessRefused,
    BareRetries,
    /// A late arrival is stored without its fence.
    UnfencedLatecomers,
    /// A new leader answers before it has applied its log.
    EagerLeaders,
}

impl Plant {
    /// All planted bugs.
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
    /// Returns the faults of a calm cluster: none.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            rates: None,
            random: Random::new(0),
            plant: None,
        }
    }

    /// Seeds the faults.
    #[must_use]
    pub const fn new(seed: u64, rates: Rates) -> Self {
        Self {
            rates: Some(rates),
            random: Random::new(seed),
            plant: None,
        }
    }

    /// Adds a planted bug.
    #[must_use]
    pub const fn with(mut self, plant: Option<Plant>) -> Self {
        self.plant = plant;
        self
    }

    pub(super) const fn plant(&self) -> Option<Plant> {
        self.plant
    }

    /// Draws a number from 0 to `most`.
    pub(super) fn up_to(&mut self, most: u64) -> u64 {
        self.random.below(most + 1)
    }

    /// Draws the delay in ms until the log reaches a reconnected agent; mostly 0.
    pub(super) fn behind_ms(&mut self) -> u64 {
        self.up_to(4_000).saturating_sub(2_000)
    }

    fn hits(&mut self, rate: impl Fn(&Rates) -> f64) -> bool {
        let rate = self.rates.as_ref().map_or(0.0, rate);
        self.random.chance(rate)
    }

    pub(super) fn notice_us(&mut self) -> u64 {
        match self.hits(|rates| rates.late) {
            // Mostly short; at times longer than a lease or a checkpoint.
            true if self.random.chance(0.1) => self.random.below(90 * SECOND),
            true => self.random.below(2 * SECOND),
            false => 0,
        }
    }

    pub(super) fn follows(&mut self, least: Sequence, head: Sequence) -> Sequence {
        if self.hits(|rates| rates.lagging) {
            let ahead = head.0.saturating_sub(least.0);
            Sequence(least.0 + self.random.below(ahead + 1))
        } else {
            head
        }
    }

    pub(super) fn leads(&mut self) -> Option<i64> {
        self.hits(|rates| rates.leader).then(|| self.off_us())
    }

    pub(super) fn leads_next(&mut self) -> Option<i64> {
        self.hits(|rates| 20.0 * rates.leader)
            .then(|| self.off_us())
    }

    pub(super) fn clock_off_us(&mut self) -> i64 {
        if self.hits(|rates| rates.host_clock) {
            self.off_us()
        } else {
            0
        }
    }

    fn off_us(&mut self) -> i64 {
        const S: i64 = 1_000_000;
        let most = *self.random.choose(&[0, 300 * S, 86_400 * S]);
        let off = i64::try_from(self.random.below(2 * most.unsigned_abs() + 1)).unwrap_or(0);
        if self.random.chance(0.5) {
            off - most
        } else {
            *self.random.choose(&[most, -most])
        }
    }

    pub(super) fn wakes(&mut self) -> bool {
        self.hits(|rates| rates.spurious)
    }

    pub(super) fn snapshots(&mut self) -> bool {
        self.hits(|rates| rates.snapshot)
    }

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
        let answer_us = if self.hits(|rates| rates.late_answer) {
            self.random.below(2 * SECOND)
        } else {
            0
        };
        if self.hits(|rates| rates.doubt) {
            Fate::Doubt { stored, answer_us }
        } else {
            Fate::Survives { answer_us }
        }
    }

    pub(super) fn is_sent_late(&mut self) -> bool {
        self.random.chance(0.5)
    }

    pub(super) const fn copies(&self) -> usize {
        match self.rates {
            Some(_) => 2,
            None => 1,
        }
    }

    pub(super) fn believes_to_be_active(&mut self) -> bool {
        self.hits(|rates| rates.second_copy)
    }

    pub(super) fn thinks_us(&mut self) -> u64 {
        if self.hits(|rates| rates.slow) {
            1 + self.random.below(15 * SECOND)
        } else {
            0
        }
    }

    pub(super) fn start_delay_s(&mut self) -> f64 {
        if self.hits(|rates| rates.slow_start) {
            self.random.between(0.0, 150.0)
        } else {
            0.0
        }
    }

    pub(super) fn dies_after_s(&mut self) -> Option<f64> {
        self.hits(|rates| rates.container)
            .then(|| self.random.exponential(60.0))
    }

    pub(super) fn task_fails(&mut self) -> bool {
        self.hits(|rates| rates.container)
    }

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
