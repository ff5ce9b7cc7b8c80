//! DRF's properties on random weighted pools, and a rate measurement.

use dormouse_messages::policy::Queue;
use num_rational::Ratio;
use proptest::prelude::*;

use super::Given;

/// Measures releases per second:
/// `cargo test --release -p dormouse-admission -- --ignored --nocapture release_rate`.
#[test]
#[ignore = "a measurement, run by hand as said above; it checks nothing"]
fn release_rate() {
    for queue in Queue::ALL {
        let mut given = Given::cluster("cpu=20000", queue);
        for task in 0..100_000 {
            let tenant = ["a", "b", "c", "d", "e"][task % 5];
            let admitted = given.admitted(&format!("{tenant}/t{task}"), "cpu=1", 0);
            given.evolve(admitted);
        }
        let begun = std::time::Instant::now();
        let mut released = 0;
        while released < 20_000 {
            let decided = given.decide();
            released += decided.len();
            decided
                .into_iter()
                .for_each(|event| given.evolve(event.into()));
        }
        let rate = f64::from(u32::try_from(released).expect("few")) / begun.elapsed().as_secs_f64();
        println!("{}: {rate:.0} released a second", queue.as_str());
    }
}

/// Endless queues of uniform tasks on one pool.
#[derive(Debug, Clone)]
struct Pool {
    total: [u64; 3],
    /// Demand of a task, and weight.
    tenants: Vec<([u64; 3], u32)>,
}

fn pools() -> impl Strategy<Value = Pool> {
    let demand = prop::array::uniform3(0u64..9).prop_filter("a task needs something", |demand| {
        demand.iter().any(|amount| *amount > 0)
    });
    let tenants = prop::collection::vec((demand, 1u32..5), 1..6);
    let total = prop::array::uniform3(9u64..60);
    (total, tenants).prop_map(|(total, tenants)| Pool { total, tenants })
}

fn amounts([cpu, gpu, fpga]: [u64; 3]) -> String {
    let parts = [("cpu", cpu), ("gpu", gpu), ("fpga", fpga)];
    let some = parts.iter().filter(|(_, amount)| *amount > 0);
    let some: Vec<String> = some
        .map(|(name, amount)| format!("{name}={amount}"))
        .collect();
    some.join(",")
}

impl Pool {
    /// Returns released tasks by tenant, and the rest.
    fn share(&self, queue: Queue) -> (Vec<u64>, [u64; 3]) {
        let mut given = Given::cluster(&amounts(self.total), queue);
        for (index, (demand, weight)) in self.tenants.iter().enumerate() {
            given.tenant(&format!("t{index}"), *weight, "");
            for task in 0..60 {
                let admitted = given.admitted(&format!("t{index}/j{task}"), &amounts(*demand), 0);
                given.evolve(admitted);
            }
        }
        let mut tasks = vec![0; self.tenants.len()];
        for id in given.carry_out() {
            let index: usize = id[1..2].parse().expect("a tenant's number");
            tasks[index] += 1;
        }
        let mut free = self.total;
        for (count, (demand, _)) in tasks.iter().zip(&self.tenants) {
            for (free, amount) in free.iter_mut().zip(demand) {
                *free -= count * amount;
            }
        }
        (tasks, free)
    }

    fn delta(&self, index: usize) -> Ratio<u64> {
        let pairs = self.tenants[index].0.iter().zip(&self.total);
        let shares = pairs.map(|(amount, total)| Ratio::new(*amount, *total));
        shares.max().expect("three resources")
    }

    fn weight(&self, index: usize) -> Ratio<u64> {
        Ratio::from_integer(u64::from(self.tenants[index].1))
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The properties of DRF with whole tasks and weights (Ghodsi et al., 2011).
    #[test]
    fn drf_releases_are_fair(pool in pools()) {
        let (tasks, free) = pool.share(Queue::Drf);
        let indices = 0..tasks.len();
        let share = |i: usize| pool.delta(i) * tasks[i];
        // Pareto efficiency: nobody fits one more.
        for (demand, _) in &pool.tenants {
            prop_assert!(demand.iter().zip(&free).any(|(amount, free)| amount > free));
        }
        // Sharing incentive: s_i > (w_i / W)(1 − Σ δ), that is s_i + (w_i / W) Σ δ > w_i / W.
        let weights: Ratio<u64> = indices.clone().map(|i| pool.weight(i)).sum();
        let deltas: Ratio<u64> = indices.clone().map(|i| pool.delta(i)).sum();
        for i in indices.clone() {
            let slice = pool.weight(i) / weights;
            prop_assert!(share(i) + slice * deltas > slice, "tenant {i} of {tasks:?}");
        }
        // Bottleneck fairness: if all need one resource the most, keys differ by a task.
        let most = |r: usize, i: usize| Ratio::new(pool.tenants[i].0[r], pool.total[r]) == pool.delta(i);
        if (0..3).any(|r| indices.clone().all(|i| most(r, i))) {
            for (i, k) in indices.clone().flat_map(|i| indices.clone().map(move |k| (i, k))) {
                let slack = (pool.delta(k) + pool.delta(i)) / pool.weight(k);
                prop_assert!(share(k) / pool.weight(k) < share(i) / pool.weight(i) + slack);
            }
        }
    }

    #[test]
    fn every_policy_releases_until_nothing_fits(pool in pools()) {
        for queue in Queue::ALL.into_iter().filter(|queue| *queue != Queue::Fifo) {
            let (_, free) = pool.share(queue);
            for (demand, _) in &pool.tenants {
                prop_assert!(demand.iter().zip(&free).any(|(amount, free)| amount > free));
            }
        }
    }
}
