//! Status messages: by one copy, continued by the next.

use std::time::Duration;

use crate::common::{Broker, PATIENCE, drained};
use dormouse_messages::{Recorded, Writer};
use dormouse_runtime::{Log, LogError, Published};
use futures::StreamExt;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const TTL: Duration = Duration::from_secs(2);

/// Publishes every event as `ads.x.<holder>`.
fn publisher(
    log: &Log,
    holder: &'static str,
    stop: &CancellationToken,
) -> tokio::task::JoinHandle<Result<(), LogError>> {
    let (log, stop) = (log.clone(), stop.clone());
    tokio::spawn(async move {
        let show = || {
            move |recorded: &Recorded| {
                vec![Published {
                    subjects: vec![format!("ads.x.{holder}")],
                    content_type: "text/plain",
                    payload: recorded.sequence.to_string().into(),
                }]
            }
        };
        log.publish_status(holder, TTL, show, stop).await
    })
}

/// Returns the publisher and the sequence.
async fn next(shown: &mut async_nats::Subscriber) -> (String, u64) {
    let message = timeout(PATIENCE, shown.next()).await.expect("in time");
    let message = message.expect("connected");
    let headers = message.headers.expect("headers");
    let sequence = headers.get("Nats-Sequence").expect("its place").as_str();
    let payload = String::from_utf8(message.payload.to_vec()).expect("text");
    assert_eq!(payload, sequence);
    let holder = message.subject.rsplit('.').next().unwrap_or_default();
    (holder.to_owned(), sequence.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_copy_shows_the_log_and_the_next_goes_on_where_it_stopped() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut appender = log.appender(Writer::Operator, None);
    appender.append(drained(1), &[]).await.expect("stored");
    let client = broker.client().await;
    let mut shown = client.subscribe("dormouse.status.>").await.expect("asked");
    client.flush().await.expect("sent");

    let stop = CancellationToken::new();
    let first = publisher(&log, "first", &stop);
    timeout(PATIENCE, async {
        while !matches!(log.leases().holder("status").await, Ok(Some(_))) {}
    })
    .await
    .expect("the lease is taken");
    let second_stop = CancellationToken::new();
    let second = publisher(&log, "second", &second_stop);
    // The first holder starts at an unknown head.
    let mut last = 1;
    let mut number = 2;
    while last == 1 {
        appender.append(drained(number), &[]).await.expect("stored");
        number += 1;
        if let Ok(found) = timeout(Duration::from_millis(100), next(&mut shown)).await {
            assert_eq!(found.0, "first");
            assert!(found.1 > 1);
            last = found.1;
        }
    }
    while last < number - 1 {
        let found = next(&mut shown).await;
        assert_eq!(found, ("first".to_owned(), last + 1));
        last += 1;
    }

    // The next holder publishes the missed events.
    stop.cancel();
    first.await.expect("no panic").expect("it stops");
    for sequence in [number, number + 1] {
        appender
            .append(drained(sequence), &[])
            .await
            .expect("stored");
    }
    for sequence in [number, number + 1] {
        assert_eq!(next(&mut shown).await, ("second".to_owned(), sequence));
    }
    second_stop.cancel();
    second.await.expect("no panic").expect("it stops");
}
