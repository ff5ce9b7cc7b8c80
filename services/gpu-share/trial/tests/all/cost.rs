//! What the library costs a launch that it lets pass.

use crate::common::World;

/// The least over the rounds, in ns, with and without the library. The bound is wide: a debug build
/// on a loaded machine; `make gpu-bench` measures.
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
