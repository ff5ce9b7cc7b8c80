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
//! 1. The leader checks and answers an append as nats-server 2.15 does. Proposals apply in order, mostly
//!    within milliseconds, at times after the client's timeout.
//! 2. A new leader applies its own log before it answers (`aflr` in nats-server's `raft.go`) and knows of
//!    no other message in flight. Its clock differs, and it may have forgotten the ids. The former leader
//!    may still answer questions for a while from its applied state.
//! 3. Messages of a disconnected host are lost or arrive late.
//! 4. The judge: nothing is stored twice, and each message that its writer takes for stored is on the log.
//!
//! External writes (the operator, submissions, a lease's end) wait in order for a free fence and are
//! never lost.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{Event, NodeId, Sequence, Timestamp, Writer};
use dormouse_shell::answers;

use super::faults::Plant;
use super::proposals::Heard;
use super::schedule::Schedule;
use crate::random::Random;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A client's timeout for an answer, as in the shipped client.
pub(super) const ANSWER_US: u64 = 5 * SECOND;

/// The delay between two attempts at an external write.
const AGAIN_US: u64 = 200 * MILLI;

/// A batch that spans a change of leaders is refused.
const BATCH_US: u64 = 5 * MILLI;

/// The probability per append that the leader is lost while the append is in flight.
const FALLS: f64 = 0.02;

/// The subjects that a fence covers.
pub(super) type Filter = (Writer, Option<NodeId>);

/// The author of an append.
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

/// An append in transit.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub by: By,
    pub filter: Filter,
    /// The expected last sequence.
    pub expected: Option<Sequence>,
    /// The events with their ids.
    pub events: Vec<(Option<String>, Event)>,
    pub written: Timestamp,
}

/// An answer to an agent's question.
pub(super) type Call = (NodeId, u64, Heard);

/// A message in flight.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub request: Request,
    /// The leader's clock at the proposal.
    pub stamp: Timestamp,
    applies: Timestamp,
    /// The leader is lost, so nobody is answered.
    pub orphaned: bool,
}

/// The leader's immediate answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Proposed,
    /// The message was already stored.
    Stored(Sequence),
    /// An error's code and status.
    Error(u64, u64),
    Silence,
}

/// A message on the log, as a writer finds it again.
#[derive(Debug, Clone)]
struct Stored {
    id: Option<String>,
    /// Written by a supervisor.
    is_word: bool,
}

/// The brokers of a simulated cluster.
pub(super) struct Brokers {
    random: Random,
    /// The start of the leader's term; nobody leads before.
    leads: Timestamp,
    /// The time at which the leader is lost.
    falls: Option<Timestamp>,
    /// The former leader's last applied message, and the time until which it still answers.
    former: (Sequence, Timestamp),
    /// The leader has forgotten the ids of the messages in its log.
    forgets: bool,
    /// The offset of the leader's clock, in microseconds.
    off_us: i64,
    in_flight: VecDeque<Proposal>,
    /// Answers on the way to agents.
    calls: Schedule<Call>,
    /// Requests on the way to the brokers.
    late: Schedule<Request>,
    /// Requests from disconnected agents.
    held: BTreeMap<NodeId, Vec<Request>>,
    /// External writes that are not proposed yet.
    outside: VecDeque<Request>,
    again: Option<Timestamp>,
    last: BTreeMap<Filter, Sequence>,
    ids: BTreeMap<String, Sequence>,
    /// The messages of each node's agent.
    of_nodes: BTreeMap<NodeId, BTreeMap<Sequence, Stored>>,
    /// The stored reports.
    reports: BTreeMap<(NodeId, u64), Sequence>,
    /// The first violation.
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

    /// Returns the first violation.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// Returns the time of the next due item.
    pub fn due(&self) -> Option<Timestamp> {
        let applies = self.in_flight.front().map(|it| it.applies);
        let again = self.again.filter(|_| !self.outside.is_empty());
        let (calls, late) = (self.calls.next_due(), self.late.next_due());
        let all = [applies, self.falls, again, calls, late];
        all.into_iter().flatten().min()
    }

    /// Schedules an answer to an agent.
    pub fn call(&mut self, at: Timestamp, call: Call) {
        self.calls.add(at, call);
    }

    /// Takes the next answer due by `now`.
    pub fn take_call(&mut self, now: Timestamp) -> Option<Call> {
        self.calls.take(now)
    }

    /// Schedules the late arrival of a request.
    pub fn arrives_late(&mut self, at: Timestamp, request: Request) {
        self.late.add(at, request);
    }

    /// Takes the next late request due by `now`.
    pub fn take_late(&mut self, now: Timestamp) -> Option<Request> {
        self.late.take(now)
    }

    /// Loses a disconnected agent's message, or keeps it in the host's buffers.
    pub fn holds(&mut self, node: &NodeId, request: Request) {
        if self.random.chance(0.5) {
            self.held.entry(node.clone()).or_default().push(request);
        }
    }

    /// Drops the buffers of a host that lost power.
    pub fn forgets(&mut self, node: &NodeId) {
        self.held.remove(node);
    }

