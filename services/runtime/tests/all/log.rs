//! Appending and following through crashes of a real broker.

use std::time::Duration;

use crate::accounts::Secured;
use crate::common::{Broker, drained, everything, next_event};
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Envelope, Event, Sequence, Timestamp, Writer};
use dormouse_runtime::{AppendError, Log, LogItem};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_appended_is_followed_in_order() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    assert!(log.identity().starts_with("DORMOUSE_LOG@"));
    let mut followed = log.follow(Sequence(1));
    assert!(matches!(
        followed.recv().await,
        Some(LogItem::CaughtUp(Sequence(0)))
    ));
    let mut appender = log.appender(Writer::Operator, None);
    for number in 0..100 {
        appender.append(drained(number), &[]).await.expect("stored");
    }
    for number in 0..100 {
        let recorded = next_event(&mut followed).await;
        assert_eq!(recorded.event(), Some(&drained(number)));
    }
    assert_eq!(log.head().await.expect("answers"), Sequence(100));
    assert_eq!(everything(&log).await.len(), 100);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_broker_loses_and_repeats_nothing() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut followed = log.follow(Sequence(1));
    let appending = {
        let log = log.clone();
        tokio::spawn(async move {
            let mut appender = log.appender(Writer::Operator, None);
            for number in 0..2_000 {
                appender.append(drained(number), &[]).await.expect("stored");
            }
        })
    };
    for number in 0..2_000 {
        if number == 300 || number == 1_200 {
            broker.kill();
        }
        let recorded = next_event(&mut followed).await;
        assert_eq!(recorded.event(), Some(&drained(number)));
    }
    appending.await.expect("appended");
    assert_eq!(log.head().await.expect("answers"), Sequence(2_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_operators_append_in_turn_but_an_agent_is_alone() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut one = log.appender(Writer::Operator, None);
    let mut other = log.appender(Writer::Operator, None);
    for number in 0..10 {
        one.append(drained(number), &[]).await.expect("stored");
        other.append(drained(number), &[]).await.expect("stored");
    }
    assert_eq!(everything(&log).await.len(), 20);

    let joined = |incarnation| {
        dormouse_messages::Event::from(dormouse_messages::events::NodeJoined {
            node: "n0".parse().expect("a name"),
            capacity: dormouse_messages::Amounts::default(),
            labels: std::collections::BTreeMap::new(),
            gpus: Vec::new(),
            incarnation,
            running: Vec::new(),
            address: String::new(),
            runtime: String::new(),
            taints: Default::default(),
        })
    };
    let node = || Some("n0".parse().expect("a name"));
    let mut agent = log.appender(Writer::Node, node());
    let mut twin = log.appender(Writer::Node, node());
    agent.append(joined(1), &[]).await.expect("stored");
    twin.append(joined(2), &[]).await.expect("stored");
    let error = agent.append(joined(3), &[]).await;
    assert!(
        matches!(error, Err(AppendError::Superseded { .. })),
        "{error:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_broker_makes_an_append_wait() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let mut appender = log.appender(Writer::Operator, None);
    appender.append(drained(0), &[]).await.expect("stored");
    let pid = broker.broker.pid();
    let stop = |signal| {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a pid"));
        nix::sys::signal::kill(pid, signal).expect("signalled");
    };
    stop(nix::sys::signal::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(100)).await;
    let append = tokio::spawn(async move { appender.append(drained(1), &[]).await });
    // Exceeds the wait for an answer: the append is in doubt and repeated.
    tokio::time::sleep(Duration::from_millis(5_600)).await;
    assert!(!append.is_finished());
    stop(nix::sys::signal::SIGCONT);
    let stored = append.await.expect("ran").expect("stored");
    assert_eq!(stored, Sequence(2));
    assert_eq!(everything(&log).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_word_is_that_of_all_operators() {
    let secured = Secured::start().await;
    let (owner, olga) = (
        secured.log("operator").await,
        secured.log("operator-olga").await,
    );
    let policy = |theta1| {
        let policy = Policy {
            theta1,
            ..Policy::default()
        };
        Event::from(ClusterConfigured { policy })
    };
    let last = async |log: &Log| {
        let last = log
            .last_event_of(Writer::Operator, "cluster.configured")
            .await;
        match last.expect("answered") {
            Some(Event::ClusterConfigured(event)) => Some(event.policy.theta1),
            _ => None,
        }
    };
    assert_eq!(last(&owner).await, None);
    for (log, theta1) in [(&owner, 0.1), (&olga, 0.2), (&owner, 0.3), (&olga, 0.4)] {
        let mut appender = log.appender(Writer::Operator, None);
        appender.append(policy(theta1), &[]).await.expect("stored");
        assert_eq!(
            (last(&owner).await, last(&olga).await),
            (Some(theta1), Some(theta1))
        );
    }
    let mut forged = Envelope::new(
        "x",
        Writer::Operator,
        Timestamp::default(),
        None,
        policy(0.9),
    );
    forged.source = "/dormouse/operator/otto".into();
    let payload = forged.to_msgpack().expect("encodes");
    let (client, _) = secured.client("operator-olga").await;
    let subject = "dormouse.log.operator.0.cluster.configured";
    client
        .request(subject, payload.into())
        .await
        .expect("stored");
    assert_eq!(last(&owner).await, Some(0.4));
    let before = owner.last_of_operators().await.expect("answered");
    let mut other = olga.appender(Writer::Operator, None);
    other.append(policy(0.5), &[]).await.expect("stored");
    let late = owner.operator_after(before).append(policy(0.6), &[]).await;
    assert!(
        matches!(late, Err(AppendError::Superseded { .. })),
        "{late:?}"
    );
    let before = owner.last_of_operators().await.expect("answered");
    let mut changing = owner.operator_after(before);
    for theta1 in [0.6, 0.7] {
        changing.append(policy(theta1), &[]).await.expect("stored");
    }
    assert_eq!(last(&olga).await, Some(0.7));
}
