//! Concurrent writers: three replicas keep running, and each writer's events are in order, without gaps or
//! duplicates.

use std::time::{Duration, Instant};

use crate::common::chatty::{Chatty, TIMES, numbers_of};
use crate::common::toy::{self, Running, Toy, run, without_lease};
use crate::common::trio::Trio;
use crate::common::{Broker, PATIENCE, drained, everything};
use dormouse_messages::events::Writer;
use dormouse_messages::{Event, Sequence};
use dormouse_runtime::{Log, LogItem, ServiceOptions, Settings};

const NODES: u64 = 150;

const WRITERS: [Writer; 3] = [Writer::Admission, Writer::Placer, Writer::Checkpointer];

async fn drain(log: &Log) {
    let mut operator = log.appender(Writer::Operator, None);
    for number in 0..NODES {
        operator.append(drained(number), &[]).await.expect("stored");
    }
}

/// Two active copies of each writer, at different brokers.
async fn two_copies_each(trio: &Trio) -> Vec<Running> {
    let mut services = Vec::new();
    for server in [1, 2] {
        let log = trio.log(server).await;
        let options = || ServiceOptions {
            own_thread: true,
            ..without_lease()
        };
        services.push(run(Chatty::<0>, &log, options()));
        services.push(run(Chatty::<1>, &log, options()));
        services.push(run(Chatty::<2>, &log, options()));
    }
    services
}

