//! Simulates a scenario on the engine. One scenario always gives one log, byte for byte.
//!
//! - `record`: jobs, series and distributions.
//! - `measure`, [`mixed`]: measure the events, which are then forgotten.
//! - [`figures`]: the result after the last job's end; [`compare`]: compares policies.
//!
//! Endless services and notebooks stop with the other jobs and the clients' tables.

pub mod compare;
pub mod figures;
mod measure;
pub mod mixed;
mod record;

use std::collections::BTreeSet;
use std::sync::Arc;

use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::{Event, JobId, LogClock, Recorded, Timestamp};

use crate::engine::{Action, Engine, EngineError, Faults};
use crate::scenario::Scenario;
pub use figures::{Figures, Outcome, TenantFigures};
pub(crate) use measure::Measures;
use mixed::Mixed;
pub use record::{Bar, End, JobRecord, Percentiles, Point, mean};

/// The start of every simulation: 2026-01-01T00:00:00Z.
pub const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);

/// The reason for a simulation without figures.
#[derive(Debug, thiserror::Error)]
pub enum SimulationError {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Nothing is due, but jobs have not ended.
    #[error(
        "nothing happens any more at {at}, and {count} jobs have not ended; the first is {first}"
    )]
    Stuck {
        at: Timestamp,
        count: usize,
        first: JobId,
    },
    #[error("{0}")]
    Sink(String),
}

/// Options of a simulation.
#[derive(Debug, Clone)]
pub struct Options {
    pub check: bool,
    pub faults: Faults,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            check: false,
            faults: Faults::none(),
        }
    }
}

/// The progress of a simulation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub ended: u64,
    pub jobs: u64,
    pub events: u64,
}

/// Sets up a scenario's cluster and script.
#[must_use]
pub fn engine(scenario: &Scenario, options: &Options) -> Engine {
    let mut engine = Engine::with_faults(START, options.check, options.faults.clone());
    let policy = ClusterConfigured {
        policy: scenario.policy.clone(),
    };
    engine.at(START, Action::Operator(Event::from(policy)));
    for (node, capacity) in &scenario.nodes {
        let (node, capacity) = (node.clone(), capacity.clone());
        engine.at(START, Action::Join { node, capacity });
    }
    for labelled in &scenario.labels {
        let event = Event::from(labelled.clone());
        engine.at(START, Action::Operator(event));
    }
    for granted in &scenario.granted {
        engine.at(START, Action::Operator(Event::from(granted.clone())));
    }
    for submission in &scenario.submissions {
        engine.model(submission.job.clone(), submission.model.clone());
        let action = Action::Submit {
            tenant: submission.job.tenant().to_owned(),
            verb: "submit".to_owned(),
            payload: submission.payload.clone(),
        };
        let at = seconds_after_start(submission.at_s);
        if let Some(clients) = &submission.clients {
            engine.serve(submission.job.clone(), clients.clone(), at);
        }
        engine.at(at, action);
    }
    engine
}

/// Returns the time `seconds` after the beginning.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    reason = "years of seconds in microseconds fit"
)]
pub fn seconds_after_start(seconds: f64) -> Timestamp {
    Timestamp::from_micros(START.as_micros() + (seconds * 1e6).round() as i64)
}

/// Simulates a scenario until every job has ended. `each` sees every event in order; `progress` is
/// called at intervals.
///
/// # Errors
/// A broken invariant, endless jobs, or an error of `each`.
pub fn simulate(
    scenario: &Scenario,
    options: &Options,
    mut each: impl FnMut(&Arc<Recorded>) -> Result<(), String>,
    mut progress: impl FnMut(Progress),
) -> Result<Outcome, SimulationError> {
    let mut engine = engine(scenario, options);
    let mut measures = Measures::new(scenario.horizon_s, START);
    let mut clock = LogClock::default();
    let mut mixed = Mixed::of(scenario, START);
    let served: BTreeSet<&JobId> = served(scenario).collect();
    let mut done = Progress {
        jobs: (scenario.submissions.len() - served.len()) as u64,
        ..Progress::default()
    };
    let over_s = mixed.as_ref().map_or(0.0, Mixed::until_s);
    while engine.next_due().is_some() {
        let is_served = !served.is_empty() && done.ended >= done.jobs;
        if is_served && engine.now() >= seconds_after_start(over_s) {
            break;
        }
        engine.step()?;
        for recorded in engine.take_events() {
            measures.read(&clock.read(&recorded));
            if let Some(mixed) = &mut mixed {
                mixed.read(&recorded);
            }
            each(&recorded).map_err(SimulationError::Sink)?;
            done.events = recorded.sequence.0;
        }
        if let Some(mixed) = &mut mixed {
            mixed.look(&mut engine);
        }
        if measures.ended() > done.ended {
            done.ended = measures.ended();
            progress(done);
        }
    }
    let open = engine.audit().open_jobs();
    let mut open = open.filter(|job| !served.contains(job));
    if let Some(first) = open.next().cloned() {
        return Err(SimulationError::Stuck {
            at: engine.now(),
            count: 1 + open.count(),
            first,
        });
    }
    let mut outcome = measures.outcome();
    if let Some(mixed) = mixed {
        outcome.figures.mixed = Some(mixed.figures(&outcome.jobs));
        outcome.mixed = Some(mixed.course());
    }
    Ok(outcome)
}

fn served(scenario: &Scenario) -> impl Iterator<Item = &JobId> {
    let served = scenario.submissions.iter().filter(|it| it.kind.is_served());
    served.map(|submission| &submission.job)
}
