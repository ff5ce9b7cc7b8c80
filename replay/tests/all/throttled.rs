//! Verification makes the decisions of an optimizer with little work again, to the last figure.

use dormouse_messages::events::StoppedBy;
use dormouse_messages::{Event, Recorded};
use dormouse_optimizer::Optimizer;
use dormouse_replay::Verifier;
use dormouse_replay::engine::Engine;
use dormouse_replay::random::Random;
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_replay::torture::workload;

fn is_stopped(recorded: &Recorded) -> bool {
    let solver = match recorded.event() {
        Some(Event::AllocationDecided(event)) => &event.outcome.solver,
        Some(Event::AllocationUnchanged(event)) => &event.outcome.solver,
        _ => return false,
    };
    solver.stopped_by == StoppedBy::Work
}

#[test]
fn what_a_throttled_optimizer_decides_comes_out_again() {
    let (mut verified, mut stopped) = (0, 0);
    for seed in 0..10 {
        let mut random = Random::new(seed);
        let optimizer = Optimizer {
            work: [1, 1_000, 100_000, 10_000, 50_000][usize::try_from(seed % 5).expect("small")],
            ..Optimizer::default()
        };
        let mut engine = Engine::new(START, false).deciding(optimizer);
        let _ = workload::small_cluster(&mut engine, &mut random);
        engine
            .run_until(seconds_after_start(200_000.0))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let mut verifier = Verifier::default();
        engine
            .log()
            .iter()
            .for_each(|recorded| verifier.read(recorded));
        let report = verifier.finish();
        assert_eq!(report.findings, [], "seed {seed}");
        verified += report.verified;
        stopped += engine
            .log()
            .iter()
            .filter(|recorded| is_stopped(recorded))
            .count();
    }
    println!("{verified} decisions were made again, {stopped} of them stopped by their work");
    assert!(verified > 100 && stopped > 5);
}
