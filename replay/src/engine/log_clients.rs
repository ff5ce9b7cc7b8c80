//! Connects services, agents ([`super::outlet`]) and external writers to [several brokers](super::brokers).

use dormouse_messages::events::Key;
use dormouse_messages::{Event, NodeId, Sequence, Timestamp, Writer};
use dormouse_shell::append_resolver::{AppendResult, Step};
use dormouse_shell::broker_errors::{DUPLICATE_IN_PROCESS, FENCE_IN_PROCESS, append_id, failure};
use dormouse_shell::{Failure, Outcome};

use super::brokers::{ANSWER_US, Answer, Brokers, By, Filter, Heard, Proposal, Request, after_us};
use super::faults::Plant;
use super::service::{Asked, Line};
use super::{Engine, EngineError};
use crate::random::Random;

const RETRY_US: u64 = 200_000;

fn filter_of(writer: Writer, event: &Event) -> Filter {
    match event.key() {
        Key::Node(node) if writer == Writer::Node => (writer, Some(node.clone())),
        _ => (writer, None),
    }
}

fn with_ids(writer: Writer, asked: &Asked) -> Vec<(Option<String>, Event)> {
    let id = |(index, event): (usize, &Event)| {
        let data = rmp_serde::to_vec_named(event).ok()?;
        Some(append_id(writer.as_str(), asked.expected.0, index, &data))
    };
    let events = asked.events.iter().enumerate();
    events
        .map(|(index, event)| (id((index, event)), event.clone()))
        .collect()
}

fn outcome(answer: Answer) -> Option<Outcome> {
    let (last, failure) = match answer {
        Answer::Proposed | Answer::Silence => return None,
        Answer::Stored(last) => (Some(last), None),
        Answer::Error(code, status) => {
            let why = format!("error {code}");
            (None, Some(failure(code, status, why)))
        }
    };
    Some(Outcome { last, failure })
}

fn sent(answer: Answer) -> Option<Option<AppendResult>> {
    match answer {
        Answer::Proposed | Answer::Silence => None,
        Answer::Stored(sequence) => Some(Some(AppendResult::Stored(sequence))),
        Answer::Error(code, status) => Some(match failure(code, status, String::new()) {
            Failure::Conflict => Some(AppendResult::Conflict),
            Failure::Doubt(_) => Some(AppendResult::Doubt),
            Failure::Refused(_) => None,
        }),
    }
}

impl Engine {
    /// Replaces the single broker by three.
    pub fn replicate(&mut self, random: Random) {
        self.brokers = Some(Box::new(Brokers::new(random)));
        self.agents.replicated = true;
    }

    pub(super) fn line(&self) -> Line {
        let brokers = self.brokers.as_ref();
        Line {
            replicated: brokers.is_some(),
            answers: brokers.map_or(Timestamp::default(), |it| it.leads_from()),
        }
    }

    pub(super) fn write_outside(&mut self, writer: Writer, event: Event, written: Timestamp) {
        let filter = filter_of(writer, &event);
        if let Some(brokers) = &mut self.brokers {
            brokers.write_outside(filter, event, written);
        }
    }

    pub(super) fn takes(&self, writer: Writer) -> bool {
        let brokers = self.brokers.as_ref();
        brokers.is_none_or(|it| it.takes(&(writer, None), self.now))
    }

    pub(super) fn flow(&mut self) -> Result<(), EngineError> {
        while let Some(brokers) = &mut self.brokers {
            let now = self.now;
            let faults = &mut self.faults;
            brokers.falls(now, faults.plant(), || faults.leads_next());
            if let Some(what) = brokers.broken() {
                return Err(EngineError::Invariant {
                    sequence: self.log.head(),
                    what: what.to_owned(),
                });
            }
            if let Some(proposal) = brokers.take_due(now) {
                self.applied(proposal)?;
            } else if let Some(request) = brokers.take_late(now) {
                self.arrives(request, true);
            } else if let Some((node, asked, heard)) = brokers.take_call(now) {
                self.agent_hears(&node, asked, heard);
            } else if let Some(node) = self.agents.talks.pop_front() {
                self.talk(&node);
            } else {
                brokers.propose_outside(now);
                break;
            }
        }
        Ok(())
    }

