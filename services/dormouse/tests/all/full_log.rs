//! A log that fills up is archived and trimmed sooner, refuses submissions last, and goes on telling.

use std::path::Path;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::Stream;
use dormouse_archive::{Archive, Sealer, SealerOptions};
use dormouse_archiver::Archiver;
use dormouse_bucket::Place;
use dormouse_messages::events::{Fill, NodeDrained};
use dormouse_messages::{Event, Sequence, Writer};
use dormouse_runtime::{Log, ServiceOptions, Settings, run_service};
use futures::StreamExt;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, PATIENCE, count_job, poll};
use crate::doctor::look;

const STANDING: &str = "stands-still";

const MOST_BYTES: i64 = 16 << 20;

const SERVICES: [&str; 5] = ["admission", "optimizer", "placer", "checkpointer", "api"];

fn services(cluster: &mut Cluster) {
    for service in SERVICES {
        let data = cluster.dir().join(service);
        cluster.start(service, &["serve", service], &data);
    }
    let data = cluster.dir().join("n0");
    let capacity = "cpu=4,memory=4Gi";
    let agent = ["serve", "agent", "--node", "n0", "--capacity", capacity];
    cluster.start("n0", &agent, &data);
    cluster.wait_for_nodes(1);
}

async fn stream(url: &str) -> (Context, Stream) {
    let client = async_nats::connect(url).await.expect("connects");
    let jetstream = async_nats::jetstream::new(client);
    let stream = jetstream.get_stream("DORMOUSE_LOG").await.expect("there");
    (jetstream, stream)
}

/// Bounds the log's stream, as an operator does with the broker's own tools.
async fn bound(url: &str) {
    let (jetstream, stream) = stream(url).await;
    let mut config = stream.cached_info().config.clone();
    config.max_bytes = MOST_BYTES;
    jetstream.update_stream(config).await.expect("bounded");
}

/// Begins to read the log, and stands still after the first event.
async fn stand_still(url: &str) {
    let (_, stream) = stream(url).await;
    let config = pull::Config {
        durable_name: Some(STANDING.to_owned()),
        ..pull::Config::default()
    };
    let consumer = stream.create_consumer(config).await.expect("made");
    let mut read = consumer.fetch().max_messages(1).messages().await;
    let first = read.as_mut().expect("asked").next().await;
    first.expect("an event").expect("is read");
}

/// Appends `mebibytes` events of one mebibyte each.
async fn fill(log: &Log, mebibytes: u32) {
    let mut operator = log.appender(Writer::Operator, None);
    for _ in 0..mebibytes {
        let drained = NodeDrained {
            node: "elsewhere".parse().expect("valid"),
            reason: Some("x".repeat(1 << 20)),
            deadline_s: None,
        };
        let stored = operator.append(Event::from(drained), &[]).await;
        stored.expect("it has room");
    }
}

fn archiver(log: &Log, folder: &Path, stop: &CancellationToken) {
    let place = Place::Folder(folder.to_owned());
    let archive = Archive::create(&place, None).expect("opens");
    let options = SealerOptions {
        poll: Duration::from_millis(100),
        settle: Duration::from_secs(1),
        ..SealerOptions::new("test".to_owned())
    };
    let sealer = Sealer::start(log.clone(), archive, options);
    let (log, stop) = (log.clone(), stop.clone());
    let options = ServiceOptions::default();
    tokio::spawn(
        async move { run_service(Archiver, log, options, Some(Box::new(sealer)), stop).await },
    );
}

fn wait_filled(cluster: &Cluster, wanted: Fill) {
    cluster.wait_event(&format!("{wanted:?}"), |event| match event {
        Event::LogFilled(it) if it.fill == wanted => Some(()),
        _ => None,
    });
}

#[test]
fn a_full_log_is_trimmed_sooner_and_takes_no_jobs_until_then() {
    let mut cluster = Cluster::broker();
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let url = cluster.url();
    let log = poll("the broker", PATIENCE, || {
        let settings = Settings::new(url.clone(), "test");
        runtime.block_on(Log::connect(&settings)).ok()
    });
    runtime.block_on(log.ensure_streams()).expect("made");
    runtime.block_on(bound(&url));
    services(&mut cluster);
    let stop = CancellationToken::new();
    let folder = cluster.dir().join("archive");
    runtime.block_on(async { archiver(&log, &folder, &stop) });
    cluster
        .submit(&count_job("long", 100_000, (1, 1), &[]))
        .ok();
    cluster.submit(&count_job("next", 30, (1, 1), &[])).ok();
    cluster.wait_completed("ads/next");

    // The log is archived long before a segment's time, and trimmed long before the week of the policy. A reader that
    // stands still keeps the events on the broker.
    runtime.block_on(stand_still(&url));
    runtime.block_on(fill(&log, 12));
    wait_filled(&cluster, Fill::Filling);
    cluster.wait_event("a segment", |event| match event {
        Event::LogTrimmed(it) => Some(it.first),
        _ => None,
    });
    runtime.block_on(log.head()).expect("answers");
    assert!(log.first() <= Sequence(2), "a reader waits for it");

    runtime.block_on(fill(&log, 3));
    wait_filled(&cluster, Fill::Full);
    let refused = cluster.submit(&count_job("late", 3, (1, 1), &[]));
    assert_ne!(refused.code, 0, "{refused:?}");
    for part in ["log_full", "cluster doctor", "submit it again"] {
        assert!(refused.err.contains(part), "{refused:?}");
    }
    let doctor = cluster.run(&["cluster", "doctor"]).json();
    assert_eq!(look(&doctor, "room").0, "failed", "{doctor}");
    assert_eq!(look(&doctor, "archive").0, "ok", "{doctor}");
    // Running jobs go on and end.
    cluster.run(&["job", "cancel", "ads/long"]).ok();
    cluster.wait_event("the end of ads/long", |event| match event {
        Event::JobCancelled(it) if it.job.to_string() == "ads/long" => Some(()),
        _ => None,
    });

    runtime.block_on(async {
        let (_, stream) = stream(&url).await;
        let gone = stream.delete_consumer(STANDING).await;
        gone.expect("the reader goes");
    });
    poll("the room", PATIENCE, || {
        runtime.block_on(log.head()).ok()?;
        (log.first() > Sequence(2)).then_some(())
    });
    wait_filled(&cluster, Fill::Roomy);
    cluster.submit(&count_job("after", 3, (1, 1), &[])).ok();
    cluster.wait_completed("ads/after");
    cluster.check();
    stop.cancel();
}
