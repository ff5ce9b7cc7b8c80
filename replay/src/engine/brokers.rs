//! Models three brokers with a replicated log: a leader that proposes, and the messages that all apply.
//!
//! ```text
//!  append ──► leader: the id, then the fence, by what is applied and what is in flight
//!               │ proposed                      or an answer: stored, 10071, 10158, 10164, 10201, 10008
//!               ▼
//!            in flight ── in order, a moment later, or after a stall ──► applied: on the log, answered
//!               │ the leader is lost
//!               ▼
//!            a part of it is in the next leader's log; the rest is gone; nobody is answered
//! ```
//!
//! 1. The leader checks and answers an append as nats-server 2.15 does. Proposals apply in order, at times
//!    after the client's timeout.
//! 2. A new leader applies its own log before it answers (`aflr` in nats-server's `raft.go`). Its clock
//!    differs, and it may have forgotten the ids. The former leader may still answer for a while.
//! 3. Messages of a disconnected host are lost or late. External writes wait in order and are never lost.
//! 4. The judge: nothing is stored twice, and each message that its writer takes for stored is on the log.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{Event, NodeId, Sequence, Timestamp, Writer};
use dormouse_shell::append_resolver::AppendResult;
use dormouse_shell::broker_errors;

use super::faults::Plant;
use super::schedule::Schedule;
use crate::random::Random;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A client's timeout for an answer, as in the shipped client.
pub(super) const ANSWER_US: u64 = 5 * SECOND;

const AGAIN_US: u64 = 200 * MILLI;

/// A batch that spans a change of leaders is refused.
const BATCH_US: u64 = 5 * MILLI;

/// The probability per append that the leader is lost while the append is in flight.
const FALLS: f64 = 0.02;

pub(super) type Filter = (Writer, Option<NodeId>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    Outside,
    /// A service's copy; the answer follows the apply by `answer_us`, or never comes.
    Copy {
        service: usize,
        copy: usize,
        number: u64,
        answer_us: Option<u64>,
    },
    Agent {
        node: NodeId,
        report: u64,
        asked: u64,
    },
}

#[derive(Debug, Clone)]
pub(super) struct Request {
    pub by: By,
    pub filter: Filter,
    pub expected: Option<Sequence>,
    pub events: Vec<(Option<String>, Event)>,
    pub written: Timestamp,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Heard {
    Silence,
    AppendResult(AppendResult),
    Waited,
}

/// An answer to an agent's question.
pub(super) type Call = (NodeId, u64, Heard);

#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub request: Request,
    /// The leader's clock at the proposal.
    pub stamp: Timestamp,
    applies: Timestamp,
    pub orphaned: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Proposed,
    Stored(Sequence),
    Error(u64, u64),
    Silence,
}

#[derive(Debug, Clone)]
struct Stored {
    id: Option<String>,
    /// Written by a supervisor.
    is_word: bool,
}

pub(super) struct Brokers {
    random: Random,
    leads: Timestamp,
    falls: Option<Timestamp>,
    /// The former leader's last applied message, and the time until which it still answers.
    former: (Sequence, Timestamp),
    /// The leader has forgotten the ids of the messages in its log.
    forgets: bool,
    /// The offset of the leader's clock, in microseconds.
    off_us: i64,
    in_flight: VecDeque<Proposal>,
    calls: Schedule<Call>,
    late: Schedule<Request>,
    held: BTreeMap<NodeId, Vec<Request>>,
    outside: VecDeque<Request>,
    again: Option<Timestamp>,
    last: BTreeMap<Filter, Sequence>,
    ids: BTreeMap<String, Sequence>,
    of_nodes: BTreeMap<NodeId, BTreeMap<Sequence, Stored>>,
    reports: BTreeMap<(NodeId, u64), Sequence>,
    broken: Option<String>,
}

impl Brokers {
    pub fn new(random: Random) -> Self {
        Self {
            random,
            leads: Timestamp::default(),
            falls: None,
            former: Default::default(),
            forgets: false,
            off_us: 0,
            in_flight: VecDeque::new(),
            calls: Schedule::new(),
            late: Schedule::new(),
            held: BTreeMap::new(),
            outside: VecDeque::new(),
            again: None,
            last: BTreeMap::new(),
            ids: BTreeMap::new(),
            of_nodes: BTreeMap::new(),
            reports: BTreeMap::new(),
            broken: None,
        }
    }

    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    pub fn due(&self) -> Option<Timestamp> {
        let applies = self.in_flight.front().map(|it| it.applies);
        let again = self.again.filter(|_| !self.outside.is_empty());
        let (calls, late) = (self.calls.next_due(), self.late.next_due());
        let all = [applies, self.falls, again, calls, late];
        all.into_iter().flatten().min()
    }

