//! Properties over random histories: invariants hold, and a snapshot continues like the whole log.

use dormouse_messages::events::{
    JobCancelled, JobFailed, NodeDrained, NodeLost, NodeRecovered, NodeRestored, StopReason,
};
use dormouse_messages::{Fold, Writer};
use proptest::prelude::*;

use crate::ReadModel;
use dormouse_state::Queues;
use dormouse_state::history::{History, at, job, node};

const JOBS: [&str; 4] = ["ads/a", "ads/b", "vision/c", "vision/d"];
const NODES: [&str; 3] = ["n0", "n1", "n2"];

/// (event, job, node, parameter).
type Step = (u8, usize, usize, u32);

#[derive(Default, Clone, Copy)]
struct At {
    admitted: bool,
    incarnation: u32,
    containers: u32,
    runs: bool,
}

fn apply(history: &mut History, jobs: &mut [At; 4], epoch: &mut u64, step: Step) {
    let (what, which, on, number) = step;
    let id = JOBS[which % JOBS.len()];
    let name = NODES[on % NODES.len()];
    let state = &mut jobs[which % JOBS.len()];
    let count = 1 + number % 4;
    match what {
        0 => drop(history.join(name, u64::from(number))),
        1 => drop(history.push(NodeDrained {
            node: node(name),
            reason: None,
            deadline_s: None,
        })),
        2 => drop(history.push(NodeRestored { node: node(name) })),
        3 => drop(history.push(NodeLost {
            node: node(name),
            incarnation: u64::from(number),
            last_seen: at(0),
        })),
        4 => drop(history.push(NodeRecovered {
            node: node(name),
            last_seen: at(0),
            basis: None,
        })),
        5..=7 if !state.admitted => {
            history.submit(id).release(id);
            *state = At {
                admitted: true,
                ..At::default()
            };
        }
        8..=10 => {
            *epoch += 1;
            let previous = state.containers;
            history.allocate(
                *epoch,
                &[(id, previous, count)],
                &[(JOBS[on % 4], "no room")],
            );
            history.place(*epoch, id, state.incarnation + 1, &[(name, count)]);
            state.containers = count;
        }
        11..=13 if !state.runs => {
            state.incarnation += 1;
            history.request_start(*epoch, id, state.incarnation, count);
            history.container_started(id, state.incarnation, 0, name);
            history.started(*epoch, id, state.incarnation, count);
            state.runs = true;
        }
        14 => drop(history.progress(id, state.incarnation, u64::from(number), 0.5)),
        15 => drop(history.request_checkpoint(*epoch, id, state.incarnation)),
        16 => drop(history.saved(id, state.incarnation, u64::from(number))),
        17 => drop(history.container_exited(id, state.incarnation, number % 3, name, Some(1))),
        18 | 19 => {
            let reasons = [
                StopReason::Adjusted,
                StopReason::NodeLost,
                StopReason::Failed,
            ];
            history.stopped(*epoch, id, state.incarnation, reasons[number as usize % 3]);
            state.runs = false;
        }
        20 => end(history, state, id, number),
        _ => drop(history.allocate(*epoch, &[], &[(id, "waits")])),
    }
}

fn end(history: &mut History, state: &mut At, id: &str, number: u32) {
    match number % 3 {
        0 => drop(history.complete(id)),
        1 => drop(history.push(JobFailed {
            job: job(id),
            reason: "failed".to_owned(),
            attempts: 1,
            basis: None,
        })),
        _ => drop(history.push_by(
            Writer::Admission,
            JobCancelled {
                job: job(id),
                reason: "cancelled".to_owned(),
                attempts: 0,
                code: None,
                ingress_sequence: None,
                by: None,
                basis: None,
            },
        )),
    }
    *state = At::default();
}

fn histories() -> impl Strategy<Value = History> {
    let step = (0u8..22, 0usize..4, 0usize..3, 0u32..6);
    prop::collection::vec(step, 0..120).prop_map(|steps| {
        let mut history = History::default();
        let mut jobs = [At::default(); 4];
        let mut epoch = 0;
        for step in steps {
            apply(&mut history, &mut jobs, &mut epoch, step);
        }
        history
    })
}

proptest! {
    #[test]
    fn a_snapshot_goes_on_as_the_whole_log(history in histories(), cut in 0.0f64..1.0) {
        let whole = history.fold::<ReadModel>();
        let cut = (history.log.len() as f64 * cut) as usize;
        let mut first = ReadModel::default();
        for recorded in &history.log[..cut] {
            first.evolve(recorded);
        }
        let bytes = rmp_serde::to_vec_named(&first).expect("a snapshot");
        let mut second: ReadModel = rmp_serde::from_slice(&bytes).expect("reads back");
        prop_assert_eq!(&second, &first);
        for recorded in &history.log[cut..] {
            second.evolve(recorded);
        }
        prop_assert_eq!(&second, &whole);
        let json = serde_json::to_string(&whole).expect("as JSON");
        let back: ReadModel = serde_json::from_str(&json).expect("reads back");
        prop_assert_eq!(back, whole);
    }

    #[test]
    fn the_queues_are_those_that_decide(history in histories()) {
        let mut history = history;
        history.join("liar", 1);
        history.submit("t/a").container_started("t/a", 1, 0, "liar");
        prop_assert_eq!(history.fold::<ReadModel>().queues, history.fold::<Queues>());
    }

    #[test]
    fn every_query_answers_on_any_history(history in histories()) {
        let model = history.fold::<ReadModel>();
        for name in ["cluster", "jobs", "ledger", "nodes"] {
            let answer = crate::queries::answer(&model, name, serde_json::Value::Null, history.now());
            prop_assert!(answer.is_ok(), "{name}: {answer:?}");
        }
    }
}

/// Measures the folding rate: `cargo test --release -p dormouse-projections -- --ignored --nocapture
/// fold_speed`.
#[test]
#[ignore = "a measurement, run by hand as said above; it checks nothing"]
fn fold_speed() {
    let names: Vec<String> = (0..500)
        .map(|n| format!("tenant-{}/job-{n}", n % 7))
        .collect();
    let mut history = History::default();
    for number in 0..100 {
        history.join(&format!("n{number}"), 1);
    }
    for name in &names {
        history.run(name, 4);
    }
    for round in 0..400u32 {
        for name in &names {
            history.progress(name, 1, u64::from(round), f64::from(round) / 400.0);
        }
        let changes: Vec<_> = names
            .iter()
            .take(10)
            .map(|name| (name.as_str(), 4, 5))
            .collect();
        history.allocate(u64::from(round) + 2, &changes, &[]);
        for name in names.iter().skip(round as usize % 400).take(20) {
            history.container_exited(name, 1, 3, "n0", Some(0));
            history.stopped(1, name, 1, StopReason::Adjusted);
            history
                .place(2, name, 1, &[("n0", 4)])
                .request_start(2, name, 1, 4);
            for rank in 0..4 {
                history.container_started(name, 1, rank, "n0");
            }
            history.started(2, name, 1, 4);
        }
    }
    let begun = std::time::Instant::now();
    let mut model = ReadModel::default();
    for recorded in &history.log {
        model.evolve(recorded);
    }
    let rate = history.log.len() as f64 / begun.elapsed().as_secs_f64();
    println!("{} events, {rate:.0} a second", history.log.len());
}
