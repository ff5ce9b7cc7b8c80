//! Random histories of a small cluster: jobs of every kind come, are cancelled and revised, nodes
//! are lost, come back, are drained. After every event the services' invariants and the facts are
//! checked; at the end every job has ended, and every decision comes out again from its basis.

use dormouse_messages::{Fold, NodeId, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_replay::Verifier;

use dormouse_replay::engine::{Action, Engine, ModelJob};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const START: i64 = 1_800_000_000_000_000;

#[derive(Debug, Clone)]
struct PlannedJob {
    at_s: u16,
    cpu: u8,
    min: u8,
    extra: u8,
    weight: u8,
    mode: u8,
    work_s: u16,
    adjustment_s: u8,
    fails: bool,
    cancel_after_s: Option<u16>,
}

#[derive(Debug, Clone)]
enum NodeTrouble {
    Lost { at_s: u16, back_after_s: u16 },
    Drained { at_s: u16, restored_after_s: u16 },
}

fn job() -> impl Strategy<Value = PlannedJob> {
    let shape = (0u16..300, 1u8..4, 1u8..3, 0u8..6, 1u8..5, 0u8..3);
    let life = (
        1u16..400,
        0u8..20,
        prop::bool::weighted(0.1),
        prop::option::weighted(0.15, 0u16..200),
    );
    (shape, life).prop_map(
        |((at_s, cpu, min, extra, weight, mode), (work_s, adjustment_s, fails, cancel_after_s))| {
            PlannedJob {
                at_s,
                cpu,
                min,
                extra,
                weight,
                mode,
                work_s,
                adjustment_s,
                fails,
                cancel_after_s,
            }
        },
    )
}

fn trouble() -> impl Strategy<Value = (u8, NodeTrouble)> {
    let lost = (0u16..400, 1u16..200)
        .prop_map(|(at_s, back_after_s)| NodeTrouble::Lost { at_s, back_after_s });
    let drained =
        (0u16..400, 1u16..200).prop_map(|(at_s, restored_after_s)| NodeTrouble::Drained {
            at_s,
            restored_after_s,
        });
    (0u8..3, prop_oneof![lost, drained])
}

fn at(seconds: u16) -> Timestamp {
    Timestamp::from_micros(START + i64::from(seconds) * 1_000_000)
}

fn node(index: u8) -> NodeId {
    format!("n{index}").parse().expect("valid")
}

fn plan(engine: &mut Engine, jobs: &[PlannedJob], troubles: &[(u8, NodeTrouble)]) {
    for index in 0..3 {
        join(engine, index, 0);
    }
    for (number, job) in jobs.iter().enumerate() {
        let mode = ["exit", "continue", "none"][usize::from(job.mode)];
        let max = job.min + job.extra;
        let payload = format!(
            r#"{{"name":"j{number}","weight":{},"retries":1,"command":{{"start":["x"]}},"demand":{{"cpu":{},"memory":"1Gi"}},"containers":{{"min":{},"max":{max}}},"checkpoint":{{"mode":"{mode}","signal":"SIGUSR1","grace_s":30}}}}"#,
            job.weight, job.cpu, job.min
        );
        submit(engine, job.at_s, "submit", payload);
        let model = ModelJob {
            save_s: f64::from(job.adjustment_s),
            fails_after_s: job.fails.then_some(5.0),
            ..ModelJob::linear(f64::from(job.work_s))
        };
        engine.model(format!("t/j{number}").parse().expect("valid"), model);
        if let Some(after_s) = job.cancel_after_s {
            submit(
                engine,
                job.at_s + after_s,
                "cancel",
                format!(r#"{{"job":"j{number}"}}"#),
            );
        }
    }
    for (index, trouble) in troubles {
        match trouble {
            NodeTrouble::Lost { at_s, back_after_s } => {
                engine.at(at(*at_s), Action::Lose(node(*index)));
                join(engine, *index, at_s + back_after_s);
            }
            NodeTrouble::Drained {
                at_s,
                restored_after_s,
            } => {
                engine.at(at(*at_s), Action::Drain(node(*index)));
                engine.at(at(at_s + restored_after_s), Action::Restore(node(*index)));
            }
        }
    }
}

fn join(engine: &mut Engine, index: u8, at_s: u16) {
    let capacity = "cpu=8,memory=16Gi".parse().expect("valid");
    engine.at(
        at(at_s),
        Action::Join {
            node: node(index),
            capacity,
        },
    );
}

fn submit(engine: &mut Engine, at_s: u16, verb: &str, payload: String) {
    let action = Action::Submit {
        tenant: "t".to_owned(),
        verb: verb.to_owned(),
        payload: payload.into_bytes(),
    };
    engine.at(at(at_s), action);
}

/// The failing history as a log that `dormouse replay verify --log` reads.
fn save(engine: &Engine) -> String {
    let lines = engine
        .log()
        .iter()
        .map(|recorded| recorded.to_json("history").expect("encodes"));
    let path = std::env::temp_dir().join(format!("dormouse-history-{}.jsonl", std::process::id()));
    std::fs::write(&path, lines.collect::<Vec<_>>().join("\n")).expect("writes");
    path.display().to_string()
}

/// A number from the environment: how many histories (DORMOUSE_HISTORIES), and the seed that
/// chooses them (DORMOUSE_HISTORIES_SEED).
fn number<N: std::str::FromStr>(name: &str, otherwise: N) -> N {
    let asked = std::env::var(name).ok();
    asked
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: number("DORMOUSE_HISTORIES", 40), max_shrink_iters: 50, rng_seed: RngSeed::Fixed(number("DORMOUSE_HISTORIES_SEED", 1)), ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_well(
        jobs in prop::collection::vec(job(), 1..12),
        troubles in prop::collection::vec(trouble(), 0..3),
    ) {
        let mut engine = Engine::new(at(0), true);
        plan(&mut engine, &jobs, &troubles);
        let ran = engine.run_until(Timestamp::from_micros(START + 20_000 * 1_000_000));
        prop_assert!(ran.is_ok(), "{ran:?}; the log: {}", save(&engine));

        let mut verifier = Verifier::default();
        let mut model = ReadModel::default();
        let mut open = std::collections::BTreeSet::new();
        for recorded in engine.log() {
            verifier.read(recorded);
            model.evolve(recorded);
            match recorded.event() {
                Some(dormouse_messages::Event::JobAdmitted(event)) => {
                    open.insert(event.job.clone());
                }
                Some(dormouse_messages::Event::JobCompleted(event)) => {
                    open.remove(&event.job);
                }
                Some(dormouse_messages::Event::JobFailed(event)) => {
                    open.remove(&event.job);
                }
                Some(dormouse_messages::Event::JobCancelled(event)) => {
                    open.remove(&event.job);
                }
                _ => {}
            }
        }
        prop_assert!(open.is_empty(), "{open:?} never ended; the log: {}", save(&engine));
        let findings = &verifier.report().findings;
        prop_assert!(findings.is_empty(), "{findings:?}; the log: {}", save(&engine));
    }
}
