//! Services and notebooks reach their targets; jobs resized in place give way first.

use dormouse_optimizer::problem::{Allocation, Policy, Problem, ProblemJob};
use dormouse_optimizer::solution::{Solution, WaitCode};
use dormouse_optimizer::{check, solve};

use crate::common::{elastic, job, node, placed, service};

fn solved(nodes: &[(&str, &str)], jobs: Vec<ProblemJob>) -> Solution {
    let problem = Problem {
        nodes: nodes.iter().map(|(name, has)| node(name, has)).collect(),
        jobs,
        ..Problem::default()
    };
    let solution = solve(&problem);
    check(&problem, &solution).expect("sound");
    solution
}

fn containers(solution: &Solution) -> Vec<(&str, u32)> {
    let jobs = solution.jobs.iter();
    jobs.map(|share| (share.job.name(), share.containers))
        .collect()
}

#[test]
fn training_that_is_resized_in_place_shrinks_for_a_service_and_its_coordinator_stays() {
    let solution = solved(
        &[("a", "gpu=4"), ("b", "gpu=4")],
        vec![
            service("model", 5),
            placed(elastic("one", Some("a"), 1, 4), &[("a", 4)]),
            placed(elastic("two", Some("b"), 1, 4), &[("b", 4)]),
        ],
    );
    assert_eq!(
        solution.made_room_for,
        Some("t/model".parse().expect("an id"))
    );
    assert!(!solution.forced);
    assert_eq!((solution.adjusted_jobs, solution.forced_jobs), (0, 0));
    let counts = containers(&solution);
    assert_eq!(counts[0], ("model", 5));
    assert_eq!(counts[1].1 + counts[2].1, 3, "{counts:?}");
    for (share, coordinator) in solution.jobs[1..].iter().zip(["a", "b"]) {
        assert!(
            share
                .nodes
                .contains_key(&coordinator.parse().expect("a node"))
        );
    }
}

#[test]
fn what_is_resized_in_place_is_not_moved_for_nothing() {
    let jobs = || {
        vec![
            placed(service("model", 2), &[("b", 2)]),
            placed(elastic("one", Some("a"), 1, 4), &[("a", 2), ("c", 1)]),
            placed(elastic("two", Some("c"), 1, 2), &[("c", 1), ("a", 1)]),
        ]
    };
    let nodes = [("a", "gpu=3"), ("b", "gpu=2"), ("c", "gpu=2")];
    let solution = solved(&nodes, jobs());
    for (share, job) in solution.jobs.iter().zip(jobs()) {
        assert_eq!(Some(&share.nodes), job.previous.as_ref(), "{}", share.job);
    }
    assert!(!solution.changed);
}

#[test]
fn nobody_is_restarted_while_shrinking_in_place_makes_the_room() {
    let rigid = placed(job("rigid", "gpu=1", 1, 1, 4), &[("a", 4)]);
    let solution = solved(
        &[("a", "gpu=4"), ("b", "gpu=4")],
        vec![
            service("model", 3),
            rigid,
            placed(elastic("soft", Some("b"), 1, 4), &[("b", 4)]),
        ],
    );
    assert_eq!(
        containers(&solution),
        [("model", 3), ("rigid", 4), ("soft", 1)]
    );
}

#[test]
fn a_checkpoint_is_taken_before_a_job_is_sent_back_and_the_bounds_give_way() {
    let rigid = |name: &str, on: &str| placed(job(name, "gpu=1", 1, 1, 4), &[(on, 4)]);
    let solution = solved(
        &[("a", "gpu=4"), ("b", "gpu=4")],
        vec![service("model", 6), rigid("one", "a"), rigid("two", "b")],
    );
    assert_eq!(
        containers(&solution),
        [("model", 6), ("one", 1), ("two", 1)]
    );
    assert!(solution.forced, "theta2 allows one restart of the two");
}

#[test]
fn the_fewest_jobs_are_sent_back_those_with_a_checkpoint_first() {
    let plain = ProblemJob {
        adjustable: false,
        has_checkpoint: false,
        ..job("plain", "gpu=1", 1, 2, 2)
    };
    let solution = solved(
        &[("a", "gpu=4")],
        vec![
            service("model", 2),
            placed(plain, &[("a", 2)]),
            placed(job("saves", "gpu=1", 1, 2, 2), &[("a", 2)]),
        ],
    );
    assert_eq!(
        containers(&solution),
        [("model", 2), ("plain", 2), ("saves", 0)]
    );
    assert_eq!(solution.waiting[0].code, WaitCode::Preempted);
    assert!(solution.waiting[0].reason.contains("t/model"));
}