    pub fn call(&mut self, at: Timestamp, call: Call) {
        self.calls.add(at, call);
    }

    pub fn take_call(&mut self, now: Timestamp) -> Option<Call> {
        self.calls.take(now)
    }

    pub fn arrives_late(&mut self, at: Timestamp, request: Request) {
        self.late.add(at, request);
    }

    pub fn take_late(&mut self, now: Timestamp) -> Option<Request> {
        self.late.take(now)
    }

    pub fn holds(&mut self, node: &NodeId, request: Request) {
        if self.random.chance(0.5) {
            self.held.entry(node.clone()).or_default().push(request);
        }
    }

    pub fn forgets(&mut self, node: &NodeId) {
        self.held.remove(node);
    }

    pub fn joining(&self, node: &NodeId) -> Option<u64> {
        let events = self.in_flight.iter().flat_map(|it| &it.request.events);
        let mut joins = events.filter_map(|(_, event)| match event {
            Event::NodeJoined(it) if it.node == *node => Some(it.incarnation),
            _ => None,
        });
        joins.next_back()
    }

    pub fn lets_go(&mut self, node: &NodeId, now: Timestamp) {
        for request in self.held.remove(node).unwrap_or_default() {
            self.arrives_late(now, request);
        }
    }

    pub const fn leads_from(&self) -> Timestamp {
        self.leads
    }

    pub fn is_led(&self, now: Timestamp) -> bool {
        self.leads <= now
    }

    fn is_in_process(&self, filter: &Filter) -> bool {
        self.led().any(|it| it.request.filter == *filter)
    }

    /// Returns the proposals that the leader made itself, the only ones it knows.
    fn led(&self) -> impl Iterator<Item = &Proposal> {
        self.in_flight.iter().filter(|it| !it.orphaned)
    }

    pub fn takes(&self, filter: &Filter, now: Timestamp) -> bool {
        let mut waiting = self.outside.iter();
        let waits = waiting.any(|it| it.filter == *filter);
        self.is_led(now) && !waits && !self.is_in_process(filter)
    }

    fn last(&self, filter: &Filter) -> Sequence {
        self.last.get(filter).copied().unwrap_or_default()
    }

    /// Returns the last sequence that an answering broker knows.
    pub fn known(&mut self, now: Timestamp) -> Sequence {
        let (applied, until) = self.former;
        if now < until && self.random.chance(0.5) {
            applied
        } else {
            Sequence(u64::MAX)
        }
    }

    /// Returns the last message of a node's agent up to `known`.
    pub fn last_of(&self, node: &NodeId, known: Sequence) -> Sequence {
        let stored = self.of_nodes.get(node);
        let last = stored.and_then(|it| it.range(..=known).next_back());
        last.map_or(Sequence(0), |(sequence, _)| *sequence)
    }

    /// Returns a node's first message between `after` and `known`: sequence, id, and true for a
    /// supervisor's report.
    pub fn first_after(
        &self,
        node: &NodeId,
        after: Sequence,
        known: Sequence,
    ) -> Option<(Sequence, Option<&str>, bool)> {
        let stored = self.of_nodes.get(node)?;
        let (sequence, it) = stored.range(after.next()..).next()?;
        (*sequence <= known).then_some((*sequence, it.id.as_deref(), it.is_word))
    }

    pub fn write_outside(&mut self, filter: Filter, event: Event, written: Timestamp) {
        self.again = None;
        self.outside.push_back(Request {
            by: By::Outside,
            filter,
            expected: None,
            events: vec![(None, event)],
            written,
        });
    }

    pub fn propose_outside(&mut self, now: Timestamp) {
        if self.outside.is_empty() || self.again.is_some_and(|again| again > now) {
            return;
        }
        for request in std::mem::take(&mut self.outside) {
            if self.takes(&request.filter, now) {
                self.propose(request, now)
            } else {
                self.outside.push_back(request)
            }
        }
        self.again = Some(after_us(now, AGAIN_US));
    }

    pub fn asked(&mut self, request: Request, now: Timestamp, plant: Option<Plant>) -> Answer {
        if !self.is_led(now) {
            return if self.random.chance(0.5) {
                Answer::Error(broker_errors::NOT_AVAILABLE, 503)
            } else {
                Answer::Silence
            };
        }
        match self.refuses(&request, plant) {
            Some(answer) => answer,
            None => {
                self.propose(request, now);
                Answer::Proposed
            }
        }
    }

