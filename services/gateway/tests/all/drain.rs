//! Reports of draining replicas.

use dormouse_gateway::drain::Drains;
use dormouse_messages::{ContainerId, GatewayId, Sequence};
use dormouse_state::routes::Leaving;

use crate::common::{container, job};

const SECOND: u64 = 1_000_000;

fn gateway() -> GatewayId {
    "g0".parse().expect("valid")
}

fn leaving(rank: u32, answers: u64, grace_s: u32) -> Leaving {
    Leaving {
        container: container(&job("ads/model"), 1, rank),
        answers: Some(Sequence(answers)),
        grace_s,
    }
}

/// Returns ranks, answered sequences and closed connections.
fn told(drains: &mut Drains, busy: &[ContainerId]) -> Vec<(u32, u64, u32)> {
    let due = drains.due(&gateway(), |it| u32::from(busy.contains(it)));
    due.iter()
        .map(|it| (it.container.rank.0, it.answers.0, it.closed))
        .collect()
}

#[test]
fn a_replica_is_told_of_once_when_nothing_is_under_way_there() {
    let mut drains = Drains::default();
    let both = [leaving(0, 7, 30), leaving(1, 7, 30)];
    drains.sync(both.clone(), 0);
    let busy = [both[1].container.clone()];
    assert_eq!(told(&mut drains, &busy), [(0, 7, 0)]);
    assert_eq!(told(&mut drains, &busy), []);
    // The log still names both while the event is on its way.
    drains.sync(both, SECOND);
    assert_eq!(told(&mut drains, &[]), [(1, 7, 0)]);
    assert_eq!(told(&mut drains, &[]), []);
}

#[test]
fn what_lasts_too_long_is_closed_before_the_grace_is_over_and_counted() {
    let mut drains = Drains::default();
    let it = leaving(0, 7, 30);
    drains.sync([it.clone()], 5 * SECOND);
    assert!(drains.overdue(33 * SECOND).is_empty());
    assert_eq!(
        drains.overdue(34 * SECOND),
        std::slice::from_ref(&it.container)
    );
    assert!(drains.overdue(35 * SECOND).is_empty(), "named once");
    drains.closed(&it.container, 3);
    let busy = [it.container];
    assert_eq!(told(&mut drains, &busy), []);
    assert_eq!(told(&mut drains, &[]), [(0, 7, 3)]);
}

#[test]
fn without_grace_it_is_closed_at_once() {
    let mut drains = Drains::default();
    drains.sync([leaving(0, 7, 0)], SECOND);
    assert_eq!(drains.overdue(SECOND).len(), 1);
}

#[test]
fn another_request_is_another_answer_and_what_stays_is_not_told() {
    let mut drains = Drains::default();
    drains.sync([leaving(0, 7, 30)], 0);
    assert_eq!(told(&mut drains, &[]), [(0, 7, 0)]);
    drains.sync([leaving(0, 9, 30)], SECOND);
    assert_eq!(told(&mut drains, &[]), [(0, 9, 0)]);
    drains.sync([leaving(1, 11, 30)], SECOND);
    drains.sync([], 2 * SECOND);
    assert_eq!(told(&mut drains, &[]), []);
}

#[test]
fn the_end_of_a_whole_partition_is_closed_in_time_and_told_to_nobody() {
    let mut drains = Drains::default();
    let it = Leaving {
        answers: None,
        ..leaving(0, 0, 10)
    };
    drains.sync([it.clone()], 0);
    assert_eq!(told(&mut drains, &[]), []);
    assert_eq!(drains.overdue(10 * SECOND), [it.container]);
}
