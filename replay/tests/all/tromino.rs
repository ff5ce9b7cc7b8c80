//! Tromino's experiments: waiting times under each queue policy, compared with an independent model of
//! the paper (Saha, Beltre, Govindaraju, 2018).
//!
//! 8 nodes of 8 CPUs and 16 GB run 128 tasks of 0.5 CPU and 1 GB for 115 s each; task k of a tenant
//! arrives at k × its interval.

use std::collections::BTreeMap;

use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::{Allocation, Policy, Queue};
use dormouse_messages::{Event, Timestamp};
use dormouse_replay::engine::{Action, Engine, ModelJob};

const START_US: i64 = 1_800_000_000_000_000;
const TENANTS: [&str; 3] = ["aurora", "marathon", "scylla"];
const DURATION_S: f64 = 115.0;

type Experiment = [(u32, i64); 3];

/// Tasks, and milliseconds between them.
const EXPERIMENT_2: Experiment = [(733, 1_000), (733, 1_500), (733, 2_000)];
const EXPERIMENT_3: Experiment = [(1_000, 1_000), (700, 1_500), (500, 2_000)];
const EXPERIMENT_4: Experiment = [(500, 1_000), (700, 1_500), (900, 2_000)];

struct Waits {
    /// Against the mean of the means, in per cent, by tenant.
    columns: [f64; 3],
    means_s: [f64; 3],
    total_s: f64,
    longest_s: f64,
}

impl Waits {
    fn largest(&self) -> f64 {
        self.columns
            .iter()
            .fold(0.0, |most, column| column.abs().max(most))
    }
}

fn at_ms(ms: i64) -> Timestamp {
    Timestamp::from_micros(START_US + 1_000 * ms)
}

fn run(experiment: Experiment, queue: Queue) -> Waits {
    run_with(experiment, queue, None)
}

fn run_with(experiment: Experiment, queue: Queue, flood: Option<(i64, u32)>) -> Waits {
    let mut engine = Engine::new(at_ms(0), false);
    let policy = Policy {
        allocation: Allocation::Drf,
        queue,
        ..Policy::default()
    };
    engine.at(
        at_ms(0),
        Action::Operator(ClusterConfigured { policy }.into()),
    );
    for index in 0..8 {
        let node = format!("n{index}").parse().expect("a node");
        let capacity = "cpu=8,memory=16Gi".parse().expect("amounts");
        engine.at(at_ms(0), Action::Join { node, capacity });
    }
    let mut counts = experiment.map(|(count, _)| count);
    for (index, (count, interval_ms)) in experiment.into_iter().enumerate() {
        let tenant = TENANTS[index];
        let own = (0..count).map(|task| i64::from(task) * interval_ms);
        let (at, more) = flood.filter(|_| index == 0).unwrap_or((0, 0));
        counts[index] += more;
        let flood = std::iter::repeat_n(at, more as usize);
        for (task, at) in own.chain(flood).enumerate() {
            let payload = format!(
                r#"{{"name":"task-{task}","kind":"batch","command":{{"start":["sleep"]}},"demand":{{"cpu":0.5,"memory":"1Gi"}}}}"#
            );
            let submit = Action::Submit {
                tenant: tenant.to_owned(),
                verb: "submit".to_owned(),
                payload: payload.into_bytes(),
            };
            engine.at(at_ms(at), submit);
            let job = format!("{tenant}/task-{task}").parse().expect("a job");
            engine.model(job, ModelJob::linear(DURATION_S));
        }
    }
    engine
        .run_until(at_ms(4 * 3_600_000))
        .expect("a healthy run");
    measure(&engine, counts)
}

fn measure(engine: &Engine, counts: [u32; 3]) -> Waits {
    let mut arrived = BTreeMap::new();
    let mut sums = BTreeMap::new();
    let (mut longest_us, mut total_us, mut released) = (0, 0, 0);
    for recorded in engine.log() {
        let now = recorded.stored_at.as_micros();
        match recorded.event() {
            Some(Event::JobAdmitted(event)) => drop(arrived.insert(event.job.clone(), now)),
            Some(Event::JobReleased(event)) => {
                let waited_us = now - arrived[&event.job];
                *sums.entry(event.job.tenant().to_owned()).or_insert(0) += waited_us;
                longest_us = longest_us.max(waited_us);
                total_us += waited_us;
                released += 1;
            }
            _ => {}
        }
    }
    assert_eq!(released, counts.iter().sum::<u32>());
    let seconds = |us: i64| us as f64 / 1e6;
    let mean = |index: usize| seconds(sums[TENANTS[index]]) / f64::from(counts[index]);
    let means = [mean(0), mean(1), mean(2)];
    let whole = means.iter().sum::<f64>() / 3.0;
    Waits {
        columns: means.map(|mean| 100.0 * (mean / whole - 1.0)),
        means_s: means,
        total_s: seconds(total_us),
        longest_s: seconds(longest_us),
    }
}

