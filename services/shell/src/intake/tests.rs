//! The fair queue: turns, rates, bounds, and new streams.

use super::*;

fn at(ms: u64) -> Timestamp {
    Timestamp::default().plus_ms(1_000_000 + ms)
}

fn arrival(sequence: u64, tenant: &str, ms: u64) -> Arrival {
    Arrival {
        sequence,
        at: at(ms),
        tenant: tenant.to_owned(),
        verb: "submit".to_owned(),
        by: None,
        content_type: None,
        traceparent: None,
        payload: vec![b'x'; 10],
    }
}

#[derive(Default)]
struct State(BTreeMap<String, Stand>);

impl State {
    fn fold(&mut self, taken: &[Taken]) {
        for it in taken {
            match it {
                Taken::Received(it) => {
                    let stand = self.0.entry(it.tenant.clone()).or_default();
                    stand.record(&it.verb, it.sequence, it.at);
                }
                Taken::RateLimited(tenant, rate_limited) => {
                    let stand = self.0.entry(tenant.clone()).or_default();
                    (stand.last, stand.at) = (rate_limited.last, rate_limited.until);
                }
            }
        }
    }

    fn stand(&self, tenant: &str) -> Stand {
        self.0.get(tenant).copied().unwrap_or_default()
    }
}

const ANY: Rates = Rates {
    submissions: None,
    measured: u32::MAX,
};

const FEW: Rates = Rates {
    submissions: Some(5),
    measured: 2,
};

fn sequences(taken: &[Taken]) -> Vec<u64> {
    let received = taken.iter().filter_map(|it| match it {
        Taken::Received(it) => Some(it.sequence),
        Taken::RateLimited(..) => None,
    });
    received.collect()
}

#[test]
fn a_flood_keeps_nobody_waiting() {
    let mut lines = Lines::default();
    (1..=500).for_each(|n| lines.push(arrival(n, "flood", 0)));
    lines.push(arrival(501, "ads", 1));
    let (taken, _) = lines.take(at(2), |_| (Stand::default(), ANY));
    let place = sequences(&taken).iter().position(|it| *it == 501);
    assert!(place.is_some_and(|place| place <= 1), "{place:?}");
    assert_eq!(taken.len(), TURN + 1);
    // A tenant with undecided submissions delays only itself.
    let slow = |tenant: &str| (undecided(if tenant == "flood" { 200 } else { 0 }), ANY);
    assert_eq!(sequences(&lines.take(at(2), slow).0), [501]);
    assert!(lines.waits());
}

fn undecided(undecided: u32) -> Stand {
    Stand {
        undecided,
        ..Stand::default()
    }
}

#[test]
fn who_submits_alone_has_few_undecided_as_well() {
    let mut lines = Lines::default();
    (1..=1_000).for_each(|n| lines.push(arrival(n, "flood", 0)));
    let most = lines.figures().1;
    let (taken, _) = lines.take(at(2), |_| (Stand::default(), ANY));
    assert_eq!(taken.len(), most);
    let full = u32::try_from(most).expect("few");
    let (taken, _) = lines.take(at(2), |_| (undecided(full), ANY));
    assert!(taken.len() >= most, "{}", taken.len());
    let (taken, wake) = lines.take(at(2), |_| (undecided(1_000), ANY));
    assert_eq!((taken, wake), (vec![], None));
    assert!(lines.waits(), "for decisions");
}

#[test]
fn each_tenants_order_is_kept_and_everything_is_taken_once() {
    let (mut lines, mut state) = (Lines::default(), State::default());
    for n in 1..=300 {
        lines.push(arrival(n, if n % 3 == 0 { "b" } else { "a" }, n));
    }
    let mut all = Vec::new();
    loop {
        let (taken, _) = lines.take(at(400), |tenant| (state.stand(tenant), ANY));
        if taken.is_empty() {
            break;
        }
        // The unstored half is taken again.
        let stored = &taken[..taken.len().div_ceil(2)];
        state.fold(stored);
        all.extend(sequences(stored));
    }
    for tenant in [0, 1] {
        let of: Vec<u64> = all
            .iter()
            .copied()
            .filter(|n| u64::from(n % 3 == 0) == tenant)
            .collect();
        assert!(
            of.is_sorted() && of.len() == [200, 100][tenant as usize],
            "{of:?}"
        );
    }
    assert_eq!(
        lines.recorded(),
        BTreeMap::from([("a".to_owned(), 299), ("b".to_owned(), 300)])
    );
}

