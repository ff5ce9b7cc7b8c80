//! Decisions are the same under another variant of the C library, which depends on the processor.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::process::Command;

use dormouse_messages::{Event, Recorded};
use dormouse_replay::scenario::generate::Size;

use crate::restarts::log;

/// Makes the child process print its digests.
const AGAIN: &str = "DORMOUSE_DIGESTS";
/// Disables the variants with fused multiplication.
const WITHOUT: &str = "glibc.cpu.hwcaps=-FMA,-FMA4,-AVX2,-AVX512F";
/// Large enough for prices.
const SIZE: Size = Size {
    jobs: 60,
    nodes: 40,
    days: 0.02,
};

pub fn digests(size: Size) -> String {
    let events = log(1, size);
    let decided: Vec<&Event> = events.iter().filter_map(|it| Recorded::event(it)).collect();
    let mut stages = std::collections::BTreeMap::new();
    for event in &decided {
        if let Event::AllocationDecided(event) = event {
            *stages
                .entry(event.outcome.solver.stage.clone())
                .or_insert(0) += 1;
        }
    }
    println!("{stages:?}");
    assert!(stages.contains_key("priced"), "{stages:?}");
    let mut hasher = DefaultHasher::new();
    let text = serde_json::to_string(&decided).expect("JSON");
    text.hash(&mut hasher);
    format!("{:x} {:x}", hasher.finish(), of_the_c_library())
}

#[expect(clippy::disallowed_methods, reason = "what the others are instead of")]
fn of_the_c_library() -> u64 {
    let mut hasher = DefaultHasher::new();
    for index in 1..200_000_u32 {
        let number = f64::from(index) / 1_000.0;
        number.exp().to_bits().hash(&mut hasher);
        number.ln().to_bits().hash(&mut hasher);
        number.powf(1.7).to_bits().hash(&mut hasher);
    }
    hasher.finish()
}

#[test]
fn decisions_do_not_depend_on_the_variant_of_the_c_library() {
    let own = digests(SIZE);
    if std::env::var_os(AGAIN).is_some() {
        return println!("digests: {own}");
    }
    let again = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "--nocapture"])
        .arg("same::decisions_do_not_depend_on_the_variant_of_the_c_library")
        .env(AGAIN, "1")
        .env("GLIBC_TUNABLES", WITHOUT)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&again.stdout);
    let other = said.lines().find_map(|line| line.split("digests: ").nth(1));
    let other = other.unwrap_or_else(|| panic!("{said}{}", String::from_utf8_lossy(&again.stderr)));
    let parts = |digests: &str| {
        let (decided, library) = digests.trim().split_once(' ').expect("two");
        (decided.to_owned(), library.to_owned())
    };
    let mut note = String::new();
    if cfg!(all(target_arch = "x86_64", target_env = "gnu")) {
        let _ = write!(
            note,
            "the variants differ: {}",
            parts(&own).1 != parts(other).1
        );
    }
    println!("{note}");
    assert_eq!(parts(&own).0, parts(other).0);
}
