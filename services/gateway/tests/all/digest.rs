//! Windows of measured traffic.

use dormouse_gateway::window_stats::{Around, WindowStats};
use dormouse_messages::GatewayId;
use dormouse_messages::events::ServiceMeasured;
use proptest::prelude::*;

use crate::common::job;

const SECOND: u64 = 1_000_000;
const MS: u64 = 1_000;

fn around(queued: u32, ready: u32, target: u32) -> Around {
    Around {
        queued,
        ready,
        target,
    }
}

fn due(digest: &mut WindowStats, around: Around, now: u64) -> Option<ServiceMeasured> {
    let gateway: GatewayId = "g0".parse().expect("valid");
    digest.due(&job("ads/model"), &gateway, around, now)
}

#[test]
fn a_window_says_rates_concurrency_latency_errors_and_what_was_shed() {
    let mut digest = WindowStats::new(Some(128), 0);
    // Ten requests of 100 ms, 20 ms of them queued, in the first second; one shed in the second.
    for at in 0..10 {
        let arrived = at * 100 * MS;
        digest.arrived(arrived);
        digest.left(arrived + 100 * MS);
        digest.answered(100 * MS, 80 * MS);
    }
    digest.failed();
    digest.turned_away(1_500 * MS);
    let measured = due(&mut digest, around(3, 2, 4), 2 * SECOND).expect("due");
    assert_eq!((measured.window_s, measured.requests), (2, 11));
    assert_eq!(measured.arrivals, [10, 1]);
    assert!((measured.concurrency - 0.5).abs() < 1e-9);
    assert_eq!((measured.errors, measured.shed), (1, 1));
    assert_eq!((measured.queued, measured.ready), (3, 2));
    assert!(measured.latency_ms.is_sound() && measured.service_ms.is_sound());
    assert_eq!(measured.latency_ms.total(), 10);
    assert!(measured.latency_ms.bounds.contains(&128.0));
    assert!((measured.latency_ms.at_most(128.0) - 10.0).abs() < 1e-9);
    assert!(measured.service_ms.at_most(86.0) > 5.0);
}

#[test]
fn a_window_lasts_two_seconds_busy_ten_idle_one_while_nobody_is_there_and_none_without_replicas() {
    let mut digest = WindowStats::new(None, 0);
    let idle = around(0, 1, 1);
    assert!((1..10).all(|second| due(&mut digest, idle, second * SECOND).is_none()));
    let measured = due(&mut digest, idle, 10 * SECOND).expect("due");
    assert_eq!((measured.window_s, measured.requests), (10, 0));
    let none = around(0, 0, 0);
    assert!((11..100).all(|second| due(&mut digest, none, second * SECOND).is_none()));
    digest.arrived(100 * SECOND + MS);
    let measured = due(&mut digest, around(1, 0, 0), 100 * SECOND + 2 * MS).expect("due");
    assert_eq!(
        (measured.queued, measured.requests, measured.window_s),
        (1, 1, 1)
    );
    assert_eq!(
        due(&mut digest, around(1, 0, 0), 100 * SECOND + 9 * MS),
        None
    );
    assert!(due(&mut digest, around(1, 0, 0), 101 * SECOND).is_some());
    assert!(due(&mut digest, around(1, 0, 0), 102 * SECOND).is_some());
    digest.left(102 * SECOND + MS);
    digest.answered(2 * SECOND, MS);
    assert_eq!(due(&mut digest, around(0, 1, 1), 103 * SECOND), None);
    let measured = due(&mut digest, around(0, 1, 1), 104 * SECOND).expect("due");
    assert_eq!(measured.latency_ms.total(), 1);
}

#[test]
fn what_could_not_be_told_for_a_minute_is_given_up() {
    let mut digest = WindowStats::new(None, 0);
    digest.arrived(SECOND);
    assert_eq!(due(&mut digest, around(0, 1, 1), 100 * SECOND), None);
    digest.arrived(101 * SECOND);
    let measured = due(&mut digest, around(0, 1, 1), 102 * SECOND).expect("due");
    assert_eq!(measured.requests, 1);
    assert!(
        (measured.concurrency - 1.5).abs() < 1e-9,
        "{}",
        measured.concurrency
    );
}

proptest! {
    /// Each request is in one window, and concurrencies add up to the time spent.
    #[test]
    fn windows_lose_and_double_nothing(
        stays in proptest::collection::vec((0..30 * SECOND, 0..3 * SECOND), 0..100),
    ) {
        let mut digest = WindowStats::new(Some(250), 0);
        let mut points: Vec<(u64, bool, u64)> = Vec::new();
        for (arrived, took) in &stays {
            points.push((*arrived, true, 0));
            points.push((arrived + took, false, *took));
        }
        points.sort();
        let (mut told, mut area, mut answered, mut seconds) = (0, 0.0, 0, 0);
        let mut tell = |digest: &mut WindowStats, second: u64| {
            if let Some(it) = due(digest, around(0, 1, 1), second * SECOND) {
                told += it.requests;
                area += it.concurrency * f64::from(it.window_s);
                answered += it.latency_ms.total();
                seconds += it.window_s;
                assert_eq!(it.arrivals.iter().map(|it| u64::from(*it)).sum::<u64>(), it.requests);
                assert_eq!(it.arrivals.len(), it.window_s as usize);
            }
        };
        let mut second = 1;
        for (at, arrives, took) in points {
            while second * SECOND <= at {
                tell(&mut digest, second);
                second += 1;
            }
            if arrives { digest.arrived(at) } else {
                digest.left(at);
                digest.answered(took, took);
            }
        }
        for _ in 0..20 {
            tell(&mut digest, second);
            second += 1;
        }
        let spent: u64 = stays.iter().map(|(_, took)| took).sum();
        prop_assert_eq!(told, stays.len() as u64);
        prop_assert_eq!(answered, stays.len() as u64);
        prop_assert!((area - spent as f64 / SECOND as f64).abs() < 1e-6, "{} {}", area, spent);
        prop_assert!(u64::from(seconds) <= second);
    }
}
