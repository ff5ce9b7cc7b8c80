//! The time of the log: the brokers' stamps without the steps of their clocks, which follow from a change of
//! leader or of a clock. Every fold that decides takes its times from here.
//!
//! 1. A stamp a little after the previous one is believed.
//! 2. A much later stamp is a silence if its writer confirms it, otherwise a step. Deciders write the log's
//!    time by clocks that never step, and bridge their own stops by their host's
//!    (`services/shell/src/host.rs`). Other writers use their host's clock, which must have advanced since
//!    their last word as far as the log's time or the stamps. Two hosts may differ by exactly a broker's
//!    step, so hosts are compared only before a host's first word, and by the log's time: the stamps of a
//!    clock set back and right again would agree.
//! 3. At a step the log's time stands still, and later stamps are shifted. In doubt a silence counts as a
//!    step: time-outs are late, never early by more than [`TRUSTED_US`]. Lost time is never made up for, or
//!    later events would seem older than they are.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Event, Fact, KeptFact, Recorded, Sequence, Text, Timestamp, Writer};

const TRUSTED_US: i64 = LogClock::TRUSTED_US;

/// A smaller step resembles an append that waited for its broker.
const NAMED_US: i64 = 60_000_000;

/// A step of the brokers' clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub sequence: Sequence,
    /// Negative for a step back.
    pub by_us: i64,
}

/// A host's last event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Word {
    written_us: i64,
    stamp_us: i64,
    log_us: i64,
    /// [`LogClock::back_us`] then.
    back_us: i64,
    /// Time by which the stamp was late.
    lag_us: i64,
}

/// The log's time, folded from its events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogClock {
    now: Timestamp,
    stamp_us: i64,
    /// From stamps to the log's time.
    offset_us: Option<i64>,
    /// By source: nodes, gateways and operators.
    words: BTreeMap<Text, Word>,
    /// Log's time minus writer's clock, at the last such event.
    skew_us: Option<i64>,
    /// Sum of all steps back. A step back is never a silence.
    back_us: i64,
    heard_again: Timestamp,
    step: Option<Step>,
}

impl LogClock {
    /// In microseconds: limit on an unconfirmed advance, and on the difference of agreeing clocks. Less than
    /// the shortest time-out, more than synchronised hosts differ.
    pub const TRUSTED_US: i64 = 5_000_000;

