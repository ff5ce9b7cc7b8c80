//! The Dorm paper's evaluation (Sun et al. 2017, Table II) on two seeds, compared with an independent
//! simulator.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{filling, scenario};
use dormouse_messages::events::{Outcome, StoppedBy};
use dormouse_messages::{Amounts, Event, JobId, NodeId, Recorded};
use dormouse_replay::Verifier;
use dormouse_replay::simulate::{Figures, Options, simulate};

/// Mean utilization, mean loss, mean JCT and makespan in minutes, adjusted jobs.
type Reference = (f64, f64, f64, f64, f64);

/// Per seed: static, Dorm-1, -2, -3.
const REFERENCE: [(&str, [Reference; 4]); 2] = [
    (
        "dorm-seed1",
        [
            (1.080, 0.649, 257.0, 1497.0, 0.0),
            (1.340, 0.317, 101.0, 1193.0, 58.0),
            (1.366, 0.275, 105.0, 1181.0, 81.0),
            (1.339, 0.246, 102.0, 1192.0, 52.0),
        ],
    ),
    (
        "dorm-seed2",
        [
            (1.320, 0.688, 261.0, 1247.0, 0.0),
            (1.628, 0.503, 104.0, 1043.0, 74.0),
            (1.702, 0.478, 107.0, 1020.0, 99.0),
            (1.665, 0.457, 107.0, 1031.0, 77.0),
        ],
    ),
];

fn run(name: &str, policy: &str) -> (Figures, Vec<Arc<Recorded>>) {
    let mut log = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    let options = Options {
        check: true,
        ..Options::default()
    };
    let outcome = simulate(&scenario(name, policy), &options, each, |_| ()).expect("simulates");
    (outcome.figures, log)
}

#[track_caller]
fn close(what: &str, value: f64, reference: f64, tolerance: f64) {
    let off = (value - reference).abs();
    assert!(
        off <= tolerance,
        "{what} is {value:.3}, not {reference} ± {tolerance:.3}"
    );
}

#[test]
fn static_and_the_three_settings_give_the_reference_results() {
    for (name, references) in REFERENCE {
        for (policy, reference) in ["static", "dorm-1", "dorm-2", "dorm-3"]
            .into_iter()
            .zip(references)
        {
            let (figures, log) = run(name, policy);
            let (utilization, loss, jct_min, makespan_min, adjusted) = reference;
            let what = |figure: &str| format!("{name} {policy}: {figure}");
            let part = |part: f64, rounding: f64| if policy == "static" { rounding } else { part };
            close(
                &what("utilization"),
                figures.utilization,
                utilization,
                part(0.03 * utilization, 0.0005),
            );
            close(
                &what("JCT"),
                figures.jct_s.mean / 60.0,
                jct_min,
                part(0.05 * jct_min, 0.5),
            );
            close(
                &what("makespan"),
                figures.makespan_s / 60.0,
                makespan_min,
                part(0.05 * makespan_min, 0.5),
            );
            #[expect(clippy::cast_precision_loss, reason = "below a hundred")]
            close(
                &what("adjusted"),
                figures.adjustments as f64,
                adjusted,
                0.15 * adjusted,
            );
            if policy == "static" {
                close(&what("loss"), sampled_loss(&log), loss, 0.0005);
            } else {
                close(&what("loss"), figures.loss, loss, 0.05);
            }
            assert_eq!(
                (figures.completed, figures.failed, figures.refused),
                (50, 0, 0)
            );
            recompute(&log);
        }
    }
}

#[test]
fn a_simulated_log_is_the_same_every_time_and_verifies() {
    let (_, log) = run("dorm-seed1", "default");
    let lines = |log: &[Arc<Recorded>]| -> Vec<String> {
        log.iter()
            .map(|recorded| recorded.to_json("simulated").expect("encodes"))
            .collect()
    };
    assert_eq!(lines(&log), lines(&run("dorm-seed1", "default").1));
    let mut verifier = Verifier::default();
    log.iter().for_each(|recorded| verifier.read(recorded));
    let report = verifier.finish();
    assert!(report.findings.is_empty(), "{:#?}", report.findings);
    assert!(report.decisions > 500, "{report:?}");
}

/// The cluster from the log, without the services' code.
#[derive(Default)]
struct Retold {
    capacity: BTreeMap<NodeId, Amounts>,
    jobs: BTreeMap<JobId, RetoldJob>,
}

struct RetoldJob {
    demand: Vec<f64>,
    weight: f64,
    bounds: (f64, f64),
    containers: u32,
}

