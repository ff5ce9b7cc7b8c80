//! The ingress with a toy intake: each submission once, in order, through crashes and fail-overs.

use std::time::{Duration, Instant};

use crate::common::Broker;
use crate::common::intake::{Intake, IntakeState, intake, submission};
use dormouse_messages::{Fold, Sequence};
use dormouse_runtime::tenant::{Encoding, Tenant, Wait};
use dormouse_runtime::{IngressSource, Log, LogItem, ServiceOptions, Settings, run_service};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

async fn submit(log: &Log, count: usize) {
    submit_as(log, "ads", count).await;
}

async fn submit_as(log: &Log, tenant: &str, count: usize) {
    let tenant = tenant.parse().expect("a name");
    futures::stream::iter(0..count)
        .for_each_concurrent(256, |_| async {
            let stored = log.publish_ingress(&tenant, "submit", "application/json", submission());
            stored.await.expect("stored");
        })
        .await;
}

fn serve(log: &Log, holder: &str) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    serve_deciding(log, holder, 0)
}

fn serve_deciding(
    log: &Log,
    holder: &str,
    after_ms: u64,
) -> (CancellationToken, tokio::task::JoinHandle<()>) {
    let shutdown = CancellationToken::new();
    let options = ServiceOptions {
        holder: holder.to_owned(),
        ..ServiceOptions::default()
    };
    let inputs = IngressSource::new(log.clone(), intake());
    let service = run_service(
        Intake { after_ms },
        log.clone(),
        options,
        Some(Box::new(inputs)),
        shutdown.clone(),
    );
    let task = tokio::spawn(async move { service.await.expect("stopped in order") });
    (shutdown, task)
}

async fn until_released(log: &Log, count: u64) -> IntakeState {
    let mut followed = log.follow(Sequence(1));
    let mut state = IntakeState::default();
    let fold = async {
        while state.counts.2 < count {
            if let LogItem::Event(recorded) = followed.recv().await.expect("goes on") {
                state.evolve(&recorded);
            }
        }
    };
    tokio::time::timeout(crate::common::PATIENCE, fold)
        .await
        .expect("released in time");
    state
}

/// Detects only a collapse: benchmarks check the rate of 5,000 a second.
const FLOW: u32 = 6_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn submissions_flow_at_the_promised_rate() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let (shutdown, task) = serve(&log, "one");
    let submitting = {
        let log = log.clone();
        tokio::spawn(async move { submit(&log, FLOW as usize).await })
    };
    let (started, flow) = (Instant::now(), u64::from(FLOW));
    let state = until_released(&log, flow).await;
    let rate = f64::from(FLOW) / started.elapsed().as_secs_f64();
    eprintln!("{rate:.0} submissions a second, published, received, answered and released");
    submitting.await.expect("submitted");
    assert_eq!((state.counts, state.disorder), ((flow, flow, flow), 0));
    shutdown.cancel();
    task.await.expect("ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_decisions_is_taken_when_they_are_made() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    submit_as(&log, "ads", 400).await;
    submit_as(&log, "vision", 400).await;
    // A late decision lets the undecided submissions reach their bound.
    let (shutdown, task) = serve_deciding(&log, "one", 500);
    let state = until_released(&log, 800).await;
    assert_eq!((state.counts, state.open.len()), ((800, 800, 800), 0));
    shutdown.cancel();
    task.await.expect("ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_waits_until_there_is_room() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let settings = Settings::new(broker.broker.url(), "client");
    let tenant = "ads".parse().expect("a name");
    let client = Tenant::connect(&settings, tenant, Encoding::Json, crate::common::PATIENCE);
    let client = client.await.expect("connects");
    let job = serde_json::json!({"command": {"start": ["true"]}});
    let sent = futures::stream::iter(0..1_500).for_each_concurrent(None, |_| async {
        let stored = client.submit(&job, Wait::Accepted, None).await;
        stored.expect("stored");
    });
    let taken = async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let serving = serve(&log, "one");
        until_released(&log, 1_500).await;
        serving
    };
    let ((), (shutdown, task)) = tokio::join!(sent, taken);
    shutdown.cancel();
    task.await.expect("ran");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_and_a_new_copy_receive_each_submission_once() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let other = Log::connect(&Settings::new(broker.broker.url(), "other"))
        .await
        .expect("connects");
    let (_, first) = serve(&log, "first");
    let (shutdown, second) = serve(&other, "second");
    submit(&log, 300).await;
    until_released(&log, 300).await;
    first.abort();
    submit(&log, 300).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    broker.kill();
    tokio::time::sleep(Duration::from_millis(600)).await;
    submit(&log, 300).await;
    let state = until_released(&log, 900).await;
    assert_eq!((state.counts, state.disorder), ((900, 900, 900), 0));
    shutdown.cancel();
    second.await.expect("ran");
}

/// A missing stream stands for a change of leaders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_submission_waits_until_the_ingress_is_there() {
    let broker = Broker::start().await;
    let log = Log::connect(&Settings::new(broker.broker.url(), "test"))
        .await
        .expect("connects");
    let early = tokio::spawn({
        let log = log.clone();
        async move { submit(&log, 1).await }
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!early.is_finished(), "it was given up");
    log.ensure_streams().await.expect("streams");
    early.await.expect("stored");
}

/// The new stream's sequences restart at 1.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_acknowledged_after_the_ingress_was_made_anew_is_received() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let (shutdown, task) = serve(&log, "one");
    submit(&log, 100).await;
    until_released(&log, 100).await;
    let jetstream = async_nats::jetstream::new(broker.client().await);
    let deleted = jetstream.delete_stream("DORMOUSE_IN").await;
    deleted.expect("deleted");
    log.ensure_streams().await.expect("made anew");
    submit(&log, 50).await;
    let state = until_released(&log, 150).await;
    assert_eq!((state.counts, state.open.len()), ((150, 150, 150), 0));
    // A second new stream, while no service runs.
    shutdown.cancel();
    task.await.expect("ran");
    let deleted = jetstream.delete_stream("DORMOUSE_IN").await;
    deleted.expect("deleted");
    log.ensure_streams().await.expect("made anew");
    submit(&log, 50).await;
    let (shutdown, task) = serve(&log, "two");
    let state = until_released(&log, 200).await;
    assert_eq!((state.counts, state.open.len()), ((200, 200, 200), 0));
    shutdown.cancel();
    task.await.expect("ran");
}
