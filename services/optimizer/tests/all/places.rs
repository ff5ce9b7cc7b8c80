//! Eligible nodes: labels, taints, exclusive containers.

use dormouse_messages::Needs;
use dormouse_messages::job::Urgency;
use dormouse_optimizer::problem::{Allocation, InPlace, Problem, ProblemJob, ProblemNode};
use dormouse_optimizer::solution::WaitCode;
use dormouse_optimizer::{Solution, solve_document};
use serde_json::{Value, json};

use crate::common::{Chance, carry_over, job, node, placed, solved};

fn labelled(mut node: ProblemNode, labels: &[(&str, &str)]) -> ProblemNode {
    let own = ("node".to_owned(), node.name.to_string());
    let labels = labels
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    node.labels = labels.chain([own]).collect();
    node
}

fn tainted(mut node: ProblemNode, taint: &str) -> ProblemNode {
    node.taints.insert(taint.to_owned());
    node
}

fn asks(mut job: ProblemJob, constraints: Value) -> ProblemJob {
    job.needs.constraints = serde_json::from_value(constraints).expect("constraints");
    job
}

fn zones() -> Vec<ProblemNode> {
    let zone = |index: usize| if index < 2 { "a" } else { "b" };
    (0..4)
        .map(|index| {
            labelled(
                node(&format!("n{index}"), "cpu=8"),
                &[("zone", zone(index))],
            )
        })
        .collect()
}

fn share<'a>(solution: &'a Solution, name: &str) -> &'a dormouse_optimizer::solution::JobShare {
    let name = format!("t/{name}");
    let found = solution
        .jobs
        .iter()
        .find(|share| share.job.as_str() == name);
    found.expect("it has containers")
}

fn nodes(solution: &Solution, name: &str) -> Vec<String> {
    let nodes = share(solution, name).nodes.keys();
    nodes.map(ToString::to_string).collect()
}

#[test]
fn a_job_has_containers_only_where_it_may() {
    let mut problem = Problem {
        nodes: zones(),
        jobs: vec![
            asks(job("bound", "cpu=2", 1, 1, 16), json!({"zone": "a"})),
            job("free", "cpu=2", 1, 1, 16),
        ],
        ..Problem::default()
    };
    for allocation in [Allocation::Dorm, Allocation::Drf, Allocation::Static] {
        problem.policy.allocation = allocation;
        let solution = solved(&problem);
        for name in nodes(&solution, "bound") {
            assert!(
                ["n0", "n1"].contains(&name.as_str()),
                "{allocation:?}: {name}"
            );
        }
    }
    problem.policy.allocation = Allocation::Dorm;
    let solution = solved(&problem);
    assert_eq!(share(&solution, "bound").containers, 8, "{solution:#?}");
    assert_eq!(share(&solution, "free").containers, 8);
}

