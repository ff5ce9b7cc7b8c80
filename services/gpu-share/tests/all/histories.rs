//! Ten thousand random histories: joins, kills, stuck holders, changed terms, two devices. The invariants
//! always hold, and in the end everybody who wants the GPU gets it.

use std::collections::BTreeSet;

use dormouse_gpu_share::scheduler::{Device, SECOND_NS, Tenant};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::model::{Load, MS, World};

fn load(random: &mut StdRng) -> Load {
    match random.random_range(0..4) {
        0 => Load::Idle,
        1 => Load::LaunchAndSync(
            random.random_range(MS..4 * MS),
            random.random_range(0..5 * MS),
        ),
        _ => Load::Hungry(random.random_range(MS..30 * MS)),
    }
}

/// None is zero: a request of nothing is no promise.
fn terms(random: &mut StdRng) -> (u32, u32) {
    let request = random.random_range(20..=250);
    let limit = random.random_range(request..=1000);
    (request, limit)
}

fn history(seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let mut world = World::new(seed);
    let mut tenants = BTreeSet::new();
    let mut next = 0;
    for _ in 0..random.random_range(3..9) {
        match random.random_range(0..6) {
            0 if !tenants.is_empty() => {
                let killed = world
                    .scheduler
                    .holder(Device(0))
                    .unwrap_or(Tenant(next - 1));
                tenants.remove(&killed.0);
                world.kill(killed);
            }
            1 => {
                if let Some(program) = world.programs.values_mut().next() {
                    program.stuck ^= true;
                }
            }
            2 => {
                if let Some(&(tenant, device)) = world.programs.keys().next() {
                    world.terms(tenant, device, terms(&mut random));
                }
            }
            3 => {
                if let Some(program) = world.programs.values_mut().last() {
                    program.load = load(&mut random);
                }
            }
            _ if tenants.len() < 4 => {
                for device in 0..random.random_range(1..=2) {
                    let (terms, load) = (terms(&mut random), load(&mut random));
                    world.join(next, device, terms, load);
                }
                tenants.insert(next);
                next += 1;
            }
            _ => {}
        }
        let until = world.now + random.random_range(MS..300 * MS);
        world.run(until);
    }
    for program in world.programs.values_mut() {
        program.stuck = false;
        program.load = Load::Hungry(2 * MS);
    }
    let from = world.now;
    world.run(from + 5 * SECOND_NS / 2);
    world.check_busy();
    let hungry: Vec<_> = world.programs.keys().copied().collect();
    for (tenant, device) in hungry {
        let used = world.used(tenant.0, device.0, from, world.now);
        assert!(used > 0, "seed {seed}: {tenant:?} hangs on {device:?}");
    }
}

#[test]
fn nobody_hangs_in_ten_thousand_random_histories() {
    let count = std::env::var("DORMOUSE_GPU_HISTORIES").map_or(10_000, |it| {
        it.parse().expect("DORMOUSE_GPU_HISTORIES is a number")
    });
    for seed in 0..count {
        history(seed);
    }
    println!("{count} histories, seeds 0..{count}");
}
