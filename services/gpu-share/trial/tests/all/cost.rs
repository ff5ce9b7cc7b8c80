//! The library's cost of a launch that passes.

use crate::common::World;

/// The bound is wide for debug builds on a loaded machine.
#[test]
fn a_launch_that_passes_costs_little() {
    let world = World::new(1);
    world.share("whole", &[0], (1000, 1000), None);
    let cost = |socket: Option<&str>| {
        let said = world.driver.drive(socket, &["cost", "200"]).end();
        let words: Vec<&str> = said.split_whitespace().collect();
        words[1].parse::<u64>().expect("a number")
    };
    let (without, with) = (cost(None), cost(Some("whole")));
    println!("a launch: {without} ns without the library, {with} ns with it");
    assert!(with < without + 2_000, "{without} {with}");
}

/// The goal is 50 ns.
#[test]
#[ignore = "measures, optimised: make gpu-cost"]
fn a_launch_that_passes_costs_at_most_fifty_nanoseconds() {
    let mut medians = Vec::new();
    for _ in 0..5 {
        let world = World::new(1);
        world.share("whole", &[0], (1000, 1000), None);
        let said = world.driver.drive(Some("whole"), &["paired", "2000"]).end();
        println!(
            "tenths of a nanosecond a launch: {}",
            said.replace('\n', ", ")
        );
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words
            .iter()
            .position(|it| *it == "added")
            .expect("a median");
        medians.push(words[at + 1].parse::<i64>().expect("a number"));
    }
    medians.sort_unstable();
    assert!(medians[2] <= 500, "{medians:?}");
}