    /// Passes the next event and returns its fact.
    pub fn read<'a>(&mut self, recorded: &'a Recorded) -> Fact<'a> {
        Fact::new(recorded, self.pass(recorded))
    }

    /// Passes the next event and returns its fact, owned.
    pub fn keep(&mut self, recorded: &Arc<Recorded>) -> KeptFact {
        KeptFact::new(Arc::clone(recorded), self.pass(recorded))
    }

    /// Returns the next event's fact without passing it.
    #[must_use]
    pub fn peek<'a>(&self, recorded: &'a Recorded) -> Fact<'a> {
        Fact::new(recorded, self.at(recorded))
    }

    /// Passes the next event and returns its time.
    pub fn pass(&mut self, recorded: &Recorded) -> Timestamp {
        let now = self.at(recorded);
        let stamp_us = recorded.stored_at.as_micros();
        let stepped_us = self.moved_us(recorded).saturating_sub(now.as_micros());
        if stepped_us.abs() > TRUSTED_US {
            self.offset_us = Some(now.as_micros().saturating_sub(stamp_us));
            self.back_us = self.back_us.saturating_add(stepped_us.min(0));
            if stepped_us.abs() > NAMED_US {
                self.step = Some(Step {
                    sequence: recorded.sequence,
                    by_us: stepped_us,
                });
            }
        }
        self.offset_us.get_or_insert(0);
        if now.as_micros() > self.now.as_micros().saturating_add(TRUSTED_US) {
            self.heard_again = now;
        }
        (self.now, self.stamp_us) = (now, stamp_us);
        self.hear(recorded);
        self.forget(recorded);
        now
    }

    fn hear(&mut self, recorded: &Recorded) {
        let mut lag_us = 0;
        if let Some(before) = self.words.get(&recorded.envelope.source) {
            let passed_us = recorded.envelope.time.as_micros();
            let passed_us = passed_us.saturating_sub(before.written_us);
            let stamped_us = recorded.stored_at.as_micros();
            let stamped_us = stamped_us.saturating_sub(before.stamp_us);
            // A report that waited for its broker is stamped late; the next one is not a step back.
            let step_us = stamped_us.saturating_sub(passed_us);
            let step_us = step_us.saturating_add(before.lag_us);
            lag_us = step_us.max(0);
            // A silence hid part of a step back: the silence is no time when the clock is right again.
            let back_us = before.back_us.saturating_add(step_us);
            if step_us < -TRUSTED_US && back_us < self.back_us.saturating_sub(TRUSTED_US) {
                self.back_us = back_us;
            }
        }
        let word = Word {
            written_us: recorded.envelope.time.as_micros(),
            stamp_us: recorded.stored_at.as_micros(),
            log_us: self.now.as_micros(),
            back_us: self.back_us,
            lag_us,
        };
        match recorded.writer {
            Writer::Node | Writer::Gateway | Writer::Operator => {
                match self.words.get_mut(&recorded.envelope.source) {
                    Some(known) => *known = word,
                    None => {
                        let source = recorded.envelope.source.clone();
                        self.words.insert(source, word);
                    }
                }
            }
            Writer::Admission
            | Writer::Optimizer
            | Writer::Placer
            | Writer::Checkpointer
            | Writer::Autoscaler
            | Writer::Archiver
            | Writer::Slurm => return,
        }
        self.skew_us = Some(word.log_us.saturating_sub(word.written_us));
    }

    /// Bounds the words by the hosts.
    fn forget(&mut self, recorded: &Recorded) {
        let source = match recorded.event() {
            Some(Event::NodeRemoved(it)) => Writer::Node.source(it.node.as_str()),
            Some(Event::GatewayLeft(it)) => Writer::Gateway.source(it.gateway.as_str()),
            Some(Event::GatewayLost(it)) => Writer::Gateway.source(it.gateway.as_str()),
            _ => return,
        };
        self.words.remove(&Text::from(source));
    }

    /// Returns the next event's time.
    #[must_use]
    pub fn at(&self, recorded: &Recorded) -> Timestamp {
        let stamp_us = self.moved_us(recorded);
        if self.now == Timestamp::default() {
            return Timestamp::from_micros(stamp_us);
        }
        let now_us = self.now.as_micros();
        let is_little = (now_us..=now_us.saturating_add(TRUSTED_US)).contains(&stamp_us);
        let said_us = self.confirmed_us(recorded);
        let passed_us = said_us.or_else(|| is_little.then_some(stamp_us));
        Timestamp::from_micros(passed_us.map_or(now_us, |passed_us| passed_us.max(now_us)))
    }

    fn moved_us(&self, recorded: &Recorded) -> i64 {
        let stamp_us = recorded.stored_at.as_micros();
        stamp_us.saturating_add(self.offset_us())
    }

    /// Returns the time confirmed by the writer's and a broker's clock.
    fn confirmed_us(&self, recorded: &Recorded) -> Option<i64> {
        let at_us = self.moved_us(recorded);
        let written_us = recorded.envelope.time.as_micros();
        let stamp_us = recorded.stored_at.as_micros();
        match recorded.writer {
            Writer::Node | Writer::Gateway | Writer::Operator => {
                let Some(before) = self.words.get(&recorded.envelope.source) else {
                    let skew_us = at_us.saturating_sub(written_us);
                    return is_near(skew_us, self.skew_us.unwrap_or(0)).then_some(at_us);
                };
                let passed_us = written_us.saturating_sub(before.written_us);
                let by_log = before.log_us.saturating_add(passed_us);
                if is_near(at_us, by_log) {
                    return Some(at_us);
                }
                let stamped_us = stamp_us.saturating_sub(before.stamp_us);
                // The brokers' clock is right again: steps back since are no time.
                let back_us = self.back_us.saturating_sub(before.back_us);
                let since_last_us = stamp_us.saturating_sub(self.stamp_us);
                let since_last_us = since_last_us.saturating_add(back_us);
                let by_last = self.now.as_micros().saturating_add(since_last_us);
                is_near(stamped_us, passed_us).then(|| by_last.min(by_log))
            }
            Writer::Admission
            | Writer::Optimizer
            | Writer::Placer
            | Writer::Checkpointer
            | Writer::Autoscaler
            | Writer::Archiver
            | Writer::Slurm => is_near(at_us, written_us).then_some(at_us),
        }
    }

    /// Returns the last event's time.
    #[must_use]
    pub const fn now(&self) -> Timestamp {
        self.now
    }

    /// Returns the log's time when a host's clock shows `wall`. Of the last broker's and the last host's
    /// clock, the one with less passed time counts, unless it lies in the past.
    #[must_use]
    pub fn time_at(&self, wall: Timestamp) -> Timestamp {
        let now_us = self.now.as_micros();
        let by_broker = now_us.saturating_add(wall.as_micros().saturating_sub(self.stamp_us));
        let by_host = self
            .skew_us
            .map(|skew| wall.as_micros().saturating_add(skew));
        let said = [Some(by_broker), by_host].into_iter().flatten();
        let passed = said.filter(|said| said.saturating_add(TRUSTED_US) >= now_us);
        Timestamp::from_micros(passed.min().map_or(now_us, |passed| passed.max(now_us)))
    }

    /// Returns the end of the last silence of more than [`Self::TRUSTED_US`], after which late reports may
    /// come.
    #[must_use]
    pub const fn heard_again(&self) -> Timestamp {
        self.heard_again
    }

    /// Returns the last step.
    #[must_use]
    pub const fn step(&self) -> Option<Step> {
        self.step
    }

    /// Returns the clock of a fork, stamped with the log's time.
    #[must_use]
    pub fn forked(&self) -> Self {
        Self {
            stamp_us: self.now.as_micros(),
            offset_us: Some(0),
            words: BTreeMap::new(),
            skew_us: None,
            back_us: 0,
            heard_again: self.heard_again,
            now: self.now,
            step: self.step,
        }
    }

    /// Returns the shift in microseconds of present stamps.
    #[must_use]
    pub fn offset_us(&self) -> i64 {
        self.offset_us.unwrap_or(0)
    }
}

