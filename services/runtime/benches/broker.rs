//! Cost of appending and following on a real broker: `cargo bench -p dormouse-runtime`.

#[path = "../tests/all/common/mod.rs"]
mod common;

use std::time::Instant;

use common::toy::{Toy, run, until_answered, without_lease};
use common::{Broker, drained};
use dormouse_messages::{Envelope, Sequence, Timestamp, Writer};
use dormouse_runtime::LogItem;
use futures::StreamExt;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    append_one_at_a_time().await;
    for count in [1, 8, 16, 24, 32, 100, 1_000, 10_000] {
        decision_of(count).await;
    }
    fold_rate(500_000).await;
}

async fn append_one_at_a_time() {
    const COUNT: u32 = 5_000;
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut appender = log.appender(Writer::Operator, None);
    let started = Instant::now();
    for number in 0..COUNT {
        appender
            .append(drained(number.into()), &[])
            .await
            .expect("stored");
    }
    println!(
        "append, one at a time: {:?} each",
        started.elapsed() / COUNT
    );
}

async fn decision_of(count: u64) {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut appender = log.appender(Writer::Operator, None);
    for number in 0..count {
        appender.append(drained(number), &[]).await.expect("stored");
    }
    let started = Instant::now();
    let service = run(Toy::default(), &log, without_lease());
    until_answered(&log, usize::try_from(count).expect("fits")).await;
    println!("start and decide {count}: {:?}", started.elapsed());
    service.stop().await;
}

async fn fold_rate(count: u64) {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let client = broker.client().await;
    futures::stream::iter(0..count)
        .for_each_concurrent(512, |number| {
            let client = client.clone();
            async move {
                let id = format!("operator-{number}-0-0123456789abcdef");
                let traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
                let envelope = Envelope::new(
                    id,
                    Writer::Operator,
                    Timestamp::from_micros(1_700_000_000_000_000),
                    Some(traceparent.to_owned()),
                    drained(number),
                );
                let payload = envelope.to_msgpack().expect("encodes");
                client
                    .request("dormouse.log.operator.0.node.drained", payload.into())
                    .await
                    .expect("stored");
            }
        })
        .await;
    for _ in 0..3 {
        let started = Instant::now();
        let mut followed = log.follow(Sequence(1));
        let mut batch = Vec::new();
        let mut events = 0;
        'fold: while followed.recv_many(&mut batch, 1_000).await > 0 {
            for item in batch.drain(..) {
                match item {
                    LogItem::Event(_) => events += 1,
                    LogItem::Flagged { .. } => {}
                    LogItem::CaughtUp(sequence) if sequence.0 >= count => break 'fold,
                    LogItem::CaughtUp(_) => {}
                }
            }
        }
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "follow {events}: {:.0} events/s",
            f64::from(events) / seconds
        );
    }
}
