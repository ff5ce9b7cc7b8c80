//! Three brokers that keep the log together: a leader that proposes, and what all of them apply.
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
//! 1. The leader checks an append as nats-server 2.15 does, and answers with its codes. What it has
//!    proposed is applied in order: mostly within milliseconds, now and then later than anyone waits for.
//! 2. When the leader is lost, nobody leads for a while. The next one has applied what is in its log
//!    before it answers (`aflr` in nats-server's `raft.go`), and knows of nothing else in flight. Its clock
//!    is another, and it may have forgotten the ids. The one before it may answer questions for a while
//!    yet, by what it had applied.
//! 3. What is sent by who is cut off is lost, or arrives later: given up, or sent again meanwhile.
//! 4. The judge: nothing is stored twice, and what a writer takes for stored is on the log.
//!
//! What is written from outside (the operator, submissions, a lease's end) waits until its fence is free,
//! in order, and is never lost.

use std::collections::{BTreeMap, VecDeque};

use dormouse_messages::{Event, NodeId, Sequence, Timestamp, Writer};
use dormouse_shell::answers;

use super::faults::Plant;
use super::proposals::Heard;
use super::schedule::Schedule;
use crate::random::Random;

const MILLI: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// So long a client waits for an answer, as the shipped one does.
pub(super) const ANSWER_US: u64 = 5 * SECOND;

/// Between two attempts of what is written from outside.
const AGAIN_US: u64 = 200 * MILLI;

/// A batch that is begun under one leader and ended under another is refused.
const BATCH_US: u64 = 5 * MILLI;

/// How likely the leader is lost while an append is in flight.
const FALLS: f64 = 0.02;

/// Whose subjects a fence covers.
pub(super) type Filter = (Writer, Option<NodeId>);

/// Whose append it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum By {
    Outside,
    /// A service's copy; its answer comes so much later than the apply, or never.
    Copy {
        service: usize,
        copy: usize,
        number: u64,
        answer_us: Option<u64>,
    },
    /// An agent's report.
    Agent {
        node: NodeId,
        report: u64,
        asked: u64,
    },
}

/// An append as it is sent.
#[derive(Debug, Clone)]
pub(super) struct Request {
    pub by: By,
    pub filter: Filter,
    /// The fence.
    pub expected: Option<Sequence>,
    /// The events, with their ids.
    pub events: Vec<(Option<String>, Event)>,
    pub written: Timestamp,
}

/// What an agent hears of a question of its.
pub(super) type Call = (NodeId, u64, Heard);

/// What is in flight.
#[derive(Debug, Clone)]
pub(super) struct Proposal {
    pub request: Request,
    /// The leader's clock when it was proposed.
    pub stamp: Timestamp,
    applies: Timestamp,
    /// Its leader is lost: nobody is answered.
    pub orphaned: bool,
}

/// What the leader says at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is in flight.
    Proposed,
    /// It is stored already.
    Stored(Sequence),
    /// An error's code and status.
    Error(u64, u64),
    /// Nothing.
    Silence,
}

/// A message on the log, as a writer finds it again.
#[derive(Debug, Clone)]
struct Stored {
    id: Option<String>,
    /// A keeper's word.
    is_word: bool,
}

/// The brokers.
pub(super) struct Brokers {
    random: Random,
    /// Nobody leads before.
    leads: Timestamp,
    /// When the leader is lost.
    falls: Option<Timestamp>,
    /// The last message that the leader before has applied, and until when it takes itself for one.
    former: (Sequence, Timestamp),
    /// This one has forgotten the ids of what it found in its log.
    forgets: bool,
    /// By how many microseconds the leader's clock is off.
    off_us: i64,
    in_flight: VecDeque<Proposal>,
    /// What agents hear, and when.
    calls: Schedule<Call>,
    /// What is on its way, and when it arrives.
    late: Schedule<Request>,
    /// What agents have sent that are cut off.
    held: BTreeMap<NodeId, Vec<Request>>,
    /// What is written from outside and not proposed yet.
    outside: VecDeque<Request>,
    again: Option<Timestamp>,
    last: BTreeMap<Filter, Sequence>,
    ids: BTreeMap<String, Sequence>,
    /// The messages of each node's agent.
    of_nodes: BTreeMap<NodeId, BTreeMap<Sequence, Stored>>,
    /// The reports that are stored.
    reports: BTreeMap<(NodeId, u64), Sequence>,
    /// The first that may not be.
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

    /// What is broken, if anything.
    pub fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    pub fn breaks(&mut self, what: String) {
        self.broken.get_or_insert(what);
    }