#[test]
fn what_comes_too_fast_is_one_event_a_window() {
    let (mut lines, mut state) = (Lines::default(), State::default());
    (0..100).for_each(|n| lines.push(arrival(1 + n, "flood", n)));
    let take = |lines: &mut Lines, state: &State, ms| {
        lines.take(at(ms), |tenant| (state.stand(tenant), FEW))
    };
    let (taken, wake) = take(&mut lines, &state, 200);
    assert_eq!(
        (sequences(&taken), wake),
        (vec![1, 2, 3, 4, 5], Some(at(1_000)))
    );
    state.fold(&taken);
    assert_eq!(take(&mut lines, &state, 999), (vec![], Some(at(1_000))));
    let (taken, wake) = take(&mut lines, &state, 1_000);
    let rate_limited = RateLimited {
        first: 6,
        last: 100,
        count: 95,
        since: at(5),
        until: at(99),
        max_rate: 5,
        measured: false,
    };
    assert_eq!(
        (taken.clone(), wake),
        (
            vec![Taken::RateLimited("flood".to_owned(), rate_limited)],
            None
        )
    );
    state.fold(&taken);
    lines.push(arrival(101, "flood", 1_001));
    let (taken, _) = take(&mut lines, &state, 1_002);
    assert_eq!(sequences(&taken), [101]);
}

#[test]
fn measurements_have_a_rate_of_their_own() {
    let measured = |sequence, ms| Arrival {
        verb: MEASURED.to_owned(),
        ..arrival(sequence, "ads", ms)
    };
    let (mut lines, mut state) = (Lines::default(), State::default());
    (1..=50).for_each(|n| lines.push(measured(n, n)));
    (51..=53).for_each(|n| lines.push(arrival(n, "ads", n)));
    let take = |lines: &mut Lines, state: &State, ms| {
        lines.take(at(ms), |tenant| (state.stand(tenant), FEW))
    };
    // A refusal precedes later messages and does not use up their rate.
    let (taken, wake) = take(&mut lines, &state, 100);
    assert_eq!((sequences(&taken), wake), (vec![1, 2, 51, 52, 53], None));
    let Some(Taken::RateLimited(_, rate_limited)) = taken.get(2) else {
        panic!("{taken:?}");
    };
    assert_eq!(
        (rate_limited.first, rate_limited.last, rate_limited.count),
        (3, 50, 48)
    );
    assert!(
        rate_limited.measured && rate_limited.max_rate == 2,
        "{rate_limited:?}"
    );
    state.fold(&taken);
    // One event per window for both kinds.
    (54..=55).for_each(|n| lines.push(arrival(n, "ads", n)));
    (56..=99).for_each(|n| {
        lines.push(match n % 2 {
            0 => measured(n, n),
            _ => arrival(n, "ads", n),
        });
    });
    let (taken, wake) = take(&mut lines, &state, 100);
    assert_eq!((sequences(&taken), wake), (vec![54, 55], Some(at(1_000))));
    state.fold(&taken);
    let (taken, _) = take(&mut lines, &state, 1_000);
    let [Taken::RateLimited(_, rate_limited)] = &taken[..] else {
        panic!("{taken:?}");
    };
    assert_eq!(
        (rate_limited.first, rate_limited.last, rate_limited.measured),
        (56, 99, false)
    );
}

#[test]
fn a_line_is_bounded_and_the_rest_is_fetched_again() {
    let (mut lines, mut state) = (Lines::default(), State::default());
    let most = LINE_MESSAGES as u64;
    (1..=most + 500).for_each(|n| lines.push(arrival(n, "flood", n)));
    lines.push(arrival(most + 501, "ads", 0));
    assert_eq!(lines.fetch_again(), None);
    let mut again = None;
    while again.is_none() {
        let (taken, _) = lines.take(at(9_000), |tenant| (state.stand(tenant), ANY));
        state.fold(&taken);
        let _ = lines.take(at(9_000), |tenant| (state.stand(tenant), ANY));
        again = lines.fetch_again();
    }
    assert_eq!(again, Some(most + 1));
    (most + 1..=most + 500).for_each(|n| lines.push(arrival(n, "flood", n)));
    lines.push(arrival(most + 501, "ads", 0));
    let mut count = 0;
    loop {
        let (taken, _) = lines.take(at(9_000), |tenant| (state.stand(tenant), ANY));
        if taken.is_empty() {
            break;
        }
        count += taken
            .iter()
            .filter(|it| matches!(it, Taken::Received(it) if it.tenant == "ads"))
            .count();
        state.fold(&taken);
    }
    assert_eq!(
        (count, state.stand("flood").last, lines.bytes),
        (0, most + 500, 0)
    );
}

#[test]
fn a_stream_that_went_back_loses_nothing() {
    let mut stand = Stand::default();
    stand.record("submit", 90, at(5));
    assert!(stand.knows(90, at(5)) && stand.knows(3, at(1)));
    // A new stream restarts the sequences, at later times.
    assert!(!stand.knows(1, at(6)));
    stand.record("submit", 1, at(6));
    assert!(stand.knows(1, at(6)) && !stand.knows(2, at(7)));
}