/// Returns the static mean loss as the reference sampled it: every ten minutes of the first day with a
/// running job, against shares *without* minima.
fn sampled_loss(log: &[Arc<Recorded>]) -> f64 {
    let mut retold = Retold::default();
    let mut events = log.iter().peekable();
    let start = log[0].stored_at;
    let (mut sum, mut samples) = (0.0, 0.0);
    for minute in (0..24 * 60).step_by(10) {
        while let Some(recorded) = events
            .next_if(|recorded| recorded.stored_at.seconds_since(start) <= f64::from(60 * minute))
        {
            retold.read(recorded);
        }
        if retold.jobs.values().any(|job| job.containers > 0) {
            sum += retold.loss_without_minima();
            samples += 1.0;
        }
    }
    sum / samples
}

fn recompute(log: &[Arc<Recorded>]) {
    let mut retold = Retold::default();
    let mut checked = 0;
    for recorded in log {
        retold.read(recorded);
        match recorded.event() {
            Some(Event::AllocationDecided(event)) => {
                let fair = retold.check(&event.outcome);
                for job in event.jobs.iter().filter(|job| job.containers > 0) {
                    close("fair share", job.fair_share, fair[&job.job], 1e-9);
                    close("share", job.share, retold.jobs[&job.job].share(), 1e-9);
                }
                checked += 1;
            }
            Some(Event::AllocationUnchanged(event)) => {
                retold.check(&event.outcome);
                checked += 1;
            }
            _ => {}
        }
    }
    assert!(checked >= 50, "{checked} decisions");
}

fn fractions(demand: &Amounts, nodes: &BTreeMap<NodeId, Amounts>) -> Vec<f64> {
    let mut total = Amounts::new();
    nodes.values().for_each(|capacity| total.add(capacity, 1));
    #[expect(
        clippy::cast_precision_loss,
        reason = "a test's tolerance is far above"
    )]
    let part = |(resource, total): (_, u64)| demand.get(resource) as f64 / total as f64;
    total.iter().map(part).collect()
}

impl RetoldJob {
    fn user(&self) -> filling::User {
        filling::User {
            demand: self.demand.clone(),
            weight: self.weight,
            bounds: self.bounds,
        }
    }

    fn share(&self) -> f64 {
        self.demand
            .iter()
            .fold(0.0, |most: f64, part| most.max(*part))
            * f64::from(self.containers)
    }
}

impl Retold {
    fn read(&mut self, recorded: &Recorded) {
        match recorded.event() {
            Some(Event::NodeJoined(event)) => {
                self.capacity
                    .insert(event.node.clone(), event.capacity.clone());
            }
            Some(Event::JobAdmitted(event)) => {
                let job = RetoldJob {
                    demand: fractions(&event.spec.demand, &self.capacity),
                    weight: f64::from(event.spec.weight),
                    bounds: (
                        f64::from(event.spec.containers.min),
                        f64::from(event.spec.containers.max),
                    ),
                    containers: 0,
                };
                self.jobs.insert(event.job.clone(), job);
            }
            Some(Event::JobCompleted(event)) => {
                self.jobs.remove(&event.job);
            }
            Some(Event::AllocationDecided(event)) => {
                for job in &event.jobs {
                    let known = self.jobs.get_mut(&job.job).expect("an admitted job");
                    assert_eq!(job.previous, known.containers, "{}", job.job);
                    known.containers = job.containers;
                }
            }
            _ => {}
        }
    }

    fn loss_without_minima(&self) -> f64 {
        let from_zero = |job: &RetoldJob| filling::User {
            bounds: (0.0, job.bounds.1),
            ..job.user()
        };
        let users: Vec<filling::User> = self.jobs.values().map(from_zero).collect();
        let jobs = self.jobs.values().zip(filling::fill(&users));
        let running = jobs.filter(|(job, _)| job.containers > 0);
        running.map(|(job, fair)| (job.share() - fair).abs()).sum()
    }

    fn check(&self, outcome: &Outcome) -> BTreeMap<JobId, f64> {
        let running: Vec<(&JobId, &RetoldJob)> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.containers > 0)
            .collect();
        let users: Vec<filling::User> = running.iter().map(|(_, job)| job.user()).collect();
        let fair = filling::fill(&users);
        let loss: f64 = running
            .iter()
            .zip(&fair)
            .map(|((_, job), fair)| (job.share() - fair).abs())
            .sum();
        close("fairness loss", outcome.fairness_loss, loss, 1e-9);
        let used = |(_, job): &(&JobId, &RetoldJob)| {
            job.demand.iter().sum::<f64>() * f64::from(job.containers)
        };
        close(
            "utilization",
            outcome.utilization.total,
            running.iter().map(used).sum(),
            1e-9,
        );
        if outcome.solver.stopped_by != StoppedBy::Procedure && !outcome.unbounded {
            assert!(
                loss <= outcome.fairness_loss_bound + 1e-9,
                "{loss} > {}",
                outcome.fairness_loss_bound
            );
            assert!(outcome.adjusted_jobs <= outcome.adjustment_bound);
        }
        running
            .iter()
            .zip(fair)
            .map(|((id, _), fair)| ((*id).clone(), fair))
            .collect()
    }
}
