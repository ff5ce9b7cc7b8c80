//! A log is sealed segment by segment, and the archive alone answers for it.

use std::sync::Arc;

use dormouse_archive::ArchiveError;
use dormouse_messages::Sequence;
use dormouse_replay::history::slice::States;
use dormouse_replay::log_file::Row;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, SEGMENT_EVENTS, simulated};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_archive_is_the_log_and_every_decision_comes_out_again() {
    let events = simulated(150);
    assert!(events.len() > 2_100, "{}", events.len());
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    let second = cluster.archived(2).await;
    assert_eq!(second.first, Sequence(u64::from(SEGMENT_EVENTS) + 1));
    assert_eq!((second.last, second.findings), (Sequence(2_000), 0));
    stop.cancel();
    archiver.await.expect("joins").expect("stops");

    let archive = cluster.archive();
    let mut segments = 0;
    let verified = archive.verify(|_| segments += 1).await.expect("verifies");
    assert_eq!((verified.segments, segments), (2, 2));
    assert_eq!(verified.digest, second.manifest);
    assert_eq!(verified.decisions.findings, []);
    assert_eq!(verified.decisions.missing, 0);
    assert!(verified.decisions.verified > 200, "{verified:?}");

    let whole = archive
        .start(Some(Sequence(1)), None)
        .await
        .expect("begins");
    assert!(whole.states.is_none());
    let mut read = Vec::new();
    let each = |row: Row| {
        read.push(row);
        Ok::<_, ArchiveError>(true)
    };
    assert_eq!(
        archive.read(&whole, each).await.expect("reads"),
        Sequence(2_001)
    );
    let expected: Vec<Row> = events[..2_000]
        .iter()
        .map(|it| Row::Event((**it).clone()))
        .collect();
    assert!(read == expected, "the archive's events are the log's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moment_is_read_from_the_nearest_states() {
    let events = simulated(150);
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    cluster.archived(2).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");

    let archive = cluster.archive();
    let to = Sequence(1_500);
    let start = archive.start(Some(to), None).await.expect("begins");
    let from = start.from();
    assert!((900..=1_001).contains(&from.0), "{from}");
    let mut states = start.states.clone().expect("states");
    let each = |row: Row| {
        if row.sequence() > to {
            return Ok::<_, ArchiveError>(false);
        }
        if let Row::Event(recorded) = row {
            states.read(&recorded);
        }
        Ok(true)
    };
    archive.read(&start, each).await.expect("reads");
    let mut folded = States::default();
    events[..1_500].iter().for_each(|it| folded.read(it));
    assert_eq!(
        states.encode().expect("encodes"),
        folded.encode().expect("encodes")
    );

    let at = folded.fork.now;
    let start = archive.start(None, Some(at)).await.expect("begins");
    assert_eq!(start.from(), from);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_archivers_seal_one_chain() {
    let events = simulated(150);
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archivers = ["a", "b"].map(|holder| cluster.archiver(holder, &stop));
    cluster.archived(2).await;
    stop.cancel();
    for archiver in archivers {
        archiver.await.expect("joins").expect("stops");
    }
    let verified = cluster.archive().verify(|_| {}).await.expect("verifies");
    assert_eq!(
        (verified.segments, verified.decisions.findings.len()),
        (2, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_of_another_log_is_left_alone() {
    let events = simulated(60);
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    cluster.archived(1).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let first = cluster.archive().verify(|_| {}).await.expect("verifies");

    let mut other = Cluster::start(&events).await;
    other.folder = cluster.folder;
    let stop = CancellationToken::new();
    let archiver = other.archiver("b", &stop);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let again = other.archive().verify(|_| {}).await.expect("verifies");
    assert_eq!(
        (again.segments, again.digest),
        (first.segments, first.digest)
    );
    drop(Arc::new(other.broker));
}
