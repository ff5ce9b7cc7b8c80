//! Admission: the longest prefix of the queue with which P2 has a solution.
//!
//! 1. What runs takes part; jobs that can never fit do not hold up the queue.
//! 2. Displaced jobs come before new ones, each in release order. All are tried, then bisected:
//!    first against the class relaxation, which is cheap, then against P2.
//! 3. Without a solution for what runs alone, the allocation stays as it is.
//! 4. If nothing runs and nobody is admitted, the head of the queue is admitted without the
//!    fairness bound.

use std::collections::BTreeMap;

use crate::problem::{Budget, Problem};
use crate::report::Draft;
use crate::solution::{Solution, SolverReport, WaitCode};

use super::assign::{Partitions, assign};
use super::diagnose::{Standing, blocked, hopeless};
use super::instance::{Cluster, Instance, loss_bound, runs};
use super::pipeline::{Found, Verdict, gap, may_be_feasible, search};
use super::plan::Plan;
use super::revert::revert;
use super::solver::{self, Purse};

/// Decides by P2.
pub(crate) fn solve(problem: &Problem) -> Solution {
    let cluster = Cluster::new(problem);
    let queue = Queue::new(problem, &cluster);
    let draft = queue.decide();
    crate::report::write(problem, &cluster, draft)
}

struct Queue<'a> {
    problem: &'a Problem,
    cluster: &'a Cluster,
    running: Vec<usize>,
    /// Displaced jobs, then new ones.
    candidates: Vec<usize>,
    hopeless: BTreeMap<usize, (WaitCode, String)>,
    /// The time of the whole decision, however many instances it tries.
    purse: Purse,
}

/// The instance with a prefix of the queue, solved.
struct Admitted {
    count: usize,
    instance: Instance,
    found: Box<Found>,
    unbounded: bool,
}

impl<'a> Queue<'a> {
    fn new(problem: &'a Problem, cluster: &'a Cluster) -> Self {
        let mut queue = Self {
            problem,
            cluster,
            running: Vec::new(),
            candidates: Vec::new(),
            hopeless: BTreeMap::new(),
            purse: Purse::new(problem.budget.seconds),
        };
        let mut fresh = Vec::new();
        for (index, job) in problem.jobs.iter().enumerate() {
            if runs(cluster, job) {
                queue.running.push(index);
            } else if let Some(why) = hopeless(cluster, job) {
                queue.hopeless.insert(index, why);
            } else if job.displaced || job.previous.as_ref().is_some_and(|p| !p.is_empty()) {
                queue.candidates.push(index);
            } else {
                fresh.push(index);
            }
        }
        queue.candidates.append(&mut fresh);
        queue
    }

    /// The instance with the first `count` candidates.
    fn instance(&self, count: usize) -> Instance {
        let mut members = self.running.clone();
        members.extend(&self.candidates[..count]);
        members.sort_unstable();
        Instance::new(self.problem, self.cluster, &members)
    }

    fn decide(&self) -> Draft {
        let Some(mut admitted) = self.longest() else {
            return self.keep();
        };
        let plan = &mut admitted.found.plan;
        let mut partitions = assign(&admitted.instance, plan);
        let objective = plan.objective(&admitted.instance);
        let bound = admitted.found.bound.max(objective);
        let (proven, allowed) = revertible(objective, bound, &self.problem.budget);
        revert(&admitted.instance, plan, &mut partitions, proven, allowed);
        self.write(admitted, partitions)
    }

    fn write(&self, admitted: Admitted, partitions: Partitions) -> Draft {
        let Admitted {
            count,
            instance,
            found,
            unbounded,
        } = admitted;
        let mut draft = Draft::empty(self.problem, "p2");
        for (job, nodes) in instance.jobs.iter().zip(partitions) {
            draft.placed[job.index] = nodes;
        }
        draft.loss_bound = loss_bound(self.problem, self.cluster);
        draft.adjustment_bound = instance.restart_bound;
        draft.unbounded = unbounded;
        draft.solver = report(&instance, &found);
        draft.waiting = self.waiting(count);
        draft
    }

