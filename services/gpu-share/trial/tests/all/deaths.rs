//! Killed holders, restarted schedulers, forks, threads, two devices: nobody hangs, and shares recover.

use crate::common::{Driver, Program, Scheduler, World, pass};

#[test]
fn the_death_of_a_holder_frees_the_device() {
    let world = World::new(1);
    world.share("dying", &[0], (500, 500), None);
    world.share("living", &[0], (500, 1000), None);
    let living = world
        .driver
        .drive(Some("living"), &["spin", "500000", "60000"]);
    let living = living.ready();
    for _ in 0..3 {
        let dying = world
            .driver
            .drive(Some("dying"), &["spin", "500000", "60000"]);
        let mut dying = dying.ready();
        pass(300);
        dying.kill();
        let span = pass(500);
        let share = world.driver.share(&living, 0, span);
        assert!(share > 35.0, "{share}");
        let dead = world
            .driver
            .machine
            .used_ns(dying.id(), 0, span.0 + 100_000_000, span.1);
        assert_eq!(dead, 0);
    }
}

#[test]
fn a_stopped_holder_does_not_stop_the_others() {
    let world = World::new(1);
    world.share("stopped", &[0], (500, 500), None);
    world.share("living", &[0], (500, 1000), None);
    let stopped = world
        .driver
        .drive(Some("stopped"), &["spin", "500000", "60000"]);
    let stopped = stopped.ready();
    let living = world
        .driver
        .drive(Some("living"), &["spin", "500000", "60000"]);
    let living = living.ready();
    pass(500);
    world.driver.stop(&stopped);
    pass(1500);
    let share = world.driver.share(&living, 0, pass(1000));
    assert!(share > 35.0, "{share}");
    stopped.signal("-CONT");
    pass(1500);
    let share = world.driver.share(&stopped, 0, pass(2000));
    assert!(share > 10.0, "{share}");
}

#[test]
fn without_a_scheduler_programs_keep_to_their_requests_until_there_is_one_again() {
    let driver = Driver::new(1);
    let tenants = [("a", (300, 1000)), ("b", (400, 1000))];
    let scheduler = Scheduler::start(&driver, 1, &tenants);
    let start = |name: &str| {
        driver
            .drive(Some(name), &["spin", "500000", "60000"])
            .ready()
    };
    let programs: Vec<Program> = ["a", "b"].into_iter().map(start).collect();
    pass(1000);
    let share = |program: &Program, span| driver.share(program, 0, span);
    let together = pass(1500);
    let sum: f64 = programs.iter().map(|it| share(it, together)).sum();
    assert!(sum > 35.0, "{sum}");
    scheduler.kill();
    pass(700);
    let span = pass(2500);
    let alone: Vec<f64> = programs.iter().map(|it| share(it, span)).collect();
    println!("without a scheduler: {alone:.1?}");
    for (share, request) in alone.iter().zip([30.0, 40.0]) {
        assert!(*share <= request + 2.0, "{alone:?}");
        assert!(*share >= request / 5.0, "{alone:?}");
    }
    let scheduler = Scheduler::start(&driver, 1, &tenants);
    pass(1000);
    let span = pass(1500);
    let sum: f64 = programs.iter().map(|it| share(it, span)).sum();
    assert!(sum > 35.0, "{sum}");
    scheduler.kill();
}

#[test]
fn forks_and_threads_use_the_device_and_do_not_hang() {
    let world = World::new(1);
    world.share("forks", &[0], (500, 800), None);
    let said = world
        .driver
        .drive(Some("forks"), &["fork", "300000", "1500"])
        .end();
    assert_eq!(said.matches("child 0").count(), 2, "{said}");
    let said = world
        .driver
        .drive(Some("forks"), &["threads", "300000", "1500", "4"])
        .end();
    assert!(said.contains("launched"), "{said}");
    let begun = std::time::Instant::now();
    while world.usage("forks").processes > 0 {
        assert!(begun.elapsed().as_secs() < 10, "{:?}", world.usage("forks"));
        std::thread::yield_now();
    }
}

#[test]
fn processes_with_two_devices_take_both_in_turns() {
    let world = World::new(2);
    world.share("one", &[0, 1], (400, 400), None);
    world.share("two", &[0, 1], (400, 400), None);
    let start = |name: &str| {
        world
            .driver
            .drive(Some(name), &["both", "300000", "60000"])
            .ready()
    };
    let programs: Vec<Program> = ["one", "two"].into_iter().map(start).collect();
    pass(1000);
    let span = pass(3000);
    for program in &programs {
        for device in [0, 1] {
            let share = world.driver.share(program, device, span);
            println!("device {device}: {share:.1} %");
            assert!((2.0..=42.0).contains(&share), "{share}");
        }
    }
}

#[test]
fn captures_among_launches_are_not_disturbed() {
    let world = World::new(1);
    world.share("captures", &[0], (300, 300), None);
    let said = world
        .driver
        .drive(Some("captures"), &["graph", "100000", "1500", "9"])
        .end();
    assert!(said.contains("launched"), "{said}");
}
