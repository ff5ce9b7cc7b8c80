//! Compares the autoscaler's rules, and an oracle, on one service of the simulated cluster.
//!
//! - [`traces`]: the requests; `oracle` knows them; `figures` measures the log.
//! - [`compare`] tabulates the rules.

pub mod compare;
mod figures;
mod oracle;
pub mod traces;

use std::sync::Arc;

use dormouse_messages::Recorded;
use dormouse_messages::events::Histogram;
use dormouse_messages::service::Scaling;
use serde_json::json;

use crate::engine::{EngineError, Requests, Work};
use crate::random::Random;
use crate::scenario::{Scenario, read_value};
use crate::simulate::{Options, engine, seconds_after_start};
use oracle::Oracle;
use traces::Kind;

pub use figures::Figures;

/// Uncounted seconds at the trace's first rate.
const WARM_UP_S: usize = 600;

const WORK: Work = Work {
    mean_s: 0.1,
    cv: 0.5,
    concurrency: 1,
};

const OBJECTIVE_MS: f64 = 400.0;
const PERCENTILE: f64 = 99.0;
const MOST_REPLICAS: u32 = 24;

/// The rule that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    Scaling(Scaling),
    /// Knows every second's rate in advance.
    Oracle,
}

impl Rule {
    /// All rules in the table's order.
    pub const ALL: [Self; 5] = [
        Self::Scaling(Scaling::Objective),
        Self::Scaling(Scaling::Hpa),
        Self::Scaling(Scaling::Kpa),
        Self::Scaling(Scaling::Ray),
        Self::Oracle,
    ];

    /// Returns the rule's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Scaling(Scaling::Objective) => "objective",
            Self::Scaling(Scaling::Hpa) => "hpa",
            Self::Scaling(Scaling::Kpa) => "kpa",
            Self::Scaling(Scaling::Ray) => "ray",
            Self::Oracle => "oracle",
        }
    }
}

/// Simulates one seed of a trace with replicas that start in `start_s`; returns the log, too. Arrivals are
/// independent of the rule.
///
/// # Errors
/// A broken invariant.
pub fn simulate(
    kind: Kind,
    seed: u64,
    rule: Rule,
    start_s: f64,
) -> Result<(Figures, Vec<Arc<Recorded>>), EngineError> {
    let mut random = Random::new(seed);
    let trace = kind.trace(&mut random.split()).warmed(WARM_UP_S);
    let arrivals = trace.arrivals(&mut random.split());
    let scenario = scenario(rule, start_s);
    let mut engine = engine(&scenario, &Options::default());
    // The first replica is ready by then.
    let first_s = start_s.ceil();
    let begins = seconds_after_start(first_s);
    if rule == Rule::Oracle {
        engine = engine.deciding(Oracle::new(&trace, begins, start_s));
    }
    let requests = Requests::new(&arrivals, WORK, bounds_ms(), random.split());
    engine.serve_requests(scenario.submissions[0].job.clone(), requests, begins);
    engine.run_until(seconds_after_start(first_s + trace.rates.len() as f64))?;
    let log = engine.take_events();
    Ok((Figures::of(&log, begins, &trace), log))
}

fn scenario(rule: Rule, start_s: f64) -> Scenario {
    let scaling = match rule {
        Rule::Scaling(scaling) => scaling,
        Rule::Oracle => Scaling::default(),
    };
    let document = json!({
        "scenario": "serving",
        "horizon_s": 1,
        "nodes": [{"name": "n0", "capacity": {"gpu": MOST_REPLICAS}}],
        "jobs": [{
            "at_s": 0,
            "spec": {
                "name": "model", "tenant": "serving", "kind": "inference",
                "command": {"start": ["serve"]}, "demand": {"gpu": 1},
                "containers": {"min": 1, "max": MOST_REPLICAS},
                "service": {
                    "objective": {"latency_ms": OBJECTIVE_MS, "percentile": PERCENTILE},
                    "scaling": scaling, "concurrency": WORK.concurrency, "ready": {"timeout_s": 3600},
                },
            },
            "model": {"costs": {"ready_s": start_s}},
        }],
    });
    read_value(document).expect("a scenario")
}

/// The objective is a bound, as at the gateway.
fn bounds_ms() -> Vec<f64> {
    let all = std::iter::successors(Some(2.0), |bound| Some(bound * 1.2));
    let all = all.take(Histogram::MOST_BOUNDS - 1);
    let mut bounds: Vec<f64> = all.chain([OBJECTIVE_MS]).collect();
    bounds.sort_by(f64::total_cmp);
    bounds
}
