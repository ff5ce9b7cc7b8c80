//! The published testbed at 10, 25 and 50 jobs, from nothing and from a previous decision: proven optimal,
//! within every bound.

use crate::common::{carry_over, solved, testbed_jobs, testbed_nodes};
use dormouse_messages::events::StoppedBy;
use dormouse_optimizer::Solution;
use dormouse_optimizer::problem::{Budget, Objective, Policy, Problem};

fn problem(count: usize, seed: u64, theta1: u64, theta2: u64) -> Problem {
    Problem {
        nodes: testbed_nodes(),
        jobs: testbed_jobs(count, seed),
        policy: Policy {
            theta1: theta1 as f64 / 10.0,
            theta2: theta2 as f64 / 10.0,
            ..Policy::default()
        },
        budget: Budget {
            gap: 1e-6,
            nodes: Some(20_000),
            ..Budget::default()
        },
        ..Problem::default()
    }
}

#[track_caller]
fn assert_optimal(solution: &Solution, what: &str) {
    let solver = &solution.solver;
    assert_eq!(solver.stopped_by, StoppedBy::Optimal, "{what}: {solver:?}");
}

fn run(count: usize, seed: u64) {
    for (theta1, theta2) in [(2, 1), (1, 2), (1, 1)] {
        let mut problem = problem(count, seed, theta1, theta2);
        let first = solved(&problem);
        assert_optimal(&first, "from nothing");
        carry_over(&mut problem, &first);
        // A job ends and another arrives.
        problem.jobs.remove(count / 2);
        let mut newcomer = testbed_jobs(count, seed + 1000).remove(0);
        newcomer.job = "t/newcomer".parse().expect("an id");
        problem.jobs.push(newcomer);
        assert_optimal(&solved(&problem), "from before");
    }
}

#[test]
fn ten_jobs() {
    run(10, 1);
    run(10, 2);
}

#[test]
fn twenty_five_jobs() {
    run(25, 3);
}

#[test]
fn fifty_jobs() {
    run(50, 4);
}

#[test]
fn the_papers_objective() {
    let mut problem = problem(25, 5, 1, 1);
    problem.policy.objective = Objective::paper();
    let first = solved(&problem);
    assert_optimal(&first, "from nothing");
    carry_over(&mut problem, &first);
    problem.jobs.remove(3);
    assert_optimal(&solved(&problem), "from before");
}