    fn applied(&mut self, proposal: Proposal) -> Result<(), EngineError> {
        let Proposal {
            request,
            stamp,
            orphaned,
            ..
        } = proposal;
        let Request {
            by,
            filter,
            events,
            written,
            ..
        } = request;
        for (id, event) in events {
            let at = self.log.head().next();
            let is_word = matches!(event, Event::NodeFenced(_));
            if let Some(brokers) = &mut self.brokers {
                brokers.applied(&filter, (id, orphaned), at, is_word);
                if let By::Agent { node, report, .. } = &by {
                    brokers.reported(node, *report, at);
                }
            }
            self.store(filter.0, event, written, stamp)?;
        }
        if !orphaned {
            self.tell_stored(by);
        }
        Ok(())
    }

    fn tell_stored(&mut self, by: By) {
        let last = self.log.head();
        match by {
            By::Copy {
                service,
                copy,
                number,
                answer_us: Some(answer_us),
            } => {
                let told = outcome(Answer::Stored(last));
                self.copy_hears(service, (copy, number), told, answer_us);
            }
            By::Agent { node, asked, .. } if self.agents.ties.is_answered(&node) => {
                self.agent_hears(
                    &node,
                    asked,
                    Heard::AppendResult(AppendResult::Stored(last)),
                );
            }
            By::Outside | By::Copy { .. } | By::Agent { .. } => {}
        }
    }

    pub(super) fn ask(&mut self, service: usize, asked: Asked) {
        let (Some(brokers), Some(arrives)) = (&mut self.brokers, asked.arrives) else {
            return;
        };
        let writer = self.services[service].writer();
        let request = Request {
            by: By::Copy {
                service,
                copy: asked.copy,
                number: asked.number,
                answer_us: asked.answer_us,
            },
            filter: (writer, None),
            expected: Some(asked.expected),
            events: with_ids(writer, &asked),
            written: asked.written,
        };
        if arrives > self.now {
            brokers.arrives_late(arrives, request)
        } else {
            self.arrives(request, false)
        }
    }

    fn arrives(&mut self, mut request: Request, is_late: bool) {
        let plant = self.faults.plant();
        let Some(brokers) = &mut self.brokers else {
            return;
        };
        if is_late && plant == Some(Plant::UnfencedLatecomers) {
            request.expected = None;
        }
        let by = request.by.clone();
        let answer = brokers.asked(request, self.now, plant);
        match by {
            By::Copy {
                service,
                copy,
                number,
                answer_us: Some(answer_us),
            } => {
                self.copy_hears(service, (copy, number), outcome(answer), answer_us);
            }
            By::Agent { node, asked, .. } => {
                if let Some(Some(sent)) = sent(answer) {
                    self.agent_hears(&node, asked, Heard::AppendResult(sent));
                }
            }
            By::Outside | By::Copy { .. } => {}
        }
    }

    fn copy_hears(
        &mut self,
        service: usize,
        (copy, number): (usize, u64),
        outcome: Option<Outcome>,
        answer_us: u64,
    ) {
        if let Some(outcome) = outcome {
            let at = after_us(self.now, answer_us);
            self.services[service].answered(copy, number, outcome, at);
        }
    }

    fn agent_hears(&mut self, node: &NodeId, asked: u64, heard: Heard) {
        if let Some(it) = self.agents.nodes.get_mut(node)
            && it.outlet.hear(asked, heard)
        {
            self.agents.talks.push_back(node.clone());
        }
    }

