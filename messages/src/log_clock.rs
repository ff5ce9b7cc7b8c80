//! The time of the log: the brokers' stamps, without the steps of their clocks.
//!
//! A broker stamps each event with its own clock. Another broker that leads, or somebody who sets a
//! clock, makes the stamps step, by a day as easily as by a second. Time-outs run from one event to
//! another, so every fold that decides takes the time of an event from here:
//!
//! 1. A stamp a little later than the one before is believed: that is how time passes.
//! 2. A much later one is a silence or a step. It is a silence where the writer says so. Deciders
//!    write the log's own time, by a clock that never steps. What the others write is their hosts'
//!    clocks: where such a clock and the broker's have advanced alike since the last time, the time has
//!    passed.
//! 3. All else is a step: the log's time stands still over it, and what follows is moved by as much. In
//!    doubt a silence is taken for a step: a time-out is then late. None is early by more than
//!    [`TRUSTED_US`].

use serde::{Deserialize, Serialize};

use crate::{Recorded, Sequence, Timestamp, Writer};

/// A stamp may be so much later than the one before without another witness, and clocks that agree may
/// differ by as much: more than hosts differ whose clocks are kept, less than the shortest time-out.
const TRUSTED_US: i64 = 5_000_000;

/// A smaller step is not worth a name: an append that waited for its broker looks the same.
const NAMED_US: i64 = 60_000_000;

/// A step of the brokers' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The first event that has the other clock's time.
    pub sequence: Sequence,
    /// By how many microseconds; below 0: back.
    pub by_us: i64,
}

/// The time of the log, as far as it is folded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogClock {
    now: Timestamp,
    /// What is added to a stamp, once there was one.
    offset_us: Option<i64>,
    /// By how much the stamp of the last event from outside the deciders was later than its own time.
    skew_us: Option<i64>,
    step: Option<Step>,
}

impl LogClock {
    /// The time of the next event.
    pub fn pass(&mut self, recorded: &Recorded) -> Timestamp {
        let stamp_us = recorded.stored_at.as_micros();
        let offset_us = *self.offset_us.get_or_insert(0);
        let written_us = recorded.envelope.time.as_micros();
        let at_us = stamp_us.saturating_add(offset_us);
        let ahead_us = match self.now == Timestamp::default() {
            true => 0,
            false => at_us.saturating_sub(self.now.as_micros()),
        };
        let agrees = self.agree(recorded.writer, stamp_us, at_us, written_us);
        if (0..=TRUSTED_US).contains(&ahead_us) || (ahead_us > 0 && agrees) {
            self.now = Timestamp::from_micros(at_us);
        } else if ahead_us.abs() > TRUSTED_US {
            self.offset_us = Some(self.now.as_micros().saturating_sub(stamp_us));
            if ahead_us.abs() > NAMED_US {
                self.step = Some(Step {
                    sequence: recorded.sequence,
                    by_us: ahead_us,
                });
            }
        }
        self.now
    }

    /// Whether the writer confirms that so much time has passed.
    fn agree(&mut self, writer: Writer, stamp_us: i64, at_us: i64, written_us: i64) -> bool {
        let is_near = |a: i64, b: i64| a.saturating_sub(b).saturating_abs() <= TRUSTED_US;
        match writer {
            Writer::Node | Writer::Gateway | Writer::Operator => {
                let skew_us = stamp_us.saturating_sub(written_us);
                let before_us = self.skew_us.replace(skew_us);
                is_near(skew_us, before_us.unwrap_or(0))
            }
            Writer::Admission
            | Writer::Optimizer
            | Writer::Placer
            | Writer::Checkpointer
            | Writer::Autoscaler => is_near(at_us, written_us),
        }
    }

    /// The time of the last event.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// The last step.
    #[must_use]
    pub const fn step(&self) -> Option<Step> {
        self.step
    }

