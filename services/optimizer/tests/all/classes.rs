//! Preempting classes and the bound on preemptions.

use dormouse_optimizer::problem::{Precedence, Problem, ProblemJob};
use dormouse_optimizer::solution::{Solution, WaitCode};

use crate::common::{Chance, carry_over, elastic, job, node, placed, service, solved};

fn of_class(job: ProblemJob, class: i32, preempts: bool) -> ProblemJob {
    ProblemJob {
        precedence: Precedence {
            class,
            preempts,
            ..job.precedence
        },
        ..job
    }
}

fn urgent(job: ProblemJob) -> ProblemJob {
    of_class(job, 100, true)
}

fn protected(mut job: ProblemJob) -> ProblemJob {
    job.precedence.protected = true;
    job
}

fn unsaved(mut job: ProblemJob, at_risk_s: f64) -> ProblemJob {
    (job.adjustable, job.has_checkpoint) = (false, false);
    job.precedence.at_risk_s = at_risk_s;
    job
}

fn whole(name: &str, count: u32) -> ProblemJob {
    placed(job(name, "gpu=1", 1, count, count), &[("a", count)])
}

fn problem(gpus: u32, jobs: Vec<ProblemJob>) -> Problem {
    Problem {
        nodes: vec![node("a", &format!("gpu={gpus}"))],
        jobs,
        ..Problem::default()
    }
}

fn counts(solution: &Solution) -> Vec<(&str, u32)> {
    let jobs = solution.jobs.iter();
    jobs.map(|share| (share.job.name(), share.containers))
        .collect()
}

fn code(solution: &Solution, name: &str) -> WaitCode {
    let mut waiting = solution.waiting.iter();
    let found = waiting.find(|waiting| waiting.job.name() == name);
    found.expect("it waits").code
}

fn made_for(solution: &Solution) -> Option<&str> {
    solution.made_room_for.as_ref().map(|job| job.name())
}

#[test]
fn a_job_of_a_lower_class_is_sent_back_and_named() {
    let jobs = vec![
        urgent(job("now", "gpu=1", 1, 2, 2)),
        whole("old", 2),
        whole("new", 2),
    ];
    let solution = solved(&problem(4, jobs));
    assert_eq!(counts(&solution), [("now", 2), ("old", 2), ("new", 0)]);
    assert_eq!(made_for(&solution), Some("now"));
    assert_eq!(code(&solution, "new"), WaitCode::Preempted);
    assert!(solution.waiting[0].reason.contains("t/now"));
    assert!(solution.forced);
}

#[test]
fn the_same_and_higher_classes_make_no_room() {
    for class in [100, 200] {
        let jobs = vec![
            of_class(whole("same", 4), class, false),
            urgent(job("now", "gpu=1", 1, 2, 2)),
        ];
        let solution = solved(&problem(4, jobs));
        assert_eq!(counts(&solution), [("same", 4)], "{class}");
        assert_eq!(code(&solution, "now"), WaitCode::Resources);
    }
}

#[test]
fn a_class_that_does_not_preempt_goes_first_and_takes_nothing() {
    let first = of_class(job("first", "gpu=1", 1, 2, 2), 100, false);
    let jobs = vec![first.clone(), whole("runs", 4)];
    let solution = solved(&problem(4, jobs));
    assert_eq!(counts(&solution), [("runs", 4)]);
    // The class outranks the position in the list.
    let mut free = problem(
        2,
        vec![
            job("before", "gpu=1", 1, 2, 2),
            first,
            job("last", "gpu=1", 1, 1, 1),
        ],
    );
    free.policy.theta1 = 1.0;
    let solution = solved(&free);
    assert_eq!(counts(&solution), [("first", 2)]);
    assert_eq!(code(&solution, "before"), WaitCode::Resources);
}

#[test]
fn nobody_is_preempted_where_free_room_suffices() {
    let mut problem = problem(
        8,
        vec![
            urgent(job("now", "gpu=1", 1, 2, 2)),
            whole("a", 3),
            whole("b", 3),
        ],
    );
    // Without preemption nothing may change here.
    problem.policy.theta1 = 0.0;
    problem.policy.theta2 = 0.0;
    let solution = solved(&problem);
    assert_eq!(counts(&solution), [("now", 2), ("a", 3), ("b", 3)]);
    assert_eq!(made_for(&solution), None);
}

