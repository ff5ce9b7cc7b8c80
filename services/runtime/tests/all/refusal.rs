//! Refusals, denials and odd answers of the broker are reported, and the log resolves them.

use std::time::Duration;

use crate::common::intake;
use crate::common::toy::{Toy, assert_once, run, until_answered, without_lease};
use crate::common::trio::Trio;
use crate::common::{Broker, drained, everything, fold_everything, next_event};
use dormouse_messages::events::Writer;
use dormouse_messages::intake::Arrival;
use dormouse_messages::{Event, Recorded, Sequence, Timestamp};
use dormouse_runtime::{AppendError, Log, LogError, LogItem, Settings, Tls};

/// A broker on which `agent` may not write as the placer or the operator.
async fn restricted() -> Broker {
    Broker::with(|config| {
        config.extra = r#"
            authorization { users: [
              { user: admin, password: admin }
              { user: agent, password: agent, permissions: {
                  publish: { deny: ["dormouse.log.operator.>", "dormouse.log.placer.>", "dormouse.in.>"] } } }
            ] }"#
            .to_owned();
    })
    .await
}

async fn small(max_file_store: &str) -> Broker {
    Broker::with(|config| {
        let store = config.store_dir.join("jetstream");
        config.extra =
            format!("jetstream {{ store_dir: {store:?}, max_file_store: {max_file_store} }}");
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_with_little_room_reserves_less_for_the_ingress() {
    let broker = small("1GiB").await;
    let log = Log::connect(&Settings::new(broker.broker.url(), "test"))
        .await
        .expect("connects");
    log.ensure_streams().await.expect("streams");
    let jetstream = async_nats::jetstream::new(broker.client().await);
    let stream = async |name: &str| jetstream.get_stream(name).await.expect("it is there");
    let last = async || {
        let leases = stream("KV_dormouse_leases").await;
        leases.cached_info().state.last_sequence
    };
    let before = last().await;
    log.ensure_streams().await.expect("the same again");
    assert_eq!(
        last().await,
        before,
        "nothing is to be done: no lease is asked for"
    );
    let ingress = stream("DORMOUSE_IN").await;
    assert_eq!(ingress.cached_info().config.max_bytes, 96 << 20);

    let broker = small("32MiB").await;
    let log = Log::connect(&Settings::new(broker.broker.url(), "test"))
        .await
        .expect("connects");
    let said = log
        .ensure_streams()
        .await
        .expect_err("too small")
        .to_string();
    assert_eq!(
        said,
        "the broker has no room for the stream DORMOUSE_IN; free space on its disk, or raise its max_file_store"
    );
}

/// Concurrent reservations would compete for space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_that_begin_at_once_make_the_streams_one_after_the_other() {
    for _ in 0..5 {
        let broker = small("26GB").await;
        let url = broker.broker.url();
        let each = (0..6).map(|_| async move {
            let log = Log::connect(&Settings::new(url, "test")).await;
            log.expect("connects").ensure_streams().await
        });
        let made: Result<Vec<()>, LogError> = futures::future::try_join_all(each).await;
        made.expect("streams");
        let jetstream = async_nats::jetstream::new(broker.client().await);
        for (stream, reserved) in [("DORMOUSE_IN", 6_i64 << 30), ("DORMOUSE_CODE", 4 << 30)] {
            let found = jetstream.get_stream(stream).await.expect("it is there");
            assert_eq!(found.cached_info().config.max_bytes, reserved, "{stream}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_brokers_with_little_room_reserve_less_likewise() {
    let trio = Trio::storing("1GiB").await;
    let log = trio.log(0).await;
    let head = log.head().await.expect("a log");
    assert_eq!(head, Sequence(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_append_says_so_at_once() {
    let broker = restricted().await;
    let as_user = |user: &str| {
        let url = broker.broker.url();
        let url = url.replace("nats://", &format!("nats://{user}:{user}@"));
        Settings::new(url, user)
    };
    let log = Log::connect(&as_user("admin")).await.expect("connects");
    log.ensure_streams().await.expect("streams");
    let agent = Log::connect(&as_user("agent")).await.expect("connects");
    let denied = agent
        .appender(Writer::Operator, None)
        .append(drained(0), &[])
        .await;
    assert!(
        matches!(&denied, Err(AppendError::Denied { subject }) if subject == "dormouse.log.operator.0.node.drained"),
        "{denied:?}"
    );
    let tenant = "ads".parse().expect("a name");
    let denied = agent
        .publish_ingress(&tenant, "submit", "application/json", "{}".into())
        .await;
    assert!(matches!(denied, Err(LogError::Denied { .. })), "{denied:?}");

    // A service without permission reports it and keeps following.
    let service = run(Toy::default(), &agent, without_lease());
    log.appender(Writer::Operator, None)
        .append(drained(1), &[])
        .await
        .expect("stored");
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(!service.task.is_finished());
    service.stop().await;
    assert_eq!(everything(&log).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_credentials_are_told_at_once() {
    let broker = restricted().await;
    let url = broker
        .broker
        .url()
        .replace("nats://", "nats://agent:wrong@");
    let refused = Log::connect(&Settings::new(url, "agent")).await;
    assert!(
        matches!(refused, Err(LogError::Credentials { .. })),
        "{refused:?}"
    );
    let plain = Broker::start().await;
    let encrypted = Settings {
        connect_timeout: Duration::from_millis(300),
        tls: Tls {
            required: true,
            ..Tls::default()
        },
        ..Settings::new(plain.broker.url(), "encrypted")
    };
    let refused = Log::connect(&encrypted).await;
    assert!(
        matches!(refused, Err(LogError::NoTls { .. })),
        "{refused:?}"
    );
    let nobody = Settings {
        connect_timeout: Duration::from_millis(300),
        ..Settings::new("nats://127.0.0.1:1", "nobody")
    };
    assert!(matches!(
        Log::connect(&nobody).await,
        Err(LogError::Connect { .. })
    ));
}

fn large(bytes: usize) -> Event {
    Event::from(dormouse_messages::events::JobFailed {
        job: "ads/large".parse().expect("a job"),
        reason: "x".repeat(bytes),
        attempts: 0,
        basis: None,
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_largest_event_fits_and_a_larger_one_is_told() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut appender = log.appender(Writer::Checkpointer, None);
    appender
        .append(large((4 << 20) - 2_048), &[])
        .await
        .expect("4 MiB fit");
    let refused = appender.append(large(4 << 20), &[]).await;
    assert!(
        matches!(refused, Err(AppendError::TooLarge { .. })),
        "{refused:?}"
    );
    let tenant = "ads".parse().expect("a name");
    let refused = log
        .publish_ingress(&tenant, "submit", "x", vec![0; 9 << 20].into())
        .await;
    assert!(
        matches!(refused, Err(LogError::TooLarge { .. })),
        "{refused:?}"
    );
    assert_eq!(everything(&log).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_duplicate_is_refused_by_the_fence() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let service = run(Toy::default(), &log, without_lease());
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(1), &[]).await.expect("stored");
    until_answered(&log, 1).await;
    let mut followed = log.follow(Sequence(2));
    let recorded = next_event(&mut followed).await;
    // A repeated delivery, within the broker's memory of ids and beyond.
    let client = broker.client().await;
    for id in [recorded.envelope.id.as_str(), "forgotten"] {
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", id);
        headers.insert("Nats-Expected-Last-Subject-Sequence", "0");
        headers.insert(
            "Nats-Expected-Last-Subject-Sequence-Subject",
            "dormouse.log.placer.>",
        );
        let payload = recorded.envelope.to_msgpack().expect("encodes");
        let subject = "dormouse.log.placer.0.node.recovered";
        let answer = client
            .request_with_headers(subject, headers, payload.into())
            .await
            .expect("answered");
        let answer = String::from_utf8_lossy(&answer.payload).into_owned();
        assert!(
            answer.contains("10071") || answer.contains("duplicate"),
            "{answer}"
        );
    }
    service.stop().await;
    assert_once(&fold_everything(&log).await, 1);
}

pub async fn recorded(log: &Log) -> Vec<Recorded> {
    let events = everything(log).await.into_iter();
    let events = events.filter_map(|followed| match followed {
        LogItem::Event(recorded) => Some((*recorded).clone()),
        _ => None,
    });
    events.collect()
}

pub async fn import(log: &Log, events: &[Recorded]) -> Result<u64, LogError> {
    let events = events.iter().cloned();
    log.import(events.map(Ok::<_, std::convert::Infallible>), None)
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_imported_log_keeps_sequences_gaps_and_times() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut operator = log.appender(Writer::Operator, None);
    for number in 0..5 {
        operator.append(drained(number), &[]).await.expect("stored");
    }
    let all = recorded(&log).await;
    let slice: Vec<Recorded> = all
        .iter()
        .filter(|it| ![1, 3].contains(&it.sequence.0))
        .cloned()
        .collect();
    let other = Broker::start().await;
    let copy = other.log().await;
    assert_eq!(import(&copy, &slice).await.expect("imported"), 3);
    let again = Log::connect(&Settings::new(other.broker.url(), "reader"))
        .await
        .expect("connects");
    again.ensure_streams().await.expect("still the same");
    let read: Vec<Recorded> = everything(&again)
        .await
        .into_iter()
        .filter_map(|followed| match followed {
            LogItem::Event(recorded) => Some((*recorded).clone()),
            LogItem::Flagged { sequence, .. } => {
                assert_eq!(sequence, Sequence(3));
                None
            }
            LogItem::CaughtUp(_) => None,
        })
        .collect();
    assert_eq!(read, slice);
    assert!(import(&copy, &slice).await.is_err(), "it is not empty");
    let stored = again
        .appender(Writer::Operator, None)
        .append(drained(9), &[])
        .await;
    assert_eq!(stored.expect("stored"), Sequence(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_import_submissions_are_counted_on() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let source = Broker::start().await;
    let tenant = "ads".parse().expect("a name");
    let submission = |sequence| {
        intake::received(&Arrival {
            sequence,
            at: Timestamp::default().plus_ms(sequence),
            tenant: "ads".to_owned(),
            verb: "submit".to_owned(),
            by: None,
            content_type: None,
            traceparent: None,
            payload: b"{}".to_vec(),
        })
    };
    let original = source.log().await;
    let mut admission = original.appender(Writer::Admission, None);
    for sequence in 1..=3 {
        admission
            .append(submission(sequence), &[])
            .await
            .expect("stored");
    }
    let events = recorded(&original).await;
    assert_eq!(import(&log, &events).await.expect("imported"), 3);
    let stored = log.publish_ingress(&tenant, "submit", "application/json", intake::submission());
    assert_eq!(stored.await.expect("stored"), 4);
    // An import would skip waiting submissions.
    let late = Broker::start().await;
    let other = late.log().await;
    let stored = other.publish_ingress(&tenant, "submit", "application/json", intake::submission());
    stored.await.expect("stored");
    let refused = import(&other, &events).await.expect_err("not empty");
    assert!(
        refused.to_string().contains("has taken submissions"),
        "{refused}"
    );
}