    /// The same time, where what follows is stamped with the time of the log itself: on a fork.
    #[must_use]
    pub const fn forked(self) -> Self {
        Self {
            offset_us: Some(0),
            skew_us: None,
            ..self
        }
    }

    /// By how many microseconds a time of the log differs from the stamps of now.
    #[must_use]
    pub fn offset_us(&self) -> i64 {
        self.offset_us.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{NodeDrained, NodeRecovered};
    use crate::{Envelope, Event};

    const DAY_S: i64 = 86_400;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000 + seconds * 1_000_000)
    }

    /// An event of an operator or of a decider, stamped and written at these seconds.
    fn event(sequence: u64, writer: Writer, stamp_s: i64, written_s: i64) -> Recorded {
        let node = "n0".parse().expect("a name");
        let event = match writer {
            Writer::Operator => Event::from(NodeDrained {
                node,
                reason: None,
                deadline_s: None,
            }),
            _ => Event::from(NodeRecovered {
                node,
                last_seen: at(0),
                basis: None,
            }),
        };
        Recorded {
            sequence: Sequence(sequence),
            stored_at: at(stamp_s),
            writer,
            envelope: Envelope::new("id", writer, at(written_s), None, event),
        }
    }

    /// The times of the log of these events, as (is a decider's, stamp, written).
    fn times(events: &[(bool, i64, i64)]) -> (Vec<i64>, LogClock) {
        let mut clock = LogClock::default();
        let numbered = (1..).zip(events);
        let times = numbered.map(|(sequence, (decider, stamp_s, written_s))| {
            let writer = match decider {
                true => Writer::Placer,
                false => Writer::Operator,
            };
            let now = clock.pass(&event(sequence, writer, *stamp_s, *written_s));
            (now.as_micros() - at(0).as_micros()) / 1_000_000
        });
        (times.collect(), clock)
    }

    #[test]
    fn without_steps_it_is_the_brokers_time() {
        let night = [
            (false, 0, 0),
            (true, 1, 1),
            (false, 30_000, 30_000),
            (true, 60_000, 60_000),
        ];
        let (times, clock) = times(&night);
        assert_eq!(times, [0, 1, 30_000, 60_000]);
        assert_eq!(clock.step(), None);
    }

    #[test]
    fn a_leader_whose_clock_is_a_day_ahead_lets_no_time_pass() {
        let ahead = DAY_S + 2;
        let (times, clock) = times(&[
            (false, 0, 0),
            (true, 1, 1),
            (true, ahead, 1),
            (false, ahead + 3, 5),
            (true, ahead + 60, 59),
            (false, 100, 100),
            (true, 101, 60),
        ]);
        assert_eq!(times, [0, 1, 1, 4, 61, 61, 62]);
        let step = clock.step().expect("a step");
        assert_eq!(
            (step.sequence, step.by_us),
            (Sequence(6), 100_000_000 - (ahead + 60) * 1_000_000)
        );
    }

    #[test]
    fn a_clock_that_is_set_right_is_a_step_too() {
        // The broker's clock was a day behind from the first event on.
        let (times, clock) = times(&[
            (false, -DAY_S, 0),
            (true, 1 - DAY_S, 1 - DAY_S),
            (false, 2, 2),
            (true, 4, 2 - DAY_S),
        ]);
        let since: Vec<i64> = times.iter().map(|it| it + DAY_S).collect();
        assert_eq!(since, [0, 1, 1, 3]);
        assert_eq!(clock.step().expect("a step").sequence, Sequence(3));
    }

    #[test]
    fn a_host_whose_clock_is_wrong_changes_nothing_but_makes_silences_short() {
        let (times, _) = times(&[
            (false, 0, 0),
            (false, 3, DAY_S),
            (false, 600, DAY_S + 597),
            (false, 900, 900),
            (true, 1_000, 700),
        ]);
        assert_eq!(times, [0, 3, 600, 600, 700]);
    }
}
