//! Shares of tenants on the virtual clock: error, overshoot, convergence.

use dormouse_gpu_share::scheduler::{Device, SECOND_NS, Tenant};

use crate::model::{Load, MS, World};

/// Tenants as (request, limit), and the expected shares, in thousandths.
type Case = (&'static [(u32, u32)], &'static [u32]);

const CASES: [Case; 9] = [
    (&[(300, 300), (700, 700)], &[300, 700]),
    (&[(100, 1000), (900, 1000)], &[100, 900]),
    (&[(250, 250), (250, 250), (250, 250), (250, 250)], &[250; 4]),
    (&[(500, 1000), (500, 1000)], &[500, 500]),
    // The rest is divided by weight (the request), up to the limits.
    (&[(100, 1000), (300, 1000)], &[250, 750]),
    (&[(200, 300), (200, 1000)], &[300, 700]),
    (&[(300, 600)], &[600]),
    (&[(100, 150), (100, 150), (100, 150)], &[150; 3]),
    (&[(125, 1000), (250, 250), (500, 500)], &[250, 250, 500]),
];

#[test]
fn shares_are_within_two_points_in_every_ten_seconds() {
    for kernel in [200_000, MS, 5 * MS] {
        let (mut sum, mut count) = (0.0, 0.0);
        for (case, (tenants, wanted)) in CASES.iter().enumerate() {
            let mut world = World::new(7 + case as u64);
            for (index, terms) in tenants.iter().enumerate() {
                world.join(index as u32, 0, *terms, Load::Hungry(kernel));
            }
            world.run(42 * SECOND_NS);
            world.check_busy();
            for (index, wanted) in wanted.iter().enumerate() {
                for second in [2, 7, 12, 23, 31] {
                    let from = second * SECOND_NS + 137 * MS;
                    let share = world.share(index as u32, from, from + 10 * SECOND_NS);
                    let error = share - f64::from(*wanted) / 10.0;
                    assert!(error.abs() <= 2.0, "{kernel} {case} {index}: {error:.2}");
                    let over = share - f64::from(tenants[index].1) / 10.0;
                    assert!(over <= 1.0, "{kernel} {case} {index}: over by {over:.2}");
                    let short = f64::from(tenants[index].0) / 10.0 - share;
                    assert!(short <= 1.0, "{kernel} {case} {index}: short by {short:.2}");
                    sum += error.abs();
                    count += 1.0;
                }
            }
        }
        let mean = sum / count;
        println!("kernels up to {kernel} ns: mean error {mean:.3} points");
        assert!(mean <= 1.0, "{kernel}: mean error {mean:.2}");
    }
}

#[test]
fn a_limit_of_the_whole_device_is_used_to_the_end() {
    let mut world = World::new(1);
    world.join(0, 0, (300, 1000), Load::Hungry(MS));
    world.run(5 * SECOND_NS);
    let share = world.share(0, SECOND_NS, 5 * SECOND_NS);
    assert!(share >= 94.0, "{share}");
}

#[test]
fn a_second_tenant_has_its_request_within_a_second_and_leaves_it_as_fast() {
    let mut world = World::new(2);
    world.join(0, 0, (300, 600), Load::Hungry(2 * MS));
    world.run(4 * SECOND_NS);
    assert!((world.share(0, SECOND_NS, 4 * SECOND_NS) - 60.0).abs() < 1.0);
    world.join(1, 0, (700, 700), Load::Hungry(2 * MS));
    world.run(8 * SECOND_NS);
    assert!((world.share(0, 5 * SECOND_NS, 8 * SECOND_NS) - 30.0).abs() < 1.5);
    assert!((world.share(1, 5 * SECOND_NS, 8 * SECOND_NS) - 70.0).abs() < 1.5);
    world.kill(Tenant(1));
    world.run(12 * SECOND_NS);
    assert!((world.share(0, 9 * SECOND_NS, 12 * SECOND_NS) - 60.0).abs() < 1.0);
}

#[test]
fn changed_terms_hold_within_a_second() {
    let mut world = World::new(3);
    world.join(0, 0, (500, 500), Load::Hungry(MS));
    world.join(1, 0, (500, 500), Load::Hungry(MS));
    world.run(4 * SECOND_NS);
    world.terms(Tenant(0), Device(0), (200, 200));
    world.terms(Tenant(1), Device(0), (500, 800));
    world.run(9 * SECOND_NS);
    let shares: Vec<f64> = (0..2)
        .map(|it| world.share(it, 5 * SECOND_NS, 9 * SECOND_NS))
        .collect();
    assert!((shares[0] - 20.0).abs() < 1.0, "{shares:?}");
    assert!((shares[1] - 80.0).abs() < 2.0, "{shares:?}");
}

#[test]
fn launch_and_sync_is_held_to_its_limit() {
    let mut world = World::new(4);
    world.join(0, 0, (200, 400), Load::LaunchAndSync(3 * MS, MS));
    world.run(12 * SECOND_NS);
    let share = world.share(0, SECOND_NS, 11 * SECOND_NS);
    assert!((39.0..=41.0).contains(&share), "{share}");
}

#[test]
fn who_pauses_has_its_request_when_it_works() {
    let mut world = World::new(5);
    world.join(0, 0, (200, 200), Load::LaunchAndSync(2 * MS, 8 * MS));
    world.join(1, 0, (300, 1000), Load::Hungry(4 * MS));
    world.run(12 * SECOND_NS);
    // 2 ms of work every 8 ms plus waiting: no other grant exceeds 20 ms.
    let share = world.share(0, SECOND_NS, 11 * SECOND_NS);
    assert!(share > 6.0, "{share}");
    assert!(world.share(1, SECOND_NS, 11 * SECOND_NS) > 80.0);
}

/// After each pause the tenant waits for the rest of another's kernel, which is not its own time.
#[test]
fn bursts_with_short_pauses_have_their_request_beside_a_hungry_tenant() {
    for (at, (request, work, pause, kernel)) in [
        (700, 8 * MS, MS, 2 * MS),
        (500, 4 * MS, 2 * MS, 2 * MS),
        (600, 20 * MS, 5 * MS, MS),
        (300, 2 * MS, 2 * MS, MS),
    ]
    .into_iter()
    .enumerate()
    {
        let mut world = World::new(7 + at as u64);
        world.join(0, 0, (request, request), Load::LaunchAndSync(work, pause));
        world.join(1, 0, (1000 - request, 1000), Load::Hungry(kernel));
        world.run(12 * SECOND_NS);
        let share = world.share(0, SECOND_NS, 11 * SECOND_NS);
        let other = world.share(1, SECOND_NS, 11 * SECOND_NS);
        println!("{request}: {work} and {pause} ns: {share:.2} %, the other {other:.2} %");
        let wanted = f64::from(request) / 10.0;
        assert!((share - wanted).abs() <= 1.0, "{at}: {share}");
        assert!(other >= 99.0 - wanted - 10.0, "{at}: {other}");
    }
}

#[test]
fn a_stuck_holder_loses_the_token_after_its_patience() {
    let mut world = World::new(6);
    world.join(0, 0, (500, 500), Load::Hungry(MS));
    world.join(1, 0, (500, 500), Load::Hungry(MS));
    world.run(SECOND_NS);
    let holder = world.scheduler.holder(Device(0));
    let key = (holder.unwrap_or(Tenant(0)), Device(0));
    world.programs.get_mut(&key).expect("a program").stuck = true;
    world.run(4 * SECOND_NS);
    let other = 1 - key.0.0;
    assert!(world.share(other, 3 * SECOND_NS, 4 * SECOND_NS) >= 45.0);
}
