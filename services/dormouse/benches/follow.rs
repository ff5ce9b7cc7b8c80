//! Measures how fast read models fold a million events from the broker, on one thread as in `up`. The
//! baseline is the client library without a fold. The log is a simulated trace, repeated.
//!
//! `cargo bench -p dormouse --bench follow [events]`

#[path = "../../../replay/benches/trace/mod.rs"]
mod trace;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::{AckPolicy, pull};
use dormouse_messages::envelope::CONTENT_TYPE;
use dormouse_messages::{Body, Fold, Prefix, Recorded, Sequence};
use dormouse_projections::ReadModel;
use dormouse_runtime::{BrokerConfig, LocalBroker, Log, LogItem, Settings};
use futures::StreamExt;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROUNDS: usize = 5;
const FORGOTTEN: Duration = Duration::from_secs(1);
const IN_FLIGHT: usize = 500;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let wanted = std::env::args().find_map(|arg| arg.parse().ok());
    let wanted: usize = wanted.unwrap_or(1_000_000);
    let dir = tempfile::tempdir().expect("a folder");
    let broker = LocalBroker::start(BrokerConfig::new(dir.path().to_owned()));
    let broker = broker.await.expect("the broker runs");
    let log = Log::connect(&Settings::new(broker.url(), "bench")).await;
    let log = log.expect("connects");
    log.ensure_streams().await.expect("the streams are there");
    let jetstream = async_nats::connect(broker.url()).await.expect("connects");
    let jetstream = async_nats::jetstream::new(jetstream);
    forget_ids(&jetstream).await;
    let mut trace = Vec::new();
    trace::simulated(|recorded| {
        trace.push(Arc::clone(recorded));
        Ok(())
    });
    let times = wanted.div_ceil(trace.len());
    let events = times * trace.len();
    println!("{} events of a trace, {times} times", trace.len());
    publish(&jetstream, &trace, events).await;
    let (mut fetched, mut folded) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        fetched.push(rate(events, fetch(&jetstream, events)).await);
        folded.push(rate(events, fold(&log, events, trace.len())).await);
    }
    let fetched = print("fetched by the client library alone", fetched);
    let folded = print("followed, decoded and folded", folded);
    println!("{:<36} {:9.2}", "  ratio", folded / fetched);
}

/// A log that is folded from its beginning is older than the broker's deduplication window. Keeping a million
/// ids costs a sixth of the speed.
async fn forget_ids(jetstream: &Context) {
    let stream = jetstream.get_stream(Prefix::default().log_stream()).await;
    let mut config = stream.expect("the log").cached_info().config.clone();
    config.duplicate_window = FORGOTTEN;
    jetstream.update_stream(config).await.expect("is updated");
}

async fn publish(jetstream: &Context, trace: &[Arc<Recorded>], events: usize) {
    let prefix = Prefix::default();
    let mut unanswered = VecDeque::new();
    let mut before: Option<String> = None;
    for (number, recorded) in trace.iter().cycle().take(events).enumerate() {
        let Body::Event(event) = &recorded.envelope.body else {
            panic!("every event is known");
        };
        let id = format!("{}-{number}", recorded.envelope.id);
        let mut headers = async_nats::HeaderMap::new();
        headers.insert("Nats-Msg-Id", id.as_str());
        headers.insert("content-type", CONTENT_TYPE);
        if let Some(before) = before.replace(id) {
            headers.insert("Nats-Expected-Last-Msg-Id", before);
        }
        let subject = prefix.event(recorded.writer, event);
        let payload = recorded.envelope.to_msgpack().expect("encodes");
        let sent = jetstream.publish_with_headers(subject, headers, payload.into());
        unanswered.push_back(sent.await.expect("is sent"));
        if unanswered.len() > IN_FLIGHT {
            let oldest = unanswered.pop_front().expect("not empty");
            oldest.await.expect("is stored");
        }
    }
    for sent in unanswered {
        sent.await.expect("is stored");
    }
    tokio::time::sleep(2 * FORGOTTEN).await;
}

async fn rate(events: usize, work: impl Future<Output = ()>) -> f64 {
    let started = Instant::now();
    work.await;
    events as f64 / started.elapsed().as_secs_f64()
}

async fn fetch(jetstream: &Context, events: usize) {
    let config = pull::Config {
        ack_policy: AckPolicy::None,
        memory_storage: true,
        num_replicas: 1,
        ..pull::Config::default()
    };
    let stream = Prefix::default().log_stream();
    let consumer = jetstream.create_consumer_on_stream(config, stream).await;
    let consumer = consumer.expect("a consumer");
    let messages = consumer.stream().max_messages_per_batch(4_000);
    let messages = messages.messages().await.expect("begins");
    let each = |message: Result<_, pull::MessagesError>| {
        message.expect("is delivered");
        std::future::ready(())
    };
    messages.take(events).for_each(each).await;
}

async fn fold(log: &Log, events: usize, trace: usize) {
    let mut followed = log.follow(Sequence(1));
    let mut model = ReadModel::default();
    let mut batch = Vec::new();
    let mut folded = 0;
    while folded < events {
        followed.recv_many(&mut batch, 1_000).await;
        for followed in batch.drain(..) {
            if let LogItem::Event(recorded) = followed {
                if folded % trace == 0 {
                    model = ReadModel::default();
                }
                model.evolve(&recorded);
                folded += 1;
            }
        }
    }
}

fn print(what: &str, mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    let (least, median, most) = (rates[0], rates[ROUNDS / 2], rates[ROUNDS - 1]);
    println!("{what:<36} {median:9.0}/s ({least:.0} to {most:.0})");
    median
}
