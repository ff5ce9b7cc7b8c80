//! Every copy and set waits for the token, and a program that polls for completion is measured like one that
//! waits.

use std::time::{Duration, Instant};

use crate::common::{MS, World};

const MEASURED_WITHIN: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(60);

/// Each call runs in its own process.
#[test]
fn every_large_copy_and_set_waits_for_the_token() {
    let world = World::new(1);
    world.share("copies", &[0], (500, 1000), None);
    let (mut index, mut past, mut names) = (0, Vec::new(), Vec::new());
    loop {
        let before = world.usage("copies").launches;
        let words = ["call", &format!("{index}")];
        let mut program = world.driver.drive(Some("copies"), &words);
        let said = program.line();
        if said == "end" {
            break;
        }
        let (name, result) = said.split_once(' ').expect("name and result");
        assert_eq!(result, "0", "{name}");
        let begun = Instant::now();
        while world.usage("copies").launches == before {
            if begun.elapsed() > MEASURED_WITHIN {
                past.push(name.to_owned());
                break;
            }
            std::thread::yield_now();
        }
        names.push(name.to_owned());
        index += 1;
    }
    assert!(past.is_empty(), "past the token: {past:?}");
    assert_eq!(names.len(), CALLS, "{names:?}");
}

const CALLS: usize = 94;

#[test]
fn who_asks_whether_work_is_done_is_measured() {
    for by in ["0", "1", "2"] {
        let world = World::new(1);
        world.share("asks", &[0], (1000, 1000), None);
        let kernel = MS.to_string();
        let words = ["poll", &kernel, "300", by];
        let mut program = world.driver.drive(Some("asks"), &words).ready();
        let said = program.line();
        let launched = said.strip_prefix("launched ").expect("a number");
        let launched: u64 = launched.parse().expect("a number");
        let begun = Instant::now();
        while world.usage("asks").launches < launched {
            let usage = world.usage("asks");
            assert!(begun.elapsed() < PATIENCE, "by {by}: {launched}, {usage:?}");
            std::thread::yield_now();
        }
        let used_ns = world.driver.machine.used_ns(program.id(), 0, 0, u64::MAX);
        let usage = world.usage("asks");
        assert_eq!(usage.launches, launched, "by {by}");
        let difference_ns = used_ns.abs_diff(usage.busy_ns);
        assert!(
            difference_ns <= used_ns / 20,
            "by {by}: {used_ns} ns, {usage:?}"
        );
    }
}
