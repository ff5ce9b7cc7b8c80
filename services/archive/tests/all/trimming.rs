//! The log is trimmed behind its archive, and nobody misses what goes.

use std::sync::Arc;
use std::time::Duration;

use dormouse_admission::AdmissionState;
use dormouse_agent_core::state::AgentState;
use dormouse_archive::{Archive, ArchiveError, Folds, Start};
use dormouse_autoscaler::AutoscalerState;
use dormouse_messages::{Fold, Recorded, Sequence, Writer};
use dormouse_projections::ReadModel;
use dormouse_replay::log_file::Row;
use dormouse_runtime::{Log, LogItem};
use dormouse_state::ClusterState;
use dormouse_state::hooks::Hooks;
use dormouse_state::routes::Routes;
use tokio_util::sync::CancellationToken;

use crate::common::{Cluster, PATIENCE, simulated_keeping};

/// Waits until the log begins at `first` or later.
async fn trimmed(log: &Log, first: Sequence) {
    let wait = async {
        while log.first() < first {
            tokio::time::sleep(Duration::from_millis(50)).await;
            log.head().await.expect("a head");
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.expect("the log is trimmed in time");
}

/// Reads archive and stream as one log.
async fn whole(archive: &Archive, log: &Log) -> Vec<Row> {
    let mut rows = Vec::new();
    let each = |row: Row| {
        rows.push(row);
        Ok::<_, ArchiveError>(true)
    };
    let next = archive.read(&Start::default(), each).await.expect("reads");
    let head = log.head().await.expect("a head");
    let mut items = log.read(next, head).await.expect("the stream goes on");
    while let Some(item) = items.recv().await {
        if let LogItem::Event(recorded) = item {
            rows.push(Row::Event((*recorded).clone()));
        }
    }
    rows
}

/// Compares the state that a process reaches from the broker with the fold of the whole log.
async fn reaches<F: Fold + PartialEq>(log: &Log, rows: &[Row]) {
    let started = log.start::<F>(None).await.expect("starts");
    assert!(started.sequence.next() >= log.first() && started.sequence > Sequence(0));
    let reached = log.folded::<F>().await.expect("folds");
    let mut expected = F::default();
    for row in rows {
        if let Row::Event(recorded) = row {
            expected.evolve(recorded);
        }
    }
    let bytes = |state: &F| rmp_serde::to_vec_named(state).expect("encodes");
    assert!(
        bytes(&reached.state) == bytes(&expected),
        "{} differs",
        F::NAME
    );
}

fn is_the_log(rows: &[Row], events: &[Arc<Recorded>]) {
    for (row, sequence) in rows.iter().zip(1..) {
        assert_eq!(row.sequence(), Sequence(sequence));
    }
    let imported = rows.iter().zip(events);
    for (row, event) in imported {
        assert!(
            *row == Row::Event((**event).clone()),
            "event {}",
            event.sequence
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_is_trimmed_behind_its_archive_and_everybody_starts_from_states() {
    let events = simulated_keeping(300, Some(1));
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    let log = &cluster.log;
    trimmed(log, Sequence(2_001)).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");

    let archive = cluster.archive();
    let newest = archive.newest().await.expect("answers").expect("segments");
    assert!(log.first() <= newest.manifest.asof);
    let verified = archive.verify(|_| {}).await.expect("verifies");
    assert_eq!(verified.decisions.findings, []);
    let rows = whole(&archive, log).await;
    is_the_log(&rows, &events);
    reaches::<AdmissionState>(log, &rows).await;
    reaches::<ClusterState>(log, &rows).await;
    reaches::<AutoscalerState>(log, &rows).await;
    reaches::<ReadModel>(log, &rows).await;
    reaches::<AgentState>(log, &rows).await;
    reaches::<Routes>(log, &rows).await;
    reaches::<Hooks>(log, &rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archiver_killed_at_any_step_loses_and_doubles_nothing() {
    let events = simulated_keeping(300, Some(1));
    let cluster = Cluster::start(&events).await;
    let log = &cluster.log;
    let mut kills = 0;
    let mut state = 7_u64;
    while log.first() < Sequence(2_001) {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let stop = CancellationToken::new();
        let archiver = cluster.archiver(&format!("a{kills}"), &stop);
        // Later copies live longer, so that the archive grows on a slow machine, too.
        let longest = 1_000 + 500 * kills;
        tokio::time::sleep(Duration::from_millis(100 + (state >> 33) % longest)).await;
        archiver.abort();
        kills += 1;
        assert!(kills < 100, "the archive does not grow");
        log.head().await.expect("a head");
    }
    eprintln!("{kills} kills");
    let archive = cluster.archive();
    let verified = archive.verify(|_| {}).await.expect("verifies");
    assert_eq!(verified.decisions.findings, []);
    let rows = whole(&archive, log).await;
    is_the_log(&rows, &events);
    reaches::<ClusterState>(log, &rows).await;
    reaches::<ReadModel>(log, &rows).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_trimmed_that_the_archive_does_not_hold() {
    let events = simulated_keeping(300, Some(1));
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    // A reader that stands still keeps the beginning until segments are gone from the folder.
    let mut standing = cluster.log.follow(Sequence(1));
    cluster.archived(3).await;
    let segments = cluster.archive_folder().join("segments");
    std::fs::remove_dir_all(&segments).expect("removed");
    let drain = async {
        while let Some(item) = standing.recv().await {
            if let LogItem::CaughtUp(_) = item {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, drain).await.expect("read");
    tokio::time::sleep(Duration::from_secs(2)).await;
    cluster.log.head().await.expect("a head");
    assert_eq!(cluster.log.first(), Sequence(1));
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_waited_for_and_nothing_is_trimmed() {
    let events = simulated_keeping(300, Some(1));
    let cluster = Cluster::start(&events).await;
    let log = &cluster.log;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    cluster.archived(1).await;
    let (folder, away) = (cluster.archive_folder(), cluster.folder.path().join("away"));
    std::fs::rename(&folder, &away).expect("moved");
    std::fs::write(&folder, "not a folder").expect("written");
    // The log goes on without its archive, and keeps all unarchived events.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut operator = log.appender(Writer::Operator, None);
    let configured = events.iter().find(|it| it.writer == Writer::Operator);
    let configured = configured.and_then(|it| it.event()).expect("a policy");
    operator
        .append(configured.clone(), &[])
        .await
        .expect("stored");
    assert!(!archiver.is_finished());
    log.head().await.expect("a head");
    let held = log.first();
    assert!(held <= Sequence(2_000), "{held}");

    std::fs::remove_file(&folder).expect("removed");
    std::fs::rename(&away, &folder).expect("it is back");
    trimmed(log, Sequence(2_001)).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let archive = cluster.archive();
    let verified = archive.verify(|_| {}).await.expect("verifies");
    assert_eq!(verified.decisions.findings, []);
    is_the_log(&whole(&archive, log).await, &events);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn states_of_another_shape_are_folded_again_from_the_archive() {
    let events = simulated_keeping(150, None);
    let cluster = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = cluster.archiver("a", &stop);
    cluster.archived(2).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    // As a build with other shapes would find them.
    let archive = cluster.archive();
    let mut expected = Folds::default();
    for number in 1..=2 {
        let sealed = archive.manifest(number).await.expect("answers");
        let path = cluster
            .archive_folder()
            .join(format!("manifests/{number:010}.json"));
        let mut manifest = sealed.manifest;
        if number == 2 {
            expected = archive.folds(&manifest).await.expect("reads");
        }
        for state in &mut manifest.states {
            state.version += 1;
        }
        let text = serde_json::to_vec_pretty(&manifest).expect("JSON");
        std::fs::write(path, text).expect("written");
    }
    let newest = archive.manifest(2).await.expect("answers").manifest;
    assert!(archive.folds(&newest).await.is_err());
    let again = archive.folds_at(&newest).await.expect("folds again");
    assert!(again.encode().expect("encodes") == expected.encode().expect("encodes"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_whose_brokers_are_lost_goes_on_from_its_archive() {
    let events = simulated_keeping(300, Some(1));
    let lost = Cluster::start(&events).await;
    let stop = CancellationToken::new();
    let archiver = lost.archiver("a", &stop);
    lost.archived(3).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let before = whole(&lost.archive(), &lost.log).await;
    let identity = lost.log.identity();
    let newest = lost
        .archive()
        .newest()
        .await
        .expect("answers")
        .expect("segments");
    let newest = newest.manifest;

    let mut again = Cluster::start(&[]).await;
    again.folder = lost.folder;
    let archive = again.archive();
    archive.restore(&again.log, "test").await.expect("restores");
    let log = &again.log;
    assert_eq!(log.head().await.expect("a head"), newest.last);
    assert_eq!(log.identity(), identity);
    assert!(log.first() > Sequence(1) && log.first() <= newest.asof.next());
    let rows = whole(&archive, log).await;
    assert!(
        rows[..] == before[..rows.len()],
        "the archived events are there"
    );
    reaches::<ClusterState>(log, &rows).await;
    reaches::<ReadModel>(log, &rows).await;

    // The archive goes on with it.
    let head = events.len().min(newest.last.0 as usize);
    let mut operator = log.appender(Writer::Operator, None);
    for event in events[head..].iter().chain(&events[..1_100]) {
        let event = event.event().expect("known").clone();
        if event.writers() == [Writer::Operator] {
            operator.append(event, &[]).await.expect("stored");
        }
    }
    let stop = CancellationToken::new();
    let archiver = again.archiver("b", &stop);
    let number = newest.number;
    again.archived_after(newest.last, number, PATIENCE).await;
    stop.cancel();
    archiver.await.expect("joins").expect("stops");
    let verified = archive.verify(|_| {}).await.expect("verifies");
    assert!(verified.segments >= number);
    drop(lost.broker);
}
