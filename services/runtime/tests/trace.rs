//! One trace through two services, as a collector sees it. Alone in its process: the tracer is
//! the process's.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::toy::{Toy, run, without_lease};
use common::{Broker, drained, next_event};
use dormouse_messages::events::{JobReleased, Writer};
use dormouse_messages::{Decider, Decision, Event, Fold, Proposal, Recorded, Sequence, Timestamp};
use dormouse_runtime::telemetry::{self, Format};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Releases a job for every recovered node.
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
            Proposal::new(JobReleased { job, basis: None }, *sequence)
        };
        Decision {
            proposals: state.open.iter().map(release).collect(),
            next_wake: None,
        }
    }
}

type Received = Arc<Mutex<Vec<Span>>>;

/// A collector that understands just enough HTTP.
async fn collector() -> (String, Received) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let received = Received::default();
    let spans = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&spans)));
        }
    });
    (url, received)
}

async fn serve(mut stream: tokio::net::TcpStream, spans: Received) {
    let mut bytes = Vec::new();
    while stream.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
        let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else {
            continue;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        assert!(head.starts_with("post /v1/traces"), "{head}");
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|it| it.parse().ok()).expect("a length");
        let Some(body) = bytes.get(end + 4..end + 4 + length) else {
            continue;
        };
        let request = ExportTraceServiceRequest::decode(body).expect("OTLP");
        let scopes = request
            .resource_spans
            .into_iter()
            .flat_map(|it| it.scope_spans);
        spans
            .lock()
            .expect("unpoisoned")
            .extend(scopes.flat_map(|it| it.spans));
        bytes.drain(..end + 4 + length);
        let _ = stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .await;
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
        let found: Vec<&Span> = spans.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        found[0]
    };
    let (root, recovered, released) = (
        find("append node.drained"),
        find("append node.recovered"),
        find("append job.released"),
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
