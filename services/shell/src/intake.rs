//! A fair queue of the tenants' submissions between broker and log. Pure.
//!
//! 1. [`Lines::push`] enqueues. Overflow stays with the broker ([`Lines::fetch_again`]).
//! 2. [`Lines::take`] takes from the tenants in turn. Tenants with many undecided submissions wait, even
//!    alone, since decisions follow the log's order. While [`Lines::waits`], every change of the state
//!    triggers another look.
//! 3. [`batch_limiter`](crate::batch_limiter) sets the batch size.
//! 4. One event per window refuses messages beyond the rate, before later messages, since a state knows only
//!    the last sequence. Measurements have a rate of their own.
//!
//! Invariant: the result follows from state and messages, its size also from the clock. Unstored results are
//! taken again.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::Timestamp;
use dormouse_messages::intake::{Arrival, RateLimited, Rates, Stand, end_of, window_of};
use dormouse_messages::subject::MEASURED;

use crate::batch_limiter::BatchLimiter;

/// Bound per tenant: some thirty of the largest submissions.
const LINE_BYTES: usize = 8 << 20;

/// Bound per tenant.
const LINE_MESSAGES: usize = 4_096;

/// Bound over all tenants.
const TOTAL_BYTES: usize = 64 << 20;

/// Bound per append, since the broker holds a batch in memory.
const TAKEN_BYTES: usize = 4 << 20;

/// Bound per tenant and append, while others wait.
const TURN: usize = 16;

/// A tenant waits beyond: one append is decided while the next is recorded.
const UNDECIDED_APPENDS: usize = 2;

/// An item for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Taken {
    Received(Arrival),
    RateLimited(String, RateLimited),
}

/// The tenants' queues.
#[derive(Debug, Default)]
pub struct Lines {
    lines: BTreeMap<String, Line>,
    bytes: usize,
    last: String,
    recorded: BTreeMap<String, u64>,
    pace: BatchLimiter,
}

#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Arrival>,
    bytes: usize,
    reached: u64,
    left: Option<u64>,
}

struct Turn<'a> {
    tenant: &'a str,
    line: &'a Line,
    next: usize,
    stand: Stand,
    rates: Rates,
    budget: usize,
}

impl Lines {
    /// Enqueues a message, if new and not too large.
    pub fn push(&mut self, arrival: Arrival) {
        let line = self.lines.entry(arrival.tenant.clone()).or_default();
        if arrival.sequence <= line.reached || line.left.is_some() {
            return;
        }
        let bytes = arrival.payload.len();
        let is_full = line.bytes + bytes > LINE_BYTES || line.waiting.len() >= LINE_MESSAGES;
        if is_full || self.bytes + bytes > TOTAL_BYTES {
            line.left = Some(arrival.sequence);
            return;
        }
        line.reached = arrival.sequence;
        line.bytes += bytes;
        self.bytes += bytes;
        line.waiting.push_back(arrival);
    }

    /// Returns the sequence to fetch from, once there is space.
    pub fn fetch_again(&mut self) -> Option<u64> {
        let roomy =
            |line: &Line| line.bytes <= LINE_BYTES / 2 && line.waiting.len() <= LINE_MESSAGES / 2;
        let has_room = self.bytes <= TOTAL_BYTES / 2;
        let ready = |line: &&Line| line.left.is_some() && roomy(line) && has_room;
        self.lines.values().find(ready)?;
        let left = self.lines.values_mut().filter_map(|line| line.left.take());
        left.min()
    }

    /// Forgets the messages of a former stream.
    pub fn clear(&mut self) {
        let last = std::mem::take(&mut self.last);
        let pace = std::mem::take(&mut self.pace);
        *self = Self {
            last,
            pace,
            ..Self::default()
        };
    }

    /// Returns newly recorded sequences.
    pub fn recorded(&mut self) -> BTreeMap<String, u64> {
        std::mem::take(&mut self.recorded)
    }

    /// Reports whether any message waits.
    #[must_use]
    pub fn waits(&self) -> bool {
        self.lines.values().any(|line| !line.waiting.is_empty())
    }

    /// Returns the numbers of waiting submissions and per append.
    #[must_use]
    pub fn figures(&self) -> (usize, usize) {
        let waiting = self.lines.values().map(|line| line.waiting.len());
        (waiting.sum(), self.pace.most())
    }

