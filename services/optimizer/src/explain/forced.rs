//! Questions about forcing a job to a given number of containers.
//!
//! - [`may_have`]: a cheap necessary condition.
//! - [`givers`]: the jobs that shrink if as few jobs as possible change.

use std::collections::{BTreeMap, BTreeSet};

use dormouse_messages::JobId;
use dormouse_messages::job::Urgency;

use crate::drive::ladder::search;
use crate::drive::search::Verdict;
use crate::drive::work::Work;
use crate::explain::conflict::{Group, Questions};
use crate::model::cluster::{Cluster, runs};
use crate::problem::{Allocation, Budget, Objective, Problem};

/// Low enough for utilization (a few units at most) to only break ties between equal numbers of changed jobs.
const TIE_BREAK: f64 = 0.05;
/// A fiftieth of a unit of utilization.
const GAP: f64 = 1e-3;

/// Reports whether a decision could give `job` at least `least` containers; false only if proven impossible.
/// If any job waits, the fairness bound is dropped: waiting jobs change the fair shares if they take part.
#[must_use]
pub fn may_have(problem: &Problem, job: &JobId, least: u32) -> bool {
    let Some(posed) = problem.jobs.iter().find(|it| it.job == *job) else {
        return false;
    };
    // Services are met first, by separate steps.
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
    // The first job of an idle cluster is admitted whatever its unfairness.
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

/// Returns the jobs that would shrink, with new counts, for `job` to have at least `least` containers,
/// changing as few jobs as possible with any number of restarts. Jobs in `except` keep at least their counts.
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
        utilization: instance.objective.utilization * TIE_BREAK,
        loss: instance.objective.loss * TIE_BREAK,
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
    let Verdict::Found(found) = search(&instance, &budget, &Work::new(problem.budget.work)) else {
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
        read(&document.to_string()).expect("a problem")
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

    #[test]
    fn as_few_jobs_as_possible_give() {
        let problem = posed(1.0, 0.0, full());
        let mut except = BTreeSet::new();
        let found = givers(&problem, &new(), 3, &except).expect("an allocation");
        let names: Vec<&str> = found.keys().map(JobId::as_str).collect();
        assert_eq!(names, ["a/x"]);
        assert!(found.values().all(|to| *to <= 5 && *to >= 1), "{found:?}");
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
