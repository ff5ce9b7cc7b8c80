//! Shares with a memory: a month of steady demand, also under Slurm's fair-share.

mod slurm;

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_messages::events::{ClusterConfigured, TenantConfigured};
use dormouse_messages::policy::{Policy, Queue};
use dormouse_messages::{Event, JobId, Memory, Recorded, Shares};
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::simulate::{START, seconds_after_start};

use crate::common::submit;

const DAY_S: f64 = 86_400.0;

/// CPUs of the only node.
const CPUS: f64 = 10.0;

const MONTH: (f64, f64) = (10.0, 30.0);

/// A job of the trace.
pub struct TraceJob {
    tenant: usize,
    at_s: f64,
    cpus: f64,
    runs_s: f64,
    /// Largest partition.
    most: f64,
}

/// Jobs by arrival.
pub type Trace = Vec<TraceJob>;

/// A tenant's steady demand.
struct Demand {
    cpus: f64,
    most: f64,
    hours: f64,
    /// CPUs that its jobs would use together.
    asks: f64,
}

fn trace(demands: &[Demand], days: f64) -> Trace {
    let mut trace = Trace::new();
    for (tenant, demand) in demands.iter().enumerate() {
        let runs_s = demand.hours * 3600.0;
        let every_s = runs_s * demand.cpus / demand.asks;
        let mut at_s = 60.0 * (tenant as f64 + 1.0);
        while at_s < days * DAY_S {
            trace.push(TraceJob {
                tenant,
                at_s,
                cpus: demand.cpus,
                runs_s,
                most: demand.most,
            });
            at_s += every_s;
        }
    }
    trace.sort_by(|left, right| left.at_s.total_cmp(&right.at_s));
    trace
}

