//! Several followers of one connection: each sees everything once, in order.

use crate::common::{Broker, PATIENCE, drained, next_event};
use dormouse_messages::{Sequence, Writer};
use dormouse_runtime::{Asked, Log, LogItem};
use futures::StreamExt;
use tokio::sync::mpsc::Receiver;

/// Exceeds the buffer of a follower.
const MANY: u64 = 6_000;

async fn append(log: &Log, numbers: std::ops::Range<u64>) {
    let mut appender = log.appender(Writer::Operator, None);
    for number in numbers {
        appender.append(drained(number), &[]).await.expect("stored");
    }
}

fn append_aside(log: &Log, numbers: std::ops::Range<u64>) -> tokio::task::JoinHandle<()> {
    let log = log.clone();
    tokio::spawn(async move { append(&log, numbers).await })
}

async fn expect(followed: &mut Receiver<LogItem>, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let recorded = next_event(followed).await;
        assert_eq!(recorded.event(), Some(&drained(number)));
        assert_eq!(recorded.sequence, Sequence(number + 1));
    }
}

async fn caught_up(followed: &mut Receiver<LogItem>) -> Sequence {
    let next = async {
        loop {
            match followed.recv().await.expect("the log goes on") {
                LogItem::CaughtUp(sequence) => return sequence,
                LogItem::Event(_) | LogItem::Flagged { .. } => {}
            }
        }
    };
    tokio::time::timeout(PATIENCE, next).await.expect("in time")
}

async fn consumers(broker: &Broker) -> usize {
    let jetstream = async_nats::jetstream::new(broker.client().await);
    let stream = jetstream
        .get_stream("DORMOUSE_LOG")
        .await
        .expect("is there");
    stream.cached_info().state.consumer_count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_later_follower_sees_everything() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    append(&log, 0..3_000).await;
    let mut first = log.follow(Sequence(1));
    expect(&mut first, 0..2_000).await;
    let mut later = log.follow(Sequence(1));
    let mut middle = log.follow(Sequence(1_001));
    let mut ahead = log.follow(Sequence(3_101));
    for followed in [&mut later, &mut middle] {
        assert!(caught_up(followed).await >= Sequence(3_000));
    }
    append(&log, 3_000..3_200).await;
    expect(&mut first, 2_000..3_200).await;
    expect(&mut later, 3_000..3_200).await;
    expect(&mut middle, 3_000..3_200).await;
    expect(&mut ahead, 3_100..3_200).await;
    let mut again = log.follow(Sequence(1));
    expect(&mut again, 0..3_200).await;
    assert_eq!(caught_up(&mut again).await, Sequence(3_200));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_delivers_once_to_all() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    append(&log, 0..100).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        let mut followed = log.follow(Sequence(1));
        assert_eq!(caught_up(&mut followed).await, Sequence(100));
        all.push(followed);
    }
    append(&log, 100..110).await;
    for followed in &mut all {
        expect(followed, 100..110).await;
    }
    assert_eq!(consumers(&broker).await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_one_that_does_not_read() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut reads = log.follow(Sequence(1));
    assert_eq!(caught_up(&mut reads).await, Sequence(0));
    let mut sleeps = log.follow(Sequence(1));
    assert_eq!(caught_up(&mut sleeps).await, Sequence(0));
    let appending = append_aside(&log, 0..MANY);
    expect(&mut reads, 0..MANY).await;
    appending.await.expect("appended");
    expect(&mut sleeps, 0..MANY).await;
    append(&log, MANY..MANY + 10).await;
    expect(&mut reads, MANY..MANY + 10).await;
    expect(&mut sleeps, MANY..MANY + 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_go_on_after_the_broker_was_killed() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut one = log.follow(Sequence(1));
    assert_eq!(caught_up(&mut one).await, Sequence(0));
    let mut other = log.follow(Sequence(1));
    let appending = append_aside(&log, 0..1_000);
    expect(&mut one, 0..500).await;
    broker.kill();
    let mut third = log.follow(Sequence(1));
    expect(&mut one, 500..1_000).await;
    expect(&mut other, 0..1_000).await;
    expect(&mut third, 0..1_000).await;
    appending.await.expect("appended");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_to_go_ends_the_feed_and_the_next_begins_it_anew() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    append(&log, 0..10).await;
    let mut one = log.follow(Sequence(1));
    let mut other = log.follow(Sequence(1));
    expect(&mut one, 0..10).await;
    expect(&mut other, 0..10).await;
    drop(one);
    append(&log, 10..20).await;
    expect(&mut other, 10..20).await;
    drop(other);
    append(&log, 20..30).await;
    let mut next = log.follow(Sequence(16));
    expect(&mut next, 15..30).await;
    assert_eq!(caught_up(&mut next).await, Sequence(30));
}

/// On one thread, like the services of `up`: a blocking wait would stop the connection too.
#[tokio::test]
async fn one_that_does_not_read_holds_up_nobody_on_its_thread() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut reads = log.follow(Sequence(1));
    assert_eq!(caught_up(&mut reads).await, Sequence(0));
    let mut sleeps = log.follow(Sequence(1));
    // Each event brings a `CaughtUp`: both fill the channel.
    let mut appender = log.appender(Writer::Operator, None);
    for number in 0..MANY / 2 {
        appender.append(drained(number), &[]).await.expect("stored");
        expect(&mut reads, number..number + 1).await;
    }
    expect(&mut sleeps, 0..MANY / 2).await;
    append(&log, MANY / 2..MANY / 2 + 10).await;
    expect(&mut sleeps, MANY / 2..MANY / 2 + 10).await;
}

