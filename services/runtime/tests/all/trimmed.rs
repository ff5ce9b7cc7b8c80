//! A log without its beginning: who starts and who goes on.

use std::time::Duration;

use crate::common::toy::{Running, Toy, ToyState, assert_once, run, until_answered, without_lease};
use crate::common::trio::Trio;
use crate::common::{Broker, PATIENCE, drained};
use dormouse_messages::{Fold, Format, NewerFormat, Sequence, Timestamp, Writer};
use dormouse_runtime::{
    Clock, Log, LogError, LogItem, ServiceOptions, Snapshot, Snapshots, SystemClock,
};

async fn drain(log: &Log, numbers: std::ops::Range<u64>) {
    let mut operator = log.appender(Writer::Operator, None);
    for number in numbers {
        operator.append(drained(number), &[]).await.expect("stored");
    }
}

/// Folds the log up to its head.
async fn folded(log: &Log, from: Snapshot<ToyState>) -> Snapshot<ToyState> {
    let head = log.head().await.expect("a head");
    let read = log.read(from.sequence.next(), head).await;
    let (mut read, mut snapshot) = (read.expect("readable"), from);
    while let Some(item) = read.recv().await {
        if let LogItem::Event(recorded) = item {
            snapshot.state.evolve(&recorded);
            (snapshot.sequence, snapshot.stored_at) = (recorded.sequence, recorded.stored_at);
        }
    }
    snapshot.log = log.identity();
    snapshot
}

/// Puts the newest state on the broker, and trims what it holds.
async fn put_and_trim(log: &Log, from: Snapshot<ToyState>) -> Snapshot<ToyState> {
    let state = folded(log, from).await;
    log.states()
        .put(&state, "another build")
        .await
        .expect("put");
    let trimmed = log.trim(state.sequence, in_a_day()).await;
    assert_eq!(trimmed.expect("trims"), state.sequence);
    state
}

/// A time at which no consumer of now counts as alive.
fn in_a_day() -> Timestamp {
    SystemClock.now().plus_ms(24 * 3_600_000)
}

fn nothing(log: &Log) -> Snapshot<ToyState> {
    Snapshot {
        state: ToyState::default(),
        log: log.identity(),
        sequence: Sequence(0),
        stored_at: Timestamp::default(),
        own_last: Sequence(0),
    }
}

fn toy(log: &Log, snapshots: Option<&std::path::Path>) -> Running {
    let options = ServiceOptions {
        snapshot_dir: snapshots.map(std::path::Path::to_owned),
        ..without_lease()
    };
    run(Toy::default(), log, options)
}

