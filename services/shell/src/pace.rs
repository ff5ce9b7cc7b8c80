//! How many submissions are recorded at once, so that nobody waits long behind somebody else's: as many
//! as are recorded and decided in a short round. Pure.
//!
//! 1. [`Pace::taken`] notes that as many were taken as may be: a round begins.
//! 2. [`Pace::look`] notes that the lines may be looked at again: what was taken is on the log, and what
//!    was decided with it, too. The round has ended.
//! 3. A round that was too long makes the next one smaller, in the same proportion; a short one lets it
//!    grow. A machine that is busy, or slow, or has replicas far away, finds its own number.
//! 4. A part of each round does not depend on how many are taken: the broker stages an append on its
//!    disk, and followers are told. Where that alone is long, smaller rounds are hardly shorter, and
//!    fewer submissions are decided. So now and then a round is the smallest one, and one of many may be
//!    up to twice as long, as long as it decides more of them in its time ([`Pace::long_us`]).
//!
//! Who comes in the middle of a round waits for its end, is recorded in the next one and decided in the
//! one after it: three rounds at the most.

use dormouse_messages::Timestamp;

/// How long a round is to be. Three of them, and the ways of the two messages, are below 50 ms.
const ROUND_US: i64 = 10_000;

/// Never fewer: each append has a cost of its own.
const LEAST: usize = 32;

/// Never more: one atomic batch of the broker, with what is decided at the same time.
const MOST: usize = 500;

/// Before anything is known.
const FIRST: usize = 64;

/// One round of so many is the smallest one.
const TRIED_EVERY: u32 = 16;

/// A longer round says that something stood still, not how long rounds are.
const PAUSE_US: i64 = 1_000_000;

/// How many are taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    most: usize,
    /// How long the smallest rounds lately were; 0 before the first one.
    smallest_us: i64,
    /// Full rounds since the last one that was made small.
    rounds: u32,
    /// When a full round began, and of how many.
    since: Option<(Timestamp, usize)>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            most: FIRST,
            smallest_us: 0,
            rounds: 0,
            since: None,
        }
    }
}

impl Pace {
    /// How many may be taken at once, but for the rounds that are made small.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// How many may be taken in the next round.
    #[must_use]
    pub fn next(&self) -> usize {
        match self.rounds + 1 >= TRIED_EVERY {
            true => LEAST,
            false => self.most,
        }
    }

    /// The lines are looked at: the round that was begun, if one was, has ended.
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
            // A clock that steps, or an append that was in doubt, halves it at the most.
            _ if took > long => {
                let per_mille = usize::try_from(long * 1_000 / took).unwrap_or(0);
                self.most * per_mille.max(500) / 1_000
            }
            _ if took < long * 4 / 5 => self.most + self.most / 4,
            _ => self.most,
        };
        self.most = most.clamp(LEAST, MOST);
    }

    /// What is too long for a round of as many as may be taken: with each that a round has more than
    /// the smallest one, half of what it would have to take if time went by their number alone.
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

    /// So many were taken. Fewer than may be say nothing of how many are too many.
    pub fn taken(&mut self, now: Timestamp, count: usize) {
        self.since = (count >= self.next()).then_some((now, count));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds one after the other, of a machine that needs so long for each append and for each
    /// submission.
    fn settle(pace: &mut Pace, append_us: i64, each_us: i64, rounds: usize) {
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
        // Microseconds for each append and submission, and how many are decided in 10 ms, or in twice
        // the time of the smallest round.
        for (append_us, each_us, least, most) in [
            (0, 10, 400, 500),
            (0, 100, 60, 100),
            (0, 200, 32, 64),
            (0, 5_000, 32, 72),
            (3_000, 100, 50, 100),
            (20_000, 50, 300, 464),
            (100_000, 100, 400, 500),
        ] {
            let mut pace = Pace::default();
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
        let mut pace = Pace::default();
        let at = |ms| Timestamp::default().plus_ms(ms);
        pace.taken(at(0), FIRST);
        pace.look(at(5_000));
        assert_eq!(pace.most(), FIRST / 2);
        pace.taken(at(5_000), 1);
        pace.look(at(9_000));
        pace.look(at(9_500));
        assert_eq!(pace.most(), FIRST / 2);
        // A clock that went back.
        pace.taken(at(9_500), FIRST);
        pace.look(at(100));
        assert!(pace.most() > FIRST / 2);
    }
}
