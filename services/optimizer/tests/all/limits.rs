//! A decision records whether the work limit influenced it, and every machine stops at the same place.

use dormouse_messages::events::StoppedBy;
use dormouse_optimizer::problem::{Precedence, Problem, ProblemJob};
use dormouse_optimizer::{Solution, check, solve};

use crate::common::{Chance, carry_over, elastic, job, large_problem, node, service};

fn limited(problem: &Problem, work: u64) -> Solution {
    let mut problem = problem.clone();
    problem.budget.work = work;
    let solution = solve(&problem);
    if let Err(violation) = check(&problem, &solution) {
        panic!("after {work} steps: {violation}\n{problem:#?}\n{solution:#?}");
    }
    assert_eq!(solution, solve(&problem), "after {work} steps");
    solution
}

/// A changed answer must name the work limit.
fn is_changed(what: &str, full: &Solution, limited: Solution) -> bool {
    let stopped_by = limited.solver.stopped_by;
    let mut bare = limited;
    bare.solver.stopped_by = full.solver.stopped_by;
    let changed = bare != *full;
    assert!(
        !changed || stopped_by == StoppedBy::Work,
        "{what}: another answer than without a limit, stopped by {stopped_by}"
    );
    changed
}

fn compare(problem: &Problem, seed: u64) -> usize {
    let full = limited(problem, u64::MAX);
    let mut changed = 0;
    for steps in (0..30).step_by(3).map(|power| 1 << power) {
        let what = format!("seed {seed}, {steps} steps");
        changed += usize::from(is_changed(&what, &full, limited(problem, steps)));
    }
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
fn what_the_work_limit_changes_says_so() {
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
