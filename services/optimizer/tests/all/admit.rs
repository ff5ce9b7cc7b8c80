//! Backfill: jobs that start while an earlier job waits.

use crate::common::{job, node, placed, solved};
use dormouse_optimizer::problem::{Admit, Problem, ProblemJob};
use dormouse_optimizer::{Solution, solution::WaitCode};

/// No bound matters.
fn problem(capacity: &str, jobs: Vec<ProblemJob>) -> Problem {
    let mut problem = Problem {
        nodes: vec![node("n0", capacity)],
        jobs,
        ..Problem::default()
    };
    problem.policy.theta1 = 1.0;
    problem.policy.theta2 = 1.0;
    problem
}

fn runs(solution: &Solution, name: &str) -> bool {
    let mut jobs = solution.jobs.iter();
    jobs.any(|share| share.job.name() == name && share.containers > 0)
}

fn waits(solution: &Solution, name: &str) -> (WaitCode, String) {
    let mut waiting = solution.waiting.iter();
    let found = waiting.find(|waiting| waiting.job.name() == name);
    let found = found.expect("it waits");
    (found.code, found.reason.clone())
}

fn behind_a_gpu_job() -> Problem {
    let runs = placed(job("a", "cpu=1,gpu=1", 1, 1, 1), &[("n0", 1)]);
    let head = job("b", "cpu=1,gpu=1", 1, 1, 1);
    problem("cpu=8,gpu=1", vec![runs, head, job("c", "cpu=1", 1, 1, 4)])
}

#[test]
fn a_job_that_needs_nothing_of_what_the_head_lacks_starts() {
    let mut problem = behind_a_gpu_job();
    let solution = solved(&problem);
    assert!(runs(&solution, "c"), "{:?}", solution.waiting);
    assert_eq!(waits(&solution, "b").0, WaitCode::Resources);
    problem.policy.admit = Admit::Prefix;
    let solution = solved(&problem);
    assert!(!runs(&solution, "c"));
    assert_eq!(waits(&solution, "c").0, WaitCode::Behind);
}

#[test]
fn a_job_that_needs_what_the_head_lacks_waits_unless_the_head_may_be_overtaken() {
    let runs_now = placed(job("a", "cpu=1,gpu=1", 1, 1, 1), &[("n0", 1)]);
    let head = job("b", "cpu=1,gpu=1", 1, 2, 2);
    let next = job("c", "cpu=1,gpu=1", 1, 1, 1);
    let last = job("d", "cpu=1", 1, 1, 1);
    let mut problem = problem("cpu=8,gpu=2", vec![runs_now, head, next, last]);
    let solution = solved(&problem);
    assert!(!runs(&solution, "c") && runs(&solution, "d"));
    let (code, reason) = waits(&solution, "c");
    assert_eq!(code, WaitCode::Behind);
    assert!(reason.contains("t/b"), "{reason}");
    problem.jobs[1].may_be_overtaken = true;
    let solution = solved(&problem);
    assert!(runs(&solution, "c") && runs(&solution, "d"));
}

/// The fairness bound blocks the head, not capacity.
#[test]
fn room_that_the_head_is_about_to_get_is_not_taken() {
    let large = placed(job("a", "cpu=1,gpu=1", 1, 1, 6), &[("n0", 6)]);
    let mut large = large;
    large.adjustable = false;
    let head = job("b", "cpu=2,gpu=1", 1, 2, 2);
    let pinned = job("c", "cpu=7", 1, 1, 1);
    let small = job("d", "cpu=2", 1, 1, 1);
    let mut problem = problem("cpu=16,gpu=8", vec![large, head, pinned, small]);
    problem.policy.theta1 = 0.0;
    problem.policy.fairness_bound = dormouse_optimizer::problem::FairnessBound::Exact;
    let solution = solved(&problem);
    // The cluster has 16 processors: 6 are used and 4 are the head's, so 7 are unavailable.
    assert!(!runs(&solution, "c"), "{:?}", solution.jobs);
}

fn behind_a_job_of_other_nodes() -> Problem {
    let mut taken = placed(job("a", "cpu=6", 1, 1, 1), &[("n0", 1)]);
    taken.adjustable = false;
    let head = job("b", "cpu=4,gpu=1", 1, 1, 1);
    let mut problem = problem(
        "cpu=8,gpu=1",
        vec![taken, head, job("c", "cpu=1", 1, 1, 16)],
    );
    problem.nodes.push(node("n1", "cpu=8"));
    problem
}

fn nodes(solution: &Solution, name: &str) -> Vec<(String, u32)> {
    let mut jobs = solution.jobs.iter();
    let share = jobs.find(|share| share.job.name() == name);
    let nodes = share.into_iter().flat_map(|share| &share.nodes);
    nodes
        .map(|(node, count)| (node.to_string(), *count))
        .collect()
}