#[test]
fn in_place_comes_before_a_checkpoint_and_that_before_the_queue() {
    let rigid = |name: &str| placed(job(name, "gpu=1", 1, 1, 4), &[("a", 4)]);
    let soft = placed(elastic("soft", Some("a"), 1, 4), &[("a", 4)]);
    let with = |jobs: Vec<ProblemJob>| {
        let mut all = vec![urgent(job("now", "gpu=1", 1, 3, 3))];
        all.extend(jobs);
        let mut problem = problem(8, all);
        problem.policy.theta1 = 0.0;
        problem.policy.theta2 = 0.0;
        solved(&problem)
    };
    let solution = with(vec![rigid("rigid"), soft]);
    assert_eq!(counts(&solution), [("now", 3), ("rigid", 4), ("soft", 1)]);
    let solution = with(vec![rigid("rigid"), unsaved(whole("fixed", 4), 9.0)]);
    assert_eq!(counts(&solution), [("now", 3), ("rigid", 1), ("fixed", 4)]);
    let solution = with(vec![
        unsaved(whole("much", 4), 9.0),
        unsaved(whole("less", 4), 8.0),
    ]);
    assert_eq!(counts(&solution), [("now", 3), ("much", 4), ("less", 0)]);
}

#[test]
fn the_order_of_victims() {
    let sent_back = |one: ProblemJob, other: ProblemJob| {
        let jobs = vec![urgent(job("now", "gpu=1", 1, 2, 2)), one, other];
        let solution = solved(&problem(4, jobs));
        let waits: Vec<&str> = solution.waiting.iter().map(|it| it.job.name()).collect();
        assert_eq!(waits.len(), 1, "{waits:?}");
        waits[0].to_owned()
    };
    let low = of_class(whole("low", 2), -1, false);
    assert_eq!(sent_back(low, whole("new", 2)), "low", "the lowest class");
    let saves = || whole("saves", 2);
    assert_eq!(sent_back(saves(), unsaved(whole("b", 2), 1.0)), "saves");
    let work = |name: &str, seconds| unsaved(whole(name, 2), seconds);
    assert_eq!(sent_back(work("a", 5.0), work("b", 6.0)), "a", "less work");
    let light = whole("light", 2);
    let heavy = ProblemJob {
        weight: 2,
        ..whole("heavy", 2)
    };
    assert_eq!(sent_back(light, heavy), "light", "more for its weight");
    assert_eq!(sent_back(whole("a", 2), whole("b", 2)), "b", "the youngest");
}

#[test]
fn what_the_bound_protects_is_left_alone_and_the_decision_says_so() {
    let jobs = |first: ProblemJob| {
        vec![
            first,
            protected(whole("safe", 2)),
            protected(whole("too", 2)),
        ]
    };
    let now = urgent(job("now", "gpu=1", 1, 2, 2));
    let solution = solved(&problem(4, jobs(now.clone())));
    assert_eq!(counts(&solution), [("safe", 2), ("too", 2)]);
    assert_eq!(code(&solution, "now"), WaitCode::PreemptionBound);
    let reason = &solution.waiting[0].reason;
    assert!(
        reason.contains("t/safe") || reason.contains("t/too"),
        "{reason}"
    );
    // An unprotected job goes, whatever its weight.
    let heavy = ProblemJob {
        weight: 9,
        ..whole("heavy", 2)
    };
    let solution = solved(&problem(4, vec![now, protected(whole("safe", 2)), heavy]));
    assert_eq!(counts(&solution), [("now", 2), ("safe", 2), ("heavy", 0)]);
    // A service overrides the protection.
    let solution = solved(&problem(4, jobs(service("model", 2))));
    assert_eq!(counts(&solution), [("model", 2), ("safe", 2), ("too", 0)]);
    assert!(solution.forced);
}

#[test]
fn a_protected_job_is_not_restarted_for_a_service_while_another_can_be() {
    let rigid = |name: &str, on: &str| placed(job(name, "gpu=1", 1, 1, 4), &[(on, 4)]);
    let mut problem = problem(
        4,
        vec![
            service("model", 3),
            protected(rigid("safe", "a")),
            rigid("gives", "b"),
        ],
    );
    problem.nodes.push(node("b", "gpu=4"));
    problem.policy.theta2 = 1.0;
    let solution = solved(&problem);
    assert_eq!(counts(&solution), [("model", 3), ("safe", 4), ("gives", 1)]);
    assert!(!solution.forced);
}

#[test]
fn what_is_resized_in_place_shrinks_although_it_is_protected() {
    let soft = placed(elastic("soft", Some("a"), 1, 4), &[("a", 4)]);
    let solution = solved(&problem(4, vec![service("model", 3), protected(soft)]));
    assert_eq!(counts(&solution), [("model", 3), ("soft", 1)]);
    assert!(!solution.forced);
}