const fn is_near(a: i64, b: i64) -> bool {
    a.saturating_sub(b).saturating_abs() <= TRUSTED_US
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

    /// Returns the times of events (by a decider, stamp, written).
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

    fn word(node: &str, stamp_s: i64, written_s: i64) -> Recorded {
        let mut recorded = event(1, Writer::Operator, stamp_s, written_s);
        recorded.writer = Writer::Node;
        recorded.envelope.source = format!("/dormouse/node/{node}").into();
        recorded
    }

    #[test]
    fn two_hosts_whose_clocks_differ_by_the_brokers_step_do_not_confirm_it() {
        // A broker 300 s behind leads, then a correct one.
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 300));
        clock.pass(&word("n1", 2, 2));
        assert_eq!(clock.pass(&word("n0", 304, 304)), at(2));
        // Confirmed by the same host.
        assert_eq!(clock.pass(&word("n0", 604, 604)), at(302));
    }

    #[test]
    fn a_host_that_is_gone_is_forgotten() {
        let mut clock = LogClock::default();
        for number in 0..10 {
            let name = format!("n{number}");
            clock.pass(&word(&name, number, number));
            let mut removed = event(1, Writer::Operator, number, number);
            let node = name.parse().expect("a name");
            let removal = Event::from(crate::events::NodeRemoved { node });
            removed.envelope = Envelope::new("id", Writer::Operator, at(number), None, removal);
            clock.pass(&removed);
        }
        assert_eq!(clock.words.len(), 1, "the operator's");
    }

    #[test]
    fn the_time_now_is_that_of_the_last_event_and_what_has_passed_since() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 100, 100));
        assert_eq!(clock.time_at(at(130)), at(130));
        assert_eq!(clock.time_at(at(90)), at(100));
        // Brokers a day ahead, then a day behind lead.
        clock.pass(&word("n0", DAY_S + 101, 101));
        assert_eq!(clock.time_at(at(131)), at(130));
        clock.pass(&word("n0", 102 - DAY_S, 102));
        assert_eq!(clock.time_at(at(132)), at(130));
    }

    #[test]
    fn a_silence_that_a_new_host_with_another_clock_ends_is_lost_and_the_next_one_is_not() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 0));
        // A new host with a wrong clock cannot confirm the silence.
        assert_eq!(clock.pass(&word("n1", 600, DAY_S)), at(0));
        // The lost 600 s stay lost.
        assert_eq!(clock.pass(&word("n0", 603, 603)), at(3));
        assert_eq!(clock.pass(&word("n1", 1_203, DAY_S + 603)), at(603));
    }

    #[test]
    fn a_step_and_back_lets_no_time_pass() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 0));
        clock.pass(&word("n1", 1, 1));
        assert_eq!(clock.pass(&word("n0", DAY_S, 2)), at(1));
        assert_eq!(clock.pass(&word("n0", DAY_S + 300, 302)), at(301));
        assert_eq!(clock.pass(&word("n1", 306, 306)), at(301));
        assert_eq!(clock.pass(&word("n1", 906, 906)), at(901));
    }

    /// The host and the broker agree on the lost silence.
    #[test]
    fn a_step_and_back_after_a_lost_silence_makes_up_for_nothing() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 0));
        assert_eq!(clock.pass(&word("n1", 600, DAY_S)), at(0));
        // A broker a day behind leads, then the first again.
        assert_eq!(clock.pass(&word("n1", 604 - DAY_S, DAY_S + 4)), at(0));
        assert_eq!(clock.pass(&word("n0", 606, 606)), at(6));
        assert_eq!(clock.pass(&word("n0", 906, 906)), at(306));
    }

    /// Seed 631938 of the simulation.
    #[test]
    fn a_silence_on_a_step_back_is_not_made_up_for_when_the_clock_is_right_again() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 0));
        clock.pass(&word("n1", 1, 1));
        // 300 s behind after 190 s of silence, unknown to the decider.
        assert_eq!(clock.pass(&event(3, Writer::Placer, 191 - 300, 1)), at(1));
        assert_eq!(clock.pass(&word("n1", 195 - 300, 195)), at(5));
        assert_eq!(clock.pass(&word("n0", 205, 205)), at(15));
    }

    #[test]
    fn a_report_that_waited_for_its_broker_is_no_step_of_the_clock() {
        let mut clock = LogClock::default();
        clock.pass(&word("n0", 0, 0));
        clock.pass(&word("n1", 1, 1));
        // Written before an outage of a minute and stored after the outage, several times.
        for outage in 1..=5 {
            let back = outage * 100;
            clock.pass(&word("n0", back + 61, back));
            clock.pass(&word("n0", back + 62, back + 62));
        }
        assert_eq!(clock.back_us, 0);
        let silence_ms = 338_000;
        let after = clock.now().plus_ms(silence_ms);
        assert_eq!(clock.pass(&word("n1", 900, 900)), after);
    }

    #[test]
    fn a_host_whose_clock_is_as_far_off_as_the_brokers_steps_does_not_confirm_an_operator() {
        let mut clock = LogClock::default();
        clock.pass(&event(1, Writer::Operator, 0, 0));
        clock.pass(&word("n0", 1, 1 - DAY_S));
        assert_eq!(clock.pass(&event(3, Writer::Operator, DAY_S + 2, 2)), at(1));
        assert_eq!(
            clock.pass(&event(4, Writer::Operator, DAY_S + 602, 602)),
            at(601)
        );
    }

    #[test]
    fn an_operators_word_after_a_step_and_back_is_no_silence() {
        let (times, clock) = times(&[
            (false, 0, 0),
            (true, 1, 1),
            // Only deciders see the step back.
            (true, 10 - 300, 10),
            (true, 11 - 300, 2),
            (false, 20, 20),
            (false, 620, 620),
        ]);
        // By the operator's clock, without another 300 s.
        assert_eq!(times, [0, 1, 1, 2, 20, 620]);
        assert_eq!(clock.step().map(|step| step.sequence), Some(Sequence(5)));
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
