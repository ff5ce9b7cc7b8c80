//! P2 to the letter (Dorm, equations 5 to 16), one column per job and node, solved by HiGHS: a baseline.

use std::collections::BTreeMap;

use dormouse_messages::quantity::{Amounts, Resource};
use dormouse_optimizer::decimal::ceil_times;
use dormouse_optimizer::drf::{User, fill};
use dormouse_optimizer::problem::{Problem, ProblemJob};
use highs::{RowProblem, Sense};

/// Returns the objective reached within `seconds`; `None` without an allocation.
pub fn solve(problem: &Problem, seconds: f64) -> Option<f64> {
    let mut total = Amounts::new();
    for node in &problem.nodes {
        total.add(&node.capacity, 1);
    }
    let totals: Vec<(Resource, u64)> = total.iter().map(|(r, a)| (r.clone(), a)).collect();
    let demand = |job: usize| -> Vec<f64> {
        let demand = &problem.jobs[job].demand;
        let part = |(resource, all): &(Resource, u64)| demand.get(resource) as f64 / *all as f64;
        totals.iter().map(part).collect()
    };
    let fair = fair_shares(problem, &totals);
    // Price of a restart: a tenth of the least u.
    let values = (0..problem.jobs.len()).map(|index| demand(index).iter().sum::<f64>());
    let tie = 0.1 * values.reduce(f64::min).unwrap_or(0.0);
    let mut model = RowProblem::default();
    let mut loads = vec![vec![Vec::new(); totals.len()]; problem.nodes.len()];
    let (mut losses, mut restarts) = (Vec::new(), Vec::new());
    for (index, job) in problem.jobs.iter().enumerate() {
        let parts = demand(index);
        let (value, share) = (
            parts.iter().sum::<f64>(),
            parts.iter().copied().fold(0.0, f64::max),
        );
        let previous: Option<BTreeMap<_, _>> = job.previous.clone();
        let max = f64::from(job.max);
        let restart = previous
            .is_some()
            .then(|| model.add_integer_column(-tie, 0..=1));
        let loss = model.add_column(-problem.policy.objective.loss, 0.0..);
        let mut all = Vec::new();
        for (at, node) in problem.nodes.iter().enumerate() {
            let x = model.add_integer_column(value, 0.0..=max);
            all.push((x, 1.0));
            for (resource, part) in parts.iter().enumerate().filter(|(_, part)| **part > 0.0) {
                loads[at][resource].push((x, *part));
            }
            if let (Some(restart), Some(previous)) = (restart, &previous) {
                let had = f64::from(previous.get(&node.name).copied().unwrap_or(0));
                let most = max.max(had);
                model.add_row(..=had, [(x, 1.0), (restart, -most)]);
                model.add_row(had.., [(x, 1.0), (restart, most)]);
            }
        }
        model.add_row(f64::from(job.min)..=max, all.clone());
        let shares = |sign: f64| {
            let shares = all.iter().map(move |(x, _)| (*x, sign * share));
            shares.chain([(loss, -1.0)]).collect::<Vec<_>>()
        };
        model.add_row(..=fair[index], shares(1.0));
        model.add_row(..=-fair[index], shares(-1.0));
        losses.push((loss, 1.0));
        restarts.extend(restart.map(|restart| (restart, 1.0)));
    }
    for (node, loads) in problem.nodes.iter().zip(loads) {
        for ((resource, all), load) in totals.iter().zip(loads) {
            let room = node.capacity.get(resource) as f64 / *all as f64;
            model.add_row(..=room, load);
        }
    }
    let twice = 2 * totals.len() as u64;
    model.add_row(..=ceil_times(problem.policy.theta1, twice) as f64, losses);
    let most = ceil_times(problem.policy.theta2, restarts.len() as u64);
    model.add_row(..=most as f64, restarts);
    run(model, problem.budget.gap, seconds)
}

fn fair_shares(problem: &Problem, totals: &[(Resource, u64)]) -> Vec<f64> {
    let user = |job: &ProblemJob| User {
        demand: totals.iter().map(|(r, _)| job.demand.get(r)).collect(),
        weight: job.weight,
        floor: job.min,
        cap: Some(job.max),
        auxiliary: Vec::new(),
    };
    let users: Vec<User> = problem.jobs.iter().map(user).collect();
    let amounts: Vec<u64> = totals.iter().map(|(_, amount)| *amount).collect();
    let fair = fill(&amounts, &users);
    (0..users.len()).map(|index| fair.share(index)).collect()
}

fn run(model: RowProblem, gap: f64, seconds: f64) -> Option<f64> {
    let mut model = model.optimise(Sense::Maximise);
    model.set_option("output_flag", false);
    model.set_option("threads", 1);
    model.set_option("mip_rel_gap", gap);
    model.set_option("time_limit", seconds);
    let solved = model.solve();
    let found = solved.primal_solution_status() == highs::HighsSolutionStatus::Feasible;
    found.then(|| solved.objective_value())
}
