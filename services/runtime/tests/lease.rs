//! Leases against a real broker: one holder, a fail-over after the TTL, again and again.

mod common;

use std::time::{Duration, Instant};

use common::Broker;
use dormouse_runtime::{LeaseState, Log, Settings};

const TTL: Duration = Duration::from_secs(2);

async fn another(broker: &Broker) -> Log {
    Log::connect(&Settings::new(broker.broker.url(), "other"))
        .await
        .expect("connects")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_fails_over_after_its_ttl_each_time() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let other = another(&broker).await;
    let mut holder = log.leases().acquire("optimizer", "a", TTL).await;
    assert!(holder.is_held());
    // Twice: a lease taken over the marker of an ended one must end as well.
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
        assert!(
            took < TTL + Duration::from_millis(900),
            "round {round}: {took:?}"
        );
        holder = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_released_lease_is_free_at_once_and_one_cut_off_lapses() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let first = log.leases().acquire("placer", "a", TTL).await;
    first.release().await;
    let started = Instant::now();
    let second = log.leases().acquire("placer", "b", TTL).await;
    assert!(started.elapsed() < Duration::from_millis(500));
    let value = log.leases().holder("placer").await.expect("answers");
    assert_eq!(value.map(|value| value.holder).as_deref(), Some("b"));

    let pid = nix::unistd::Pid::from_raw(i32::try_from(broker.broker.pid()).expect("a pid"));
    nix::sys::signal::kill(pid, nix::sys::signal::SIGSTOP).expect("stopped");
    let mut states = second.watch();
    let waiting = |state: &LeaseState| matches!(state, LeaseState::Waiting { .. });
    tokio::time::timeout(TTL + Duration::from_millis(300), states.wait_for(waiting))
        .await
        .expect("it notices before anyone else may take it")
        .expect("the lease lives");
    nix::sys::signal::kill(pid, nix::sys::signal::SIGCONT).expect("goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_node_is_lost_but_an_outage_does_not_count() {
    let broker = Broker::start().await;
    let log = broker.log().await;
    let node = "n0".parse().expect("a name");
    let expected = vec![("n0".parse().expect("a name"), 1)];
    let agent = another(&broker).await;
    let mut lease = agent.leases().node(&node, 1, TTL);
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