fn check(experiment: Experiment, total_s: f64, rows: &[(Queue, [f64; 3])]) {
    for (queue, expected) in rows {
        let waits = run(experiment, *queue);
        println!(
            "{}: {:?} {} {}",
            queue.as_str(),
            waits.columns,
            waits.total_s,
            waits.longest_s
        );
        assert!(
            (waits.total_s - total_s).abs() < 1.0,
            "{queue:?}: {} s in all",
            waits.total_s
        );
        for (column, expected) in waits.columns.iter().zip(expected) {
            assert!(
                (column - expected).abs() <= 0.5,
                "{queue:?}: {:?}",
                waits.columns
            );
        }
    }
}

#[test]
fn experiment_2() {
    let rows = [
        (Queue::Drf, [38.0, 1.3, -39.3]),
        (Queue::Demand, [-1.0, 0.6, 0.4]),
        (Queue::DemandDrf, [0.3, 3.6, -3.9]),
    ];
    check(EXPERIMENT_2, 902_513.0, &rows);
}

#[test]
fn experiment_3() {
    let rows = [
        (Queue::Drf, [63.5, -6.3, -57.2]),
        (Queue::Demand, [-31.1, -3.0, 34.1]),
        (Queue::DemandDrf, [0.4, 0.3, -0.8]),
    ];
    check(EXPERIMENT_3, 995_754.0, &rows);
}

#[test]
fn experiment_4() {
    let rows = [
        (Queue::Drf, [17.7, 18.1, -35.8]),
        (Queue::Demand, [27.3, -3.5, -23.8]),
        (Queue::DemandDrf, [1.7, 11.7, -13.4]),
    ];
    check(EXPERIMENT_4, 620_923.0, &rows);
}

#[test]
fn projected_wait_balances_the_means() {
    for (experiment, most, total_s) in [
        (EXPERIMENT_2, 0.1, 902_513.0),
        (EXPERIMENT_3, 0.1, 995_754.0),
        (EXPERIMENT_4, 4.15, 620_923.0),
    ] {
        let waits = run(experiment, Queue::ProjectedWait);
        println!("{:?} {} {}", waits.columns, waits.total_s, waits.longest_s);
        assert!(waits.largest() <= most, "{:?}", waits.columns);
        assert!((waits.total_s - total_s).abs() < 1.0);
    }
}

#[test]
fn balanced_wait_comes_near_the_tail_of_fifo() {
    for (experiment, most, tail) in [
        (EXPERIMENT_2, 6.5, 1.3),
        (EXPERIMENT_3, 0.5, 1.3),
        (EXPERIMENT_4, 12.0, 1.3),
    ] {
        let fifo = run(experiment, Queue::Fifo);
        let waits = run(experiment, Queue::BalancedWait);
        println!("fifo {:?} {}", fifo.columns, fifo.longest_s);
        println!("balanced {:?} {}", waits.columns, waits.longest_s);
        assert!(waits.largest() <= most, "{:?}", waits.columns);
        assert!(waits.longest_s <= tail * fifo.longest_s + DURATION_S);
        assert!((waits.total_s - fifo.total_s).abs() < 1.0);
    }
}

#[test]
fn a_flood_is_not_rewarded() {
    let flooded = |queue| {
        let waits = run_with(EXPERIMENT_2, queue, Some((300_000, 1_500)));
        println!(
            "{}: {:?} {}",
            queue.as_str(),
            waits.means_s,
            waits.longest_s
        );
        waits.means_s
    };
    let fifo = flooded(Queue::Fifo);
    let demand = flooded(Queue::DemandDrf);
    let projected = flooded(Queue::ProjectedWait);
    let balanced = flooded(Queue::BalancedWait);
    for victim in [1, 2] {
        assert!(balanced[victim] < 0.7 * projected[victim], "{balanced:?}");
        assert!(balanced[victim] < 0.6 * fifo[victim], "{balanced:?}");
        assert!(balanced[victim] < 0.8 * demand[victim], "{balanced:?}");
    }
}
