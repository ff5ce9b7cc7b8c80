//! Large clusters: every solution is checked and the figures are printed. Long ones run on request: `cargo
//! test --release -p dormouse-optimizer --test all scale:: -- --ignored --nocapture`.

use std::time::Instant;

use crate::common::{
    bind, job, large_bound_problem, large_jobs, large_packed_problem, large_problem, node, placed,
    solved,
};
use dormouse_messages::job::Urgency;
use dormouse_optimizer::problem::{InPlace, Objective, Problem, ProblemJob};
use dormouse_optimizer::{Solution, solve};

fn env(name: &str, default: usize) -> usize {
    std::env::var(name)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(default)
}

/// Processor time of this thread, which a busy machine does not stretch.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat
        .split(' ')
        .next()
        .and_then(|text| text.parse::<f64>().ok());
    nanoseconds.unwrap_or(f64::NAN) / 1e9
}

fn figures(
    problem: &mut Problem,
    (nodes, jobs, shapes): (usize, usize, u64),
    seed: u64,
    theta: (u64, u64),
) -> Solution {
    problem.policy.theta1 = theta.0 as f64 / 10.0;
    problem.policy.theta2 = theta.1 as f64 / 10.0;
    if std::env::var("OBJECTIVE").is_ok_and(|name| name == "paper") {
        problem.policy.objective = Objective::paper();
    }
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let unchecked = if std::env::var("ONCE").is_ok() {
        solve(problem)
    } else {
        solved(problem)
    };
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    let solution = if std::env::var("ONCE").is_ok() {
        unchecked.clone()
    } else {
        solved(problem)
    };
    assert_eq!(unchecked, solution, "the same again");
    let solver = &solution.solver;
    println!(
        "{nodes}x{jobs} shapes {shapes} seed {seed} theta {theta:?}: {seconds:.2} s (cpu {cpu:.2}) gap {:.4} {} by {} objective {:.4} bound {:.4} util {:.4} loss {:.3}/{} adjusted {}/{} waiting {}",
        solver.gap,
        solver.stage,
        solver.stopped_by,
        solver.objective,
        solver.bound,
        solution.utilization.total,
        solution.fairness_loss,
        solution.fairness_loss_bound,
        solution.adjusted_jobs,
        solution.adjustment_bound,
        solution.waiting.len()
    );
    solution
}

#[test]
fn a_hundred_nodes() {
    for seed in 0..1 {
        let mut problem = large_problem(100, 100, 24, seed);
        let solution = figures(&mut problem, (100, 100, 24), seed, (1, 1));
        assert!(solution.solver.gap <= 0.01, "{:?}", solution.solver);
    }
}

#[test]
fn a_hundred_nodes_of_which_jobs_may_not_have_all() {
    let mut problem = large_bound_problem(100, 100, 24, 0);
    let solution = figures(&mut problem, (100, 100, 24), 0, (1, 1));
    // Backfill onto other nodes improves the decision by 6 % and complicates the model.
    assert!(solution.solver.objective > 2.025, "{:?}", solution.solver);
    // The larger model with exact confinement leaves a wider gap.
    assert!(solution.waiting.len() <= 1, "{:?}", solution.waiting);
    assert!(solution.solver.gap <= 0.02, "{:?}", solution.solver);
}

/// Packed gangs leave room where no job can use it: some restarts are needed for a minimum alone.
#[test]
fn packed_gangs_make_room_for_a_job_that_may_not_have_all_nodes() {
    let mut problem = large_packed_problem(100, 100, 24, 2);
    let solution = figures(&mut problem, (100, 100, 24), 2, (1, 1));
    assert!(solution.solver.gap <= 0.03, "{:?}", solution.solver);
}

#[test]
#[ignore = "minutes: figures with constraints for a size, seeds and demands given in the environment"]
fn bound_figures_on_request() {
    let (size, seeds) = requested();
    for seed in seeds {
        let mut problem = match env("PACKED", 0) {
            0 => large_bound_problem(size.0, size.1, size.2, seed),
            _ => large_packed_problem(size.0, size.1, size.2, seed),
        };
        for theta in [(2, 1), (1, 2), (1, 1)] {
            figures(&mut problem, size, seed, theta);
        }
    }
}

