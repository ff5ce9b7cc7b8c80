//! A toy intake with three events per submission, like admission's received, admitted and released.

use std::collections::BTreeMap;

use dormouse_messages::events::{
    Event, JobRefused, JobReleased, RawEncoding, SubmissionReceived, Writer,
};
use dormouse_messages::intake::{Arrival, Rates, Stand};
use dormouse_messages::{Decider, Decision, Fold, Proposal, Recorded, Sequence, Timestamp};
use dormouse_runtime::IntakeOf;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct IntakeState {
    pub last: u64,
    pub stands: BTreeMap<String, Stand>,
    pub open: BTreeMap<u64, Open>,
    /// Submissions received, answered, released.
    pub counts: (u64, u64, u64),
    /// Violations of order or uniqueness.
    pub disorder: u64,
}

/// A recorded, undecided submission.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Open {
    pub recorded: Sequence,
    pub at: Timestamp,
    pub tenant: String,
}

impl Fold for IntakeState {
    const NAME: &'static str = "intake";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::SubmissionReceived(event)) => {
                self.disorder += u64::from(event.ingress_sequence != self.last + 1);
                self.last = event.ingress_sequence;
                let stand = self.stands.entry(event.tenant.clone()).or_default();
                stand.record(&event.verb, event.ingress_sequence, event.published_at);
                stand.undecided += 1;
                let open = Open {
                    recorded: recorded.sequence,
                    at: recorded.stored_at,
                    tenant: event.tenant.clone(),
                };
                self.open.insert(event.ingress_sequence, open);
                self.counts.0 += 1;
            }
            Some(Event::JobRefused(event)) => {
                let open = self.open.remove(&event.ingress_sequence);
                let stand = open.and_then(|open| self.stands.get_mut(&open.tenant));
                if let Some(stand) = stand {
                    stand.undecided -= 1;
                }
                self.counts.1 += 1;
            }
            Some(Event::JobReleased(_)) => self.counts.2 += 1,
            _ => {}
        }
    }
}

pub struct Intake {
    /// Delay from record to decision.
    pub after_ms: u64,
}

impl Decider for Intake {
    type State = IntakeState;
    const WRITER: Writer = Writer::Admission;

    fn decide(&self, state: &IntakeState, now: Timestamp) -> Decision {
        let answer = |(ingress, open): (&u64, &Open)| {
            let refused = JobRefused {
                job: None,
                tenant: None,
                ingress_sequence: *ingress,
                code: "toy".to_owned(),
                reason: "a toy admits nothing, in a sentence of the usual length".to_owned(),
                by: None,
                basis: None,
            };
            let released = JobReleased {
                job: format!("ads/job-{ingress}").parse().expect("a job"),
                turn: None,
                passed_over: Vec::new(),
                basis: None,
            };
            [
                Proposal::new(refused, open.recorded),
                Proposal::new(released, open.recorded),
            ]
        };
        let due = |open: &Open| open.at.plus_ms(self.after_ms);
        let ripe = state.open.iter().filter(|(_, open)| due(open) <= now);
        let later = state.open.values().map(due).filter(|due| *due > now);
        Decision {
            proposals: ripe.flat_map(answer).collect(),
            next_wake: later.min(),
        }
    }
}

pub fn intake() -> IntakeOf<IntakeState> {
    IntakeOf {
        stand: |state, tenant| {
            let rates = Rates {
                submissions: None,
                measured: u32::MAX,
            };
            let stand = state.stands.get(tenant).copied();
            (stand.unwrap_or_default(), rates)
        },
        received: |_, arrival| received(arrival),
        rate_limited: |_, _| unreachable!("nobody has a rate"),
    }
}

pub fn received(arrival: &Arrival) -> Event {
    Event::from(SubmissionReceived {
        ingress_sequence: arrival.sequence,
        tenant: arrival.tenant.clone(),
        verb: arrival.verb.clone(),
        content_type: arrival.content_type.clone().unwrap_or_default(),
        bytes: arrival.payload.len() as u64,
        sha256: String::new(),
        raw: String::from_utf8_lossy(&arrival.payload).into_owned(),
        raw_encoding: RawEncoding::Utf8,
        published_at: arrival.at,
        by: arrival.by.clone(),
    })
}

pub fn submission() -> bytes::Bytes {
    let text = r#"{"name":"lr","executor":"mxnet","command":{"start":["python3","train.py"]},"demand":{"cpu":2,"memory":"8Gi"},"containers":{"min":1,"max":32},"checkpoint":{"mode":"exit","grace_s":60}}"#;
    bytes::Bytes::from_static(text.as_bytes())
}
