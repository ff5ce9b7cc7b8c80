//! Leases on a real broker: one holder, and fail-overs after the TTL.

use std::time::{Duration, Instant};

use crate::common::Broker;
use dormouse_runtime::{Lease, LeaseState, Log, Settings};
use nix::sys::signal::Signal;
use tokio::time::timeout;

const TTL: Duration = Duration::from_secs(2);
const LONG: Duration = Duration::from_secs(600);
const PATIENCE: Duration = Duration::from_secs(20);

async fn another(broker: &Broker) -> Log {
    Log::connect(&Settings::new(broker.broker.url(), "other"))
        .await
        .expect("connects")
}

async fn acquire(log: &Log, key: &str, holder: &str, ttl: Duration) -> Lease {
    let mut lease = log.leases().seek(key, holder, 0, ttl);
    lease.held().await;
    lease
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_fails_over_after_its_ttl_each_time() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let other = another(&broker).await;
    let mut holder = acquire(&log, "optimizer", "a", TTL).await;
    assert!(holder.is_held());
    // Twice: a lease over the marker of an ended one must expire too.
    for round in 0..2 {
        let mut next = other.leases().seek("optimizer", "b", 0, TTL);
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert!(!next.is_held(), "held by two");
        let renewed_at = holder.renewed_at().expect("held");
        drop(holder);
        next.held().await;
        let took = renewed_at.elapsed();
        assert!(
            took > TTL - Duration::from_millis(50),
            "round {round}: {took:?}"
        );
        holder = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_lease_is_free_at_once_and_one_cut_off_lapses() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let first = acquire(&log, "placer", "a", LONG).await;
    first.release().await;
    let second = timeout(PATIENCE, acquire(&log, "placer", "b", TTL)).await;
    let second = second.expect("it is free");
    let value = log.leases().holder("placer").await.expect("answers");
    assert_eq!(value.map(|value| value.holder).as_deref(), Some("b"));

    broker.signal(Signal::SIGSTOP);
    let mut states = second.watch();
    let waiting = |state: &LeaseState| matches!(state, LeaseState::Waiting { .. });
    timeout(PATIENCE, states.wait_for(waiting))
        .await
        .expect("it notices without the broker")
        .expect("the lease lives");
    broker.signal(Signal::SIGCONT);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_stopped_while_it_is_being_renewed_is_given_back() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let term = Duration::from_secs(6);
    for round in 0..3 {
        let held = timeout(term / 2, acquire(&log, "placer", "a", term)).await;
        let held = held.unwrap_or_else(|_| panic!("round {round}: not given back"));
        broker.signal(Signal::SIGSTOP);
        tokio::time::sleep(term / 3 + Duration::from_millis(100)).await;
        let released = tokio::spawn(held.release());
        tokio::time::sleep(Duration::from_millis(5)).await;
        broker.signal(Signal::SIGCONT);
        released.await.expect("released");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_lost_but_an_outage_does_not_count() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let expected = vec![("n0".parse().expect("a name"), 1)];
    let agent = another(&broker).await;
    let mut lease = agent.leases().seek("node.n0", "n0", 1, TTL);
    lease.held().await;
    let table = log.leases().table();
    let watch = |span: Duration| {
        let (table, expected) = (&table, &expected);
        async move {
            let started = Instant::now();
            while started.elapsed() < span {
                if !table.lost(expected, TTL).is_empty() {
                    return Some(started.elapsed());
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            None
        }
    };
    assert_eq!(watch(Duration::from_millis(2_500)).await, None);
    broker.kill();
    assert_eq!(watch(Duration::from_millis(2_700)).await, None, "an outage");
    drop(lease);
    let lost = watch(Duration::from_millis(3_500)).await.expect("lost");
    assert!(lost > Duration::from_millis(1_000), "{lost:?}");
}