/// The head lacks processors only on the GPU's node; its two free ones stay free.
#[test]
fn a_job_starts_on_nodes_that_the_head_cannot_use() {
    let mut problem = behind_a_job_of_other_nodes();
    let solution = solved(&problem);
    assert_eq!(nodes(&solution, "c"), [("n1".to_owned(), 8)]);
    assert_eq!(waits(&solution, "b").0, WaitCode::Resources);
    // A job that needs the head's nodes, too, waits.
    problem.jobs[2].min = 9;
    let solution = solved(&problem);
    let (code, reason) = waits(&solution, "c");
    assert_eq!(code, WaitCode::Behind);
    assert!(reason.contains("t/b"), "{reason}");
    // A job that may overtake gets the rest of the head's node.
    (problem.jobs[1].may_be_overtaken, problem.jobs[2].min) = (true, 1);
    let solution = solved(&problem);
    let all = [("n0".to_owned(), 2), ("n1".to_owned(), 8)];
    assert_eq!(nodes(&solution, "c"), all);
}

#[test]
fn who_starts_elsewhere_holds_back_who_comes_after_it_there() {
    let mut problem = behind_a_job_of_other_nodes();
    let large = job("c", "cpu=6", 1, 1, 1);
    let next = job("d", "cpu=5", 1, 1, 1);
    let last = job("e", "cpu=1", 1, 1, 1);
    problem.jobs.truncate(2);
    problem.jobs.extend([large, next, last]);
    let solution = solved(&problem);
    assert_eq!(nodes(&solution, "c"), [("n1".to_owned(), 1)]);
    for waiting in ["d", "e"] {
        assert_eq!(waits(&solution, waiting).0, WaitCode::Behind, "{waiting}");
    }
    let (_, reason) = waits(&solution, "d");
    assert!(
        reason.contains("t/b") && reason.contains("other nodes"),
        "{reason}"
    );
    let (_, reason) = waits(&solution, "e");
    assert!(reason.contains("behind t/"), "{reason}");
}

#[test]
fn jobs_behind_several_that_wait_start_on_the_nodes_that_none_of_them_can_use() {
    let pinned = |name: &str, at: &str| {
        let mut job = placed(job(name, "cpu=4", 1, 1, 1), &[(at, 1)]);
        job.adjustable = false;
        job
    };
    let jobs = vec![
        pinned("a", "n0"),
        pinned("b", "n1"),
        job("gpu", "cpu=2,gpu=1", 1, 1, 1),
        job("near", "cpu=1,fpga=1", 1, 1, 1),
        job("fpga", "cpu=2,fpga=1", 1, 1, 1),
        job("wide", "cpu=7", 1, 1, 1),
        job("one", "cpu=1", 1, 1, 1),
        job("last", "cpu=1", 1, 1, 1),
    ];
    let mut problem = problem("cpu=4,gpu=1", jobs);
    problem.nodes.push(node("n1", "cpu=5,fpga=2"));
    problem.nodes.push(node("n2", "cpu=8"));
    let solution = solved(&problem);
    assert_eq!(waits(&solution, "gpu").0, WaitCode::Resources);
    assert_eq!(nodes(&solution, "near"), [("n1".to_owned(), 1)]);
    assert_eq!(waits(&solution, "fpga").0, WaitCode::Resources);
    assert_eq!(nodes(&solution, "wide"), [("n2".to_owned(), 1)]);
    assert_eq!(nodes(&solution, "one"), [("n2".to_owned(), 1)]);
    assert_eq!(waits(&solution, "last").0, WaitCode::Behind);
}

/// The head lacks a whole GPU, not processors.
#[test]
fn a_job_behind_one_that_lacks_a_whole_gpu_has_the_processors() {
    let part = |name: &str| {
        let mut job = placed(job(name, "cpu=500m,gpu=600m", 1, 1, 1), &[("n0", 1)]);
        job.gpu_parts = 64;
        job.adjustable = false;
        job
    };
    let mut whole = job("whole", "cpu=2,gpu=1", 1, 1, 1);
    whole.gpu_parts = 64;
    let jobs = vec![
        part("a"),
        part("b"),
        part("c"),
        whole,
        job("one", "cpu=3", 1, 1, 1),
    ];
    let solution = solved(&problem("cpu=5,gpu=3", jobs));
    assert_eq!(waits(&solution, "whole").0, WaitCode::Resources);
    assert!(runs(&solution, "one"), "{:?}", solution.waiting);
}

#[test]
fn a_job_with_roles_starts_on_nodes_that_the_head_cannot_use() {
    let mut problem = behind_a_job_of_other_nodes();
    let part = dormouse_messages::roles::Part {
        role: "ps".to_owned(),
        count: 1,
        demand: "cpu=2".parse().expect("amounts"),
        needs: Default::default(),
    };
    problem.jobs[2].max = 1;
    let role = problem.jobs[2].role(&part, None);
    problem.jobs.push(role);
    let solution = solved(&problem);
    assert_eq!(nodes(&solution, "c"), [("n1".to_owned(), 1)]);
    let role = solution
        .jobs
        .iter()
        .find(|share| share.job.name() != "c" && share.job.name().starts_with('c'));
    assert!(role.is_some_and(|role| role.nodes.keys().all(|node| node.as_str() == "n1")));
}