/// A restart's price shrinks with the cluster, so a gain of one container is worth a restart.
#[test]
fn a_single_container_is_worth_a_restart_on_a_large_cluster() {
    let names: Vec<String> = (0..1_200).map(|index| format!("n{index:04}")).collect();
    let had: Vec<(&str, u32)> = names[1..].iter().map(|name| (name.as_str(), 1)).collect();
    let mut problem = Problem {
        nodes: names.iter().map(|name| node(name, "cpu=1")).collect(),
        jobs: vec![placed(job("a", "cpu=1", 1, 1, 1_200), &had)],
        ..Problem::default()
    };
    problem.policy.objective = Objective::paper();
    problem.budget.gap = 1e-9;
    let solution = solved(&problem);
    assert_eq!(solution.jobs[0].containers, 1_200, "{:?}", solution.solver);
}

/// Far more demand than capacity, and every tenth node lost with its containers.
#[test]
fn an_overfull_cluster_that_loses_nodes() {
    for seed in 0..1 {
        let mut problem = large_problem(80, 100, 10, seed);
        problem.jobs.extend(large_jobs(60, 60, 10, seed + 500));
        problem.budget.nodes = Some(5);
        let keeping = solved(&problem);
        assert!(keeping.solver.objective <= keeping.solver.bound + 1e-9);
        crate::common::carry_over(&mut problem, &keeping);
        problem
            .nodes
            .retain(|node| !node.name.as_str().ends_with('7'));
        let left: Vec<_> = problem.nodes.iter().map(|node| node.name.clone()).collect();
        for job in &mut problem.jobs {
            let Some(previous) = &mut job.previous else {
                continue;
            };
            let before = previous.len();
            previous.retain(|node, _| left.contains(node));
            job.displaced = previous.len() < before;
        }
        let after = solved(&problem);
        assert!(after.solver.objective <= after.solver.bound + 1e-9);
    }
}

#[derive(Debug, Clone, Copy)]
enum Happening {
    Arrival,
    Completion,
    Both,
}

/// Decides `count` events in a row. Prints and returns processor seconds and gaps.
fn event_figures(
    (nodes, jobs, shapes): (usize, usize, u64),
    seed: u64,
    theta: (u64, u64),
    count: usize,
) -> Vec<(f64, f64)> {
    let is_bound = env("CONSTRAINTS", 0) > 0;
    let mut problem = if is_bound {
        large_bound_problem(nodes, jobs, shapes, seed)
    } else {
        large_problem(nodes, jobs, shapes, seed)
    };
    problem.policy.theta1 = theta.0 as f64 / 10.0;
    problem.policy.theta2 = theta.1 as f64 / 10.0;
    let decided = solve(&problem);
    crate::common::carry_over(&mut problem, &decided);
    let mut coming = Problem {
        nodes: problem.nodes.clone(),
        jobs: large_jobs(count, nodes * count / jobs + 1, shapes, seed + 4321),
        ..Problem::default()
    };
    if is_bound {
        bind(&mut coming);
    }
    let mut arrivals = coming.jobs.into_iter();
    let mut chance = crate::common::Chance::new(seed ^ 0x5EED);
    let mut measured = Vec::new();
    for event in 0..count {
        let happening = match event % 3 {
            0 => Happening::Arrival,
            1 => Happening::Completion,
            _ => Happening::Both,
        };
        if !matches!(happening, Happening::Arrival) {
            let ended = chance.below(problem.jobs.len() as u64) as usize;
            problem.jobs.remove(ended);
        }
        if !matches!(happening, Happening::Completion) {
            problem.jobs.extend(arrivals.next());
        }
        let cpu = cpu_seconds();
        let solution = solve(&problem);
        let cpu = cpu_seconds() - cpu;
        if let Err(violation) = dormouse_optimizer::check(&problem, &solution) {
            panic!("{violation}");
        }
        let solver = &solution.solver;
        println!(
            "{nodes}x{jobs} shapes {shapes} seed {seed} theta {theta:?} event {event} {happening:?}: cpu {cpu:.3} gap {:.4} {} by {} objective {:.4} bound {:.4} adjusted {}/{} waiting {}",
            solver.gap,
            solver.stage,
            solver.stopped_by,
            solver.objective,
            solver.bound,
            solution.adjusted_jobs,
            solution.adjustment_bound,
            solution.waiting.len()
        );
        measured.push((cpu, solver.gap));
        crate::common::carry_over(&mut problem, &solution);
    }
    measured
}