    /// Everything stays; all candidates wait.
    fn keep(&self) -> Draft {
        let mut draft = Draft::empty(self.problem, "p2");
        for index in &self.running {
            let previous = self.problem.jobs[*index].previous.as_ref();
            let located = previous.and_then(|previous| self.cluster.locate(previous));
            draft.placed[*index] = located.unwrap_or_default().into_iter().collect();
        }
        let instance = self.instance(0);
        let objective = Plan::standing(&instance).objective(&instance);
        draft.loss_bound = loss_bound(self.problem, self.cluster);
        draft.adjustment_bound = instance.restart_bound;
        draft.solver = SolverReport {
            name: "highs".to_owned(),
            version: solver::version(),
            // Of nobody there is one allocation.
            status: match self.running.is_empty() {
                true => "optimal".to_owned(),
                false => "infeasible".to_owned(),
            },
            objective,
            bound: objective,
            stopped_by: "stages".to_owned(),
            stage: "kept".to_owned(),
            ..draft.solver
        };
        draft.waiting = self.waiting(0);
        draft
    }

    fn longest(&self) -> Option<Admitted> {
        let all = self.candidates.len();
        if let Some(admitted) = self.attempt(all) {
            return Some(admitted);
        }
        let relaxed = bisect(0, all, |count| {
            may_be_feasible(&self.instance(count)).then_some(())
        });
        let mut high = relaxed.map_or(0, |(count, ())| count + 1);
        if let Some(count) = high
            .checked_sub(1)
            .filter(|count| *count > 0 && *count < all)
        {
            if let Some(admitted) = self.attempt(count) {
                return Some(admitted);
            }
            high = count;
        }
        let found = bisect(0, high.min(all), |count| self.attempt(count));
        found
            .map(|(_, admitted)| admitted)
            .or_else(|| self.attempt(0))
            .filter(|admitted| admitted.count > 0 || !self.running.is_empty())
            .or_else(|| self.head())
    }

    fn attempt(&self, count: usize) -> Option<Admitted> {
        let instance = self.instance(count);
        if instance.jobs.is_empty() {
            return None;
        }
        match search(&instance, &self.problem.budget, &self.purse) {
            Verdict::Found(found) => Some(Admitted {
                count,
                instance,
                found,
                unbounded: false,
            }),
            Verdict::Infeasible | Verdict::Unknown => None,
        }
    }

    /// The head of an idle cluster's queue, without the fairness bound.
    fn head(&self) -> Option<Admitted> {
        if !self.running.is_empty() || self.candidates.is_empty() {
            return None;
        }
        let mut instance = self.instance(1);
        instance.loss_bound = f64::INFINITY;
        match search(&instance, &self.problem.budget, &self.purse) {
            Verdict::Found(found) => Some(Admitted {
                count: 1,
                instance,
                found,
                unbounded: true,
            }),
            Verdict::Infeasible | Verdict::Unknown => None,
        }
    }

    fn waiting(&self, admitted: usize) -> BTreeMap<usize, (WaitCode, String)> {
        let mut waiting = self.hopeless.clone();
        let Some((head, behind)) = self.candidates[admitted..].split_first() else {
            return waiting;
        };
        let standing = Standing {
            problem: self.problem,
            cluster: self.cluster,
        };
        waiting.insert(
            *head,
            blocked(&standing, &self.instance(admitted + 1), *head),
        );
        let head = &self.problem.jobs[*head].job;
        for index in behind {
            let reason = format!("waits behind {head}, which was released before it");
            waiting.insert(*index, (WaitCode::Behind, reason));
        }
        waiting
    }
}

/// The largest count in `low + 1 .. high` for which `test` holds, if it is monotone.
fn bisect<T>(low: usize, high: usize, test: impl Fn(usize) -> Option<T>) -> Option<(usize, T)> {
    let (mut low, mut high, mut best) = (low, high, None);
    while high > low + 1 {
        let middle = low.midpoint(high);
        match test(middle) {
            Some(found) => (low, best) = (middle, Some((middle, found))),
            None => high = middle,
        }
    }
    best
}

/// The gap that was proven, and how much of the objective may be given up within the budget.
fn revertible(objective: f64, bound: f64, budget: &Budget) -> (f64, f64) {
    let proven = bound - objective;
    (
        proven,
        (budget.gap * bound.abs() - proven).clamp(0.0, f64::INFINITY),
    )
}

fn report(instance: &Instance, found: &Found) -> SolverReport {
    let objective = found.plan.objective(instance);
    let bound = found.bound.max(objective);
    SolverReport {
        name: "highs".to_owned(),
        version: solver::version(),
        status: if found.stopped_by == "optimal" {
            "optimal"
        } else {
            "feasible"
        }
        .to_owned(),
        objective,
        bound,
        gap: gap(objective, bound),
        nodes: None,
        stopped_by: found.stopped_by.to_owned(),
        stage: found.stage.to_owned(),
    }
}
