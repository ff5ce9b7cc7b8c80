//! Jobs with parameter servers, worked out by hand.

use dormouse_optimizer::document::read;
use dormouse_optimizer::{Problem, Solution, check, solve};
use serde_json::{Value, json};

fn posed(document: &Value) -> Problem {
    read(&document.to_string()).expect("a document")
}

fn solved(document: &Value) -> Solution {
    let problem = posed(document);
    let solution = solve(&problem);
    check(&problem, &solution).expect("every bound holds");
    solution
}

/// A role's id is `t/a:ps`.
fn has(solution: &Solution, id: &str) -> (u32, Vec<String>) {
    let share = solution.jobs.iter().find(|share| share.job.as_str() == id);
    let nodes = share.map(|share| share.nodes.keys().map(ToString::to_string).collect());
    let count = share.map_or(0, |share| share.containers);
    (count, nodes.unwrap_or_default())
}

fn gpu_job(name: &str, ps: &Value) -> Value {
    json!({"job": name, "demand": {"cpu": 1, "gpu": 1}, "containers": {"min": 1, "max": 8},
           "static_containers": 2, "roles": {"ps": ps}})
}

/// Two workers take both GPUs and two of four processors of g0, so a server of three processors needs the
/// other node.
#[test]
fn a_parameter_server_needs_no_gpu_on_its_node() {
    let solution = solved(&json!({
        "nodes": [{"name": "g0", "capacity": {"cpu": 4, "gpu": 2}}, {"name": "c0", "capacity": {"cpu": 4}}],
        "jobs": [gpu_job("t/a", &json!({"count": 1, "demand": {"cpu": 3}}))],
        "policy": {"theta1": 1},
    }));
    assert_eq!(has(&solution, "t/a"), (2, vec!["g0".to_owned()]));
    assert_eq!(has(&solution, "t/a:ps"), (1, vec!["c0".to_owned()]));
    // 2 of 2 GPUs, 5 of 8 processors.
    assert!((solution.jobs[0].share - 1.0).abs() < 1e-9);
    assert!((solution.utilization.total - (1.0 + 5.0 / 8.0)).abs() < 1e-9);
}

#[test]
fn a_parameter_server_starts_where_its_workers_are() {
    for first in ["a0", "z0"] {
        let solution = solved(&json!({
            "nodes": [{"name": "m0", "capacity": {"cpu": 4, "gpu": 2}}, {"name": first, "capacity": {"cpu": 4}}],
            "jobs": [gpu_job("t/a", &json!({"count": 1, "demand": {"cpu": 2}}))],
            "policy": {"theta1": 1},
        }));
        assert_eq!(has(&solution, "t/a").0, 2);
        assert_eq!(has(&solution, "t/a:ps"), (1, vec!["m0".to_owned()]));
    }
}

/// 12 processors for two jobs of equal weight, one with a server of two: equal shares are six processors,
/// four workers and six.
#[test]
fn a_share_counts_workers_and_roles() {
    let mut document = json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 12}}],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 12},
             "roles": {"ps": {"demand": {"cpu": 2}}}},
            {"job": "t/b", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 12}},
        ],
        "policy": {"theta1": 0, "fairness_bound": "exact"},
    });
    for allocation in ["dorm", "drf"] {
        document["policy"]["allocation"] = json!(allocation);
        let solution = solved(&document);
        let counts = (has(&solution, "t/a").0, has(&solution, "t/b").0);
        match allocation {
            "dorm" => {
                assert_eq!(counts, (4, 6));
                assert!(solution.fairness_loss < 1e-9, "{}", solution.fairness_loss);
                assert!((solution.jobs[0].fair_share - 0.5).abs() < 1e-9);
            }
            // Whole tasks are offered, one worker each in turn.
            _ => assert_eq!(counts, (5, 5)),
        }
        assert_eq!(has(&solution, "t/a:ps").0, 1);
    }
}

