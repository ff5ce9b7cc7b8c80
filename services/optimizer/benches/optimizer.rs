//! How long a decision takes: the published testbed and large clusters, P2 against the greedy
//! offers on the same instances. `cargo bench -p dormouse-optimizer`.

#[path = "../tests/common/mod.rs"]
mod common;

use common::{carry_over, large_problem, testbed_jobs, testbed_nodes};
use dormouse_optimizer::problem::{Allocation, Problem};
use dormouse_optimizer::solve;

fn main() {
    divan::main();
}

/// The testbed in mid-life: one job has ended, another has come.
fn testbed(jobs: usize) -> Problem {
    let mut problem = Problem {
        nodes: testbed_nodes(),
        jobs: testbed_jobs(jobs, 4),
        ..Problem::default()
    };
    let before = solve(&problem);
    carry_over(&mut problem, &before);
    problem.jobs.remove(jobs / 2);
    let mut newcomer = testbed_jobs(jobs, 1004).remove(0);
    newcomer.job = "t/newcomer".parse().expect("an id");
    problem.jobs.push(newcomer);
    problem
}

#[divan::bench(args = [10, 25, 50], sample_count = 10, sample_size = 1)]
fn testbed_p2(bencher: divan::Bencher, jobs: usize) {
    let problem = testbed(jobs);
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}

#[divan::bench(args = [10, 25, 50], sample_count = 10, sample_size = 1)]
fn testbed_offers(bencher: divan::Bencher, jobs: usize) {
    let mut problem = testbed(jobs);
    problem.policy.allocation = Allocation::Drf;
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}

#[divan::bench(args = [(100, 100, 24), (100, 100, 0), (1000, 500, 24), (1000, 500, 0)], sample_count = 3, sample_size = 1)]
fn large_p2(bencher: divan::Bencher, (nodes, jobs, shapes): (usize, usize, u64)) {
    let problem = large_problem(nodes, jobs, shapes, 0);
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}
