//! A decision records whether a time limit influenced it.

use std::cell::Cell;

use dormouse_messages::events::StoppedBy;
use dormouse_optimizer::problem::{Precedence, Problem, ProblemJob, TimeLimit};
use dormouse_optimizer::{Solution, check, solve};

use crate::common::{Chance, carry_over, elastic, job, large_problem, node, service};

thread_local! {
    static READINGS: Cell<u32> = const { Cell::new(0) };
}

/// Longer than any run of the solver.
const READING_S: f64 = 1e4;

/// A clock that advances only when read.
fn readings() -> f64 {
    READINGS.set(READINGS.get() + 1);
    f64::from(READINGS.get()) * READING_S
}

/// Decides with time for a number of readings.
fn throttled(problem: &Problem, readings_left: u32) -> Solution {
    let mut problem = problem.clone();
    problem.budget.time = Some(TimeLimit {
        seconds: f64::from(readings_left) * READING_S,
        clock: readings,
    });
    let solution = solve(&problem);
    if let Err(violation) = check(&problem, &solution) {
        panic!("after {readings_left} readings: {violation}\n{problem:#?}\n{solution:#?}");
    }
    solution
}

/// A changed answer must name the time limit.
fn is_changed(what: &str, full: &Solution, throttled: Solution) -> bool {
    let stopped_by = throttled.solver.stopped_by;
    let mut bare = throttled;
    bare.solver.stopped_by = full.solver.stopped_by;
    let changed = bare != *full;
    assert!(
        !changed || stopped_by == StoppedBy::Time,
        "{what}: another answer than without a limit, stopped by {stopped_by}"
    );
    changed
}

const READINGS_LEFT: [u32; 12] = [1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 40, 80];

fn compare(problem: &Problem, seed: u64) -> usize {
    let full = solve(problem);
    let mut changed = 0;
    for left in READINGS_LEFT {
        let what = format!("seed {seed}, {left} readings");
        changed += usize::from(is_changed(&what, &full, throttled(problem, left)));
    }
    let what = format!("seed {seed}, without end");
    let unhurried = throttled(problem, u32::MAX);
    assert_eq!(unhurried, full, "{what}");
    changed
}

fn some_job(name: &str, chance: &mut Chance) -> ProblemJob {
    let (min, more) = (1 + chance.below(3) as u32, chance.below(5) as u32);
    let demand = match chance.below(3) {
        0 => "cpu=2,gpu=1".to_owned(),
        _ => format!("cpu={}", 1 + chance.below(4)),
    };
    let weight = 1 + chance.below(3) as u32;
    let mut made = match chance.below(9) {
        0 => service(name, min),
        1 => elastic(name, None, min, min + more),
        _ => job(name, &demand, weight, min, min + more),
    };
    made.precedence = Precedence {
        class: if chance.below(5) == 0 { 10 } else { 0 },
        preempts: chance.below(4) == 0,
        protected: chance.below(8) == 0,
        at_risk_s: chance.below(300) as f64,
    };
    made
}

fn small(seed: u64) -> Problem {
    let mut chance = Chance::new(seed + 1_000);
    let nodes = (0..3 + chance.below(5)).map(|index| {
        let gpu = if index % 2 == 0 { ",gpu=3" } else { "" };
        node(&format!("n{index}"), &format!("cpu=8{gpu}"))
    });
    let mut problem = Problem {
        nodes: nodes.collect(),
        ..Problem::default()
    };
    for round in 0..3 {
        for index in 0..2 + chance.below(4) {
            let name = format!("j{round}-{index}");
            problem.jobs.push(some_job(&name, &mut chance));
        }
        problem.jobs.sort_by_key(|job| job.previous.is_none());
        if round < 2 {
            let solution = solve(&problem);
            carry_over(&mut problem, &solution);
        }
    }
    problem
}

#[test]
fn what_a_limit_of_time_changes_says_that_time_stopped_it() {
    let changed: usize = (0..60).map(|seed| compare(&small(seed), seed)).sum();
    println!("{changed} answers were others");
    assert!(changed > 60);
}

#[test]
fn so_does_what_is_found_by_prices() {
    let changed: usize = (0..2)
        .map(|seed| compare(&large_problem(30, 22, 0, seed), seed))
        .sum();
    println!("{changed} answers were others");
    assert!(changed > 2);
}