#[test]
fn who_waits_for_a_constraint_says_which() {
    let waits = |problem: &Problem| {
        let solution = solved(problem);
        let waiting = solution.waiting.first().expect("it waits").clone();
        (waiting.code, waiting.reason)
    };
    let mut problem = Problem {
        nodes: zones(),
        jobs: vec![asks(job("x", "cpu=2", 1, 1, 4), json!({"zone": "c"}))],
        ..Problem::default()
    };
    let (code, reason) = waits(&problem);
    assert_eq!(code, WaitCode::NoAllowedNodes);
    assert!(
        reason.contains("zone: c holds on no node that can be used"),
        "{reason}"
    );
    // Nine containers of 2 need a third node.
    problem.jobs = vec![asks(job("x", "cpu=2", 1, 9, 9), json!({"zone": "a"}))];
    let (code, reason) = waits(&problem);
    assert_eq!(code, WaitCode::NoAllowedNodes);
    assert!(reason.contains("(zone: a; 2 of 4) (8)"), "{reason}");
    // The running job cannot move, and other nodes have capacity.
    let mut stands = placed(job("old", "cpu=8", 1, 2, 2), &[("n0", 1), ("n1", 1)]);
    stands.adjustable = false;
    let x = asks(job("x", "cpu=2", 1, 1, 4), json!({"zone": "a"}));
    problem.jobs = vec![stands, x];
    let (code, reason) = waits(&problem);
    assert_eq!(code, WaitCode::Constraints);
    assert!(
        reason.contains("not on the nodes that its constraints allow (zone: a; 2 of 4)"),
        "{reason}"
    );
    // The reason names a taint on one of two allowed nodes, too.
    problem.nodes[1].taints.insert("old".to_owned());
    let (_, reason) = waits(&problem);
    assert!(
        reason.contains("allow (zone: a; 1 of 4; n1 is tainted with old)"),
        "{reason}"
    );
    problem.nodes = zones()
        .into_iter()
        .map(|node| tainted(node, "owner=ads"))
        .collect();
    problem.jobs = vec![job("x", "cpu=2", 1, 1, 4)];
    let (code, reason) = waits(&problem);
    assert_eq!(code, WaitCode::NoAllowedNodes);
    assert!(
        reason.contains("tainted") && reason.contains("owner=ads"),
        "{reason}"
    );
    problem.jobs[0].needs.tolerations.insert("owner".to_owned());
    assert_eq!(share(&solved(&problem), "x").containers, 4);
}

#[test]
fn who_may_be_nowhere_near_does_not_wait_behind() {
    let mut stands = placed(job("old", "cpu=8", 1, 2, 2), &[("n0", 1), ("n1", 1)]);
    stands.adjustable = false;
    let problem = Problem {
        nodes: zones(),
        jobs: vec![
            stands,
            asks(job("head", "cpu=2", 1, 1, 4), json!({"zone": "a"})),
            asks(job("other", "cpu=2", 1, 1, 4), json!({"zone": "b"})),
        ],
        ..Problem::default()
    };
    let solution = solved(&problem);
    assert_eq!(share(&solution, "other").containers, 4);
}

#[test]
fn a_label_that_changes_stops_nobody() {
    // The job's node no longer satisfies its constraint.
    let bound = asks(
        placed(job("bound", "cpu=2", 1, 1, 4), &[("n3", 4)]),
        json!({"zone": "a"}),
    );
    let mut problem = Problem {
        nodes: zones(),
        jobs: vec![bound],
        ..Problem::default()
    };
    assert_eq!(nodes(&solved(&problem), "bound"), ["n3"]);
    // A restart for its count moves the job to eligible nodes.
    problem.jobs[0].min = 6;
    problem.jobs[0].max = 6;
    let solution = solved(&problem);
    assert!(
        nodes(&solution, "bound")
            .iter()
            .all(|name| name < &"n2".to_owned()),
        "{solution:#?}"
    );
    // In place the job keeps its containers and grows elsewhere.
    problem.jobs[0].in_place = Some(dormouse_optimizer::problem::InPlace {
        coordinator: Some("n3".parse().expect("a name")),
    });
    let solution = solved(&problem);
    let at = &share(&solution, "bound").nodes;
    assert_eq!(at[&"n3".parse().expect("a name")], 4, "{at:?}");
    assert_eq!(share(&solution, "bound").containers, 6);
}

#[test]
fn one_that_has_its_node_for_itself() {
    let alone = asks(job("alone", "cpu=1", 1, 2, 2), json!({"exclusive": true}));
    let mut problem = Problem {
        nodes: zones(),
        jobs: vec![alone, job("free", "cpu=2", 1, 1, 16)],
        ..Problem::default()
    };
    for allocation in [Allocation::Dorm, Allocation::Drf, Allocation::Static] {
        problem.policy.allocation = allocation;
        let solution = solved(&problem);
        assert_eq!(share(&solution, "alone").nodes.len(), 2, "{allocation:?}");
    }
    problem.policy.allocation = Allocation::Dorm;
    assert_eq!(share(&solved(&problem), "free").containers, 8);
}