#[test]
fn a_cluster_that_is_too_small_gives_services_what_it_has() {
    let solution = solved(
        &[("a", "gpu=4")],
        vec![
            service("first", 3),
            service("second", 3),
            placed(elastic("soft", Some("a"), 1, 4), &[("a", 4)]),
        ],
    );
    let counts = containers(&solution);
    assert_eq!(counts[0], ("first", 3));
    assert_eq!(counts[1], ("second", 1));
}

#[test]
fn training_takes_back_what_a_service_gives_up() {
    let solution = solved(
        &[("a", "gpu=4"), ("b", "gpu=4")],
        vec![
            placed(service("model", 1), &[("a", 2), ("b", 2)]),
            placed(elastic("one", Some("a"), 1, 4), &[("a", 2)]),
            placed(elastic("two", Some("b"), 1, 4), &[("b", 2)]),
        ],
    );
    let counts = containers(&solution);
    assert_eq!(counts[0], ("model", 1));
    assert_eq!(counts[1].1 + counts[2].1, 7, "{counts:?}");
}

#[test]
fn services_scale_under_policies_that_restart_nobody() {
    for allocation in [Allocation::Drf, Allocation::Static] {
        let problem = |target: u32| Problem {
            nodes: vec![node("a", "gpu=4"), node("b", "gpu=4")],
            jobs: vec![
                placed(service("model", target), &[("a", 2), ("b", 1)]),
                placed(job("rigid", "gpu=1", 1, 1, 3), &[("b", 3)]),
            ],
            policy: Policy {
                allocation,
                ..Policy::default()
            },
            ..Problem::default()
        };
        let count = |target: u32| {
            let problem = problem(target);
            let solution = solve(&problem);
            check(&problem, &solution).expect("sound");
            assert_eq!(solution.jobs[1].containers, 3, "nobody gives room");
            solution.jobs[0].clone()
        };
        assert_eq!(count(5).containers, 5, "{allocation:?}");
        assert_eq!(count(9).containers, 5, "as far as there is room");
        let fewer = count(1);
        let nodes: Vec<_> = fewer.nodes.iter().collect();
        assert_eq!(nodes, [(&"a".parse().expect("a node"), &1)]);
    }
}

#[test]
fn a_service_starts_with_its_target_under_static_too() {
    let problem = Problem {
        nodes: vec![node("a", "gpu=8")],
        jobs: vec![ProblemJob {
            static_containers: Some(8),
            ..service("model", 2)
        }],
        policy: Policy {
            allocation: Allocation::Static,
            ..Policy::default()
        },
        ..Problem::default()
    };
    let solution = solve(&problem);
    check(&problem, &solution).expect("sound");
    assert_eq!(containers(&solution), [("model", 2)]);
}

#[test]
fn a_service_that_may_not_go_on_where_it_is_gets_room_elsewhere() {
    let moves = || ProblemJob {
        displaced: true,
        ..placed(service("model", 1), &[("a", 1)])
    };
    let solved = |other: ProblemJob| {
        let mut problem = Problem {
            nodes: vec![node("a", "gpu=2"), node("b", "gpu=2")],
            jobs: vec![moves(), placed(other, &[("b", 2)])],
            ..Problem::default()
        };
        problem.nodes[0].taints.insert("old".to_owned());
        let solution = solve(&problem);
        check(&problem, &solution).expect("sound");
        solution
    };
    let solution = solved(job("rigid", "gpu=1", 1, 2, 2));
    assert_eq!(containers(&solution), [("model", 1), ("rigid", 0)]);
    // Two services do not fit together: the later one's target is cut.
    let solution = solved(service("other", 2));
    assert_eq!(containers(&solution), [("model", 1), ("other", 1)]);
}

/// A service that cannot grow keeps its containers on a node that takes no new ones, and so does the next one.
#[test]
fn services_on_a_tainted_node_run_on_when_one_of_them_cannot_grow() {
    let mut tainted = node("a", "gpu=4");
    tainted.taints.insert("maintenance".to_owned());
    let problem = Problem {
        nodes: vec![tainted],
        jobs: vec![
            placed(service("line", 2), &[("a", 1)]),
            placed(service("other", 1), &[("a", 1)]),
        ],
        ..Problem::default()
    };
    let solution = solve(&problem);
    check(&problem, &solution).expect("sound");
    let containers: Vec<u32> = solution.jobs.iter().map(|job| job.containers).collect();
    assert_eq!(containers, [1, 1], "{:?}", solution.waiting);
}
