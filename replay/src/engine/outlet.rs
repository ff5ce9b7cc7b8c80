//! The reports of a model agent, one after the other: each append is resolved with the shipped machine
//! ([`dormouse_shell::append_resolver`]).

use dormouse_messages::{Event, NodeId, Sequence};
use dormouse_shell::append_resolver::{AppendResolver, AppendResult, Author, Found, Step};
use dormouse_shell::broker_errors::append_id;

use super::brokers::{Brokers, Heard};

#[derive(Debug, Clone)]
pub(super) struct Outlet {
    pub settle: AppendResolver,
    /// Identifies the agent among its node's; part of its messages' ids.
    incarnation: u64,
    pub report: Option<(u64, Event)>,
    reports: u64,
    pub tried: bool,
    pub expected: Sequence,
    /// The number of the last question, and the step that waits for its answer.
    pub asked: u64,
    pub awaits: Option<Step>,
}

impl Outlet {
    pub const fn new() -> Self {
        Self {
            settle: AppendResolver::new(true),
            incarnation: 0,
            report: None,
            reports: 0,
            tried: false,
            expected: Sequence(0),
            asked: 0,
            awaits: None,
        }
    }

    /// Resets the outlet for the node's next agent.
    pub fn renew(&mut self) {
        *self = Self {
            incarnation: self.incarnation + 1,
            reports: self.reports,
            asked: self.asked + 1,
            ..Self::new()
        };
    }

    pub const fn is_free(&self) -> bool {
        self.report.is_none()
    }

    pub fn begin(&mut self, event: Event) {
        self.reports += 1;
        self.report = Some((self.reports, event));
        (self.tried, self.awaits) = (false, None);
        self.settle.begin();
    }

    pub fn id(&self, node: &NodeId) -> String {
        let name = format!("node.{node}.{}", self.incarnation);
        let event = self.report.as_ref().map(|(_, event)| event);
        let data = rmp_serde::to_vec_named(&event).unwrap_or_default();
        append_id(&name, self.expected.0, 0, &data)
    }

    pub fn first_after(
        &self,
        (brokers, known): (&Brokers, Sequence),
        node: &NodeId,
        after: Sequence,
    ) -> Option<Found> {
        let (sequence, id, is_word) = brokers.first_after(node, after, known)?;
        let whose = if id == Some(self.id(node).as_str()) {
            Author::Own
        } else if is_word {
            Author::Nobody
        } else {
            Author::Another
        };
        Some(Found { sequence, whose })
    }

    pub fn hear(&mut self, asked: u64, heard: Heard) -> bool {
        let Some(step) = self.awaits.filter(|_| asked == self.asked) else {
            return false;
        };
        self.awaits = None;
        match (heard, step) {
            (Heard::AppendResult(sent), Step::Send(_)) => self.settle.sent(sent),
            (Heard::Silence, Step::ReadLast) => self.settle.last(None),
            (Heard::Silence, Step::Send(_)) => self.settle.sent(AppendResult::Doubt),
            (Heard::Silence, Step::Read(_)) => self.settle.unread(),
            _ => {}
        }
        true
    }
}
