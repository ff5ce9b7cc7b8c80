//! Fault trials: a seed draws a small cluster, its jobs and its faults ([`workload`], [`Faults`]).
//!
//! 1. After every event the audit, the ground truth and every fold's invariants hold. No job fails, and
//!    no start is given up, without a cause. A restart from a snapshot gives the whole log's state.
//! 2. At the end every submission is decided, every job has ended or waits for its tenant's bounds, no
//!    quarantine remains, every decision can be repeated, and any fold continues after serialization.

pub mod workload;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_admission::AdmissionState;
use dormouse_messages::{Fold, JobId, Recorded};
use dormouse_projections::ReadModel;
use dormouse_state::{ClusterState, Queues, Stand};
use serde_json::json;

use crate::engine::{Action, Back, Engine, Faults, Plant, Rates};
use crate::random::Random;
use crate::scenario::Scenario;
use crate::simulate::{self, Options, seconds_after_start};
use crate::verify::Verifier;

/// A trial that found a fault.
#[derive(Debug, Clone, thiserror::Error)]
#[error("seed {seed}: {what}")]
pub struct Failure {
    pub seed: u64,
    pub what: String,
    pub log: Vec<Arc<Recorded>>,
}

/// A successful trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    pub events: u64,
    pub decisions: u64,
    /// Preempted jobs: for services and notebooks, for classes, and by force.
    pub preemptions: [u64; 3],
}

/// Runs the trial of a seed on a random cluster, or on a scenario's.
///
/// # Errors
/// The broken rule.
pub fn trial(seed: u64, scenario: Option<&Scenario>) -> Result<Passed, Box<Failure>> {
    in_world(seed, scenario, World::Whole, None)
}

/// Runs the trial without [`workload::wide`] and [`workload::brokers`], so that old seeds repeat.
///
/// # Errors
/// The broken rule.
pub fn narrow_trial(seed: u64) -> Result<Passed, Box<Failure>> {
    in_world(seed, None, World::Narrow, None)
}

/// Runs the trial without [`workload::brokers`].
///
/// # Errors
/// The broken rule.
pub fn wide_trial(seed: u64) -> Result<Passed, Box<Failure>> {
    in_world(seed, None, World::Wide, None)
}