    /// When something is due.
    pub fn due(&self) -> Option<Timestamp> {
        let applies = self.in_flight.front().map(|it| it.applies);
        let again = self.again.filter(|_| !self.outside.is_empty());
        let (calls, late) = (self.calls.next_due(), self.late.next_due());
        let all = [applies, self.falls, again, calls, late];
        all.into_iter().flatten().min()
    }

    /// An agent is to hear something then.
    pub fn call(&mut self, at: Timestamp, call: Call) {
        self.calls.add(at, call);
    }

    /// The next that an agent hears by now.
    pub fn take_call(&mut self, now: Timestamp) -> Option<Call> {
        self.calls.take(now)
    }

    /// A request arrives then.
    pub fn arrives_late(&mut self, at: Timestamp, request: Request) {
        self.late.add(at, request);
    }

    /// The next that arrives late, by now.
    pub fn take_late(&mut self, now: Timestamp) -> Option<Request> {
        self.late.take(now)
    }

    /// What an agent has sent that is cut off is lost, or lies in its host's buffers.
    pub fn holds(&mut self, node: &NodeId, request: Request) {
        if self.random.chance(0.5) {
            self.held.entry(node.clone()).or_default().push(request);
        }
    }

    /// A host has lost power, with its buffers.
    pub fn forgets(&mut self, node: &NodeId) {
        self.held.remove(node);
    }

    /// The life that an agent is about to have joined in.
    pub fn joining(&self, node: &NodeId) -> Option<u64> {
        let events = self.in_flight.iter().flat_map(|it| &it.request.events);
        let mut lives = events.filter_map(|(_, event)| match event {
            Event::NodeJoined(it) if it.node == *node => Some(it.incarnation),
            _ => None,
        });
        lives.next_back()
    }

    /// An agent is cut off no more.
    pub fn lets_go(&mut self, node: &NodeId, now: Timestamp) {
        for request in self.held.remove(node).unwrap_or_default() {
            self.arrives_late(now, request);
        }
    }

    /// From when on questions are answered.
    pub const fn leads_from(&self) -> Timestamp {
        self.leads
    }

    /// Whether the leader answers.
    pub fn is_led(&self, now: Timestamp) -> bool {
        self.leads <= now
    }

    /// Whether an append under this fence is in flight.
    fn is_in_process(&self, filter: &Filter) -> bool {
        self.led().any(|it| it.request.filter == *filter)
    }

    /// What the leader knows to be in flight: it has proposed that itself.
    fn led(&self) -> impl Iterator<Item = &Proposal> {
        self.in_flight.iter().filter(|it| !it.orphaned)
    }

    /// Whether what is written from outside is proposed at once.
    pub fn takes(&self, filter: &Filter, now: Timestamp) -> bool {
        let mut waiting = self.outside.iter();
        let waits = waiting.any(|it| it.filter == *filter);
        self.is_led(now) && !waits && !self.is_in_process(filter)
    }

    /// The last message under a fence.
    fn last(&self, filter: &Filter) -> Sequence {
        self.last.get(filter).copied().unwrap_or_default()
    }

    /// Who answers a question knows the log up to there.
    pub fn known(&mut self, now: Timestamp) -> Sequence {
        let (applied, until) = self.former;
        match now < until && self.random.chance(0.5) {
            true => applied,
            false => Sequence(u64::MAX),
        }
    }

    /// The last message of a node's agent, by one who knows so much.
    pub fn last_of(&self, node: &NodeId, known: Sequence) -> Sequence {
        let stored = self.of_nodes.get(node);
        let last = stored.and_then(|it| it.range(..=known).next_back());
        last.map_or(Sequence(0), |(sequence, _)| *sequence)
    }

    /// The first message of a node's agent after this one, by one who knows so much: where, its id,
    /// whether it is a keeper's word.
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

    /// Something is to be written from outside.
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

    /// Proposes what waits outside and can be.
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

    /// An append reaches the leader, if there is one.
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

    /// What the leader checks before it proposes.
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

    /// The next that is applied by now.
    pub fn take_due(&mut self, now: Timestamp) -> Option<Proposal> {
        let first = self.in_flight.front()?;
        (first.applies <= now).then(|| self.in_flight.pop_front())?
    }

    /// The leader is lost, if it is time. `off_us`: by how much the next one's clock is off.
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
            // A restart.
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

    /// A message is on the log.
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

    /// An agent's report is on the log: once.
    pub fn reported(&mut self, node: &NodeId, report: u64, at: Sequence) {
        let before = self.reports.insert((node.clone(), report), at);
        if let Some(before) = before {
            self.breaks(format!(
                "a report of {node} is stored at {before} and at {at}"
            ));
        }
    }

    /// An agent takes a report for stored.
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