#[test]
fn several_that_preempt_start_together() {
    let mut jobs: Vec<ProblemJob> = (0..3)
        .map(|n| urgent(job(&format!("now{n}"), "gpu=1", 1, 1, 1)))
        .collect();
    jobs.push(whole("a", 2));
    jobs.push(whole("b", 2));
    let solution = solved(&problem(4, jobs));
    assert_eq!(
        counts(&solution),
        [("now0", 1), ("now1", 1), ("now2", 1), ("a", 0), ("b", 0)]
    );
    // One preempting job does not fit with the others: those before it start.
    let jobs = vec![
        urgent(job("small", "gpu=1", 1, 2, 2)),
        urgent(job("large", "gpu=1", 1, 3, 3)),
        whole("a", 4),
    ];
    let solution = solved(&problem(4, jobs));
    assert_eq!(counts(&solution), [("small", 2), ("a", 0)]);
    assert_eq!(code(&solution, "large"), WaitCode::Resources);
}

fn random_job(name: &str, chance: &mut Chance) -> ProblemJob {
    let min = 1 + chance.below(3) as u32;
    let max = min + chance.below(3) as u32;
    let mut made = match chance.below(4) {
        0 => elastic(name, None, min, max),
        _ => job(name, "gpu=1", 1 + chance.below(3) as u32, min, max),
    };
    if chance.below(4) == 0 {
        made = unsaved(made, chance.below(100) as f64);
    }
    let class = [-10, 0, 0, 50, 100][chance.below(5) as usize];
    let mut made = of_class(made, class, class > 0 && chance.below(3) > 0);
    made.precedence.protected = chance.below(4) == 0;
    made
}

#[test]
fn random_histories_preempt_only_whom_they_may() {
    let mut preempted = 0;
    for seed in 0..320 {
        let mut chance = Chance::new(seed + 1_700);
        let mut problem = problem(8, Vec::new());
        problem.nodes.push(node("b", "gpu=4"));
        problem.policy.theta1 = chance.below(3) as f64 / 10.0;
        problem.policy.theta2 = chance.below(3) as f64 / 10.0;
        for step in 0..6 {
            let name = format!("j{step}");
            problem.jobs.push(random_job(&name, &mut chance));
            problem.jobs.sort_by_key(|job| -job.precedence.class);
            let solution = solved(&problem);
            preempted += u32::from(is_preempting(&problem, &solution, seed));
            carry_over(&mut problem, &solution);
            for job in &mut problem.jobs {
                let coordinator = job.previous.iter().flatten().next();
                let coordinator = coordinator.map(|(node, _)| node.clone());
                job.in_place
                    .iter_mut()
                    .for_each(|it| it.coordinator.clone_from(&coordinator));
            }
            problem.jobs.retain(|_| chance.below(8) > 0);
        }
    }
    assert!(preempted > 30, "{preempted}");
}

/// Checks one decision against the rules; true if anybody gave way.
fn is_preempting(problem: &Problem, solution: &Solution, seed: u64) -> bool {
    let has = |job: &ProblemJob| job.previous.iter().flatten().map(|(_, count)| count).sum();
    let gets = |job: &ProblemJob| {
        let share = solution.jobs.iter().find(|share| share.job == job.job);
        share.map_or(0, |share| share.containers)
    };
    let Some(whom) = &solution.made_room_for else {
        let sent_back = problem
            .jobs
            .iter()
            .find(|job| has(job) > 0u32 && gets(job) == 0);
        assert!(sent_back.is_none(), "seed {seed}: {sent_back:?}");
        return false;
    };
    let whom = problem.jobs.iter().find(|job| job.job == *whom);
    let whom = whom.expect("posed");
    assert!(whom.precedence.preempts && has(whom) == 0u32 && gets(whom) >= whom.min);
    let free: u32 = 12 - problem.jobs.iter().map(has).sum::<u32>();
    assert!(free < whom.min, "seed {seed}: {} had room", whom.job);
    for job in &problem.jobs {
        let (had, gets): (u32, u32) = (has(job), gets(job));
        let stops = gets == 0 || job.in_place.is_none();
        if gets < had {
            assert!(
                job.precedence.class < whom.precedence.class,
                "seed {seed}: {job:?}"
            );
            assert!(!(stops && job.precedence.protected), "seed {seed}: {job:?}");
        }
    }
    true
}