/// Runs the trial with a planted bug.
///
/// # Errors
/// The broken rule.
pub fn planted(
    seed: u64,
    scenario: Option<&Scenario>,
    plant: Option<Plant>,
) -> Result<Passed, Box<Failure>> {
    in_world(seed, scenario, World::Whole, plant)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum World {
    Narrow,
    Wide,
    Whole,
}

fn in_world(
    seed: u64,
    scenario: Option<&Scenario>,
    world: World,
    plant: Option<Plant>,
) -> Result<Passed, Box<Failure>> {
    let mut random = Random::new(seed);
    let faults = Faults::new(random.next(), rates(&mut random)).with(plant);
    let mut engine = match scenario {
        None => {
            let mut engine = Engine::with_faults(simulate::START, true, faults);
            let nodes = workload::small_cluster(&mut engine, &mut random);
            if world >= World::Wide {
                workload::wide::troubles(&mut engine, seed, &nodes);
            }
            if world >= World::Whole {
                workload::brokers::several(&mut engine, seed);
                workload::brokers::seconds(&mut engine, seed, &nodes);
            }
            engine
        }
        Some(scenario) => {
            let mut engine = simulate::engine(
                scenario,
                &Options {
                    check: true,
                    faults,
                },
            );
            workload::troubles(&mut engine, scenario, &mut random);
            end_services(&mut engine, scenario);
            engine
        }
    };
    let last_s = scenario.map_or(0.0, |scenario| scenario.horizon_s);
    judged(seed, &mut engine, last_s, &mut random)
}

fn judged(
    seed: u64,
    engine: &mut Engine,
    last_s: f64,
    random: &mut Random,
) -> Result<Passed, Box<Failure>> {
    let checked = run(engine, last_s).and_then(|()| at_the_end(engine, random));
    checked.map_err(|what| {
        let log = engine.log().to_vec();
        Box::new(Failure { seed, what, log })
    })
}

/// Runs a trial in which all services stop for hours, some on rebooted hosts. Returns the delay of the
/// log's time in milliseconds.
///
/// # Errors
/// The broken rule.
pub fn night(seed: u64) -> Result<u64, Box<Failure>> {
    let mut random = Random::new(seed);
    let faults = random.next();
    let rates = Rates {
        leader: 0.0,
        host_clock: 0.0,
        ..rates(&mut random)
    };
    let faults = Faults::new(faults, rates);
    let mut engine = Engine::with_faults(simulate::START, true, faults);
    let _ = workload::small_cluster(&mut engine, &mut random);
    let from_s = random.between(10.0, 300.0);
    let until = seconds_after_start(from_s + random.between(1.0, 12.0) * 3_600.0);
    let reboot = random.chance(0.3).then_some(0);
    engine.at(seconds_after_start(from_s), Action::Stop(until, reboot));
    judged(seed, &mut engine, 0.0, &mut random)?;
    Ok(engine.log_behind_ms())
}

/// Runs a trial with one or two log rollbacks.
///
/// # Errors
/// The broken rule.
pub fn set_back(seed: u64) -> Result<Passed, Box<Failure>> {
    let mut random = Random::new(seed);
    let faults = Faults::new(random.next(), rates(&mut random));
    let mut engine = Engine::with_faults(simulate::START, true, faults);
    workload::whole_cluster(&mut engine, &mut random);
    let mut at_s = 0.0;
    for _ in 0..1 + random.below(2) {
        at_s += random.between(5.0, 400.0);
        let away_s = random.between(0.0, 60.0);
        let back = Back {
            events: 1 + usize::try_from(random.below(60)).unwrap_or(0),
            ingress: random.chance(0.5),
            until: seconds_after_start(at_s + away_s),
        };
        engine.at(seconds_after_start(at_s), Action::GoBack(back));
        at_s += away_s;
    }
    judged(seed, &mut engine, 0.0, &mut random)
}

fn end_services(engine: &mut Engine, scenario: &Scenario) {
    let served = scenario.submissions.iter().filter(|it| it.kind.is_served());
    for submission in served {
        let cancel = Action::Submit {
            tenant: submission.job.tenant().to_owned(),
            verb: "cancel".to_owned(),
            payload: json!({"job": submission.job}).to_string().into_bytes(),
        };
        engine.at(seconds_after_start(scenario.horizon_s), cancel);
    }
}

/// Long after any job should have ended: jobs work for minutes, and every fault ends.
const PATIENCE_S: f64 = 200_000.0;

/// A trial has hundreds of events; one whose decisions undo each other has no end.
const MOST_EVENTS: usize = 60_000;

fn run(engine: &mut Engine, last_s: f64) -> Result<(), String> {
    let until = seconds_after_start(last_s + PATIENCE_S);
    while engine.next_due().is_some_and(|next| next <= until) {
        engine.step().map_err(|error| error.to_string())?;
        if engine.log().len() > MOST_EVENTS {
            return Err(format!(
                "{MOST_EVENTS} events and no end: decisions undo each other"
            ));
        }
    }
    match engine.next_due() {
        None => Ok(()),
        Some(due) => Err(format!("something is still due, at {due}")),
    }
}

/// Draws each fault's rate separately, some as zero, since faults hide one another.
fn rates(random: &mut Random) -> Rates {
    let Rates {
        late,
        lagging,
        spurious,
        crash,
        doubt,
        late_answer,
        second_copy,
        snapshot,
        slow,
        slow_start,
        container,
        save_fails,
        save_hangs,
        leader,
        host_clock,
    } = Rates::TORTURE;
    let mut scaled = |rate: f64| rate * *random.choose(&[0.0, 0.3, 1.0, 2.0]);
    Rates {
        late: scaled(late),
        lagging: scaled(lagging),
        spurious: scaled(spurious),
        crash: scaled(crash),
        doubt: scaled(doubt),
        late_answer: scaled(late_answer),
        second_copy: scaled(second_copy),
        snapshot: scaled(snapshot),
        slow: scaled(slow),
        slow_start: scaled(slow_start),
        container: scaled(container),
        save_fails: scaled(save_fails),
        save_hangs: scaled(save_hangs),
        leader: scaled(leader),
        host_clock: scaled(host_clock),
    }
}

/// Rule 2.
fn at_the_end(engine: &Engine, random: &mut Random) -> Result<Passed, String> {
    if let Some(ingress_sequence) = engine.audit().undecided().next() {
        return Err(format!("submission {ingress_sequence} was never decided"));
    }
    let stuck = stuck(engine.audit().open_jobs().cloned().collect(), engine.log());
    if let Some(job) = stuck.first() {
        return Err(format!("{job} never ended"));
    }
    if let Some(node) = engine.audit().quarantined().next() {
        return Err(format!("the quarantine of {node} never ended"));
    }
    let log = engine.log();
    engine.agents().heard_enough(log, place(log, random))?;
    let mut verifier = Verifier::default();
    log.iter().for_each(|recorded| verifier.read(recorded));
    let report = verifier.finish();
    if let Some(finding) = report.findings.first() {
        let (sequence, what) = (finding.sequence, &finding.what);
        return Err(format!("event {sequence} does not verify: {what}"));
    }
    cut_anywhere::<AdmissionState>(log, random)?;
    cut_anywhere::<ClusterState>(log, random)?;
    cut_anywhere::<ReadModel>(log, random)?;
    Ok(Passed {
        events: report.events,
        decisions: report.decisions,
        preemptions: engine.audit().preemptions(),
    })
}

/// Returns the open jobs without a stated reason to wait: a lowered bound, or a dependency on such a
/// job.
fn stuck(mut open: Vec<JobId>, log: &[Arc<Recorded>]) -> Vec<JobId> {
    if open.is_empty() {
        return open;
    }
    let mut queues = Queues::default();
    log.iter().for_each(|recorded| queues.evolve(recorded));
    let mut waits: BTreeSet<JobId> = BTreeSet::new();
    loop {
        let is_stated = |id: &JobId| {
            let job = queues.jobs.get(id);
            let is_above = queues.above(id).is_some();
            let known = queues.cluster.jobs.get(id);
            let runs = known.is_some_and(|job| job.running_since().is_some());
            job.is_some_and(|job| match &job.stand {
                Stand::Held { unmet } => unmet.iter().any(|other| waits.contains(other)),
                Stand::Released { unschedulable, .. } => *unschedulable && is_above && !runs,
                Stand::Queued { .. } => is_above,
                Stand::DependencyFailed { .. } => false,
            })
        };
        let (stated, rest): (Vec<JobId>, Vec<JobId>) = open.into_iter().partition(is_stated);
        if stated.is_empty() {
            return rest;
        }
        waits.extend(stated);
        open = rest;
    }
}

fn place(log: &[Arc<Recorded>], random: &mut Random) -> usize {
    let place = random.below(log.len() as u64 + 1);
    usize::try_from(place).unwrap_or(0)
}

fn cut_anywhere<F: Fold>(log: &[Arc<Recorded>], random: &mut Random) -> Result<(), String> {
    let cut = place(log, random);
    let (before, after) = log.split_at(cut);
    let mut whole = F::default();
    before.iter().for_each(|recorded| whole.evolve(recorded));
    let broken = |what: String| format!("{} cut after event {cut}: {what}", F::NAME);
    let encode =
        |state: &F| rmp_serde::to_vec_named(state).map_err(|error| broken(error.to_string()));
    let mut resumed: F =
        rmp_serde::from_slice(&encode(&whole)?).map_err(|error| broken(error.to_string()))?;
    for recorded in after {
        whole.evolve(recorded);
        resumed.evolve(recorded);
    }
    if encode(&whole)? == encode(&resumed)? {
        Ok(())
    } else {
        Err(broken("it goes on differently".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Writer;
    use dormouse_messages::events::{AllocationUnchanged, Outcome, TenantConfigured, Waiting};
    use dormouse_state::history::{History, job};

    use super::*;

    #[test]
    fn a_job_that_waits_for_ever_is_stuck_unless_it_is_above_a_bound() {
        let stuck_under = |quota: &str, waiting: &[&str]| {
            let mut history = History::default();
            history.join("n0", 1).submit("ads/a").release("ads/a");
            let configured = TenantConfigured {
                tenant: "ads".parse().expect("a tenant"),
                weight: 1,
                quota: quota.parse().expect("a quota"),
                max_job_weight: None,
                priority: None,
            };
            history.push_by(Writer::Operator, configured);
            let waiting = waiting.iter().map(|code| Waiting {
                job: job("ads/a"),
                code: (*code).to_owned(),
                reason: String::new(),
            });
            let outcome = Outcome {
                waiting: waiting.collect(),
                ..Outcome::default()
            };
            history.push(AllocationUnchanged {
                reason: String::new(),
                outcome,
                basis: None,
            });
            let log: Vec<Arc<Recorded>> = history.log.iter().cloned().map(Arc::new).collect();
            stuck(vec![job("ads/a")], &log).len()
        };
        assert_eq!(stuck_under("cpu=1", &["above_quota"]), 0);
        assert_eq!(stuck_under("cpu=1", &[]), 1, "nobody has said so");
        assert_eq!(stuck_under("cpu=8", &["above_quota"]), 1);
        assert_eq!(stuck_under("cpu=8", &["resources"]), 1);
    }
}
