//! Adaptive batch size, so that a round of recording and deciding stays short. Pure.
//!
//! 1. [`BatchLimiter::taken`] starts a round; [`BatchLimiter::look`] ends it, once the batch is decided.
//! 2. A long round shrinks the batch in proportion; a short one lets it grow.
//! 3. Where a round's fixed part dominates, smaller batches only cost throughput: one round in
//!    `TRIED_EVERY` is minimal to measure that part, and others may last up to twice as long if they decide
//!    more per time ([`BatchLimiter::long_us`]).
//!
//! A submission waits at most three rounds.

use dormouse_messages::Timestamp;

/// Length of a round; three rounds stay below 50 ms.
const ROUND_US: i64 = 10_000;

/// Minimum, since each append has a fixed cost.
const LEAST: usize = 32;

/// Maximum: one atomic batch of the broker.
const MOST: usize = 500;

const FIRST: usize = 64;

const TRIED_EVERY: u32 = 16;

/// A longer round was an outage, not a measurement.
const PAUSE_US: i64 = 1_000_000;

/// An adaptive batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimiter {
    most: usize,
    /// Average length of minimal rounds; 0 without one.
    smallest_us: i64,
    rounds: u32,
    since: Option<(Timestamp, usize)>,
}

impl Default for BatchLimiter {
    fn default() -> Self {
        Self {
            most: FIRST,
            smallest_us: 0,
            rounds: 0,
            since: None,
        }
    }
}

impl BatchLimiter {
    /// Returns the batch size of ordinary rounds.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// Returns the next round's batch size.
    #[must_use]
    pub fn next(&self) -> usize {
        if self.rounds + 1 >= TRIED_EVERY {
            LEAST
        } else {
            self.most
        }
    }

    /// Ends the current round.
    pub fn look(&mut self, now: Timestamp) {
        let Some((since, count)) = self.since.take() else {
            return;
        };
        let took = (now.as_micros() - since.as_micros()).max(1);
        self.rounds = (self.rounds + 1) % TRIED_EVERY;
        if count <= LEAST {
            self.smallest(took);
        }
        if count < self.most {
            return;
        }
        let long = self.long_us();
        let most = match took {
            // Halves at most, against clock steps and doubtful appends.
            _ if took > long => {
                let per_mille = usize::try_from(long * 1_000 / took).unwrap_or(0);
                self.most * per_mille.max(500) / 1_000
            }
            _ if took < long * 4 / 5 => self.most + self.most / 4,
            _ => self.most,
        };
        self.most = most.clamp(LEAST, MOST);
    }

    /// The limit of a round: for each submission beyond the minimum, half the time that a purely linear cost
    /// would predict.
    fn long_us(&self) -> i64 {
        let count = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
        let (most, least) = (count(self.most), count(LEAST));
        let worth = self.smallest_us * (most + 2 * least) / (2 * least);
        ROUND_US.max(worth.min(2 * self.smallest_us))
    }

    fn smallest(&mut self, took: i64) {
        let took = took.min(PAUSE_US);
        self.smallest_us = match self.smallest_us {
            0 => took,
            before => (3 * before + took) / 4,
        };
    }

    /// Starts a round, if the batch is full.
    pub fn taken(&mut self, now: Timestamp, count: usize) {
        self.since = (count >= self.next()).then_some((now, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settle(pace: &mut BatchLimiter, append_us: i64, each_us: i64, rounds: usize) {
        let mut now = Timestamp::default().plus_ms(1_000);
        for _ in 0..rounds {
            let count = pace.next();
            pace.taken(now, count);
            let us = append_us + each_us * i64::try_from(count).expect("few");
            now = Timestamp::from_micros(now.as_micros() + us);
            pace.look(now);
        }
    }

    #[test]
    fn a_round_settles_where_it_is_short() {
        // Microseconds per append and submission; least and greatest batch.
        for (append_us, each_us, least, most) in [
            (0, 10, 400, 500),
            (0, 100, 60, 100),
            (0, 200, 32, 64),
            (0, 5_000, 32, 72),
            (3_000, 100, 50, 100),
            (20_000, 50, 300, 464),
            (100_000, 100, 400, 500),
        ] {
            let mut pace = BatchLimiter::default();
            settle(&mut pace, append_us, each_us, 100);
            assert!(
                (least..=most).contains(&pace.most()),
                "{append_us} and {each_us} µs: {}",
                pace.most()
            );
        }
    }

    #[test]
    fn a_pause_halves_it_once_and_idle_time_says_nothing() {
        let mut pace = BatchLimiter::default();
        let at = |ms| Timestamp::default().plus_ms(ms);
        pace.taken(at(0), FIRST);
        pace.look(at(5_000));
        assert_eq!(pace.most(), FIRST / 2);
        pace.taken(at(5_000), 1);
        pace.look(at(9_000));
        pace.look(at(9_500));
        assert_eq!(pace.most(), FIRST / 2);
        pace.taken(at(9_500), FIRST);
        pace.look(at(100));
        assert!(pace.most() > FIRST / 2);
    }
}
