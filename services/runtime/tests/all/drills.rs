//! Drills of operators: a broker's disk is lost, and a log of an older build is moved.

use std::time::Duration;

use dormouse_messages::{Sequence, Timestamp, Writer};
use dormouse_runtime::{Log, LogError, Settings};

use crate::common::trio::Trio;
use crate::common::{Broker, PATIENCE, drained, everything};
use crate::refusal::{import, recorded};

async fn drain(log: &Log, numbers: std::ops::Range<u64>) {
    let mut operator = log.appender(Writer::Operator, None);
    for number in numbers {
        operator.append(drained(number), &[]).await.expect("stored");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_whose_disk_is_lost_copies_the_log_from_the_others() {
    let mut trio = Trio::start().await;
    let log = trio.log(2).await;
    drain(&log, 0..200).await;
    trio.kill(1);
    trio.lose_disk(1);
    drain(&log, 200..300).await;
    trio.start_again(1);
    let copied = async {
        while !trio.holds_the_log(&log, 1).await {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(2 * PATIENCE, copied)
        .await
        .expect("it copies the log");
    // The copy is a full one: it and one other broker are the cluster now.
    trio.kill(0);
    drain(&log, 300..310).await;
    assert_eq!(everything(&log).await.len(), 310);
    trio.assert_no_write_error();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_forbids_removals_goes_on_and_is_moved_to_one_that_can() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..10).await;
    let jetstream = async_nats::jetstream::new(broker.client().await);
    let stream = jetstream.get_stream("DORMOUSE_LOG").await.expect("there");
    let mut config = stream.cached_info().config.clone();
    config.deny_purge = true;
    jetstream.update_stream(config).await.expect("as it was");

    // A start of a newer build leaves it as it is.
    let again = Log::connect(&Settings::new(broker.broker.url(), "again")).await;
    let again = again.expect("connects");
    again.ensure_streams().await.expect("it is used on");
    drain(&again, 10..20).await;
    let refused = again.trim(Sequence(5), Timestamp::default()).await;
    let refused = refused.expect_err("it cannot be trimmed");
    assert!(matches!(refused, LogError::Untrimmable(_)), "{refused}");
    assert!(refused.to_string().contains("dormouse log import"));

    let other = Broker::start().await;
    let moved = other.log().await;
    let events = recorded(&again).await;
    assert_eq!(import(&moved, &events).await.expect("moved"), 20);
    let first = moved.trim(Sequence(5), Timestamp::default()).await;
    assert_eq!(first.expect("trimmed"), Sequence(5));
    drain(&moved, 20..21).await;
    assert_eq!(moved.head().await.expect("a head"), Sequence(21));
}