    fn refuses(&self, request: &Request, plant: Option<Plant>) -> Option<Answer> {
        let is_batch = request.events.len() > 1;
        for id in request.events.iter().filter_map(|(id, _)| id.as_ref()) {
            if let Some(sequence) = self.ids.get(id) {
                return Some(if is_batch {
                    Answer::Error(broker_errors::DUPLICATE_IN_BATCH, 400)
                } else {
                    Answer::Stored(*sequence)
                });
            }
            let mut in_flight = self.led().flat_map(|it| &it.request.events);
            if in_flight.any(|(other, _)| other.as_ref() == Some(id)) {
                return Some(Answer::Error(broker_errors::DUPLICATE_IN_PROCESS, 409));
            }
        }
        let expected = request.expected?;
        if self.is_in_process(&request.filter) {
            return Some(Answer::Error(broker_errors::FENCE_IN_PROCESS, 400));
        }
        let holds = expected == self.last(&request.filter) || plant == Some(Plant::StaleAppends);
        (!holds).then_some(Answer::Error(broker_errors::WRONG_LAST_SEQUENCE, 400))
    }

    fn propose(&mut self, request: Request, now: Timestamp) {
        let delay_us = match self.random.below(100) {
            0..90 => MILLI + self.random.below(4 * MILLI),
            90..97 => self.random.below(SECOND),
            _ => self.random.below(15 * SECOND),
        };
        let behind = self.in_flight.back().map(|it| it.applies);
        let applies = after_us(now, delay_us).max(behind.unwrap_or(now));
        if self.falls.is_none() && self.random.chance(FALLS) {
            self.falls = Some(after_us(now, self.random.below(delay_us + BATCH_US)));
        }
        self.in_flight.push_back(Proposal {
            request,
            stamp: off(now, self.off_us),
            applies,
            orphaned: false,
        });
    }

    pub fn take_due(&mut self, now: Timestamp) -> Option<Proposal> {
        let first = self.in_flight.front()?;
        (first.applies <= now).then(|| self.in_flight.pop_front())?
    }

    /// Loses the leader if the time has come. `off_us` gives the next leader's clock offset.
    pub fn falls(
        &mut self,
        now: Timestamp,
        plant: Option<Plant>,
        off_us: impl FnOnce() -> Option<i64>,
    ) {
        if self.falls.take_if(|at| *at <= now).is_none() {
            return;
        }
        let away_us = match self.random.below(10) {
            0..5 => self.random.below(SECOND),
            5..9 => self.random.below(10 * SECOND),
            _ => self.random.below(60 * SECOND),
        };
        self.leads = after_us(now, away_us);
        let head = self.last.values().max().copied().unwrap_or_default();
        let until = after_us(self.leads, self.random.below(10 * SECOND));
        self.former = (head, until);
        self.forgets = self.random.chance(0.3);
        if self.forgets {
            self.ids.clear();
        }
        let outside = |it: &Proposal| it.request.by == By::Outside;
        let last = self.in_flight.iter().rposition(outside);
        let drawn = self.random.below(self.in_flight.len() as u64 + 1);
        let kept = usize::try_from(drawn).unwrap_or(0);
        self.in_flight
            .truncate(kept.max(last.map_or(0, |it| it + 1)));
        let late_us = match plant {
            Some(Plant::EagerLeaders) => SECOND,
            _ => 0,
        };
        for proposal in &mut self.in_flight {
            proposal.applies = after_us(self.leads, late_us);
            proposal.orphaned = true;
        }
        self.off_us = off_us().unwrap_or(self.off_us);
    }

    pub fn applied(
        &mut self,
        filter: &Filter,
        (id, orphaned): (Option<String>, bool),
        at: Sequence,
        is_word: bool,
    ) {
        self.last.insert(filter.clone(), at);
        if let Some(node) = &filter.1 {
            let of_node = self.of_nodes.entry(node.clone()).or_default();
            let id = id.clone();
            of_node.insert(at, Stored { id, is_word });
        }
        if !(orphaned && self.forgets) {
            self.ids.extend(id.map(|id| (id, at)));
        }
    }

    pub fn reported(&mut self, node: &NodeId, report: u64, at: Sequence) {
        let before = self.reports.insert((node.clone(), report), at);
        if let Some(before) = before {
            self.breaks(format!(
                "a report of {node} is stored at {before} and at {at}"
            ));
        }
    }

    pub fn settled(&mut self, node: &NodeId, report: u64, event: &Event) {
        if !self.reports.contains_key(&(node.clone(), report)) {
            let what = event.type_name();
            self.breaks(format!("{what} of {node} is left out: nobody stored it"));
        }
    }
}

pub(super) fn after_us(now: Timestamp, micros: u64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add_unsigned(micros))
}

pub(super) fn off(now: Timestamp, off_us: i64) -> Timestamp {
    Timestamp::from_micros(now.as_micros().saturating_add(off_us))
}
