//! Decision times on the testbed and large clusters: P2 against greedy DRF offers and P2 to the letter. Run
//! `cargo bench -p dormouse-optimizer`.

#[path = "../tests/all/common/mod.rs"]
mod common;
mod literal;

use common::{carry_over, large_problem, testbed_jobs, testbed_nodes};
use dormouse_optimizer::problem::{Allocation, Problem};
use dormouse_optimizer::solve;
use dormouse_optimizer::useful::Useful;

fn main() {
    divan::main();
}

/// One job has ended, another has arrived.
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

/// Stopped after ten seconds, like a decision.
#[divan::bench(args = [10, 25, 50], sample_count = 1, sample_size = 1)]
fn testbed_literal_p2(bencher: divan::Bencher, jobs: usize) {
    let problem = testbed(jobs);
    bencher.bench_local(|| literal::solve(divan::black_box(&problem), 10.0));
}

#[divan::bench(args = [(100, 100)], sample_count = 1, sample_size = 1)]
fn large_literal_p2(bencher: divan::Bencher, (nodes, jobs): (usize, usize)) {
    let problem = large_problem(nodes, jobs, 24, 0);
    bencher.bench_local(|| literal::solve(divan::black_box(&problem), 10.0));
}

#[divan::bench(args = [(100, 100), (1000, 500)], sample_count = 3, sample_size = 1)]
fn large_offers(bencher: divan::Bencher, (nodes, jobs): (usize, usize)) {
    let mut problem = large_problem(nodes, jobs, 24, 0);
    problem.policy.allocation = Allocation::Drf;
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}

#[divan::bench(args = [(1000, 500, 24)], sample_count = 3, sample_size = 1)]
fn one_event(bencher: divan::Bencher, (nodes, jobs, shapes): (usize, usize, u64)) {
    let mut problem = large_problem(nodes, jobs, shapes, 0);
    let before = solve(&problem);
    carry_over(&mut problem, &before);
    problem.jobs.remove(jobs / 2);
    problem
        .jobs
        .push(large_problem(nodes, jobs, shapes, 9).jobs.remove(jobs - 1));
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}

#[divan::bench(args = [(100, 100, 24), (100, 100, 0), (1000, 500, 24), (1000, 500, 0)], sample_count = 3, sample_size = 1)]
fn large_p2(bencher: divan::Bencher, (nodes, jobs, shapes): (usize, usize, u64)) {
    let problem = large_problem(nodes, jobs, shapes, 0);
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}

/// Each job's speed bends, at a count of its own; prints the gap beside the time.
#[divan::bench(args = [(1000, 500, 24), (10_000, 2_000, 24)], sample_count = 3, sample_size = 1)]
fn large_p2_speeds(bencher: divan::Bencher, (nodes, jobs, shapes): (usize, usize, u64)) {
    let mut problem = large_problem(nodes, jobs, shapes, 0);
    for (index, job) in problem.jobs.iter_mut().enumerate() {
        let a = 0.05 * (index % 7) as f64;
        let speed = move |count: u32| {
            let count = f64::from(count);
            if count == 0.0 {
                0.0
            } else {
                (a + 1.0) / (a + 1.0 / count)
            }
        };
        job.useful = Some(Useful::new(speed, job.max, &[]));
    }
    println!("{nodes} nodes, {jobs} jobs: {:?}", solve(&problem).solver);
    bencher.bench_local(|| solve(divan::black_box(&problem)));
}
