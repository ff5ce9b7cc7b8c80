//! The cap holds on every allocating call, over all processes of a container, and programs see their
//! container's memory.

use std::time::{Duration, Instant};

use crate::common::{GIB, World};

const CAP: u64 = GIB;

#[test]
fn no_call_gives_a_byte_beyond_the_cap() {
    let world = World::new(1);
    world.share("capped", &[0], (500, 500), Some(CAP));
    let cap = CAP.to_string();
    let said = world.driver.drive(Some("capped"), &["memory", &cap]).end();
    let lines: Vec<Vec<&str>> = said.lines().map(|it| it.split(' ').collect()).collect();
    let calls = lines.iter().filter(|it| it.get(1) == Some(&"beyond"));
    let mut count = 0;
    for call in calls {
        assert_eq!(call[2], "2", "out of memory, not: {call:?}");
        let free: u64 = call[4].parse().expect("a number");
        assert!(free <= CAP / 2, "{call:?}");
        count += 1;
    }
    assert_eq!(count, 10, "{said}");
    let last = lines.last().expect("a line");
    assert_eq!(
        last.join(" "),
        format!("free {CAP} total {CAP} device {CAP}")
    );
    assert!(world.driver.machine.peak_bytes(0) <= CAP);
    assert!(world.usage("capped").refusals >= 10);
    let said = world.driver.drive(None, &["memory", &cap]).end();
    assert!(said.contains("cuMemAlloc beyond 0"), "{said}");
}

/// An unknown format counts as the largest.
#[test]
fn arrays_of_every_format_keep_to_the_cap() {
    let world = World::new(1);
    world.share("capped", &[0], (500, 500), Some(CAP));
    let said = world.driver.drive(Some("capped"), &["formats"]).end();
    assert!(world.driver.machine.peak_bytes(0) <= CAP, "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 12, "{said}");
    assert!(
        lines.iter().all(|it| it.ends_with("arrays, then 2")),
        "{said}"
    );
    for (format, bytes) in [("0x1", 1), ("0x9", 2), ("0x20", 4), ("0xc5", 8)] {
        let count = CAP / (1024 * 8192 * bytes);
        let line = format!("{format} {count} arrays, then 2");
        assert!(lines.contains(&line.as_str()), "{line}: {said}");
    }
}

#[test]
fn what_is_mapped_counts_without_its_handle() {
    let world = World::new(1);
    world.share("capped", &[0], (500, 500), Some(CAP));
    let quarter = (CAP / 4).to_string();
    let said = world
        .driver
        .drive(Some("capped"), &["mapped", &quarter])
        .end();
    assert_eq!(
        said,
        "4 mapped, then 2\n3 mapped beside one that is held\n4 mapped\n"
    );
    assert!(world.driver.machine.peak_bytes(0) <= CAP);
}

#[test]
fn processes_of_a_container_share_its_cap_and_the_killed_give_theirs_back() {
    let world = World::new(1);
    world.share("both", &[0], (500, 500), Some(CAP));
    let three_quarters = (CAP * 3 / 4).to_string();
    let mut first = world
        .driver
        .drive(Some("both"), &["hold", &three_quarters, "60000"]);
    assert_eq!(first.line(), "result 0");
    let mut second = world
        .driver
        .drive(Some("both"), &["hold", &three_quarters, "0"]);
    assert_eq!(second.line(), "result 2");
    assert_eq!(world.usage("both").memory_bytes, CAP * 3 / 4);
    first.kill();
    let begun = Instant::now();
    while world.usage("both").memory_bytes > 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "{:?}",
            world.usage("both")
        );
        std::thread::yield_now();
    }
    let mut third = world
        .driver
        .drive(Some("both"), &["hold", &three_quarters, "0"]);
    assert_eq!(third.line(), "result 0");
}

#[test]
fn the_cap_holds_where_no_agent_answers() {
    let world = World::new(1);
    let trial = std::path::Path::new(env!("CARGO_BIN_EXE_gpu-trial"));
    let mut command = world.driver.command(trial, Some("nobody"));
    command.env("DORMOUSE_GPU_MEMORY", CAP.to_string());
    command.env("DORMOUSE_GPU_REQUEST", "0.5");
    let beyond = (CAP + 1).to_string();
    command.args(["drive", "hold", &beyond, "0"]);
    let mut program = crate::common::Program::start(command);
    assert_eq!(program.line(), "result 2");
}

#[test]
fn the_management_library_shows_the_containers_memory() {
    let world = World::new(2);
    world.share("seen", &[0, 1], (500, 500), Some(CAP));
    let (quarter, all) = (CAP / 4, 16 * GIB);
    let held = quarter.to_string();
    let mut first = world.drive_on("seen", 2, &["hold", &held, "60000"]);
    assert_eq!(first.line(), "result 0");
    let shown = |total: u64, used: u64| {
        let line = format!("total {total} free {} used {used}\n", total - used);
        line.repeat(2)
    };
    let said = world.drive_on("seen", 2, &["nvml", "0", &held]).end();
    assert_eq!(said, shown(CAP, CAP / 2), "both processes on device 0");
    let said = world.drive_on("seen", 2, &["nvml", "1", &held]).end();
    assert_eq!(said, shown(CAP, quarter), "one on device 1");
    let said = world.driver.drive(None, &["nvml", "0", &held]).end();
    assert_eq!(said, shown(all, CAP / 2));
}