async fn until_answered(log: &Log) {
    let answered = async {
        loop {
            let all = everything(log).await;
            let last = NODES * TIMES - 1;
            let done = |writer: &Writer| numbers_of(&all, *writer).contains(&last);
            if WRITERS.iter().all(done) {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let all = tokio::time::timeout(6 * PATIENCE, answered)
        .await
        .expect("answered in time");
    assert!(all.iter().all(|it| matches!(it, LogItem::Event(_))));
    for writer in WRITERS {
        let numbers: Vec<u64> = (0..NODES * TIMES).collect();
        assert_eq!(numbers_of(&all, writer), numbers, "{writer}");
    }
}

/// Pipelined appends are interrupted constantly here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_on_one_broker_miss_and_double_nothing() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut services = Vec::new();
    for _ in [1, 2] {
        let log = Log::connect(&Settings::new(broker.broker.url(), "writers")).await;
        let log = log.expect("connects");
        services.push(run(Chatty::<0>, &log, without_lease()));
        services.push(run(Chatty::<1>, &log, without_lease()));
        services.push(run(Chatty::<2>, &log, without_lease()));
    }
    drain(&log).await;
    until_answered(&log).await;
    for service in services {
        service.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_with_two_copies_each_never_stop_the_log() {
    let trio = Trio::start().await;
    let log = trio.log(0).await;
    let services = two_copies_each(&trio).await;
    drain(&log).await;
    until_answered(&log).await;
    for service in services {
        service.stop().await;
    }
    trio.assert_no_write_error();
}

/// About 200 events a second with the answers.
const DRAINS_A_SECOND: u64 = 200 / (1 + 3 * TIMES);

const BETWEEN_KILLS: Duration = Duration::from_secs(40);
const DEAD: Duration = Duration::from_secs(8);

/// Reads until each writer has answered all `drains` in order, once. Returns the number of events and the
/// longest pause.
async fn watch(log: Log, drains: u64) -> (u64, Duration) {
    let mut events = log.follow(Sequence(1));
    let (mut count, mut drained, mut next) = (0, 0, [0; 3]);
    let (mut last, mut longest) = (Instant::now(), Duration::ZERO);
    while drained < drains || next.iter().any(|next| *next < drains * TIMES) {
        let recorded = match events.recv().await.expect("the log is not another one") {
            LogItem::Event(recorded) => recorded,
            LogItem::CaughtUp(_) => continue,
            flagged @ LogItem::Flagged { .. } => panic!("{flagged:?}"),
        };
        count += 1;
        longest = longest.max(last.elapsed());
        last = Instant::now();
        if let Some(Event::NodeDrained(event)) = recorded.event() {
            assert_eq!(event.node.as_str(), format!("n{drained}"));
            drained += 1;
        }
        let followed = [LogItem::Event(recorded)];
        for (writer, next) in WRITERS.iter().zip(&mut next) {
            for number in numbers_of(&followed, *writer) {
                assert_eq!(number, *next, "{writer}");
                *next += 1;
            }
        }
    }
    (count, longest)
}

/// Half of the time without faults, half with kills of the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make log-test MINUTES=60"]
async fn a_log_carries_its_writers_for_long() {
    let minutes = std::env::var("DORMOUSE_LOG_MINUTES");
    let minutes: u64 = minutes.ok().and_then(|it| it.parse().ok()).unwrap_or(2);
    let drains = minutes * 60 * DRAINS_A_SECOND;
    let mut trio = Trio::start().await;
    let log = trio.log(0).await;
    let services = two_copies_each(&trio).await;
    let begun = Instant::now();
    let watched = tokio::spawn(watch(trio.log(1).await, drains));
    let mut operator = log.appender(Writer::Operator, None);
    let drained = tokio::spawn(async move {
        let second = Duration::from_secs(1);
        let mut pace =
            tokio::time::interval(second / u32::try_from(DRAINS_A_SECOND).expect("small"));
        for number in 0..drains {
            pace.tick().await;
            operator.append(drained(number), &[]).await.expect("stored");
            if number % (60 * DRAINS_A_SECOND) == 0 {
                eprintln!("{:?}: {number} of {drains}", begun.elapsed());
            }
        }
    });
    tokio::time::sleep(Duration::from_secs(30 * minutes)).await;
    let mut kills = 0;
    while !drained.is_finished() {
        assert!(!watched.is_finished(), "the log is not in order");
        let followers = trio.followers_of_the_log(&log).await;
        let leader = (0..3).find(|it| !followers.contains(it)).expect("a leader");
        trio.kill(leader);
        kills += 1;
        tokio::time::sleep(DEAD).await;
        trio.start_again(leader);
        tokio::time::sleep(BETWEEN_KILLS).await;
    }
    drained.await.expect("stored");
    let seen = tokio::time::timeout(6 * PATIENCE, watched).await;
    let (count, longest) = seen.expect("answered in time").expect("in order");
    // Time for late duplicates.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(log.head().await.expect("a head"), Sequence(count));
    assert_eq!(count, drains * (1 + 3 * TIMES));
    eprintln!(
        "{count} events in {:?}, {kills} leaders killed; at most {longest:?} without an event",
        begun.elapsed()
    );
    for service in services {
        service.stop().await;
    }
    trio.assert_no_write_error();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_majority_loses_no_event_and_doubles_none() {
    let trio = Trio::start().await;
    let log = trio.log(0).await;
    let mut agent = log.appender(Writer::Node, Some("n0".parse().expect("a name")));
    let event = |number| crate::common::chatty::joined("n0", number);
    agent.append(event(0), &[]).await.expect("stored");
    let followers = trio.followers_of_the_log(&log).await;
    for follower in &followers {
        trio.stop(*follower);
    }
    let stall = async {
        // Exceeds the wait for an acknowledgement: the event is repeated.
        tokio::time::sleep(Duration::from_secs(8)).await;
        for follower in &followers {
            trio.go_on(*follower);
        }
    };
    let append = async {
        for number in 1..=5 {
            let appended = tokio::time::timeout(4 * PATIENCE, agent.append(event(number), &[]));
            appended.await.expect("in time").expect("not refused");
        }
    };
    tokio::join!(stall, append);
    let last = async {
        loop {
            let numbers = crate::common::chatty::joins(&everything(&log).await);
            // A deposed leader may answer without the event.
            if numbers.last() == Some(&5) {
                return numbers;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let numbers = tokio::time::timeout(2 * PATIENCE, last).await;
    assert_eq!(numbers.expect("in time"), [0, 1, 2, 3, 4, 5]);
}

/// With two brokers stopped there is no leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_starts_while_nobody_leads_the_log_waits() {
    let trio = Trio::start().await;
    let log = trio.log(0).await;
    let mut operator = log.appender(Writer::Operator, None);
    operator.append(drained(0), &[]).await.expect("stored");
    let followers = trio.followers_of_the_log(&log).await;
    let still: Vec<usize> = (0..3).filter(|it| *it != followers[0]).collect();
    let log = trio.log(followers[0]).await;
    still.iter().for_each(|server| trio.stop(*server));
    while log.head().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let service = run(Toy::default(), &log, without_lease());
    // Exceeds the wait for an answer.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!service.task.is_finished());
    still.iter().for_each(|server| trio.go_on(*server));
    toy::assert_once(&toy::until_answered(&log, 1).await, 1);
    service.stop().await;
}
