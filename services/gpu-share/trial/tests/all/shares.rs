//! Shares of the modelled GPU, by its own ledger. Limits always hold; requests are judged only where the
//! programs together kept the device busy, since the machine may lack processors.

use crate::common::{MS, Program, World, pass};

/// The goal is one point in ten seconds; spans here are half of that.
const OVER_POINTS: f64 = 2.0;
const SHORT_POINTS: f64 = 4.0;
/// Below this sum, programs lacked processors.
const BUSY_PERCENT: f64 = 93.0;

fn parts(world: &World, programs: &[Program], span: (u64, u64)) -> Vec<f64> {
    let share = |it: &Program| world.driver.share(it, 0, span);
    programs.iter().map(share).collect()
}

#[track_caller]
fn judge(shares: &[f64], terms: &[(u32, u32)]) {
    let sum: f64 = shares.iter().sum();
    println!("{terms:?}: {shares:.2?}, together {sum:.1} %");
    for (share, (request, limit)) in shares.iter().zip(terms) {
        let over = share - f64::from(*limit) / 10.0;
        assert!(over <= OVER_POINTS, "{terms:?}: {shares:?}");
        let short = f64::from(*request) / 10.0 - share;
        assert!(
            short <= SHORT_POINTS || sum < BUSY_PERCENT,
            "{terms:?}: {shares:?}"
        );
    }
    if sum < BUSY_PERCENT {
        println!("the machine was too busy to judge what they get at least");
    }
}

#[test]
#[ignore = "judges shares on the real clock, on an idle machine: make gpu-shares"]
fn requests_that_fill_the_device_are_its_shares() {
    for requests in [&[300, 700][..], &[100, 900], &[250, 250, 250, 250]] {
        let world = World::new(1);
        let mut programs = Vec::new();
        for (index, request) in requests.iter().enumerate() {
            let name = format!("t{index}");
            world.share(&name, &[0], (*request, *request), None);
            let program = world
                .driver
                .drive(Some(&name), &["spin", "500000", "60000"]);
            programs.push(program.ready());
        }
        pass(1500);
        let span = pass(6000);
        let terms: Vec<(u32, u32)> = requests.iter().map(|it| (*it, *it)).collect();
        judge(&parts(&world, &programs, span), &terms);
    }
}

#[test]
#[ignore = "judges shares on the real clock, on an idle machine: make gpu-shares"]
fn a_limit_holds_for_every_kind_of_load() {
    for load in [
        &["spin", "500000", "60000"][..],
        &["spin", "4000000", "60000"],
        &["spin-own-stream", "500000", "60000"],
        &["sync", "800000", "100", "60000"],
        &["graph", "100000", "60000", "1"],
        &["threads", "300000", "60000", "3"],
    ] {
        let world = World::new(1);
        world.share("alone", &[0], (200, 400), None);
        let program = world.driver.drive(Some("alone"), load).ready();
        pass(700);
        let span = pass(4000);
        let share = world.driver.share(&program, 0, span);
        println!("{load:?}: {share:.2} %");
        // Over four seconds saved credit weighs two and a half times as much.
        assert!(share <= 42.0, "{load:?}: {share}");
        assert!(share >= 10.0, "{load:?}: {share}");
        let usage = world.usage("alone");
        let known = world.driver.machine.used_ns(program.id(), 0, 0, span.1);
        let error = usage.busy_ns as f64 / known as f64 - 1.0;
        assert!(
            error.abs() < 0.1,
            "{load:?}: measured {usage:?}, used {known}"
        );
        assert!(usage.waits > 0 && usage.launches > 0, "{usage:?}");
    }
}

#[test]
#[ignore = "judges shares on the real clock, on an idle machine: make gpu-shares"]
fn a_second_tenant_and_changed_terms_are_felt_within_a_second() {
    let world = World::new(1);
    world.share("first", &[0], (300, 600), None);
    world.share("second", &[0], (700, 1000), None);
    let first = world
        .driver
        .drive(Some("first"), &["spin", "500000", "60000"]);
    let first = first.ready();
    pass(1000);
    let alone = world.driver.share(&first, 0, pass(2000));
    assert!((25.0..=62.0).contains(&alone), "{alone}");
    let second = world
        .driver
        .drive(Some("second"), &["spin", "500000", "60000"]);
    let programs = [first, second.ready()];
    pass(1000);
    let shares = parts(&world, &programs, pass(3000));
    judge(&shares, &[(300, 600), (700, 1000)]);
    world.share("first", &[0], (600, 600), None);
    world.share("second", &[0], (400, 400), None);
    pass(1000);
    let shares = parts(&world, &programs, pass(3000));
    judge(&shares, &[(600, 600), (400, 400)]);
}

#[test]
#[ignore = "judges shares on the real clock, on an idle machine: make gpu-shares"]
fn a_program_alone_with_the_whole_limit_has_nearly_all() {
    let world = World::new(1);
    world.share("whole", &[0], (1000, 1000), None);
    let native = world
        .driver
        .drive(None, &["spin", "1000000", "60000"])
        .ready();
    pass(200);
    let without = world.driver.share(&native, 0, pass(1500));
    drop(native);
    let held = world
        .driver
        .drive(Some("whole"), &["spin", "1000000", "60000"]);
    let held = held.ready();
    pass(200);
    let with = world.driver.share(&held, 0, pass(1500));
    println!("without the library {without:.1} %, with it {with:.1} %");
    assert!(with > without - 30.0, "{without} {with}");
    assert!(world.usage("whole").busy_ns > 500 * MS);
}
