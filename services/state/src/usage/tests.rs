//! Tests of the memory of past use.

use dormouse_messages::Shares;
use dormouse_messages::events::{ClusterConfigured, TenantConfigured};

use super::*;
use crate::ClusterState;
use crate::history::{History, job};

const DAY: i64 = 86_400;

fn remembering(history: &mut History, days: u64) -> &mut History {
    history.push(ClusterConfigured {
        policy: Policy {
            shares: Shares::Remembered(Memory::of_days(days)),
            ..Policy::default()
        },
    })
}

fn named(history: &mut History, tenant: &str, weight: u32) {
    history.push(TenantConfigured {
        tenant: tenant.parse().expect("a tenant"),
        weight,
        quota: Default::default(),
        max_job_weight: None,
        priority: None,
    });
}

/// `ads` holds the whole node for a while, `lab` waits.
fn unfair(days: i64) -> History {
    let mut history = History::default();
    remembering(history.join("n0", 1), 7);
    named(&mut history, "ads", 1);
    named(&mut history, "lab", 1);
    history.run("ads/a", 4).submit("lab/b");
    history.seconds += days * DAY;
    history
}

#[test]
fn who_used_less_than_its_due_counts_more() {
    let history = unfair(7);
    let state: ClusterState = history.fold();
    let standings = state.standings(history.now());
    let [ads, lab] = ["ads", "lab"].map(|name| standings.get(name).expect("known"));
    // Half of the memory is older than the log, and counts as used by the due: 1.5 and 0.5.
    assert!((1_480..1_520).contains(&ads.balance), "{ads:?}");
    assert!((480..520).contains(&lab.balance), "{lab:?}");
    assert_eq!((ads.factor, lab.factor), (250, 4_000));
}

#[test]
fn nothing_is_remembered_without_a_memory() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/a", 4);
    let state: ClusterState = history.fold();
    assert_eq!(state.usage, Usage::default());
    assert_eq!(state.standings(history.now()).factor("ads"), NEUTRAL);
    // A memory begins with the policy, and ends with it.
    remembering(&mut history, 7);
    history.seconds += DAY;
    let state: ClusterState = history.fold();
    assert!(state.standings(history.now()).get("ads").is_some());
    history.push(ClusterConfigured {
        policy: Policy::default(),
    });
    assert_eq!(history.fold::<ClusterState>().usage, Usage::default());
}

#[test]
fn half_of_an_old_use_is_left_after_a_half_life() {
    let mut history = unfair(70);
    history.complete("ads/a");
    let then = history.now();
    let state: ClusterState = history.fold();
    let used = |days: u64| {
        let mut usage = state.usage.clone();
        usage.settle(ms(then.plus_ms(days * 86_400_000)));
        usage.tenants["ads"].used.sum(&Resource::Cpu)
    };
    let (now, later) = (used(0), used(7));
    let percent = later * 10_000 / now;
    assert!((4_990..5_010).contains(&percent), "{percent}");
    // Ten years are passed in one step, without a trace.
    assert_eq!(used(3_650), 0);
    let long_after = state.standings(then.plus_ms(3_650 * 86_400_000));
    assert_eq!(long_after.factor("ads"), long_after.factor("lab"));
}

#[test]
fn time_in_one_step_or_in_many_gives_the_same_sums() {
    let history = unfair(1);
    let state: ClusterState = history.fold();
    let (mut once, mut often) = (state.usage.clone(), state.usage);
    let from = ms(history.now());
    for part in 1..=1_000 {
        often.settle(from + part * 7_777_777);
    }
    once.settle(from + 7_777_777_000);
    assert_eq!(once.tenants["ads"].used, often.tenants["ads"].used);
    assert_eq!(once.capacity, often.capacity);
}

#[test]
fn a_tenant_that_nobody_named_is_forgotten() {
    let mut history = History::default();
    remembering(history.join("n0", 1), 1);
    history.run("ads/a", 4).complete("ads/a");
    let state: ClusterState = history.fold();
    assert!(state.usage.tenants.contains_key("ads"));
    history.seconds += 100 * DAY;
    history.submit("lab/b");
    let state: ClusterState = history.fold();
    assert!(!state.usage.tenants.contains_key("ads"));
    assert_eq!(job("lab/b").tenant(), "lab");
}

#[test]
fn a_factor_stays_within_the_floor_and_its_inverse() {
    let huge = u128::from(u64::MAX) << 20;
    for floor in [10, 250, 1000] {
        let most = 1_000_000 / floor;
        for (all, own) in [
            ((huge, huge), (huge, 1)),
            ((huge, huge), (1, huge)),
            ((1, huge), (0, 5)),
            ((0, huge), (0, 5)),
            ((5, 0), (5, 0)),
            ((0, 0), (0, 0)),
        ] {
            let factor = factor(all, own, floor);
            assert!((floor..=most).contains(&factor), "{all:?} {own:?} {factor}");
        }
    }
    assert_eq!(factor((100, 100), (50, 50), 250), NEUTRAL);
    assert_eq!(factor((100, 100), (55, 50), 250), 682);
}
