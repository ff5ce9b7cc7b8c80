//! Verification accepts logs of an optimizer with too little time.

use std::cell::Cell;

use dormouse_optimizer::Optimizer;
use dormouse_optimizer::problem::TimeLimit;
use dormouse_replay::engine::Engine;
use dormouse_replay::random::Random;
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_replay::torture::workload;
use dormouse_replay::{Report, Verifier};

thread_local! {
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

/// Seconds per reading, longer than any solver run.
const READING_S: f64 = 1e4;

/// A clock that advances only when read, so that timeouts are equal on every machine.
pub fn readings() -> f64 {
    READINGS.set(READINGS.get() + 1);
    f64::from(READINGS.get()) * READING_S
}

pub fn verified(seed: u64, time: TimeLimit) -> Report {
    let mut random = Random::new(seed);
    let optimizer = Optimizer {
        time: Some(time),
        ..Optimizer::default()
    };
    let mut engine = Engine::new(START, false).deciding(optimizer);
    let _ = workload::small_cluster(&mut engine, &mut random);
    engine
        .run_until(seconds_after_start(200_000.0))
        .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let mut verifier = Verifier::default();
    engine.log().iter().for_each(|it| verifier.read(it));
    verifier.finish()
}

#[test]
fn what_a_throttled_optimizer_decides_is_not_called_into_doubt() {
    let (mut again, mut checked) = (0, 0);
    for seed in 0..10 {
        let readings_left = [1, 2, 3, 5, 9][usize::try_from(seed % 5).expect("small")];
        let report = verified(
            seed,
            TimeLimit {
                seconds: f64::from(readings_left) * READING_S,
                clock: readings,
            },
        );
        assert_eq!(report.findings, [], "seed {seed}");
        again += report.verified;
        checked += report.checked;
    }
    println!("{again} decisions were made again, {checked} checked");
    assert!(again > 100 && checked > 10);
}
