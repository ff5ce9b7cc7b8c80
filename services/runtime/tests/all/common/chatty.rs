//! Deciders that answer every `node.drained` with several events.

use dormouse_messages::events::{JobCompleted, JobReleased, NodeJoined, NodeRecovered, Writer};
use dormouse_messages::{Decider, Decision, Event, Fold, Proposal, Recorded, Sequence, Timestamp};
use dormouse_runtime::LogItem;
use serde::{Deserialize, Serialize};

/// Events of each writer per drained node.
pub const TIMES: u64 = 3;

/// One of three writers.
#[derive(Debug, Clone, Default)]
pub struct Chatty<const W: u8>;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChattyState<const W: u8> {
    asked: u64,
    answered: u64,
    last: Sequence,
}

const fn writer(which: u8) -> Writer {
    match which {
        0 => Writer::Admission,
        1 => Writer::Placer,
        _ => Writer::Checkpointer,
    }
}

impl<const W: u8> Fold for ChattyState<W> {
    const NAME: &'static str = "chatty";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        if recorded.writer == writer(W) {
            self.answered += 1;
        } else if matches!(recorded.event(), Some(Event::NodeDrained(_))) {
            self.asked += 1;
            self.last = recorded.sequence;
        }
    }
}

fn answer(writer: Writer, number: u64, now: Timestamp) -> Event {
    let job = || format!("t/j{number}").parse().expect("an id");
    match writer {
        Writer::Admission => Event::from(JobReleased {
            job: job(),
            turn: None,
            passed_over: Vec::new(),
            basis: None,
        }),
        Writer::Placer => Event::from(NodeRecovered {
            node: format!("n{number}").parse().expect("a name"),
            last_seen: now,
            basis: None,
        }),
        _ => Event::from(JobCompleted {
            job: job(),
            reason: String::new(),
            attempts: 0,
            basis: None,
        }),
    }
}

impl<const W: u8> Decider for Chatty<W> {
    type State = ChattyState<W>;
    const WRITER: Writer = writer(W);

    fn decide(&self, state: &Self::State, now: Timestamp) -> Decision {
        let wanted = (state.asked * TIMES).min(state.answered + 7);
        let proposals = (state.answered..wanted)
            .map(|number| Proposal::new(answer(Self::WRITER, number, now), state.last))
            .collect();
        Decision {
            proposals,
            next_wake: None,
        }
    }
}

pub fn numbers_of(all: &[LogItem], writer: Writer) -> Vec<u64> {
    let number = |followed: &LogItem| {
        let LogItem::Event(recorded) = followed else {
            return None;
        };
        let name = match recorded.event()? {
            Event::JobReleased(event) => event.job.name().to_owned(),
            Event::NodeRecovered(event) => event.node.to_string(),
            Event::JobCompleted(event) => event.job.name().to_owned(),
            _ => return None,
        };
        let own = recorded.writer == writer;
        own.then(|| name.get(1..)?.parse().ok()).flatten()
    };
    all.iter().filter_map(number).collect()
}

pub fn joined(node: &str, incarnation: u64) -> Event {
    Event::from(NodeJoined {
        node: node.parse().expect("a name"),
        capacity: "cpu=1,memory=1Gi".parse().expect("amounts"),
        labels: Default::default(),
        gpus: Vec::new(),
        incarnation,
        running: Vec::new(),
        address: String::new(),
        runtime: String::new(),
        taints: Default::default(),
    })
}

pub fn joins(all: &[LogItem]) -> Vec<u64> {
    let incarnation = |followed: &LogItem| match followed {
        LogItem::Event(recorded) => match recorded.event() {
            Some(Event::NodeJoined(event)) => Some(event.incarnation),
            _ => None,
        },
        LogItem::Flagged { .. } | LogItem::CaughtUp(_) => None,
    };
    all.iter().filter_map(incarnation).collect()
}
