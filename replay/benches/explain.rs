//! Measures the time and the decisions of explanations on 20 nodes with 50 jobs, alike or mixed, and on
//! 1,000 nodes with 500 jobs.
//!
//! `cargo bench -p dormouse-replay --bench explain [small|mixed|large] [solves]`

use std::sync::Arc;
use std::time::Instant;

use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{JobId, Recorded};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::random::Random;
use dormouse_replay::simulate::{START, seconds_after_start};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const SOLVES: usize = 120;

fn main() {
    let sections = ["small", "mixed", "large"];
    let named: Vec<String> = std::env::args()
        .filter(|arg| sections.contains(&arg.as_str()))
        .collect();
    let solves = std::env::args().find_map(|arg| arg.parse().ok());
    for (name, nodes, jobs) in [("small", 20, 50), ("mixed", 20, 50), ("large", 1_000, 500)] {
        if named.is_empty() || named.iter().any(|it| it == name) {
            let began = Instant::now();
            let log = logged(nodes, jobs, name != "small");
            let events = log.len();
            println!(
                "{name}: {nodes} nodes, {jobs} jobs, {events} events, simulated in {:.2} s",
                began.elapsed().as_secs_f64()
            );
            for number in [3, jobs / 2, jobs - 4, jobs - 1] {
                explained(&log, &id(number), solves.unwrap_or(SOLVES));
            }
        }
    }
}

fn id(number: u32) -> JobId {
    let tenant = ["ads", "lab", "web"][number as usize % 3];
    format!("{tenant}/j{number:03}").parse().expect("a job")
}

fn logged(nodes: u32, jobs: u32, mixed: bool) -> Vec<Arc<Recorded>> {
    let mut random = Random::new(7);
    let mut engine = Engine::new(START, false);
    let policy = Policy {
        min_run_s: Some(0),
        ..Policy::default()
    };
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for index in 0..nodes {
        let node = format!("n{index:04}").parse().expect("a node");
        let gpus = if mixed && index % 4 == 0 {
            ",gpu=2"
        } else {
            ""
        };
        let capacity = format!("cpu=12,memory=128Gi{gpus}");
        let capacity = capacity.parse().expect("amounts");
        engine.at(START, Action::Join { node, capacity });
    }
    for number in 0..jobs {
        let id = id(number);
        engine.model(
            id.clone(),
            ModelJob {
                save_s: 10.0,
                ..ModelJob::linear(1e6)
            },
        );
        let (demand, min) = if !mixed {
            ("\"cpu\":1".to_owned(), 1)
        } else {
            let cpu = 1 + random.below(4);
            let memory = 2 + random.below(15);
            let gpu = match random.below(5) {
                0 => ",\"gpu\":1",
                _ => "",
            };
            let demand = format!("\"cpu\":{cpu},\"memory\":\"{memory}Gi\"{gpu}");
            (demand, 1 + random.below(3))
        };
        let max = 8 + number % 5;
        let payload = format!(
            r#"{{"name":"j{number:03}","command":{{"start":["run"]}},"demand":{{{demand}}},"containers":{{"min":{min},"max":{max}}},"checkpoint":{{"mode":"exit"}}}}"#
        );
        let at_s = if number >= jobs - jobs / 10 {
            100.0
        } else {
            0.0
        };
        let action = Action::Submit {
            tenant: id.tenant().to_owned(),
            verb: "submit".to_owned(),
            payload: payload.into_bytes(),
        };
        engine.at(seconds_after_start(at_s), action);
    }
    let end = seconds_after_start(500.0);
    engine.run_until(end).expect("a healthy run");
    engine.log().to_vec()
}

fn explained(log: &[Arc<Recorded>], job: &JobId, solves: usize) {
    let (began, cpu_s) = (Instant::now(), processor_s());
    let mut explainer = Explainer::new(Subject::Job(job.clone()), None, solves);
    log.iter().for_each(|recorded| explainer.read(recorded));
    let mut reason = None;
    let answer = explainer.explain_step_by_step(|_| {
        let told = (began.elapsed().as_secs_f64(), processor_s() - cpu_s);
        reason.get_or_insert(told);
    });
    let (all_s, all_cpu_s) = (began.elapsed().as_secs_f64(), processor_s() - cpu_s);
    let answer = answer.expect("it is there");
    let (reason_s, reason_cpu_s) = reason.unwrap_or_default();
    let changes: Vec<String> = answer
        .corrections
        .iter()
        .map(|it| format!("{} {}", it.kind, it.to))
        .collect();
    println!(
        "  {job}: reason {reason_s:.2} s ({reason_cpu_s:.2} of a processor), all {all_s:.2} s ({all_cpu_s:.2}), {} decisions; {} {:?}; {changes:?}, not searched {:?}",
        answer.solves,
        answer.state,
        answer.dominant.map(|it| it.code),
        answer.not_searched
    );
}

/// In ticks of 10 ms: `utime` and `stime` of proc(5).
fn processor_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let ticks = stat.split(' ').skip(13).take(2);
    ticks.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() / 100.0
}
