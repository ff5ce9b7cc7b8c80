//! The checker of timed-out decisions accepts the optimizer's decisions and rejects tampered ones.

use crate::common::small_cluster;
use dormouse_messages::events::{AllocationDecided, JobAllocation, StoppedBy};
use dormouse_messages::policy::Allocation;
use dormouse_messages::{Decider, Event, Fold, Sequence};
use dormouse_optimizer::Optimizer;
use dormouse_state::ClusterState;

fn decisions(seeds: std::ops::Range<u64>) -> Vec<(ClusterState, Event)> {
    let mut found = Vec::new();
    for seed in seeds {
        let (engine, _) = small_cluster(seed, None);
        let (mut state, mut folded) = (ClusterState::default(), 0);
        for recorded in engine.log() {
            let Some(mut event) = recorded.event().cloned() else {
                continue;
            };
            let solver = match &mut event {
                Event::AllocationDecided(event) => &mut event.outcome.solver,
                Event::AllocationUnchanged(event) => &mut event.outcome.solver,
                _ => continue,
            };
            solver.stopped_by = StoppedBy::Time;
            let asof = event.basis().map_or(Sequence(0), |basis| basis.asof);
            for recorded in &engine.log()[folded..] {
                if recorded.sequence > asof {
                    break;
                }
                state.evolve(recorded);
                folded += 1;
            }
            if state.policy.allocation == Allocation::Dorm {
                found.push((state.clone(), event));
            }
        }
    }
    found
}

fn verdict(state: &ClusterState, event: &Event) -> Result<(), String> {
    let checked = Optimizer::default().check(state, event);
    checked.expect("it is one that time stopped")
}

#[test]
fn what_the_optimizer_decides_is_accepted() {
    let decisions = decisions(1..60);
    for (state, event) in &decisions {
        let verdict = verdict(state, event);
        assert_eq!(verdict, Ok(()), "{event:?}");
    }
    let kept = decisions.iter();
    let kept = kept.filter(|(_, event)| matches!(event, Event::AllocationUnchanged(_)));
    let kept = kept.count();
    println!("{} decisions, {kept} of them kept", decisions.len());
    assert!(kept > 5 && decisions.len() > 200);
}

type Tamper = fn(&mut AllocationDecided);

fn nodes(job: &mut JobAllocation) -> impl Iterator<Item = &mut u32> {
    job.nodes.iter_mut().map(|it| &mut it.containers)
}

const TAMPERS: [(&str, Tamper); 8] = [
    ("a container more", |event| {
        if let Some(job) = event.jobs.iter_mut().find(|job| job.containers > 0) {
            job.containers += 1;
        }
    }),
    ("a container more on a node", |event| {
        if let Some(count) = event.jobs.iter_mut().flat_map(nodes).next() {
            *count += 1;
        }
    }),
    ("a thousand more on a node and in all", |event| {
        let full = event.jobs.iter_mut().find(|job| !job.nodes.is_empty());
        if let Some(job) = full {
            job.containers += 1_000;
            nodes(job).take(1).for_each(|count| *count += 1_000);
        }
    }),
    ("another share", |event| {
        if let Some(job) = event.jobs.iter_mut().find(|job| job.containers > 0) {
            job.share += 0.01;
        }
    }),
    ("another loss", |event| event.outcome.fairness_loss += 0.01),
    ("another utilization", |event| {
        event.outcome.utilization.total -= 0.01
    }),
    ("a restart that is not reported", |event| {
        event.outcome.adjusted_jobs += 1;
    }),
    ("a bound below the objective", |event| {
        event.outcome.solver.bound = event.outcome.solver.objective - 0.1;
    }),
];

#[test]
fn what_is_wrong_with_a_decision_is_found() {
    let decisions = decisions(1..20);
    let decided = decisions
        .into_iter()
        .filter_map(|(state, event)| match event {
            Event::AllocationDecided(event) => Some((state, event)),
            _ => None,
        });
    let decided: Vec<_> = decided
        .filter(|(_, event)| event.jobs.iter().any(|job| job.containers > 0))
        .collect();
    assert!(decided.len() > 20);
    for (what, tamper) in TAMPERS {
        for (state, event) in &decided {
            let mut event = event.clone();
            tamper(&mut event);
            let verdict = verdict(state, &Event::AllocationDecided(event));
            assert!(verdict.is_err(), "{what} is not found");
        }
    }
}
