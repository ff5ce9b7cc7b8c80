//! Questions about a job that is to have so many containers, whatever that is worth.
//!
//! - [`may_have`]: whether a decision could give it to the job at all. A cheap necessary condition:
//!   where it does not hold no decision need be made to see that the job does not get it.
//! - [`givers`]: who has less in an allocation that gives it, and in which as few jobs as possible
//!   are changed; some jobs may be left out, so that others are named.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::JobId;
use dormouse_messages::job::Urgency;

use crate::deadline::Deadline;
use crate::explain::conflict::{Group, Questions};
use crate::instance::{Cluster, runs};
use crate::problem::{Allocation, Budget, Objective, Problem};
use crate::solve::{Verdict, search};

/// What utilization and unfairness count beside the number of jobs that are changed. Utilization is a
/// few units at most, so that it decides only among allocations that change equally many.
const BESIDE_CHANGES: f64 = 0.05;
/// The gap of such an allocation: a fiftieth of a unit of utilization.
const GAP: f64 = 1e-3;

/// Whether a decision of `problem` could give `job` at least `least` containers: false where that is
/// proven to be impossible.
///
/// Jobs that wait may take part in the decision, or not. More jobs need more room, but they have
/// other fair shares: with any of them the bound on unfairness is left out.
#[must_use]
pub fn may_have(problem: &Problem, job: &JobId, least: u32) -> bool {
    let Some(posed) = problem.jobs.iter().find(|it| it.job == *job) else {
        return false;
    };
    // Services are met first, by steps of their own.
    let served = |urgency: Urgency| urgency > Urgency::Training;
    if problem.policy.allocation != Allocation::Dorm
        || problem.jobs.iter().any(|it| served(it.urgency))
    {
        return true;
    }
    let cluster = Cluster::new(problem);
    let stays = runs(&cluster, posed) && !posed.adjustable;
    let least = least.max(posed.min.max(1));
    if stays || posed.max.max(posed.min) < least {
        let has: u32 = posed.previous.iter().flat_map(BTreeMap::values).sum();
        return has >= least;
    }
    let running: Vec<bool> = problem.jobs.iter().map(|it| runs(&cluster, it)).collect();
    let others_wait = || {
        let mut all = problem.jobs.iter().zip(&running);
        all.any(|(it, runs)| !runs && it.job != *job)
    };
    // The first job of an idle cluster is let in however unfair that is.
    let mut relaxed = BTreeSet::new();
    if others_wait() || !running.contains(&true) {
        relaxed.insert(&Group::Fairness);
    }
    let Some((mut questions, _)) = Questions::new(problem, job, least, |index| running[index])
    else {
        return false;
    };
    questions.is_possible(&relaxed) || questions.limit
}

/// Who would have how many containers, where they have more now, for `job` to have at least `least`:
/// as few jobs as possible are changed, restarts of which there may be as many as it takes. Those of
/// `except` keep at least what they have. Nothing where there is no such allocation.
#[must_use]
pub fn givers(
    problem: &Problem,
    job: &JobId,
    least: u32,
    except: &BTreeSet<JobId>,
) -> Option<BTreeMap<JobId, u32>> {
    let cluster = Cluster::new(problem);
    let running: Vec<bool> = problem.jobs.iter().map(|it| runs(&cluster, it)).collect();
    let (questions, place) = Questions::new(problem, job, least, |index| running[index])?;
    let mut instance = questions.relaxed(&BTreeSet::from([&Group::Adjustments]))?;
    instance.objective = Objective {
        utilization: instance.objective.utilization * BESIDE_CHANGES,
        loss: instance.objective.loss * BESIDE_CHANGES,
        ..instance.objective
    };
    for it in &mut instance.jobs {
        it.restart = 1.0;
        if except.contains(&problem.jobs[it.index].job) {
            it.min = it.min.max(it.count);
            it.max = it.max.max(it.count);
        }
    }
    let budget = Budget {
        gap: GAP,
        ..problem.budget
    };
    let Verdict::Found(found) = search(&instance, &budget, &Deadline::new(problem.budget.time))
    else {
        return None;
    };
    let counts = instance
        .jobs
        .iter()
        .zip(&found.candidate.counts)
        .enumerate();
    let less = counts.filter(|(at, (it, count))| *at != place && **count < it.count);
    let less = less.map(|(_, (it, count))| (problem.jobs[it.index].job.clone(), count + it.base()));
    Some(less.collect())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::document::read;
    use crate::solve;

    fn posed(theta1: f64, theta2: f64, jobs: Value) -> Problem {
        let document = json!({
            "nodes": [{"name": "n0", "capacity": {"cpu": 8}}, {"name": "n1", "capacity": {"cpu": 8}}],
            "jobs": jobs, "policy": {"theta1": theta1, "theta2": theta2},
        });
        read(&document.to_string(), None).expect("a problem")
    }

    fn full() -> Value {
        json!([
            {"job": "a/x", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 8}, "previous": {"n0": 8}},
            {"job": "a/y", "demand": {"cpu": 1}, "containers": {"min": 6, "max": 8}, "previous": {"n1": 8}},
            {"job": "a/new", "demand": {"cpu": 1}, "containers": {"min": 3, "max": 4}},
        ])
    }

    fn new() -> JobId {
        "a/new".parse().expect("a job")
    }

    #[test]
    fn without_a_restart_it_cannot_be_had_and_with_one_it_can() {
        let problem = posed(1.0, 0.0, full());
        assert!(!may_have(&problem, &new(), 3));
        assert!(solve(&problem).jobs.iter().all(|it| it.job != new()));
        assert!(may_have(&posed(1.0, 0.5, full()), &new(), 3));
        let nobody = "a/nobody".parse().expect("a job");
        assert!(!may_have(&problem, &nobody, 1));
        let more_than_it_can_use = 5;
        assert!(!may_have(
            &posed(1.0, 0.5, full()),
            &new(),
            more_than_it_can_use
        ));
    }

    /// `a/y` can give 2 only, so that both would be changed with it: `a/x` gives alone.
    #[test]
    fn as_few_jobs_as_possible_give() {
        let problem = posed(1.0, 0.0, full());
        let mut except = BTreeSet::new();
        let found = givers(&problem, &new(), 3, &except).expect("an allocation");
        let names: Vec<&str> = found.keys().map(JobId::as_str).collect();
        assert_eq!(names, ["a/x"]);
        assert!(found.values().all(|to| *to <= 5 && *to >= 1), "{found:?}");
        // Without it two containers can be had, of `a/y`; three cannot.
        except.extend(found.into_keys());
        assert_eq!(givers(&problem, &new(), 3, &except), None);
        let mut smaller = problem;
        smaller.jobs[2].min = 2;
        let found = givers(&smaller, &new(), 2, &except).expect("an allocation");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("a/y".parse().expect("a job"), 6)]
        );
    }
}