/// A decided cluster with some services at their targets; half of the other jobs are resized in place.
fn served_problem(
    (nodes, jobs, shapes): (usize, usize, u64),
    services: usize,
    seed: u64,
) -> Problem {
    let mut problem = large_problem(nodes, jobs + services, shapes, seed);
    let each = (jobs + services) / services;
    for (index, job) in problem.jobs.iter_mut().enumerate() {
        let had = job.previous.iter().flatten().map(|(_, count)| *count);
        if index % each == 0 {
            // Without roles, a service's target is its `min` and `max`.
            let target = had.sum::<u32>().max(1);
            (job.urgency, job.min, job.max) = (Urgency::Service, target, target);
            job.in_place = Some(InPlace { coordinator: None });
        } else if index % 2 == 0 {
            let coordinator = job.previous.iter().flatten().map(|(node, _)| node.clone());
            job.in_place = Some(InPlace {
                coordinator: coordinator.min(),
            });
        }
    }
    let decided = solved(&problem);
    crate::common::carry_over(&mut problem, &decided);
    problem
}

/// Changes the targets of one to three services `count` times. Prints and returns processor seconds and gaps.
fn target_figures(
    (nodes, jobs, shapes): (usize, usize, u64),
    services: usize,
    seed: u64,
    count: usize,
) -> Vec<(f64, f64)> {
    let mut problem = served_problem((nodes, jobs, shapes), services, seed);
    let served = |job: &&mut ProblemJob| job.urgency == Urgency::Service;
    let mut chance = crate::common::Chance::new(seed ^ 0x5E7);
    let mut measured = Vec::new();
    for event in 0..count {
        for _ in 0..=chance.below(3) {
            let index = chance.below(services as u64) as usize;
            let (more, less) = (chance.below(5) as u32, chance.below(3) as u32);
            if let Some(job) = problem.jobs.iter_mut().filter(served).nth(index) {
                let target = (job.min + more).saturating_sub(less).max(1);
                (job.min, job.max) = (target, target);
            }
        }
        let cpu = cpu_seconds();
        let solution = solve(&problem);
        let cpu = cpu_seconds() - cpu;
        if let Err(violation) = dormouse_optimizer::check(&problem, &solution) {
            panic!("{violation}");
        }
        let solver = &solution.solver;
        println!(
            "{nodes}x{jobs}x{services} shapes {shapes} seed {seed} event {event}: cpu {cpu:.3} gap {:.4} {} by {} adjusted {}/{} waiting {}",
            solver.gap,
            solver.stage,
            solver.stopped_by,
            solution.adjusted_jobs,
            solution.adjustment_bound,
            solution.waiting.len()
        );
        measured.push((cpu, solver.gap));
        crate::common::carry_over(&mut problem, &solution);
    }
    measured
}

/// Nodes, jobs, shapes and seeds from the environment.
fn requested() -> ((usize, usize, u64), std::ops::Range<u64>) {
    let size = (
        env("NODES", 1000),
        env("JOBS", 500),
        env("SHAPES", 24) as u64,
    );
    let from = env("FROM", 0) as u64;
    (size, from..from + env("SEEDS", 3) as u64)
}

fn middle_and_most(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
    (at(values.len() / 2), at(values.len().saturating_sub(1)))
}

#[test]
#[ignore = "minutes: figures of single events, for a size, seeds and demands given in the environment"]
fn events_on_request() {
    let (size, seeds) = requested();
    let mut measured = Vec::new();
    for seed in seeds {
        for theta in [(2, 1), (1, 2), (1, 1)] {
            measured.extend(event_figures(size, seed, theta, env("EVENTS", 10)));
        }
    }
    print_summary(&measured);
}

#[test]
#[ignore = "minutes: figures of services' changed targets, for a size and seeds given in the environment"]
fn targets_on_request() {
    let (size, seeds) = requested();
    let figures = |seed| target_figures(size, env("SERVICES", 100), seed, env("EVENTS", 10));
    print_summary(&seeds.flat_map(figures).collect::<Vec<_>>());
}

fn print_summary(measured: &[(f64, f64)]) {
    let seconds = middle_and_most(measured.iter().map(|(cpu, _)| *cpu).collect());
    let gaps = middle_and_most(measured.iter().map(|(_, gap)| *gap).collect());
    println!(
        "cpu seconds: median {:.3}, worst {:.3}",
        seconds.0, seconds.1
    );
    println!("gap: median {:.4}, worst {:.4}", gaps.0, gaps.1);
}

#[test]
#[ignore = "minutes: figures for a size, seeds and demands given in the environment"]
fn figures_on_request() {
    let (size, seeds) = requested();
    for seed in seeds {
        let mut problem = large_problem(size.0, size.1, size.2, seed);
        for theta in [(2, 1), (1, 2), (1, 1)] {
            figures(&mut problem, size, seed, theta);
        }
    }
}
