//! A toy service: answers every `node.drained` with one `node.recovered`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dormouse_messages::events::{Budget, Event, NodeRecovered, Writer};
use dormouse_messages::{Decider, Decision, Fold, NodeId, Proposal, Recorded, Sequence, Timestamp};
use dormouse_runtime::{Log, LogItem, ServiceError, ServiceOptions, run_service};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// Unanswered nodes, and the number of answers to each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToyState {
    pub open: BTreeMap<Sequence, NodeId>,
    pub answered: BTreeMap<NodeId, u64>,
    pub submissions: u64,
}

impl Fold for ToyState {
    const NAME: &'static str = "toy";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::NodeDrained(event)) => {
                self.open.insert(recorded.sequence, event.node.clone());
            }
            Some(Event::NodeRecovered(event)) => {
                self.open.retain(|_, node| *node != event.node);
                *self.answered.entry(event.node.clone()).or_default() += 1;
            }
            _ => {}
        }
    }
}

#[derive(Debug, Clone, Default)]
pub struct Toy {
    pub decisions: Arc<AtomicU64>,
    /// Delay of a wake-up after each decision.
    pub wake_ms: Option<u64>,
}

pub fn answers(state: &ToyState, now: Timestamp) -> Vec<Proposal> {
    let answer = |(sequence, node): (&Sequence, &NodeId)| {
        let event = NodeRecovered {
            node: node.clone(),
            last_seen: now,
            basis: None,
        };
        Proposal::new(event, *sequence)
    };
    state.open.iter().map(answer).collect()
}

impl Decider for Toy {
    type State = ToyState;
    const WRITER: Writer = Writer::Placer;

    fn decide(&self, state: &ToyState, now: Timestamp) -> Decision {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        Decision {
            proposals: answers(state, now),
            next_wake: self.wake_ms.map(|ms| now.plus_ms(ms)),
        }
    }
}

/// A slow toy that discards overtaken decisions.
#[derive(Debug, Clone, Default)]
pub struct SlowToy {
    pub discarded: Arc<AtomicU64>,
    pub takes: Duration,
}

impl Decider for SlowToy {
    type State = ToyState;
    const WRITER: Writer = Writer::Placer;
    const SLOW: bool = true;

    fn decide(&self, state: &ToyState, now: Timestamp) -> Decision {
        self.decide_within(state, now, self.budget())
    }

    fn decide_within(&self, state: &ToyState, now: Timestamp, budget: Option<Budget>) -> Decision {
        let work = budget.map(|budget| budget.work);
        std::thread::sleep(work.map_or(self.takes, Duration::from_micros));
        Decision {
            proposals: answers(state, now),
            next_wake: None,
        }
    }

    fn budget(&self) -> Option<Budget> {
        Some(Budget {
            gap: 0.0,
            work: u64::try_from(self.takes.as_micros()).expect("a short time"),
        })
    }

    fn still_valid(&self, state: &ToyState, decision: &Decision) -> bool {
        // Strictest check: any news discards the decision.
        let valid = decision.proposals.len() == state.open.len();
        self.discarded
            .fetch_add(u64::from(!valid), Ordering::Relaxed);
        valid
    }
}

pub struct Running {
    pub shutdown: CancellationToken,
    pub task: tokio::task::JoinHandle<Result<(), ServiceError>>,
}

impl Running {
    pub async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.expect("ran").expect("stopped in order");
    }
}

pub fn run<D: Decider>(decider: D, log: &Log, options: ServiceOptions) -> Running {
    let shutdown = CancellationToken::new();
    let task = tokio::spawn(run_service(
        decider,
        log.clone(),
        options,
        None,
        shutdown.clone(),
    ));
    Running { shutdown, task }
}

pub fn without_lease() -> ServiceOptions {
    ServiceOptions {
        lease: false,
        build: "test".to_owned(),
        ..ServiceOptions::default()
    }
}

/// Folds the log until `count` nodes are answered.
pub async fn until_answered(log: &Log, count: usize) -> ToyState {
    let mut followed = log.follow(Sequence(1));
    let mut state = ToyState::default();
    let fold = async {
        while state.answered.len() < count {
            match followed.recv().await.expect("the log goes on") {
                LogItem::Event(recorded) => state.evolve(&recorded),
                LogItem::Flagged { .. } | LogItem::CaughtUp(_) => {}
            }
        }
    };
    tokio::time::timeout(super::PATIENCE, fold)
        .await
        .expect("answered in time");
    state
}

#[track_caller]
pub fn assert_once(state: &ToyState, count: usize) {
    assert_eq!(state.answered.len(), count);
    let repeated: Vec<_> = state
        .answered
        .iter()
        .filter(|(_, times)| **times != 1)
        .collect();
    assert!(repeated.is_empty(), "answered more than once: {repeated:?}");
}
