//! The shell with a toy decider: every decision once, despite failures of broker and copies.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::toy::{SlowToy, Toy, ToyState, assert_once, run, until_answered, without_lease};
use crate::common::{Broker, PATIENCE, drained, everything, fold_everything};
use dormouse_messages::{Decider, Decision, Event, Sequence, Timestamp, Writer};
use dormouse_runtime::{
    Log, LogItem, ServiceError, ServiceOptions, Settings, Snapshots, run_service,
};
use tokio_util::sync::CancellationToken;

async fn drain(log: &Log, numbers: std::ops::Range<u64>) {
    let mut operator = log.appender(Writer::Operator, None);
    for number in numbers {
        operator.append(drained(number), &[]).await.expect("stored");
    }
}

/// A decision of a large cluster may take a minute; a service that is replaced must not.
#[test]
fn a_process_that_stops_does_not_wait_for_its_decision() {
    let runtime = tokio::runtime::Runtime::new().expect("starts");
    let broker = runtime.block_on(async {
        let broker = Broker::start().await;
        let log = broker.log().await;
        let toy = SlowToy {
            takes: Duration::from_secs(20),
            ..SlowToy::default()
        };
        let service = run(toy, &log, without_lease());
        drain(&log, 0..1).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        service.stop().await;
        broker
    });
    let begun = Instant::now();
    drop(runtime);
    assert!(begun.elapsed() < PATIENCE / 4, "{:?}", begun.elapsed());
    drop(broker);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_decision_is_appended_once_with_its_basis() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let toy = Toy::default();
    let service = run(toy.clone(), &log, without_lease());
    drain(&log, 0..50).await;
    assert_once(&until_answered(&log, 50).await, 50);
    service.stop().await;
    let all = everything(&log).await;
    assert_eq!(all.len(), 100);
    let mut last_own = 0;
    for followed in &all {
        let LogItem::Event(recorded) = followed else {
            panic!("{followed:?}")
        };
        let Some(Event::NodeRecovered(event)) = recorded.event() else {
            continue;
        };
        let basis = event.basis.as_ref().expect("a decision has a basis");
        assert_eq!(basis.build, "test");
        let cause = *basis.causes.first().expect("a cause");
        assert!(cause <= basis.asof && basis.asof < recorded.sequence);
        assert!(recorded.envelope.traceparent.is_some());
        let id = &recorded.envelope.id;
        let expected: u64 = id
            .split('-')
            .nth(1)
            .and_then(|it| it.parse().ok())
            .expect("an id");
        assert!(
            id.starts_with("placer-") && expected >= last_own,
            "{id} after {last_own}"
        );
        last_own = expected;
    }
    // Silence causes no decision.
    let before = toy.decisions.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(toy.decisions.load(Ordering::Relaxed), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_active_copies_append_nothing_twice() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let other = Log::connect(&Settings::new(broker.broker.url(), "other"))
        .await
        .expect("connects");
    let one = run(Toy::default(), &log, without_lease());
    let two = run(Toy::default(), &other, without_lease());
    drain(&log, 0..300).await;
    assert_once(&until_answered(&log, 300).await, 300);
    one.stop().await;
    two.stop().await;
    assert_once(&fold_everything(&log).await, 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_costs_no_decision_and_doubles_none() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let service = run(Toy::default(), &log, without_lease());
    let draining = {
        let log = log.clone();
        tokio::spawn(async move { drain(&log, 0..1_500).await })
    };
    for _ in 0..2 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        broker.kill();
    }
    draining.await.expect("drained");
    assert_once(&until_answered(&log, 1_500).await, 1_500);
    service.stop().await;
    assert_once(&fold_everything(&log).await, 1_500);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_decision_of_thousands_goes_out_in_atomic_batches() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..2_500).await;
    let started = Instant::now();
    let service = run(Toy::default(), &log, without_lease());
    assert_once(&until_answered(&log, 2_500).await, 2_500);
    eprintln!("2,500 decisions in {:?}", started.elapsed());
    service.stop().await;
    // One decision in three chained batches.
    let all = everything(&log).await;
    let asof: std::collections::BTreeSet<Sequence> = all
        .iter()
        .filter_map(|followed| match followed {
            LogItem::Event(recorded) => Some(recorded.event()?.basis()?.asof),
            _ => None,
        })
        .collect();
    assert_eq!(asof.len(), 1, "{asof:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_event_is_flagged_once_and_passed() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..1).await;
    let client = broker.client().await;
    let publish = |subject: &'static str, payload: Vec<u8>| {
        let client = client.clone();
        async move {
            client
                .request(subject, payload.into())
                .await
                .expect("stored");
        }
    };
    // Also under the service's own name, where it moves the fence.
    publish("dormouse.log.placer.0.node.recovered", b"\xc1".to_vec()).await;
    publish("dormouse.log.nobody.0.x", b"hello".to_vec()).await;
    let envelope = dormouse_messages::Envelope::new(
        "forged".to_owned(),
        Writer::Optimizer,
        dormouse_messages::Timestamp::default(),
        None,
        drained(7),
    );
    let forged = envelope.to_msgpack().expect("encodes");
    publish("dormouse.log.optimizer.0.node.drained", forged).await;
    let service = run(Toy::default(), &log, without_lease());
    drain(&log, 1..3).await;
    let state = until_answered(&log, 3).await;
    assert_once(&state, 3);
    service.stop().await;
    let all = everything(&log).await;
    let flagged: Vec<_> = all
        .iter()
        .filter_map(|followed| match followed {
            LogItem::Flagged {
                sequence, writer, ..
            } => Some((sequence.0, *writer)),
            _ => None,
        })
        .collect();
    assert_eq!(
        flagged,
        [
            (2, Some(Writer::Placer)),
            (3, None),
            (4, Some(Writer::Optimizer))
        ]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_newer_build_wrote_stops_the_service_with_what_to_do() {
    // A new type, a new version, and a new form of the data.
    let types = [
        "dormouse.node.promoted.v1",
        "dormouse.node.drained.v9",
        "dormouse.node.drained.v1",
    ];
    for type_name in types {
        stops_at(type_name).await;
    }
}

async fn stops_at(type_name: &str) {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let service = run(Toy::default(), &log, without_lease());
    let later = serde_json::json!({
        "specversion": "1.0", "id": "x", "source": "/dormouse/operator", "type": type_name,
        "subject": "n0", "time": "2026-11-21T10:00:00Z", "data": {"drains": ["n0", "n1"]},
    });
    let payload = rmp_serde::to_vec_named(&later).expect("encodes");
    let client = broker.client().await;
    client
        .request("dormouse.log.operator.0.x", payload.into())
        .await
        .expect("stored");
    let result = service.task.await.expect("ran");
    assert!(
        matches!(
            &result,
            Err(ServiceError::UnknownVersion {
                sequence: Sequence(1),
                ..
            })
        ),
        "{type_name}: {result:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_decision_that_was_overtaken_is_made_again() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let toy = SlowToy {
        takes: Duration::from_millis(300),
        ..SlowToy::default()
    };
    drain(&log, 0..1).await;
    let service = run(toy.clone(), &log, without_lease());
    tokio::time::sleep(Duration::from_millis(150)).await;
    drain(&log, 1..2).await;
    assert_once(&until_answered(&log, 2).await, 2);
    assert!(toy.discarded.load(Ordering::Relaxed) >= 1);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_decision_that_is_overtaken_again_and_again_is_hurried() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let toy = SlowToy {
        takes: Duration::from_millis(800),
        ..SlowToy::default()
    };
    let service = run(toy.clone(), &log, without_lease());
    let always = async {
        for number in 0.. {
            drain(&log, number..number + 1).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = always => {}
        state = until_answered(&log, 1) => assert!(!state.answered.is_empty()),
    }
    assert!(toy.discarded.load(Ordering::Relaxed) >= 2);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_decider_that_is_quick_answers_once_while_others_write() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let service = run(SlowToy::default(), &log, without_lease());
    drain(&log, 0..100).await;
    assert_once(&until_answered(&log, 100).await, 100);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wake_up_fires_on_a_silent_log_and_does_not_spin() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let toy = Toy {
        wake_ms: Some(100),
        ..Toy::default()
    };
    let service = run(toy.clone(), &log, without_lease());
    let woken = async |toy: &Toy, times: u64, most_ms: u64| {
        let began = Instant::now();
        while toy.decisions.load(Ordering::Relaxed) < times {
            let in_time = began.elapsed() < Duration::from_millis(most_ms);
            assert!(in_time, "it wakes up too seldom");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        began.elapsed()
    };
    let took = woken(&toy, 10, 1_750).await;
    assert!(took > Duration::from_millis(800), "it spins: {took:?}");
    let due = Toy {
        wake_ms: Some(0),
        ..Toy::default()
    };
    service.stop().await;
    let service = run(due.clone(), &log, without_lease());
    let took = woken(&due, 60, 3_000).await;
    assert!(took > Duration::from_millis(400), "it spins: {took:?}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standing_by_copy_takes_over() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let other = Log::connect(&Settings::new(broker.broker.url(), "other"))
        .await
        .expect("connects");
    // The second copy's lease would outlast the test without a release.
    let options = |holder: &str, ttl_s: u64| ServiceOptions {
        holder: holder.to_owned(),
        lease_ttl: Duration::from_secs(ttl_s),
        ..ServiceOptions::default()
    };
    let first = run(Toy::default(), &log, options("first", 2));
    drain(&log, 0..1).await;
    until_answered(&log, 1).await;
    let toy = Toy::default();
    let second = run(toy.clone(), &other, options("second", 600));
    drain(&log, 1..2).await;
    until_answered(&log, 2).await;
    assert_eq!(toy.decisions.load(Ordering::Relaxed), 0, "it stands by");
    // A crash: the lease must expire.
    first.task.abort();
    drain(&log, 2..3).await;
    assert_once(&until_answered(&log, 3).await, 3);
    // A stop releases the lease.
    let third = run(Toy::default(), &log, options("third", 2));
    second.stop().await;
    drain(&log, 3..4).await;
    assert_once(&until_answered(&log, 4).await, 4);
    third.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_and_the_tail_are_the_whole_fold() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let options = || ServiceOptions {
        snapshot_dir: Some(broker.path().join("snapshots")),
        snapshot_every: 40,
        ..without_lease()
    };
    let service = run(Toy::default(), &log, options());
    drain(&log, 0..60).await;
    until_answered(&log, 60).await;
    // The service's follower may lag slightly.
    tokio::time::sleep(Duration::from_millis(200)).await;
    service.stop().await;
    let snapshots = Snapshots::new(broker.path().join("snapshots"), "test");
    let snapshot = snapshots.load::<ToyState>(&log).await.expect("usable");
    assert_eq!(snapshot.sequence, Sequence(120));
    assert_eq!(snapshot.state, fold_everything(&log).await);
    drain(&log, 60..70).await;
    let service = run(Toy::default(), &log, options());
    assert_once(&until_answered(&log, 70).await, 70);
    tokio::time::sleep(Duration::from_millis(200)).await;
    service.stop().await;
    let snapshot = snapshots.load::<ToyState>(&log).await.expect("usable");
    assert_eq!(snapshot.state, fold_everything(&log).await);

    let path = snapshots.path::<ToyState>();
    let good = std::fs::read(&path).expect("readable");
    let other_build = Snapshots::new(broker.path().join("snapshots"), "other");
    std::fs::copy(&path, other_build.path::<ToyState>()).expect("copied");
    assert!(other_build.load::<ToyState>(&log).await.is_none());
    let another = Broker::start().await;
    assert!(
        snapshots
            .load::<ToyState>(&another.log().await)
            .await
            .is_none()
    );
    for at in [0, 40, good.len() / 2, good.len() - 1] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).expect("written");
        assert!(
            snapshots.load::<ToyState>(&log).await.is_none(),
            "byte {at}"
        );
    }
    let service = run(Toy::default(), &log, options());
    drain(&log, 70..71).await;
    assert_once(&until_answered(&log, 71).await, 71);
    service.stop().await;
    let left = || std::fs::read_dir(broker.path().join("snapshots")).expect("a directory");
    let names = left().map(|entry| entry.expect("an entry").file_name());
    let (clocks, left): (Vec<_>, Vec<_>) = names.partition(|name| name == "clock.json");
    assert_eq!(clocks.len(), 1, "what tells how long it was away");
    assert_eq!(left.len(), 1, "those of other builds are removed");
}

struct Panics;

impl Decider for Panics {
    type State = ToyState;
    const WRITER: Writer = Writer::Placer;

    fn decide(&self, state: &ToyState, _: Timestamp) -> Decision {
        assert!(state.open.is_empty(), "as it was told to");
        Decision::default()
    }
}

async fn assert_its_panic_is_told(log: &Log, options: ServiceOptions) {
    let ended = run_service(Panics, log.clone(), options, None, CancellationToken::new());
    let ended = tokio::time::timeout(PATIENCE, ended)
        .await
        .expect("in time");
    assert!(
        matches!(ended, Err(ServiceError::Panicked("placer"))),
        "{ended:?}"
    );
}

#[test]
fn services_share_the_thread_they_are_started_on() {
    actix::System::new().block_on(async {
        let broker = Broker::start().await;
        let log = broker.log().await;
        let options = || ServiceOptions {
            own_thread: false,
            ..without_lease()
        };
        let start = |stop: &CancellationToken| {
            let service = run_service(Toy::default(), log.clone(), options(), None, stop.clone());
            actix::spawn(service)
        };
        let stop = CancellationToken::new();
        // Two copies write concurrently on one thread.
        let copies = [start(&stop), start(&stop)];
        drain(&log, 0..200).await;
        assert_once(&until_answered(&log, 200).await, 200);
        stop.cancel();
        for copy in copies {
            copy.await.expect("ran").expect("stopped in order");
        }
        drain(&log, 200..201).await;
        assert_its_panic_is_told(&log, options()).await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_on_a_thread_of_its_own_ends_the_service_alone() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    drain(&log, 0..1).await;
    assert_its_panic_is_told(&log, without_lease()).await;
}
