//! How many submissions are recorded at once, so that nobody waits long behind somebody else's: as many
//! as are recorded and decided in a short round. Pure.
//!
//! 1. [`Pace::taken`] notes that as many were taken as may be: a round begins.
//! 2. [`Pace::look`] notes that the lines may be looked at again: what was taken is on the log, and what
//!    was decided with it, too. The round has ended.
//! 3. A round that was too long makes the next one smaller, in the same proportion; a short one lets it
//!    grow. A machine that is busy, or slow, or has replicas far away, finds its own number.
//!
//! Who comes in the middle of a round waits for its end, is recorded in the next one and decided in the
//! one after it: three rounds at the most.

use dormouse_messages::Timestamp;

/// How long a round is to be. Three of them, and the ways of the two messages, are below 50 ms.
const ROUND_US: i64 = 10_000;

/// Never fewer: each append has a cost of its own, and on a machine that is too busy for short rounds
/// smaller ones are no shorter.
const LEAST: usize = 32;

/// Never more: one atomic batch of the broker, with what is decided at the same time.
const MOST: usize = 500;

/// Before anything is known.
const FIRST: usize = 64;

/// How many are taken at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    most: usize,
    /// When as many were taken.
    since: Option<Timestamp>,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            most: FIRST,
            since: None,
        }
    }
}

impl Pace {
    /// How many may be taken at once.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// The lines are looked at: the round that was begun, if one was, has ended.
    pub fn look(&mut self, now: Timestamp) {
        let Some(since) = self.since.take() else {
            return;
        };
        let took = (now.as_micros() - since.as_micros()).max(1);
        let most = match took {
            // A clock that steps, or an append that was in doubt, halves it at the most.
            _ if took > ROUND_US => {
                let per_mille = usize::try_from(ROUND_US * 1_000 / took).unwrap_or(0);
                self.most * per_mille.max(500) / 1_000
            }
            _ if took < ROUND_US / 2 => self.most + self.most / 4,
            _ => self.most,
        };
        self.most = most.clamp(LEAST, MOST);
    }

    /// So many were taken. Fewer than may be say nothing of how many are too many.
    pub fn taken(&mut self, now: Timestamp, count: usize) {
        self.since = (count >= self.most).then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds one after the other, of a machine that needs so long for each submission.
    fn settle(pace: &mut Pace, each_us: i64, rounds: usize) {
        let mut now = Timestamp::default().plus_ms(1_000);
        for _ in 0..rounds {
            pace.taken(now, pace.most());
            let us = each_us * i64::try_from(pace.most()).expect("few");
            now = Timestamp::from_micros(now.as_micros() + us);
            pace.look(now);
        }
    }

    #[test]
    fn a_round_settles_where_it_is_short() {
        // Microseconds for each submission, and how many are decided in 10 ms.
        for (each_us, least, most) in [
            (10, 400, 500),
            (100, 50, 100),
            (200, 40, 50),
            (5_000, 32, 32),
        ] {
            let mut pace = Pace::default();
            settle(&mut pace, each_us, 40);
            assert!(
                (least..=most).contains(&pace.most()),
                "{each_us} µs: {}",
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