fn month(
    trace: &Trace,
    tenants: &[(&'static str, u32)],
    policy: Policy,
    days: f64,
) -> Vec<Arc<Recorded>> {
    let mut engine = Engine::new(START, false);
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    for (tenant, weight) in tenants {
        let configured = TenantConfigured {
            tenant: tenant.parse().expect("a tenant"),
            weight: *weight,
            quota: Default::default(),
            max_job_weight: None,
            priority: None,
        };
        engine.at(START, Action::Operator(configured.into()));
    }
    let node = "n0".parse().expect("a node");
    let capacity = format!("cpu={CPUS}").parse().expect("amounts");
    engine.at(START, Action::Join { node, capacity });
    for (number, job) in trace.iter().enumerate() {
        let id = format!("{}/j{number}", tenants[job.tenant].0);
        let mode = if job.most > job.cpus { "exit" } else { "none" };
        let document = format!(
            r#""demand":{{"cpu":1}},"containers":{{"min":{},"max":{}}},"checkpoint":{{"mode":"{mode}"}}"#,
            job.cpus, job.most
        );
        let model = ModelJob::linear(job.runs_s * job.cpus);
        submit(&mut engine, job.at_s, &id, &document, model);
    }
    let end = seconds_after_start(days * DAY_S);
    engine.run_until(end).expect("a healthy run");
    engine.log().to_vec()
}

fn used(log: &[Arc<Recorded>], (from_days, to_days): (f64, f64)) -> BTreeMap<String, f64> {
    let [from, to] = [from_days, to_days].map(|days| seconds_after_start(days * DAY_S));
    let mut ledger = Ledger::new(Some(from), Some(to));
    log.iter().for_each(|recorded| ledger.read(recorded));
    let rows = ledger.finish(to).tenants;
    let all: u128 = rows.iter().map(|row| row.parts.used.0).sum();
    let part = |amount: u128| amount as f64 / all as f64;
    let parts = rows
        .iter()
        .map(|row| (row.tenant.clone(), part(row.parts.used.0)));
    parts.collect()
}

/// Mean seconds from a submission to the first start.
fn waits(log: &[Arc<Recorded>], trace: &Trace) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut begun: std::collections::BTreeSet<JobId> = Default::default();
    for recorded in log {
        let Some(Event::PartitionStarted(event)) = recorded.event() else {
            continue;
        };
        let at_s = recorded.stored_at.seconds_since(START);
        if !begun.insert(event.job.clone()) || at_s < MONTH.0 * DAY_S {
            continue;
        }
        let number: usize = event.job.name()[1..].parse().expect("a number");
        let (sum, count) = sums.entry(event.job.tenant().to_owned()).or_default();
        *sum += at_s - trace[number].at_s;
        *count += 1.0;
    }
    let means = sums
        .into_iter()
        .map(|(name, (sum, count))| (name, sum / count));
    means.collect()
}

fn adjusted(log: &[Arc<Recorded>]) -> u32 {
    let events = log.iter().filter_map(|recorded| recorded.event());
    let counts = events.map(|event| match event {
        Event::AllocationDecided(event) => event.outcome.adjusted_jobs,
        _ => 0,
    });
    counts.sum()
}

const TENANTS: [(&str, u32); 3] = [("ads", 1), ("lab", 1), ("search", 2)];

/// Every tenant asks for more than the node has for it. Containers do not divide by the weights.
fn overload(days: f64) -> Trace {
    let demands = [
        Demand {
            cpus: 2.0,
            most: 2.0,
            hours: 16.0,
            asks: 3.5,
        },
        Demand {
            cpus: 1.0,
            most: 1.0,
            hours: 8.0,
            asks: 3.5,
        },
        Demand {
            cpus: 1.0,
            most: 4.0,
            hours: 24.0,
            asks: 6.5,
        },
    ];
    trace(&demands, days)
}

fn policy(shares: Shares) -> Policy {
    Policy {
        shares,
        queue: Queue::Drf,
        ..Policy::default()
    }
}

fn remembered(days: u64) -> Policy {
    policy(Shares::Remembered(Memory::of_days(days)))
}

/// The largest deviation of a use from the weight's part, in parts of the cluster.
fn deviation(used: &BTreeMap<String, f64>) -> f64 {
    let all: u32 = TENANTS.iter().map(|(_, weight)| weight).sum();
    let of = |(name, weight): &(&str, u32)| {
        let due = f64::from(*weight) / f64::from(all);
        (used[*name] - due).abs()
    };
    TENANTS.iter().map(of).fold(0.0, f64::max)
}

fn row(name: &str, used: &BTreeMap<String, f64>, waits: &BTreeMap<String, f64>) -> String {
    let of = |(tenant, _): &(&str, u32)| {
        let hours = waits[*tenant] / 3600.0;
        format!("{:.1} %, {hours:.0} h", used[*tenant] * 100.0)
    };
    let cells: Vec<String> = TENANTS.iter().map(of).collect();
    format!("| {name} | {}. |", cells.join(" | "))
}

#[test]
fn over_a_month_the_use_of_every_tenant_goes_to_its_weight() {
    let trace = overload(30.0);
    let without = month(&trace, &TENANTS, policy(Shares::Tenant), 30.0);
    let with = month(&trace, &TENANTS, remembered(7), 30.0);
    let [was, is] = [&without, &with].map(|log| deviation(&used(log, MONTH)));
    let [few, many] = [&without, &with].map(|log| f64::from(adjusted(log)));
    let slurm = slurm::run(&trace, &TENANTS, CPUS, (MONTH.0 * DAY_S, MONTH.1 * DAY_S));
    let rows = [
        row(
            "`shares: tenant`",
            &used(&without, MONTH),
            &waits(&without, &trace),
        ),
        row(
            "a memory of 7 d",
            &used(&with, MONTH),
            &waits(&with, &trace),
        ),
        row("Slurm's fair-share", &slurm.used, &slurm.waits),
    ];
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/policies.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    println!("adjusted {few} {many}, off by {was} {is}: {rows:#?}");
    for row in rows {
        assert!(guide.contains(&row), "the guide lacks {row}");
    }
    assert!(is < 0.02, "{is}");
    assert!(many <= 1.1 * few, "{few} {many}");
}

#[test]
fn an_explanation_says_what_past_use_did() {
    let log = month(&overload(2.0), &TENANTS, remembered(1), 2.0);
    let explained = |subject: Subject| {
        let mut explainer = Explainer::new(subject, None, 0);
        log.iter().for_each(|recorded| explainer.read(recorded));
        explainer.explain().expect("it is there").words.join("\n")
    };
    let last = log
        .iter()
        .rev()
        .find_map(|recorded| match recorded.event() {
            Some(Event::PartitionStarted(event)) => Some(event.job.clone()),
            _ => None,
        });
    let last = last.expect("a job started");
    for (subject, tenant) in [
        (Subject::Job(last.clone()), last.tenant()),
        (Subject::Tenant("lab".parse().expect("a tenant")), "lab"),
    ] {
        let words = explained(subject);
        let says = format!("{tenant} used ");
        assert!(words.contains(&says), "{words}");
        assert!(words.contains("% of its due (half-life 1d)"), "{words}");
    }
    let turns = log.iter().filter_map(|recorded| match recorded.event() {
        Some(Event::JobReleased(event)) => event.turn.as_ref()?.factor,
        _ => None,
    });
    assert!(turns.max() > Some(1000));
}
