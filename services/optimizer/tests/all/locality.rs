//! Training that crosses nodes at a cost, and the baseline that starts jobs container by container.

use dormouse_messages::job::Urgency;
use dormouse_optimizer::problem::{Allocation, Objective, Policy, Problem, ProblemJob};
use dormouse_optimizer::solution::{Solution, WaitCode};
use dormouse_optimizer::{check, solve};

use crate::common::{Chance, elastic, job, node, placed, service};

/// Each job loses `objective.crossing` on several nodes.
fn solved(nodes: &[(&str, &str)], mut jobs: Vec<ProblemJob>, policy: Policy) -> Solution {
    for job in &mut jobs {
        job.crossing = policy.objective.crossing;
    }
    solved_as_posed(nodes, jobs, policy)
}

fn solved_as_posed(nodes: &[(&str, &str)], jobs: Vec<ProblemJob>, policy: Policy) -> Solution {
    let problem = Problem {
        nodes: nodes.iter().map(|(name, has)| node(name, has)).collect(),
        jobs,
        policy,
        ..Problem::default()
    };
    let solution = solve(&problem);
    check(&problem, &solution).expect("sound");
    solution
}

fn crossing(part: f64) -> Policy {
    Policy {
        objective: Objective {
            crossing: part,
            ..Objective::default()
        },
        ..Policy::default()
    }
}

fn nodes_of(solution: &Solution, job: usize) -> usize {
    solution.jobs[job].nodes.len()
}

#[test]
fn training_does_not_grow_across_nodes_to_its_loss() {
    let jobs = || {
        vec![
            placed(elastic("one", Some("a"), 1, 4), &[("a", 2)]),
            placed(service("model", 2), &[("a", 2)]),
        ]
    };
    let nodes = [("a", "gpu=4"), ("b", "gpu=4")];
    let free = solved(&nodes, jobs(), crossing(0.0));
    assert_eq!(free.jobs[0].containers, 4, "without a price it does");
    let priced = solved(&nodes, jobs(), crossing(0.7));
    assert_eq!(priced.jobs[0].containers, 2);
    assert!(!priced.changed);
    // At a tenth of the speed lost, 3.6 beat 2.
    let cheap = solved(&nodes, jobs(), crossing(0.1));
    assert_eq!(cheap.jobs[0].containers, 4);
}

#[test]
fn each_job_crosses_at_its_own_loss() {
    let loses = |name: &str, part: f64| ProblemJob {
        crossing: part,
        ..placed(elastic(name, Some("a"), 1, 4), &[("a", 2)])
    };
    let nodes = [("a", "gpu=4"), ("b", "gpu=4")];
    let jobs = vec![loses("much", 0.7), loses("little", 0.05)];
    let solution = solved_as_posed(&nodes, jobs, crossing(0.0));
    assert_eq!((nodes_of(&solution, 0), nodes_of(&solution, 1)), (1, 2));
    assert_eq!(solution.jobs[1].containers, 4, "{:?}", solution.jobs);
}

#[test]
fn a_job_larger_than_a_node_crosses_in_any_case() {
    let nodes = [("a", "gpu=4"), ("b", "gpu=4")];
    let large = ProblemJob {
        in_place: None,
        ..job("large", "gpu=1", 1, 6, 6)
    };
    let solution = solved(&nodes, vec![large], crossing(0.7));
    assert_eq!(
        (solution.jobs[0].containers, nodes_of(&solution, 0)),
        (6, 2)
    );
}

#[test]
fn a_gang_starts_on_one_node_if_another_job_there_can_shrink() {
    let solution = solved(
        &[("a", "gpu=4"), ("b", "gpu=4")],
        vec![
            placed(elastic("one", Some("a"), 1, 4), &[("a", 3)]),
            placed(elastic("two", Some("b"), 1, 4), &[("b", 3)]),
            elastic("new", None, 2, 4),
        ],
        crossing(0.7),
    );
    assert!(solution.waiting.is_empty());
    for index in 0..3 {
        assert_eq!(nodes_of(&solution, index), 1, "{:?}", solution.jobs);
    }
    let all: u32 = solution.jobs.iter().map(|job| job.containers).sum();
    assert_eq!(all, 8, "and nothing is left idle: {:?}", solution.jobs);
}