#[test]
fn wishes_are_kept_as_far_as_there_is_room() {
    let zones_of = |constraints: Value, containers: u32| {
        let mut problem = Problem {
            nodes: zones(),
            jobs: vec![asks(
                job("x", "cpu=2", 1, containers, containers),
                constraints,
            )],
            ..Problem::default()
        };
        problem.jobs.push(job("other", "cpu=4", 1, 1, 2));
        let solution = solved(&problem);
        let nodes = &share(&solution, "x").nodes;
        let in_a = nodes.iter().filter(|(name, _)| name.as_str() < "n2");
        (in_a.map(|(_, count)| count).sum::<u32>(), containers)
    };
    assert_eq!(zones_of(json!({"spread": "zone"}), 6), (3, 6));
    assert_eq!(zones_of(json!({"prefer": {"zone": "b"}}), 4).0, 0);
    let (in_a, all) = zones_of(json!({"pack": "zone"}), 6);
    assert!(in_a == 0 || in_a == all, "{in_a}");
    // Seven of eight fit in the preferred zone.
    assert!(zones_of(json!({"prefer": {"zone": "b"}}), 8).0 <= 2);
}

/// New replicas follow the wish, others stay.
#[test]
fn a_service_grows_by_its_wishes() {
    for previous in [None, Some([("n0".parse().expect("a name"), 1)].into())] {
        let mut service = asks(job("x", "cpu=2", 1, 4, 4), json!({"spread": "zone"}));
        service.urgency = Urgency::Service;
        service.in_place = Some(InPlace::default());
        service.previous.clone_from(&previous);
        let problem = Problem {
            nodes: zones(),
            jobs: vec![service],
            ..Problem::default()
        };
        let solution = solved(&problem);
        let nodes = &share(&solution, "x").nodes;
        let in_a = nodes.iter().filter(|(name, _)| name.as_str() < "n2");
        assert_eq!(
            in_a.map(|(_, count)| count).sum::<u32>(),
            2,
            "{previous:?}: {nodes:?}"
        );
    }
}

/// Without this bound the loss of the two confined jobs would block all others.
#[test]
fn shares_are_bounded_by_the_nodes_that_may_be_used() {
    let nodes = (0..10).map(|index| {
        let zone = if index == 0 { "a" } else { "b" };
        labelled(node(&format!("n{index}"), "cpu=8"), &[("zone", zone)])
    });
    let bound = |name: &str| asks(job(name, "cpu=1", 1, 1, 80), json!({"zone": "a"}));
    let mut problem = Problem {
        nodes: nodes.collect(),
        jobs: vec![bound("x"), bound("y"), job("free", "cpu=1", 1, 1, 80)],
        ..Problem::default()
    };
    problem.policy.theta1 = 0.02;
    problem.policy.fairness_bound = dormouse_optimizer::problem::FairnessBound::Exact;
    let solution = solved(&problem);
    for name in ["x", "y"] {
        let share = share(&solution, name);
        assert_eq!(share.containers, 4, "{solution:#?}");
        assert!(
            (share.fair_share - 0.05).abs() < 1e-9,
            "{}",
            share.fair_share
        );
    }
    assert_eq!(share(&solution, "free").containers, 72);
}

#[test]
fn random_clusters_keep_every_constraint() {
    let mut bound_runs = 0;
    for seed in 0..60 {
        let mut chance = Chance::new(seed + 77);
        let mut problem = random(&mut chance);
        for _ in 0..4 {
            let solution = solved(&problem);
            bound_runs += solution
                .jobs
                .iter()
                .filter(|share| {
                    let posed = problem.jobs.iter().find(|job| job.job == share.job);
                    share.containers > 0 && posed.is_some_and(|job| job.needs != Needs::default())
                })
                .count();
            carry_over(&mut problem, &solution);
            for node in &mut problem.nodes {
                if chance.below(4) == 0 {
                    relabel(node, &mut chance);
                }
            }
            problem.jobs.retain(|_| chance.below(6) > 0);
            let name = format!("k{}", chance.below(1 << 40));
            problem.jobs.push(random_job(&name, &mut chance));
            problem.jobs.sort_by_key(|job| job.previous.is_none());
        }
    }
    assert!(bound_runs > 200, "{bound_runs}");
}

