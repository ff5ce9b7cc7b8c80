//! The check that a decision fits its state accepts the optimizer's decisions and rejects tampered ones.

use crate::common::small_cluster;
use dormouse_messages::events::{AllocationDecided, Basis, JobAllocation};
use dormouse_messages::policy::Allocation;
use dormouse_messages::{Event, Fold};
use dormouse_optimizer::Optimizer;
use dormouse_state::ClusterState;

fn decisions(seeds: std::ops::Range<u64>) -> Vec<(ClusterState, Basis, AllocationDecided)> {
    let mut found = Vec::new();
    for seed in seeds {
        let (engine, _) = small_cluster(seed, None);
        let (mut state, mut folded) = (ClusterState::default(), 0);
        for recorded in engine.log() {
            let Some(Event::AllocationDecided(event)) = recorded.event() else {
                continue;
            };
            let basis = event.basis.clone().expect("a decision");
            for recorded in &engine.log()[folded..] {
                if recorded.sequence > basis.asof {
                    break;
                }
                state.evolve(recorded);
                folded += 1;
            }
            if state.policy.allocation == Allocation::Dorm {
                found.push((state.clone(), basis, (**event).clone()));
            }
        }
    }
    found
}

#[test]
fn what_the_optimizer_decides_fits() {
    let decisions = decisions(1..60);
    for (state, basis, event) in &decisions {
        let fits = Optimizer::fits(state, event, basis.now);
        assert_eq!(fits, Ok(()), "{event:?}");
    }
    assert!(decisions.len() > 100, "{}", decisions.len());
}

type Tamper = fn(&mut AllocationDecided);

fn nodes(job: &mut JobAllocation) -> impl Iterator<Item = &mut u32> {
    job.nodes.iter_mut().map(|it| &mut it.containers)
}

const TAMPERS: [(&str, Tamper); 3] = [
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
];

#[test]
fn what_does_not_fit_is_found() {
    let mut decided = decisions(1..20);
    decided.retain(|(.., event)| event.jobs.iter().any(|job| job.containers > 0));
    assert!(decided.len() > 20);
    for (what, tamper) in TAMPERS {
        for (state, basis, event) in &decided {
            let mut event = event.clone();
            tamper(&mut event);
            let fits = Optimizer::fits(state, &event, basis.now);
            assert!(fits.is_err(), "{what} is not found");
        }
    }
}
