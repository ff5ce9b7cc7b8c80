//! Finds the alternatives that a decision was better than: no change, and each changed job kept as it
//! was.
//!
//! Each alternative solves the decision's own problem again with those jobs fixed. An alternative loses
//! if a started job would wait, if it breaks a bound, or by its objective. Policies other than P2 weigh
//! nothing and have no alternatives.

use dormouse_messages::JobId;
use dormouse_optimizer::problem::{Allocation, Problem, ProblemJob};
use dormouse_optimizer::{Made, Solution, solve};

use super::answer::Alternative;
use super::explainer::Explainer;
use crate::threads::in_threads;

const MOST_KEPT: usize = 8;

/// Returns a decision's alternatives after at most `most` solves.
pub fn alternatives(explainer: &Explainer, made: &Made, most: usize) -> Vec<Alternative> {
    if made.problem.policy.allocation != Allocation::Dorm || most == 0 {
        return Vec::new();
    }
    let changed = made.solution.jobs.iter();
    let changed = changed.filter(|it| it.previous.unwrap_or(0) != it.containers);
    let changed: Vec<&JobId> = changed.map(|it| &it.job).collect();
    let is_job = |job: &&&JobId| {
        let posed = made.problem.jobs.iter().find(|it| it.job == ***job);
        posed.is_some_and(|it| it.role.is_none())
    };
    let jobs: Vec<&JobId> = changed.iter().filter(is_job).copied().collect();
    let mut kept = vec![None];
    // Keeping the only changed job is no change at all.
    if jobs.len() > 1 {
        let few = jobs.into_iter().take(MOST_KEPT.min(most - 1));
        kept.extend(few.map(Some));
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    in_threads(kept.len(), threads, |index| {
        of(explainer, made, kept[index])
    })
}

fn of(explainer: &Explainer, made: &Made, kept: Option<&JobId>) -> Alternative {
    let (what, to) = match kept {
        None => ("no change at all".to_owned(), None),
        Some(job) => {
            let was = made.solution.jobs.iter().find(|it| it.job == *job);
            let was = was.and_then(|it| it.previous).unwrap_or(0);
            let name = explainer.name(job);
            let what = match was {
                0 => format!("{name} waits"),
                was => format!("{name} keeps {was}"),
            };
            (what, Some(was))
        }
    };
    let is_held = |job: &ProblemJob| {
        let of = job.role.as_ref().map_or(&job.job, |role| &role.of);
        kept.is_none_or(|kept| kept == of)
    };
    let lost = made
        .problem
        .jobs
        .iter()
        .any(|it| is_held(it) && it.displaced);
    let mut answer = Alternative {
        what,
        job: kept.map(|job| explainer.name(job)),
        containers: to,
        code: "not_possible".to_owned(),
        objective: None,
        fairness_loss: None,
        adjusted_jobs: None,
        waits: Vec::new(),
        words: "a node with containers of it is gone".to_owned(),
    };
    if lost {
        return answer;
    }
    let mut problem = made.problem.clone();
    problem
        .jobs
        .retain(|it| !is_held(it) || it.previous.is_some());
    for job in problem.jobs.iter_mut().filter(|it| is_held(it)) {
        job.adjustable = false;
        job.in_place = None;
    }
    let solution = solve(&problem);
    let gives = solution.jobs.iter().find(|it| Some(&it.job) == kept);
    let has = gives.map_or(0, |it| it.containers);
    if to.is_some_and(|was| was > 0 && has != was) {
        // Services and preempting classes also displace jobs that may not be resized.
        "preempted".clone_into(&mut answer.code);
        answer.words = format!("it could not: room was made for what goes first, and it had {has}");
        return answer;
    }
    judge(explainer, (made, &problem, &solution), &mut answer);
    answer
}

fn judge(
    explainer: &Explainer,
    (made, problem, solution): (&Made, &Problem, &Solution),
    answer: &mut Alternative,
) {
    let chosen = &made.solution;
    let has = |of: &Solution, job: &JobId| {
        let mut jobs = of.jobs.iter();
        jobs.any(|it| it.job == *job && it.containers > 0)
    };
    let placed = chosen.jobs.iter().filter(|it| it.containers > 0);
    let waits = placed.filter(|it| !has(solution, &it.job));
    answer.waits = waits.map(|it| explainer.name(&it.job)).collect();
    answer.objective = Some(solution.solver.objective);
    answer.fairness_loss = Some(solution.fairness_loss);
    answer.adjusted_jobs = Some(solution.adjusted_jobs);
    let exempt = solution.forced || solution.unbounded;
    let loss_bound = solution.fairness_loss_bound;
    let less = chosen.solver.objective - solution.solver.objective;
    let within = chosen.solver.gap.max(problem.budget.gap) * chosen.solver.objective.abs() + 1e-9;
    let (code, words) = if !answer.waits.is_empty() {
        let names = answer.waits.join(", ");
        ("fewer_jobs", format!("{names} would wait, which can start"))
    } else if !exempt && solution.fairness_loss > loss_bound + 1e-9 {
        let loss = solution.fairness_loss;
        let words = format!("its fairness loss would be {loss:.3}, of at most {loss_bound:.3}");
        ("fairness_bound", words)
    } else if solution.solver.status == "infeasible" {
        let words = "no allocation within the bounds holds it".to_owned();
        ("not_possible", words)
    } else if less > within {
        ("objective", format!("it is worth {less:.4} less"))
    } else if less >= -within {
        let words = "it is worth the same, within the gap that was proven".to_owned();
        ("within_gap", words)
    } else {
        let words = format!(
            "it would be worth {:.4} more; the search had not found it",
            -less
        );
        ("better", words)
    };
    code.clone_into(&mut answer.code);
    answer.words = words;
}
