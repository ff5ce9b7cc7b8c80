//! A decision moves exactly the jobs that it counted.

use std::sync::Arc;

use dormouse_messages::{Body, Event, Recorded};
use dormouse_replay::Verifier;
use dormouse_replay::audit::Audit;
use dormouse_replay::scenario::generate::{Kind, Size, generate};
use dormouse_replay::scenario::read_value;
use dormouse_replay::simulate::{Options, simulate};

pub fn log(seed: u64, size: Size) -> Vec<Arc<Recorded>> {
    let nodes = 3 * size.nodes;
    let mut scenario = generate(Kind::Trace, seed, Size { nodes, ..size });
    let mut number = 0;
    scenario["nodes"]
        .as_array_mut()
        .expect("a list")
        .retain(|_| {
            number += 1;
            number % 3 == 1
        });
    let scenario = read_value(scenario).expect("a scenario");
    let mut log = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    simulate(&scenario, &Options::default(), each, |_| {}).expect("a healthy run");
    log
}

pub fn audited(log: &[Arc<Recorded>]) -> (u64, Vec<String>) {
    let mut audit = Audit::default();
    log.iter().for_each(|it| audit.read(it));
    let wrong = audit.violations().iter();
    (audit.restarts(), wrong.map(|it| it.what.clone()).collect())
}

const SMALL: Size = Size {
    jobs: 40,
    nodes: 10,
    days: 0.05,
};

#[test]
fn what_a_decision_counts_is_what_has_new_places() {
    let mut restarts = 0;
    for seed in 0..3 {
        let (count, wrong) = audited(&log(seed, SMALL));
        assert_eq!(wrong, Vec::<String>::new(), "seed {seed}");
        restarts += count;
    }
    println!("{restarts} restarts");
    assert!(restarts > 10);
}

fn tampered(log: &[Arc<Recorded>], tamper: impl Fn(&mut Event) -> bool) -> Vec<Arc<Recorded>> {
    let mut log = log.to_vec();
    let changed = log.iter_mut().any(|recorded| {
        let mut other = (**recorded).clone();
        let changed = match &mut other.envelope.body {
            Body::Event(event) => tamper(event),
            Body::Unknown { .. } => false,
        };
        if changed {
            *recorded = Arc::new(other);
        }
        changed
    });
    assert!(changed, "nothing to change");
    log
}

#[test]
fn what_is_counted_wrongly_is_found_by_the_audit_and_by_verification() {
    let log = log(0, SMALL);
    let counts_fewer = |event: &mut Event| match event {
        Event::AllocationDecided(event) if event.outcome.adjusted_jobs > 0 => {
            event.outcome.adjusted_jobs -= 1;
            true
        }
        _ => false,
    };
    let exceeds_its_bound = |event: &mut Event| match event {
        Event::AllocationDecided(event) if event.outcome.adjusted_jobs > 0 => {
            event.outcome.adjustment_bound = event.outcome.adjusted_jobs - 1;
            true
        }
        _ => false,
    };
    // A restarted job is placed as if it stayed.
    let places_nothing = |event: &mut Event| match event {
        Event::PlacementDecided(event) if !event.remove.is_empty() && !event.create.is_empty() => {
            let removed = event.remove[0].job.clone();
            let before = event.create.len();
            event.create.retain(|it| it.job != removed);
            event.remove.retain(|it| it.job != removed);
            event.create.len() < before
        }
        _ => false,
    };
    for (what, says, log) in [
        ("fewer", "counts", tampered(&log, counts_fewer)),
        ("more", "at most", tampered(&log, exceeds_its_bound)),
        ("kept", "keeps its places", tampered(&log, places_nothing)),
    ] {
        let (_, wrong) = audited(&log);
        assert!(
            wrong.iter().any(|it| it.contains(says)),
            "{what}: {wrong:?}"
        );
        let mut verifier = Verifier::default();
        log.iter().for_each(|it| verifier.read(it));
        let findings = verifier.finish().findings;
        let found = findings.iter().any(|it| it.what.contains(says));
        assert!(found, "{what}: {findings:?}");
    }
}
