//! Runs the autoscaler's fold and decision for one service on simulated clients, and compares other
//! rules and an oracle.
//!
//! - `setting`: parameters and result.
//! - `world` serves the arrivals of [`traces`]; `watched` is the autoscaler there.
//! - [`compare`] compares rules.

pub mod compare;
mod setting;
pub mod traces;
mod watched;
mod world;

use dormouse_autoscaler::staffing::{Goal, Load, Times};

use crate::random::Random;
use traces::{Kind, Trace};
use watched::{Promise, Watched};
use world::{Driver, World};

pub use setting::{Figures, Rule, Setting};

/// Uncounted seconds at the trace's first rate.
const WARM_UP_S: usize = 600;

/// Simulates one seed of a trace, with arrivals and work independent of the rule.
#[must_use]
pub fn simulate(kind: Kind, seed: u64, rule: Rule, setting: &Setting) -> Figures {
    let mut random = Random::new(seed);
    let trace = kind.trace(&mut random.split()).warmed(WARM_UP_S);
    let arrivals = trace.arrivals(&mut random.split());
    let driver = match rule {
        Rule::Scaling(scaling) => {
            let promise = Promise {
                scaling,
                objective: setting.objective,
                containers: setting.containers,
                concurrency: setting.concurrency,
            };
            // The first replicas started before the simulation.
            Driver::Decider(Box::new(Watched::new(&promise, -setting.start_s)))
        }
        Rule::Oracle => Driver::Oracle(oracle(&trace, setting)),
    };
    let from = f64::from(u32::try_from(WARM_UP_S).unwrap_or(0));
    World::new(setting, driver, random.split(), from).run(&trace, &arrivals)
}

/// Requests replicas a start-up time in advance, by the autoscaler's formula and spare service time.
fn oracle(trace: &Trace, setting: &Setting) -> Vec<u32> {
    let cv2 = setting.service_cv * setting.service_cv;
    let times = Times::gamma(setting.service_s, cv2);
    let goal = Goal {
        latency_s: f64::from(setting.objective.latency_ms) / 1000.0 - setting.service_s,
        late: 1.0 - setting.objective.percentile.fraction(),
    };
    let needed = trace.rates.iter().map(|rate| {
        let load = Load {
            rate: *rate,
            dispersion: trace.cv * trace.cv,
            times: &times,
        };
        let replicas = load.replicas(goal, setting.concurrency, setting.containers.max);
        replicas.clamp(setting.containers.min, setting.containers.max)
    });
    let needed: Vec<u32> = needed.collect();
    let ahead = (0..)
        .take_while(|it| f64::from(*it) < setting.start_s + 2.0)
        .count();
    (0..needed.len())
        .map(|at| {
            needed[at..needed.len().min(at + ahead + 1)]
                .iter()
                .max()
                .copied()
        })
        .map(|most| most.unwrap_or(setting.containers.min))
        .collect()
}
