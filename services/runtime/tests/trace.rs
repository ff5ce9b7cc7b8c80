//! One trace through two services. A separate binary, since the tracer is global.

#[path = "all/common/mod.rs"]
mod common;

use std::time::Duration;

use crate::common::collector::collector;
use crate::common::toy::{Toy, run, without_lease};
use crate::common::{Broker, drained, next_event};
use dormouse_messages::events::{JobReleased, Writer};
use dormouse_messages::{Decider, Decision, Event, Fold, Proposal, Recorded, Sequence, Timestamp};
use dormouse_runtime::telemetry::{self, Format};
use opentelemetry_proto::tonic::trace::v1::Span;
use serde::{Deserialize, Serialize};

struct Second;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct SecondState {
    open: std::collections::BTreeMap<Sequence, String>,
}

impl Fold for SecondState {
    const NAME: &'static str = "second";
    const VERSION: u32 = 1;

    fn evolve(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::NodeRecovered(event)) => {
                self.open.insert(recorded.sequence, event.node.to_string());
            }
            Some(Event::JobReleased(event)) => {
                self.open.retain(|_, node| *node != event.job.name());
            }
            _ => {}
        }
    }
}

impl Decider for Second {
    type State = SecondState;
    const WRITER: Writer = Writer::Admission;

    fn decide(&self, state: &SecondState, _: Timestamp) -> Decision {
        let release = |(sequence, node): (&Sequence, &String)| {
            let job = format!("toy/{node}").parse().expect("a job");
            Proposal::new(
                JobReleased {
                    job,
                    turn: None,
                    passed_over: Vec::new(),
                    basis: None,
                },
                *sequence,
            )
        };
        Decision {
            proposals: state.open.iter().map(release).collect(),
            next_wake: None,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_runs_through_two_services() {
    let (url, received) = collector().await;
    let guard = telemetry::init_with("test", Format::Pretty, None, Some(&url)).expect("set up");
    let broker = Broker::start().await;
    let log = broker.log().await;
    let first = run(Toy::default(), &log, without_lease());
    let second = run(Second, &log, without_lease());
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(1), &[]).await.expect("stored");
    let mut followed = log.follow(Sequence(1));
    let mut traceparents = Vec::new();
    while traceparents.len() < 3 {
        let recorded = next_event(&mut followed).await;
        traceparents.extend(recorded.envelope.traceparent.clone());
    }
    first.stop().await;
    second.stop().await;
    tokio::task::spawn_blocking(move || guard.flush())
        .await
        .expect("flushed");
    tokio::time::sleep(Duration::from_millis(100)).await;

    let spans = received.lock().expect("unpoisoned").clone();
    let find = |name: &str| {
        let spans = spans.iter().map(|(_, span)| span);
        let found: Vec<&Span> = spans.filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0]
    };
    let (root, recovered, released) = (
        find("publish node.drained"),
        find("publish node.recovered"),
        find("publish job.released"),
    );
    assert!(root.parent_span_id.is_empty());
    assert_eq!(recovered.parent_span_id, root.span_id);
    assert_eq!(released.parent_span_id, recovered.span_id);
    let decided = find("decide placer");
    assert!(
        recovered
            .links
            .iter()
            .any(|link| link.span_id == decided.span_id)
    );
    for span in [root, recovered, released, decided, find("decide admission")] {
        assert_eq!(span.trace_id, root.trace_id, "{}", span.name);
    }
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let carried = format!(
        "00-{}-{}-01",
        hex(&released.trace_id),
        hex(&released.span_id)
    );
    assert_eq!(traceparents.last(), Some(&carried));
    assert!(
        released
            .attributes
            .iter()
            .any(|it| it.key == "dormouse.sequence")
    );
}
