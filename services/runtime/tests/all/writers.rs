//! Several writers at once: what they send never stops a log with three replicas, and each writer's
//! events are stored in its order, without a gap and without a double.

use std::time::Duration;

use crate::common::chatty::{Chatty, TIMES, numbers_of};
use crate::common::toy::{self, Toy, run, without_lease};
use crate::common::trio::Trio;
use crate::common::{Broker, PATIENCE, drained, everything};
use dormouse_messages::events::Writer;
use dormouse_runtime::{Followed, Log, ServiceOptions};

/// Drained nodes; each of three writers answers each of them with [`TIMES`] events.
const NODES: u64 = 150;

async fn drain(log: &Log) {
    let mut operator = log.appender(Writer::Operator, None);
    for number in 0..NODES {
        operator.append(drained(number), &[]).await.expect("stored");
    }
}

async fn until_answered(log: &Log) {
    let writers = [Writer::Admission, Writer::Placer, Writer::Checkpointer];
    let answered = async {
        loop {
            let all = everything(log).await;
            let last = NODES * TIMES - 1;
            let done = |writer: &Writer| numbers_of(&all, *writer).contains(&last);
            if writers.iter().all(done) {
                return all;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let all = tokio::time::timeout(6 * PATIENCE, answered)
        .await
        .expect("answered in time");
    assert!(all.iter().all(|it| matches!(it, Followed::Event(_))));
    for writer in writers {
        let numbers: Vec<u64> = (0..NODES * TIMES).collect();
        assert_eq!(numbers_of(&all, writer), numbers, "{writer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_with_two_copies_each_never_stop_the_log() {
    let trio = Trio::start().await;
    let log = trio.log(0).await;
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
    drain(&log).await;
    until_answered(&log).await;
    for service in services {
        service.stop().await;
    }
    trio.assert_no_write_error();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writers_on_one_broker_miss_and_double_nothing() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let services = [
        run(Chatty::<0>, &log, without_lease()),
        run(Chatty::<1>, &log, without_lease()),
        run(Chatty::<2>, &log, without_lease()),
    ];
    drain(&log).await;
    until_answered(&log).await;
    for service in services {
        service.stop().await;
    }
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
        // Longer than an acknowledgement is waited for: the same event is sent again and again.
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
            // A leader that is none any more may answer without it.
            if numbers.last() == Some(&5) {
                return numbers;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let numbers = tokio::time::timeout(2 * PATIENCE, last).await;
    assert_eq!(numbers.expect("in time"), [0, 1, 2, 3, 4, 5]);
}

/// The leader of the log and a follower stand still: nobody leads it, and the third says so or nothing.
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
    // Longer than an answer is waited for. The third may give some, now and then.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!service.task.is_finished());
    still.iter().for_each(|server| trio.go_on(*server));
    toy::assert_once(&toy::until_answered(&log, 1).await, 1);
    service.stop().await;
}