#[test]
fn random_clusters_are_sound_and_nobody_straddles_to_its_loss() {
    for seed in 0..60 {
        let mut chance = Chance::new(seed);
        let nodes: Vec<(String, String)> = (0..2 + chance.below(3))
            .map(|index| (format!("n{index}"), format!("gpu={}", 2 + chance.below(6))))
            .collect();
        let mut room: Vec<u64> = nodes
            .iter()
            .map(|(_, has)| has[4..].parse().expect("a number"))
            .collect();
        let mut jobs = Vec::new();
        for index in 0..1 + chance.below(5) {
            let name = format!("j{index}");
            let at = chance.below(nodes.len() as u64) as usize;
            let count = chance.below(room[at] + 1).min(4) as u32;
            room[at] -= u64::from(count);
            let on = nodes[at].0.as_str();
            jobs.push(match (chance.below(3), count) {
                (_, 0) => elastic(&name, None, 1 + chance.below(2) as u32, 4),
                (0, _) => placed(service(&name, count), &[(on, count)]),
                _ => placed(elastic(&name, Some(on), 1, 4), &[(on, count)]),
            });
        }
        let nodes: Vec<(&str, &str)> = nodes
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let posed = jobs.clone();
        let solution = solved(&nodes, jobs, crossing(0.7));
        for share in solution.jobs.iter().filter(|share| share.nodes.len() > 1) {
            let job = posed
                .iter()
                .find(|job| job.job == share.job)
                .expect("known");
            let coordinator = job.in_place.as_ref().and_then(|it| it.coordinator.as_ref());
            let home = match coordinator {
                Some(coordinator) => share.nodes.get(coordinator).copied().unwrap_or(0),
                None => share.nodes.values().max().copied().unwrap_or(0),
            };
            let together = f64::from(home) >= f64::from(share.containers) * 0.3;
            let straddles = job.urgency == Urgency::Training && home >= job.min && together;
            assert!(!straddles, "seed {seed}: {share:?}");
        }
    }
}

fn fixed(gang: bool) -> Policy {
    Policy {
        allocation: Allocation::Static,
        gang,
        ..Policy::default()
    }
}

fn of_two(name: &str, coordinator: Option<&str>) -> ProblemJob {
    ProblemJob {
        static_containers: Some(2),
        ..elastic(name, coordinator, 1, 2)
    }
}

fn counts(solution: &Solution) -> Vec<u32> {
    solution.jobs.iter().map(|job| job.containers).collect()
}

/// A gang of two starts with one and holds the queue.
#[test]
fn without_gangs_a_job_begins_with_what_fits() {
    let jobs = || ["first", "second", "third"].map(|name| of_two(name, None));
    let nodes = [("a", "gpu=2"), ("b", "gpu=1")];
    let whole = solved(&nodes, jobs().to_vec(), fixed(true));
    assert_eq!(counts(&whole), [2]);
    let single = solved(&nodes, jobs().to_vec(), fixed(false));
    assert_eq!(counts(&single), [2, 1]);
    assert_eq!(single.waiting[0].code, WaitCode::Behind);
    // Freed capacity completes the second job before the third starts.
    let second = placed(of_two("second", Some("b")), &[("b", 1)]);
    let later = vec![second, of_two("third", None)];
    let freed = solved(&nodes, later, fixed(false));
    assert_eq!(counts(&freed), [2, 1]);
}

#[test]
fn a_gang_in_place_that_lost_a_node_is_made_whole() {
    let nodes = [("a", "gpu=2"), ("b", "gpu=1")];
    let jobs = || {
        let short = placed(of_two("short", Some("b")), &[("b", 1)]);
        vec![short, of_two("next", None)]
    };
    let whole = solved(&nodes, jobs(), fixed(true));
    assert_eq!(counts(&whole), [2]);
    let larger = [("a", "gpu=3"), ("b", "gpu=1")];
    let both = solved(&larger, jobs(), fixed(true));
    assert_eq!(counts(&both), [2, 2]);
    // The tenant's quota allows no more.
    let capped = ProblemJob {
        max: 1,
        ..of_two("short", Some("b"))
    };
    let capped = solved(&nodes, vec![placed(capped, &[("b", 1)])], fixed(true));
    assert_eq!(counts(&capped), [1]);
}