/// Waits until the state on top of `from` has `nodes` answers.
async fn answered_on(log: &Log, from: &Snapshot<ToyState>, nodes: usize) {
    let wait = async {
        loop {
            let state = folded(log, from.clone()).await.state;
            if state.answered.len() == nodes {
                assert!(
                    state.answered.values().all(|times| *times == 1),
                    "{state:?}"
                );
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let waited = tokio::time::timeout(PATIENCE, wait).await;
    waited.expect("answered in time");
}

/// A service goes on after its own last event is trimmed, and a new copy starts from the state on the broker.
async fn goes_on(log: &Log, other: &Log) {
    let running = toy(log, None);
    drain(log, 0..20).await;
    assert_once(&until_answered(log, 20).await, 20);
    // The operator alone writes; the service's events are all trimmed.
    drain(log, 20..21).await;
    assert_once(&until_answered(log, 21).await, 21);
    running.stop().await;
    drain(log, 60..63).await;
    let state = put_and_trim(log, nothing(log)).await;
    assert_eq!(log.first(), state.sequence);
    // Both know none of their own events, and the operator's appender has lost its fence.
    let running = toy(log, None);
    let second = toy(other, None);
    drain(log, 21..60).await;
    answered_on(log, &state, 63).await;
    running.stop().await;
    second.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_goes_on_when_its_own_events_are_trimmed() {
    let broker = Broker::start().await;
    let (log, other) = (broker.log().await, broker.log().await);
    goes_on(&log, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_goes_on_when_its_own_events_are_trimmed_on_three_brokers() {
    let trio = Trio::start().await;
    let (log, other) = (trio.log(0).await, trio.log(1).await);
    log.ensure_streams().await.expect("streams");
    goes_on(&log, &other).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_appender_whose_events_are_trimmed_goes_on() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let node = "n0".parse().expect("a name");
    let mut agent = log.appender(Writer::Node, Some(node));
    agent.append(drained(0), &[]).await.expect("stored");
    drain(&log, 1..4).await;
    assert_eq!(
        log.trim(Sequence(4), in_a_day()).await.expect("trims"),
        Sequence(4)
    );
    let begun = std::time::Instant::now();
    let stored = agent.append(drained(5), &[]).await;
    assert_eq!(stored.expect("stored"), Sequence(5));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_passed_starts_again_from_a_newer_state() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..10).await;
    let early = log.start::<ToyState>(None).await.expect("starts");
    assert_eq!(early.sequence, Sequence(0));
    let state = put_and_trim(&log, early).await;
    assert!(matches!(
        log.read(Sequence(1), Sequence(10)).await,
        Err(LogError::Trimmed {
            first: Sequence(10)
        })
    ));
    let mut followed = log.follow(Sequence(1));
    let ended = tokio::time::timeout(PATIENCE, followed.recv()).await;
    assert!(ended.expect("in time").is_none());
    let started = log.start::<ToyState>(None).await.expect("starts");
    assert_eq!(
        (started.sequence, started.state),
        (Sequence(10), state.state)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_from_before_the_first_event_is_not_used() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..4).await;
    let state = folded(&log, nothing(&log)).await;
    let snapshots = Snapshots::new(broker.path().join("snapshots"), "test");
    snapshots.save(&state).expect("saved");
    drain(&log, 4..9).await;
    // The next event is there: the snapshot still fits.
    log.trim(Sequence(5), in_a_day()).await.expect("trims");
    let started = log.start::<ToyState>(Some(&snapshots)).await;
    assert_eq!(started.expect("starts").sequence, Sequence(4));
    let newer = put_and_trim(&log, state).await;
    let started = log.start::<ToyState>(Some(&snapshots)).await;
    assert_eq!(started.expect("starts").sequence, newer.sequence);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_state_of_several_pieces_is_replaced_and_the_one_before_stays() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..3).await;
    let mut state = folded(&log, nothing(&log)).await;
    // Names that do not compress.
    for number in 0..60_000_u64 {
        let name = blake3::hash(&number.to_be_bytes()).to_hex();
        let name = format!("n{}", &name[..40]).parse().expect("a name");
        state.state.answered.insert(name, number);
    }
    for sequence in [3, 2] {
        state.sequence = Sequence(sequence);
        log.states().put(&state, "test").await.expect("put");
    }
    log.trim(Sequence(3), in_a_day()).await.expect("trims");
    let started = log.start::<ToyState>(None).await.expect("starts");
    assert_eq!(
        (started.sequence, started.state),
        (Sequence(3), state.state)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_that_a_living_reader_waits_for_is_trimmed() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..10_000).await;
    // The channel holds 4,096 events: the reader stands still there.
    let mut followed = log.follow(Sequence(1));
    while followed.len() < 4_000 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let first = log.trim(Sequence(10_000), SystemClock.now()).await;
    let first = first.expect("trims");
    for expected in 1..=10_000 {
        let item = tokio::time::timeout(PATIENCE, followed.recv()).await;
        let Some(LogItem::Event(recorded)) = item.expect("in time") else {
            panic!("the reader ended, the log begins at {first}")
        };
        assert_eq!(recorded.sequence, Sequence(expected));
    }
}

/// The upgrade's event may be trimmed, so the states name the format, too.
#[tokio::test]
async fn a_build_does_not_start_on_a_newer_format_whose_upgrade_is_trimmed() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..10).await;
    put_and_trim(&log, nothing(&log)).await;
    log.start::<ToyState>(None).await.expect("its format");
    let newer = NewerFormat {
        sequence: Sequence(5),
        format: Format(Format::NEWEST.0 + 1),
        by: Some("a later build".to_owned()),
    };
    log.states().put_format(&newer).await.expect("put");
    let refused = log.start::<ToyState>(None).await;
    let why = refused.err().map(|error| error.to_string());
    assert!(
        why.as_ref()
            .is_some_and(|why| why.contains("a later build")),
        "{why:?}"
    );
}