#[tokio::test]
async fn whoever_joins_one_that_does_not_read_does_not_wait_for_it() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    append(&log, 0..MANY).await;
    let _sleeps = log.follow(Sequence(1));
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    let mut joins = log.follow(Sequence(1));
    expect(&mut joins, 0..MANY).await;
    append(&log, MANY..MANY + 10).await;
    expect(&mut joins, MANY..MANY + 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_query_says_what_its_client_has_followed() {
    let broker = Broker::start().await;
    let (log, api) = (broker.log().await, broker.log().await);
    append(&log, 0..3).await;
    let serving = tokio::spawn(async move {
        let answer = |asked: Asked| async move { Ok(format!("{:?}", asked.after).into_bytes()) };
        api.serve_api(&["jobs"], &[], answer).await
    });
    let ask = async || {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            // There is no responder before the service runs.
            match log.request("jobs", Vec::new()).await {
                Ok(answer) => return answer,
                Err(error) if tokio::time::Instant::now() > deadline => panic!("{error}"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    assert_eq!(ask().await, "Some(Sequence(0))");
    let mut followed = log.follow(Sequence(1));
    expect(&mut followed, 0..3).await;
    assert_eq!(ask().await, "Some(Sequence(3))");
    serving.abort();
}

/// A paused consumer stands for a lagging replica: it beats but delivers nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_consumer_that_delivers_nothing_is_left() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    append(&log, 0..10).await;
    let mut followed = log.follow(Sequence(1));
    expect(&mut followed, 0..10).await;
    let client = broker.client().await;
    let jetstream = async_nats::jetstream::new(client.clone());
    let stream = jetstream.get_stream("DORMOUSE_LOG").await;
    let names = stream.expect("is there").consumer_names();
    let names: Vec<String> = names.map(|name| name.expect("listed")).collect().await;
    let [consumer] = names.as_slice() else {
        panic!("one consumer: {names:?}");
    };
    let pause = format!("$JS.API.CONSUMER.PAUSE.DORMOUSE_LOG.{consumer}");
    let paused = client.request(pause, r#"{"pause_until":"2100-01-01T00:00:00Z"}"#.into());
    let paused = paused.await.expect("an answer").payload;
    let paused = String::from_utf8_lossy(&paused).into_owned();
    assert!(paused.contains(r#""paused":true"#), "{paused}");
    append(&log, 10..20).await;
    expect(&mut followed, 10..20).await;
}