fn relabel(node: &mut ProblemNode, chance: &mut Chance) {
    let zone = ["a", "b", "c"][chance.below(3) as usize];
    node.labels.insert("zone".to_owned(), zone.to_owned());
    node.taints.clear();
    if chance.below(5) == 0 {
        node.taints.insert("old".to_owned());
    }
}

fn random_job(name: &str, chance: &mut Chance) -> ProblemJob {
    let demand = match chance.below(4) {
        0 => "cpu=2,gpu=1".to_owned(),
        _ => format!("cpu={}", 1 + chance.below(3)),
    };
    let min = 1 + chance.below(2) as u32;
    let mut made = job(
        name,
        &demand,
        1 + chance.below(3) as u32,
        min,
        min + chance.below(6) as u32,
    );
    made = match chance.below(6) {
        0 => asks(made, json!({"zone": "a"})),
        1 => asks(made, json!({"zone": {"not": "c"}, "spread": "zone"})),
        2 => asks(made, json!({"zone": ["b", "c"], "pack": "zone"})),
        3 => asks(made, json!({"exclusive": true})),
        _ => made,
    };
    if chance.below(3) == 0 {
        made.needs.tolerations.insert("old".to_owned());
    }
    made
}

fn random(chance: &mut Chance) -> Problem {
    let nodes = (0..4 + chance.below(4)).map(|index| {
        let gpu = if index % 3 == 0 { ",gpu=2" } else { "" };
        let mut made = labelled(node(&format!("n{index}"), &format!("cpu=8{gpu}")), &[]);
        relabel(&mut made, chance);
        made
    });
    let nodes: Vec<ProblemNode> = nodes.collect();
    let jobs = (0..3 + chance.below(6)).map(|index| random_job(&format!("j{index}"), chance));
    let jobs = jobs.collect();
    let allocations = [
        Allocation::Dorm,
        Allocation::Dorm,
        Allocation::Dorm,
        Allocation::Drf,
        Allocation::Static,
    ];
    let mut problem = Problem {
        nodes,
        jobs,
        ..Problem::default()
    };
    problem.policy.allocation = allocations[chance.below(5) as usize];
    problem
}

#[test]
fn the_document_has_labels_and_constraints() {
    let document = json!({
        "nodes": [
            {"name": "n0", "capacity": {"cpu": 8}, "labels": {"gpu.model": "A100"}},
            {"name": "n1", "capacity": {"cpu": 8}, "taints": ["old"]},
        ],
        "jobs": [
            {"job": "t/a", "demand": {"cpu": 4}, "containers": {"min": 1, "max": 4},
             "constraints": {"gpu.model": "A*"}},
            {"job": "t/b", "demand": {"cpu": 4}, "containers": {"min": 1, "max": 4},
             "constraints": {"node": "n1"}, "tolerations": ["old"]},
        ],
    });
    let solved = solve_document(&document.to_string()).expect("a problem");
    let nodes = |job: usize| &solved["jobs"][job]["nodes"];
    assert_eq!((nodes(0), nodes(1)), (&json!({"n0": 2}), &json!({"n1": 2})));
}

/// A label that another job requires makes a node no worse for others.
#[test]
fn static_spreads_over_nodes_that_others_ask_for() {
    let gpus = |name: &str, kind: &str| labelled(node(name, "gpu=4"), &[("kind", kind)]);
    let mut problem = Problem {
        nodes: vec![gpus("n0", "a"), gpus("n1", "b")],
        jobs: vec![
            asks(job("bound", "gpu=1", 1, 1, 1), json!({"kind": "a"})),
            job("free", "gpu=1", 1, 6, 6),
        ],
        ..Problem::default()
    };
    problem.policy.allocation = Allocation::Static;
    let solution = solved(&problem);
    let free: Vec<u32> = share(&solution, "free").nodes.values().copied().collect();
    assert_eq!(free, [3, 3]);
}
