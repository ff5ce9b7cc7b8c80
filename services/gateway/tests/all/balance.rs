//! Load balancing.

use std::collections::BTreeMap;

use dormouse_gateway::balance::{Arrival, Balance, Outcome, QUEUE, Replica, Ticket};
use dormouse_messages::{Incarnation, Rank};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const LATER: u64 = 100 * SECOND;

fn replica(rank: u32) -> Replica {
    (Incarnation(1), Rank(rank))
}

/// Replicas past their ramp-up.
fn warm(limit: u32, replicas: u32) -> Balance {
    let mut balance = Balance::new(limit);
    let all: Vec<Replica> = (0..replicas).map(replica).collect();
    balance.route(&all, 0);
    balance
}

#[track_caller]
fn sent(arrival: Arrival) -> Replica {
    match arrival {
        Arrival::Sent(replica) => replica,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_least_loaded_replica_below_its_limit_gets_it_and_the_rest_waits_in_order() {
    let mut balance = warm(2, 2);
    let mut counts = BTreeMap::new();
    for ticket in 0..4 {
        let to = sent(balance.arrive(Ticket(ticket), LATER, LATER + SECOND));
        *counts.entry(to).or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([(replica(0), 2), (replica(1), 2)]));
    for ticket in 4..6 {
        let arrival = balance.arrive(Ticket(ticket), LATER, LATER + SECOND);
        assert_eq!(arrival, Arrival::Waits);
    }
    assert_eq!(balance.next(LATER), None);
    balance.end(replica(1), Outcome::Answered, 1_000, LATER);
    assert_eq!(balance.next(LATER), Some((Ticket(4), replica(1))));
    assert_eq!(balance.next(LATER), None);
}

#[test]
fn nobody_overtakes_who_waits() {
    let mut balance = warm(1, 0);
    assert_eq!(balance.arrive(Ticket(0), 0, SECOND), Arrival::Waits);
    balance.route(&[replica(0)], 0);
    assert_eq!(balance.arrive(Ticket(1), 0, SECOND), Arrival::Waits);
    assert_eq!(balance.next(0), Some((Ticket(0), replica(0))));
}

#[test]
fn the_queue_is_bounded_and_has_a_deadline() {
    let mut balance = warm(1, 0);
    for ticket in 0..QUEUE as u64 {
        assert_eq!(balance.arrive(Ticket(ticket), 0, ticket), Arrival::Waits);
    }
    assert_eq!(balance.arrive(Ticket(9_999), 0, SECOND), Arrival::Shed);
    let expired = balance.expire(99);
    assert_eq!(expired, (0..100).map(Ticket).collect::<Vec<_>>());
    assert_eq!(balance.arrive(Ticket(9_999), 0, SECOND), Arrival::Waits);
}

#[test]
fn a_slow_replica_gets_less_and_an_error_counts_as_slow() {
    for outcome in [Outcome::Answered, Outcome::Failed] {
        let mut balance = warm(100, 2);
        for _ in 0..20 {
            for rank in 0..2 {
                let (outcome, took) = match rank {
                    0 if outcome == Outcome::Answered => (outcome, 100_000),
                    0 => (outcome, 100),
                    _ => (Outcome::Answered, 10_000),
                };
                balance.end(replica(rank), outcome, took, LATER);
            }
        }
        let now = LATER + SECOND;
        let first = (0..11).filter(|_| sent(balance.arrive(Ticket(0), now, now)) == replica(0));
        let first = first.count();
        assert!(first <= 3, "{outcome:?}: {first} of 11 to the bad one");
    }
}

#[test]
fn who_breaks_connections_rests_longer_each_time_and_is_tried_again() {
    let mut balance = warm(1, 1);
    let mut rests = Vec::new();
    let mut now = LATER;
    for ticket in 0..8 {
        assert_eq!(
            balance.arrive(Ticket(ticket), now, now + LATER),
            Arrival::Sent(replica(0))
        );
        balance.end(replica(0), Outcome::Broken, 0, now);
        let broke = now;
        let arrival = balance.arrive(Ticket(100), now, now + LATER);
        assert_eq!(arrival, Arrival::Waits);
        while balance.next(now).is_none() {
            now += 10_000;
        }
        balance.end(replica(0), Outcome::Abandoned, 0, now);
        rests.push((now - broke) / 100_000);
    }
    assert_eq!(rests, [1, 2, 4, 8, 16, 32, 50, 50]);
    let _ = balance.arrive(Ticket(0), now, now);
    balance.end(replica(0), Outcome::Answered, 1_000, now);
    assert_eq!(
        balance.arrive(Ticket(0), now, now),
        Arrival::Sent(replica(0))
    );
}

#[test]
fn a_service_that_fails_altogether_is_not_made_to_wait() {
    let mut balance = warm(1, 2);
    for _ in 0..100 {
        let to = sent(balance.arrive(Ticket(0), LATER, LATER));
        balance.end(to, Outcome::Failed, 1_000, LATER);
    }
    let _ = sent(balance.arrive(Ticket(0), LATER, LATER));
}

#[test]
fn a_new_replica_beside_older_ones_begins_with_one_request() {
    let mut balance = warm(8, 1);
    balance.route(&[replica(0), replica(1)], LATER);
    let to_new = |balance: &mut Balance, now: u64| {
        (0..16)
            .filter(|_| balance.arrive(Ticket(0), now, now) == Arrival::Sent(replica(1)))
            .count()
    };
    assert_eq!(to_new(&mut balance.clone(), LATER), 1);
    assert_eq!(to_new(&mut balance.clone(), LATER + 5 * SECOND), 8);
    // Without older replicas there is no ramp-up.
    let mut young = Balance::new(8);
    young.route(&[replica(1)], LATER);
    assert_eq!(to_new(&mut young, LATER), 8);
}

#[test]
fn at_most_a_tenth_is_sent_again() {
    let mut balance = warm(100, 1);
    let mut retries = 0;
    for _ in 0..10_000 {
        let _ = balance.arrive(Ticket(0), LATER, LATER);
        balance.end(replica(0), Outcome::Answered, 1_000, LATER);
        retries += u32::from(balance.may_retry());
    }
    // Plus the requests in flight at a killed replica.
    assert!((1_000..=1_100).contains(&retries), "{retries}");
}

#[derive(Debug, Clone)]
enum Step {
    Arrive { patience: u64 },
    End { which: usize, outcome: u8 },
    Cancel { which: usize },
    Route { ranks: Vec<u32> },
    Pass { micros: u64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..SECOND).prop_map(|patience| Step::Arrive { patience }),
        3 => (any::<usize>(), 0..4_u8).prop_map(|(which, outcome)| Step::End { which, outcome }),
        1 => any::<usize>().prop_map(|which| Step::Cancel { which }),
        1 => proptest::collection::vec(0..4_u32, 0..4).prop_map(|ranks| Step::Route { ranks }),
        1 => (0..2 * SECOND).prop_map(|micros| Step::Pass { micros }),
    ];
    proptest::collection::vec(step, 0..200)
}

proptest! {
    /// Each request is in one place, limits hold, and no request is forgotten.
    #[test]
    fn every_request_is_in_one_place(limit in 1..4_u32, steps in steps()) {
        let mut balance = Balance::new(limit);
        let (mut now, mut next) = (0_u64, 0_u64);
        let mut usable: Vec<Replica> = Vec::new();
        let mut waiting: Vec<Ticket> = Vec::new();
        let mut working: Vec<(Ticket, Replica)> = Vec::new();
        for step in steps {
            match step {
                Step::Arrive { patience } => {
                    let ticket = Ticket(next);
                    next += 1;
                    match balance.arrive(ticket, now, now + patience) {
                        Arrival::Sent(to) => {
                            prop_assert!(waiting.is_empty() && usable.contains(&to));
                            working.push((ticket, to));
                        }
                        Arrival::Waits => waiting.push(ticket),
                        Arrival::Shed => prop_assert!(waiting.len() >= QUEUE),
                    }
                }
                Step::End { which, outcome } if !working.is_empty() => {
                    let (_, at) = working.remove(which % working.len());
                    let outcome = [Outcome::Answered, Outcome::Failed, Outcome::Broken, Outcome::Abandoned][usize::from(outcome)];
                    balance.end(at, outcome, 1_000, now);
                }
                Step::Cancel { which } if !waiting.is_empty() => {
                    let ticket = waiting.remove(which % waiting.len());
                    prop_assert!(balance.cancel(ticket));
                }
                Step::Route { ranks } => {
                    usable = ranks.into_iter().map(replica).collect();
                    balance.route(&usable, now);
                }
                Step::Pass { micros } => now += micros,
                Step::End { .. } | Step::Cancel { .. } => {}
            }
            for ticket in balance.expire(now) {
                waiting.retain(|it| *it != ticket);
            }
            while let Some((ticket, to)) = balance.next(now) {
                prop_assert_eq!(waiting.first(), Some(&ticket), "in order");
                prop_assert!(usable.contains(&to));
                waiting.remove(0);
                working.push((ticket, to));
            }
            prop_assert_eq!(balance.queued(), waiting.len());
            for rank in 0..4 {
                let at = working.iter().filter(|(_, at)| *at == replica(rank)).count();
                prop_assert_eq!(balance.in_flight(replica(rank)) as usize, at);
                prop_assert!(at <= limit as usize);
            }
        }
    }
}