    fn talk(&mut self, node: &NodeId) {
        let is_up = self.agents.is_up(node);
        let hears = self.agents.ties.is_answered(node) && self.line().answers <= self.now;
        let (Some(brokers), Some(it)) = (&mut self.brokers, self.agents.nodes.get_mut(node)) else {
            return;
        };
        let outlet = &mut it.outlet;
        if !is_up || outlet.awaits.is_some() || outlet.report.is_none() {
            return;
        }
        let step = outlet.settle.next_step();
        outlet.asked += 1;
        let given_up = match step {
            Step::ReadLast if hears => {
                let known = brokers.known(self.now);
                outlet.settle.last(Some(brokers.last_of(node, known)));
                None
            }
            Step::Read(after) if hears => {
                let known = brokers.known(self.now);
                let found = outlet.first_after((brokers, known), node, after);
                outlet.settle.found(found);
                None
            }
            Step::ReadLast | Step::Read(_) => Some((ANSWER_US, Heard::Silence)),
            Step::Wait => Some((RETRY_US, Heard::Waited)),
            Step::Send(expected) => match self.send(node, expected) {
                Went::Heard => None,
                Went::Unanswered => Some((ANSWER_US, Heard::Silence)),
                Went::LeftOut => return self.report_ends(node),
            },
            Step::Stored(_) => return self.report_ends(node),
            Step::Taken { expected, found } => {
                let what = format!(
                    "the agent of {node} ends: after {expected} it found {found} of another one"
                );
                return brokers.breaks(what);
            }
        };
        match given_up {
            None => self.agents.talks.push_back(node.clone()),
            Some((after, heard)) => self.awaits(node, step, after_us(self.now, after), heard),
        }
    }

    fn awaits(&mut self, node: &NodeId, step: Step, until: Timestamp, heard: Heard) {
        if let (Some(brokers), Some(it)) = (&mut self.brokers, self.agents.nodes.get_mut(node)) {
            it.outlet.awaits = Some(step);
            brokers.call(until, (node.clone(), it.outlet.asked, heard));
        }
    }

    fn send(&mut self, node: &NodeId, expected: Sequence) -> Went {
        let plant = self.faults.plant();
        let written = self.by_host(node);
        let ties = &self.agents.ties;
        let (arrives, answered) = (ties.speaks(node), ties.is_answered(node));
        let (Some(brokers), Some(it)) = (&mut self.brokers, self.agents.nodes.get_mut(node)) else {
            return Went::Unanswered;
        };
        let outlet = &mut it.outlet;
        let Some((report, event)) = outlet.report.clone() else {
            return Went::Unanswered;
        };
        let bare = plant == Some(Plant::BareRetries) && outlet.tried;
        (outlet.tried, outlet.expected) = (true, expected);
        let request = Request {
            by: By::Agent {
                node: node.clone(),
                report,
                asked: outlet.asked,
            },
            filter: (Writer::Node, Some(node.clone())),
            expected: (!bare).then_some(expected),
            events: vec![((!bare).then(|| outlet.id(node)), event)],
            written,
        };
        if !arrives {
            brokers.holds(node, request);
            return Went::Unanswered;
        }
        let answer = brokers.asked(request, self.now, plant);
        if !answered {
            return Went::Unanswered;
        }
        let in_process = [DUPLICATE_IN_PROCESS, FENCE_IN_PROCESS];
        let is_in_process = matches!(answer, Answer::Error(code, _) if in_process.contains(&code));
        if is_in_process && plant == Some(Plant::InProcessRefused) {
            return Went::LeftOut;
        }
        let sent = match sent(answer) {
            None => return Went::Unanswered,
            Some(None) => return Went::LeftOut,
            Some(Some(sent)) => sent,
        };
        outlet.settle.sent(sent);
        Went::Heard
    }

    fn report_ends(&mut self, node: &NodeId) {
        let it = self.agents.nodes.get_mut(node);
        let report = it.and_then(|it| it.outlet.report.take());
        if let (Some(brokers), Some((report, event))) = (&mut self.brokers, report) {
            brokers.settled(node, report, &event);
        }
        self.agents.has_stored(node, self.now, &mut self.faults);
    }
}

enum Went {
    Heard,
    Unanswered,
    LeftOut,
}