/// A worker and a server of two processors each do not fit three; a later job that fits is admitted.
#[test]
fn all_roles_start_or_none() {
    for allocation in ["dorm", "drf", "static"] {
        let solution = solved(&json!({
            "nodes": [{"name": "n0", "capacity": {"cpu": 3}}, {"name": "n1", "capacity": {"cpu": 1}}],
            "jobs": [
                {"job": "t/a", "demand": {"cpu": 2}, "containers": {"min": 1, "max": 2},
                 "roles": {"ps": {"demand": {"cpu": 2}}}},
                {"job": "t/b", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 1}},
            ],
            "policy": {"allocation": allocation, "theta1": 1},
        }));
        assert_eq!(has(&solution, "t/a").0, 0, "{allocation}");
        assert_eq!(has(&solution, "t/a:ps").0, 0, "{allocation}");
        assert_eq!(has(&solution, "t/b").0, 1, "{allocation}");
        let waits = &solution.waiting[0];
        assert_eq!(waits.code.as_str(), "never_fits", "{allocation}");
        assert!(waits.reason.contains("ps: 1 container"), "{}", waits.reason);
    }
}

#[test]
fn a_role_stays_where_it_is_when_its_workers_are_fewer() {
    let solution = solved(&json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 6}}, {"name": "n1", "capacity": {"cpu": 6}}],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 12},
             "previous": {"n0": 4, "n1": 6}, "roles": {"ps": {"demand": {"cpu": 2}, "previous": {"n0": 1}}}},
            {"job": "t/b", "demand": {"cpu": 1}, "containers": {"min": 2, "max": 12},
             "roles": {"ps": {"count": 2, "demand": {"cpu": 1}}}},
        ],
        "policy": {"theta1": 0, "theta2": 1, "fairness_bound": "exact"},
    }));
    // Six processors each: four workers and a server of two, four workers and two servers.
    assert_eq!(has(&solution, "t/a").0, 4);
    assert_eq!(has(&solution, "t/a:ps"), (1, vec!["n0".to_owned()]));
    assert_eq!(
        (has(&solution, "t/b").0, has(&solution, "t/b:ps").0),
        (4, 2)
    );
    assert_eq!(solution.adjusted_jobs, 1);
}

#[test]
fn static_places_roles_with_their_workers() {
    let solution = solved(&json!({
        "nodes": [{"name": "g0", "capacity": {"cpu": 4, "gpu": 2}}, {"name": "c0", "capacity": {"cpu": 4}}],
        "jobs": [gpu_job("t/a", &json!({"count": 2, "demand": {"cpu": 2}})),
                 gpu_job("t/b", &json!({"count": 1, "demand": {"cpu": 1}}))],
        "policy": {"allocation": "static"},
    }));
    assert_eq!(has(&solution, "t/a").0, 2);
    assert_eq!(has(&solution, "t/a:ps"), (2, vec!["c0".to_owned()]));
    assert_eq!(has(&solution, "t/b:ps").0, 0);
}

/// Five workers do not fit next to the servers: the job gets three and does not wait.
#[test]
fn static_gives_no_more_workers_than_there_is_room_for_beside_the_roles() {
    let solution = solved(&json!({
        "nodes": [{"name": "n0", "capacity": {"cpu": 4}}],
        "jobs": [{"job": "t/a", "demand": {"cpu": 1}, "containers": {"min": 1, "max": 5}, "static_containers": 5,
                  "roles": {"ps": {"demand": {"cpu": "500m"}}, "evaluator": {"demand": {"cpu": "500m"}}}}],
        "policy": {"allocation": "static"},
    }));
    assert_eq!(has(&solution, "t/a").0, 3);
    assert_eq!(has(&solution, "t/a:ps").0, 1);
}

#[test]
fn the_checker_finds_a_job_without_its_roles() {
    let problem = posed(&json!({
        "nodes": [{"name": "g0", "capacity": {"cpu": 4, "gpu": 2}}],
        "jobs": [gpu_job("t/a", &json!({"count": 2, "demand": {"cpu": 1}}))],
        "policy": {"theta1": 1},
    }));
    let good = solve(&problem);
    check(&problem, &good).expect("a solution");
    let mut half = good.clone();
    for share in &mut half.jobs {
        if share.job.as_str() == "t/a:ps" {
            share.containers = 1;
            share.nodes.values_mut().for_each(|count| *count = 1);
        }
    }
    assert!(check(&problem, &half).is_err());
    let mut none = good;
    none.jobs.retain(|share| share.job.as_str() == "t/a");
    assert!(check(&problem, &none).is_err());
}
