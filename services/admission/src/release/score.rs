//! The order of tenants.
//!
//! Tenants compete if their first job has the highest class. The largest score goes next (Saha, Beltre,
//! Govindaraju: Tromino, 2018). DS: dominant share of running jobs ÷ weight w; DDS: dominant share of queued
//! jobs; both change with each release.
//!
//! | policy | score |
//! |---|---|
//! | `drf` | 1 ÷ DS |
//! | `demand` | DDS |
//! | `demand-drf` | DDS ÷ DS; DS = 0 counts as infinite |
//! | `projected-wait` | w · (waits paid + ages of the queued + n · N ÷ 2μ) ÷ arrived |
//!
//! n is the tenant's queue, N all queues, μ the releases per second of a full cluster: slots ÷ mean duration.
//! `fifo` is the order of arrival over all tenants. Where past use counts, w includes the tenant's factor f
//! ([`dormouse_state::usage`]), `demand`'s score is DDS · f, and `fifo`'s is the head's wait · f.
//!
//! `balanced-wait` is `projected-wait` over credited arrivals. A job that has waited 30 % longer than the
//! next under FIFO precedes all others.
//!
//! `projected-wait` rewards a flood, since queued work raises its tenant's score at once, and has long tails.
//! 30 % weighs the longest wait against the deviation of the tenants' means (20 %: shorter, less even).

use std::cmp::{Ordering, Reverse};

use dormouse_messages::Timestamp;
use dormouse_messages::policy::Queue;
use dormouse_state::Queues;
use num_bigint::BigUint;

use super::head::Head;
use super::tenant_queue::Line;

/// Per cent above the FIFO wait. At 30 the longest wait in Tromino's experiment 2 is 905 s, between 708 s
/// under fifo and 1,233 s under `projected-wait`; means stay within 6 %.
const SLACK_PERCENT: i64 = 30;

/// An exact fraction.
struct Score {
    over: BigUint,
    /// 0: infinite.
    under: BigUint,
}

impl Score {
    fn new(over: impl Into<BigUint>, under: impl Into<BigUint>) -> Self {
        Self {
            over: over.into(),
            under: under.into(),
        }
    }

    fn is_infinite(&self) -> bool {
        self.under.bits() == 0
    }

    fn compare(&self, other: &Self) -> Ordering {
        match (self.is_infinite(), other.is_infinite()) {
            (false, false) => (&self.over * &other.under).cmp(&(&other.over * &self.under)),
            (infinite, other) => infinite.cmp(&other),
        }
    }
}

/// Returns the next queue's index.
pub fn turn(
    queues: &Queues,
    lines: &[Line<'_>],
    last: Option<usize>,
    released: usize,
    now: Timestamp,
) -> Option<usize> {
    let open = lines.iter().enumerate();
    let open = open.filter(|(_, line)| !line.blocked);
    let heads = open.filter_map(|(index, line)| Some((index, line, line.head.as_ref()?)));
    let mut heads: Vec<(usize, &Line<'_>, &Head)> = heads.collect();
    let highest = heads.iter().map(|(_, _, head)| head.class).max();
    heads.retain(|(_, _, head)| Some(head.class) == highest);
    match queues.cluster.policy.queue {
        Queue::Fifo => heads
            .iter()
            .min_by_key(|(_, line, head)| (Reverse(counted_wait(line, head, now)), head.arrival))
            .map(|(index, ..)| *index),
        Queue::Drf => best(&heads, last, |line| {
            let weighted = u128::from(line.share.under) * u128::from(line.counted_weight());
            Score::new(weighted, line.share.over)
        }),
        Queue::Demand => best(&heads, last, |line| {
            let counted = u128::from(line.demand_share.over) * u128::from(line.factor);
            Score::new(counted, line.demand_share.under)
        }),
        Queue::DemandDrf => best(&heads, last, |line| {
            let weighted = BigUint::from(line.share.under) * line.counted_weight();
            Score::new(
                weighted * line.demand_share.over,
                BigUint::from(line.demand_share.under) * line.share.over,
            )
        }),
        Queue::ProjectedWait => {
            let queued = lines.iter().map(|line| line.count).sum();
            best(&heads, last, |line| {
                projected(queues, line, line.count, queued, &line.waits, now)
            })
        }
        Queue::BalancedWait => balanced(queues, lines, &heads, last, released, now),
    }
}

/// Returns the head's wait times its tenant's factor; 0 without a memory, where arrivals alone count.
fn counted_wait(line: &Line<'_>, head: &Head, now: Timestamp) -> u128 {
    if line.is_remembered() {
        u128::from(now.micros_since(head.since)) * u128::from(line.factor)
    } else {
        0
    }
}

/// Returns the largest score; the last releaser wins ties, else the first.
fn best(
    heads: &[(usize, &Line<'_>, &Head)],
    last: Option<usize>,
    score: impl Fn(&Line<'_>) -> Score,
) -> Option<usize> {
    let mut best: Option<(usize, Score)> = None;
    for (index, line, _) in heads {
        let score = score(line);
        let better = best
            .as_ref()
            .is_none_or(|(_, other)| match score.compare(other) {
                Ordering::Greater => true,
                Ordering::Equal => last == Some(*index),
                Ordering::Less => false,
            });
        if better {
            best = Some((*index, score));
        }
    }
    best.map(|(index, _)| index)
}

/// w · (waits so far + n · N · gap ÷ 2) ÷ arrived, gap = 1 ÷ μ.
fn projected(
    queues: &Queues,
    line: &Line<'_>,
    queued: u64,
    all: u64,
    waits: &dormouse_state::Waits,
    now: Timestamp,
) -> Score {
    let so_far = BigUint::from(u64::try_from(waits.so_far_us(now)).unwrap_or(0));
    let (gap_over, gap_under) = queues.gap_us().unwrap_or((0, 1));
    let halves = BigUint::from(gap_under) * 2u32;
    let ahead = BigUint::from(queued) * all * gap_over;
    let over = (so_far * &halves + ahead) * line.counted_weight();
    Score::new(over, halves * waits.arrived.max(1))
}

fn balanced(
    queues: &Queues,
    lines: &[Line<'_>],
    heads: &[(usize, &Line<'_>, &Head)],
    last: Option<usize>,
    released: usize,
    now: Timestamp,
) -> Option<usize> {
    let oldest = |heads: &[(usize, &Line<'_>, &Head)]| {
        let oldest = heads
            .iter()
            .min_by_key(|(_, _, head)| (head.credited, head.arrival));
        oldest.map(|(index, _, head)| (*index, head.credited))
    };
    let credited: Vec<_> = heads
        .iter()
        .filter(|(_, _, head)| head.credited <= now)
        .copied()
        .collect();
    let Some((overdue, since)) = oldest(&credited) else {
        return oldest(heads).map(|(index, _)| index);
    };
    // The wait of the next job under FIFO.
    let fifo = queues
        .credit
        .fifo()
        .nth(released)
        .map_or(0, |at| now.as_micros() - at.as_micros());
    let waited = now.as_micros() - since.as_micros();
    if waited.saturating_mul(100) > fifo.max(0).saturating_mul(100 + SLACK_PERCENT) {
        return Some(overdue);
    }
    let all = lines.iter().map(|line| line.credited_count).sum();
    best(&credited, last, |line| {
        projected(queues, line, line.credited_count, all, &line.credited, now)
    })
}