    /// Returns the incarnation of a join in flight.
    pub fn joining(&self, node: &NodeId) -> Option<u64> {
        let events = self.in_flight.iter().flat_map(|it| &it.request.events);
        let mut lives = events.filter_map(|(_, event)| match event {
            Event::NodeJoined(it) if it.node == *node => Some(it.incarnation),
            _ => None,
        });
        lives.next_back()
    }

    /// Releases the buffered messages of a reconnected agent.
    pub fn lets_go(&mut self, node: &NodeId, now: Timestamp) {
        for request in self.held.remove(node).unwrap_or_default() {
            self.arrives_late(now, request);
        }
    }

    /// Returns the time from which questions are answered.
    pub const fn leads_from(&self) -> Timestamp {
        self.leads
    }

    /// True if there is a leader.
    pub fn is_led(&self, now: Timestamp) -> bool {
        self.leads <= now
    }

    /// True if an append under this fence is in flight.
    fn is_in_process(&self, filter: &Filter) -> bool {
        self.led().any(|it| it.request.filter == *filter)
    }

    /// Returns the proposals that the leader made itself, the only ones it knows.
    fn led(&self) -> impl Iterator<Item = &Proposal> {
        self.in_flight.iter().filter(|it| !it.orphaned)
    }

    /// True if an external write would be proposed at once.
    pub fn takes(&self, filter: &Filter, now: Timestamp) -> bool {
        let mut waiting = self.outside.iter();
        let waits = waiting.any(|it| it.filter == *filter);
        self.is_led(now) && !waits && !self.is_in_process(filter)
    }

    /// Returns the last message under a fence.
    fn last(&self, filter: &Filter) -> Sequence {
        self.last.get(filter).copied().unwrap_or_default()
    }

    /// Returns the last sequence that an answering broker knows.
    pub fn known(&mut self, now: Timestamp) -> Sequence {
        let (applied, until) = self.former;
        match now < until && self.random.chance(0.5) {
            true => applied,
            false => Sequence(u64::MAX),
        }
    }

    /// Returns the last message of a node's agent up to `known`.
    pub fn last_of(&self, node: &NodeId, known: Sequence) -> Sequence {
        let stored = self.of_nodes.get(node);
        let last = stored.and_then(|it| it.range(..=known).next_back());
        last.map_or(Sequence(0), |(sequence, _)| *sequence)
    }

    /// Returns the first message of a node's agent between `after` and `known`: the sequence, the id,
    /// and whether a supervisor wrote the message.
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

    /// Queues an external write.
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

    /// Proposes the external writes that can be proposed.
    pub fn propose_outside(&mut self, now: Timestamp) {
        if self.outside.is_empty() || self.again.is_some_and(|again| again > now) {
            return;
        }
        for request in std::mem::take(&mut self.outside) {
            match self.takes(&request.filter, now) {
                true => self.propose(request, now),
                false => self.outside.push_back(request),
            }
        }
        self.again = Some(after_us(now, AGAIN_US));
    }

    /// Handles an append that reaches the brokers.
    pub fn asked(&mut self, request: Request, now: Timestamp, plant: Option<Plant>) -> Answer {
        if !self.is_led(now) {
            return match self.random.chance(0.5) {
                true => Answer::Error(answers::NOT_AVAILABLE, 503),
                false => Answer::Silence,
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

    /// Returns the leader's refusal, if any.
    fn refuses(&self, request: &Request, plant: Option<Plant>) -> Option<Answer> {
        let is_batch = request.events.len() > 1;
        for id in request.events.iter().filter_map(|(id, _)| id.as_ref()) {
            if let Some(sequence) = self.ids.get(id) {
                return Some(match is_batch {
                    true => Answer::Error(answers::DUPLICATE_IN_BATCH, 400),
                    false => Answer::Stored(*sequence),
                });
            }
            let mut in_flight = self.led().flat_map(|it| &it.request.events);
            if in_flight.any(|(other, _)| other.as_ref() == Some(id)) {
                return Some(Answer::Error(answers::DUPLICATE_IN_PROCESS, 409));
            }
        }
        let expected = request.expected?;
        if self.is_in_process(&request.filter) {
            return Some(Answer::Error(answers::FENCE_IN_PROCESS, 400));
        }
        let holds = expected == self.last(&request.filter) || plant == Some(Plant::StaleAppends);
        (!holds).then_some(Answer::Error(answers::WRONG_LAST_SEQUENCE, 400))
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

    /// Takes the next proposal to apply by `now`.
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
            // A restart of the broker.
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

    /// Records an applied message.
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

    /// Records that an agent's report is on the log, at most once.
    pub fn reported(&mut self, node: &NodeId, report: u64, at: Sequence) {
        let before = self.reports.insert((node.clone(), report), at);
        if let Some(before) = before {
            self.breaks(format!(
                "a report of {node} is stored at {before} and at {at}"
            ));
        }
    }

    /// Checks that a report is stored if the agent takes it for stored.
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
