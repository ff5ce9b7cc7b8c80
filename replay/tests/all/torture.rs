//! Fault trials: a fixed set for comparisons, and a random one for new findings.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use dormouse_replay::engine::Plant;
use dormouse_replay::torture::{
    Failure, Passed, narrow_trial, planted, set_back, trial, wide_trial,
};
use dormouse_replay::{LogWriter, OutputFile};

fn number(name: &str, otherwise: u64) -> u64 {
    let asked = std::env::var(name).ok();
    asked
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

fn passes(seed: u64) -> Passed {
    ends_well(trial(seed, None))
}

fn ends_well(trial: Result<Passed, Box<Failure>>) -> Passed {
    let failure = match trial {
        Ok(passed) => return passed,
        Err(failure) => failure,
    };
    let seed = failure.seed;
    let path = keep(&failure);
    panic!(
        "{failure}\nits log: {}\nagain: dormouse lab simulate --faults {seed}",
        path.display()
    );
}

fn keep(failure: &Failure) -> PathBuf {
    let path = std::env::temp_dir().join(format!("dormouse-faults-{}.jsonl", failure.seed));
    let file = OutputFile::create(&path, &[], true).expect("creates");
    let mut writer = LogWriter::new(file, "faults").expect("creates");
    failure
        .log
        .iter()
        .for_each(|recorded| writer.write(recorded).expect("writes"));
    writer.finish().expect("writes");
    path
}

#[test]
fn the_fixed_trials_end_well() {
    let first = number("DORMOUSE_FAULTS_FROM", 1);
    let count = number("DORMOUSE_FAULTS", 60);
    let passed: Vec<Passed> = (first..first + count).map(passes).collect();
    let decisions: u64 = passed.iter().map(|passed| passed.decisions).sum();
    assert!(
        decisions > 20 * count,
        "{decisions} decisions in {count} trials"
    );
    let preempted = passed.iter().fold([0, 0, 0], |sum, passed| {
        [0, 1, 2].map(|kind| sum[kind] + passed.preemptions[kind])
    });
    assert!(
        count < 60 || preempted.iter().all(|number| *number > 0),
        "preempted for services, for classes, by force: {preempted:?}"
    );
}

/// Seeds that found mistakes.
const FOUND: [u64; 34] = [
    202_784,
    100_090,
    81_413,
    52_183,
    53_128,
    51_605,
    53_173,
    58_577,
    1880,
    4656,
    5800,
    11_541,
    12_367,
    14_715,
    3720,
    6695,
    8783,
    16_345,
    1201,
    3553,
    12_287,
    15_815,
    16_110,
    7515,
    2,
    92,
    962,
    1026,
    1_927_842_956_007_979_249,
    1533,
    3283,
    74,
    401_869,
    1_928_224_422_556_976_289,
];

#[test]
fn trials_that_found_a_mistake_end_well() {
    for seed in FOUND {
        // Also without the later faults, where these seeds found them.
        let _ = ends_well(narrow_trial(seed));
        let _ = ends_well(wide_trial(seed));
        let _ = passes(seed);
    }
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "chance is wanted here, and the seed is printed"
)]
fn random_trials_end_well() {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    let first = u64::from(now.subsec_nanos()) + (now.as_secs() << 30);
    println!("seeds {first} and following");
    for seed in first..first + 20 {
        let _ = passes(seed);
    }
}

/// Seeds that found mistakes.
const BACK: [u64; 12] = [
    58, 1400, 1045, 76, 61, 17, 234, 21_168, 30_019, 61_043, 622_037, 634_268,
];

#[test]
fn trials_of_a_log_that_goes_back_end_well() {
    let first = number("DORMOUSE_FAULTS_FROM", 1);
    let count = number("DORMOUSE_FAULTS", 60);
    for seed in BACK.into_iter().chain(first..first + count) {
        if let Err(failure) = set_back(seed) {
            let path = keep(&failure);
            let path = path.display();
            panic!(
                "{failure}\nits log: {path}\nagain: dormouse lab simulate --faults {seed} --log-goes-back"
            );
        }
    }
}

#[test]
fn a_trial_repeats_exactly() {
    assert_eq!(
        trial(3, None).expect("passes"),
        trial(3, None).expect("passes")
    );
}

/// A trial that cannot fail proves nothing.
#[test]
fn planted_mistakes_are_found() {
    for plant in Plant::ALL {
        let found = (1..=1_000).find_map(|seed| planted(seed, None, Some(plant)).err());
        let failure = found.unwrap_or_else(|| panic!("{plant:?} is not found in 1,000 trials"));
        println!("{plant:?}: {failure}");
    }
}
