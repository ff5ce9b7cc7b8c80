//! The log's room: its tightest bound, by the broker's own word.

use dormouse_messages::Writer;
use dormouse_messages::events::LogBound;
use dormouse_runtime::{Bounds, Log, Settings};

use crate::common::{Broker, drained};

async fn bounded(log: &Log, policy_bytes: Option<u64>) -> (LogBound, u64) {
    let room = log.room(Bounds {
        policy_bytes,
        disk: None,
    });
    let room = room.await.expect("answers");
    assert!(room.bytes > 0 && room.messages > 0);
    (room.bound, room.most_bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tightest_bound_of_the_log_is_told() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(0), &[]).await.expect("stored");
    assert_eq!(bounded(&log, None).await, (LogBound::Nothing, 0));
    assert_eq!(bounded(&log, Some(9)).await, (LogBound::Policy, 9));
    let jetstream = async_nats::jetstream::new(broker.client().await);
    let stream = jetstream.get_stream("DORMOUSE_LOG").await.expect("there");
    let mut config = stream.cached_info().config.clone();
    config.max_bytes = 64 << 10;
    jetstream.update_stream(config).await.expect("bounded");
    assert_eq!(bounded(&log, None).await, (LogBound::Stream, 64 << 10));
    assert_eq!(bounded(&log, Some(1 << 30)).await.0, LogBound::Stream);
    assert_eq!(bounded(&log, Some(1 << 10)).await.0, LogBound::Policy);
    // A start leaves the bound as it is.
    log.ensure_streams().await.expect("the same");
    assert_eq!(bounded(&log, None).await, (LogBound::Stream, 64 << 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_bound_of_an_account_is_told() {
    let broker = Broker::with(|config| {
        config.extra = "accounts: {A: {jetstream: {max_file: 1GB, max_mem: 0}, users: [{user: a, password: a}]}}\nno_auth_user: a\n".to_owned();
    })
    .await;
    let log = Log::connect(&Settings::new(broker.broker.url(), "test")).await;
    let log = log.expect("connects");
    log.ensure_streams().await.expect("streams");
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(0), &[]).await.expect("stored");
    assert_eq!(bounded(&log, None).await.0, LogBound::Account);
}