    /// Returns the next items, and a wake-up time. `stand` returns a tenant's state and rates.
    pub fn take(
        &mut self,
        now: Timestamp,
        stand: impl Fn(&str) -> (Stand, Rates),
    ) -> (Vec<Taken>, Option<Timestamp>) {
        let stands: BTreeMap<String, (Stand, Rates)> = self
            .lines
            .iter()
            .filter(|(_, line)| !line.waiting.is_empty())
            .map(|(tenant, _)| (tenant.clone(), stand(tenant)))
            .collect();
        for (tenant, (stand, _)) in &stands {
            self.forget_known(tenant, stand);
        }
        let waiting = self
            .lines
            .iter()
            .filter(|(_, line)| !line.waiting.is_empty());
        let alone = waiting.clone().count() == 1;
        self.pace.look(now);
        let undecided = UNDECIDED_APPENDS * self.pace.most();
        let mut turns: Vec<Turn<'_>> = waiting
            .filter_map(|(tenant, line)| {
                let (stand, rates) = stands.get(tenant).copied()?;
                let left = undecided.saturating_sub(stand.undecided as usize);
                let budget = if alone { left } else { left.min(TURN) };
                Some(Turn {
                    tenant,
                    line,
                    next: 0,
                    stand,
                    rates,
                    budget,
                })
            })
            .collect();
        let after = turns.partition_point(|turn| turn.tenant <= self.last.as_str());
        turns.rotate_left(after);
        // Every tenant gets a turn, however slow the appends.
        let most = self.pace.next().max(turns.len());
        let (taken, wake, last) = in_turns(&mut turns, now, most);
        if let Some(last) = last {
            self.last = last;
        }
        self.pace.taken(now, taken.len());
        (taken, wake)
    }

    fn forget_known(&mut self, tenant: &str, stand: &Stand) {
        let Some(line) = self.lines.get_mut(tenant) else {
            return;
        };
        while let Some(first) = line.waiting.front()
            && stand.knows(first.sequence, first.at)
        {
            let (sequence, bytes) = (first.sequence, first.payload.len());
            line.bytes -= bytes;
            self.bytes -= bytes;
            line.waiting.pop_front();
            self.recorded.insert(tenant.to_owned(), sequence);
        }
    }
}

/// Takes one message per tenant and round.
fn in_turns(
    turns: &mut [Turn<'_>],
    now: Timestamp,
    most: usize,
) -> (Vec<Taken>, Option<Timestamp>, Option<String>) {
    let (mut taken, mut bytes, mut wake, mut last) = (Vec::new(), 0, None, None);
    loop {
        let before = taken.len();
        for turn in turns.iter_mut() {
            if taken.len() >= most || bytes >= TAKEN_BYTES {
                return (taken, wake, last);
            }
            match turn.step(now) {
                Step::Taken(it) => {
                    if let Taken::Received(arrival) = &it {
                        bytes += arrival.payload.len();
                    }
                    last = Some(turn.tenant.to_owned());
                    taken.push(it);
                }
                Step::Waits(until) => {
                    wake = Some(wake.map_or(until, |wake: Timestamp| wake.min(until)));
                }
                Step::Nothing => {}
            }
        }
        if taken.len() == before {
            return (taken, wake, last);
        }
    }
}

enum Step {
    Taken(Taken),
    Waits(Timestamp),
    Nothing,
}

impl Turn<'_> {
    fn step(&mut self, now: Timestamp) -> Step {
        let Some(arrival) = self.line.waiting.get(self.next).filter(|_| self.budget > 0) else {
            return Step::Nothing;
        };
        match self.beyond(arrival) {
            Some(max_rate) => self.rate_limited(arrival, max_rate, now),
            None => {
                self.stand
                    .record(&arrival.verb, arrival.sequence, arrival.at);
                self.next += 1;
                self.budget -= 1;
                Step::Taken(Taken::Received(arrival.clone()))
            }
        }
    }

    fn beyond(&self, arrival: &Arrival) -> Option<u32> {
        let verb = arrival.verb.as_str();
        let max_rate = self.rates.of(verb);
        max_rate.filter(|most| self.stand.is_too_fast(verb, arrival.at, *most))
    }

    fn rate_limited(&mut self, first: &Arrival, max_rate: u32, now: Timestamp) -> Step {
        let window = window_of(first.at);
        let rest = self.line.waiting.iter().skip(self.next);
        // One event refuses both kinds, however they alternate.
        let run = rest.take_while(|it| window_of(it.at) == window && self.beyond(it).is_some());
        let all = (0, first, true);
        let (count, last, measured) = run.fold(all, |(count, _, measured), it| {
            (count + 1, it, measured && it.verb == MEASURED)
        });
        let is_last = self.next + count == self.line.waiting.len();
        let end = end_of(window);
        if is_last && now < end {
            self.budget = 0;
            return Step::Waits(end);
        }
        self.next += count;
        self.budget -= 1;
        let rate_limited = RateLimited {
            first: first.sequence,
            last: last.sequence,
            count: count as u64,
            since: first.at,
            until: last.at,
            max_rate: if measured {
                self.rates.measured
            } else {
                self.rates.submissions.unwrap_or(max_rate)
            },
            measured,
        };
        Step::Taken(Taken::RateLimited(self.tenant.to_owned(), rate_limited))
    }
}

#[cfg(test)]
mod tests;
