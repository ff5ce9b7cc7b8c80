//! The name of an ended job is free again after `archive.names_kept_days`: the whole cluster, simulated.

use std::sync::Arc;

use dormouse_admission::AdmissionState;
use dormouse_agent_core::state::AgentState;
use dormouse_messages::events::ClusterConfigured;
use dormouse_messages::policy::Policy;
use dormouse_messages::{Event, Fold, JobId, Recorded, Sequence};
use dormouse_projections::ReadModel;
use dormouse_replay::engine::{Action, Engine, ModelJob};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::simulate::{START, seconds_after_start};
use dormouse_replay::verify::Verifier;
use dormouse_replay::{Audit, Finding};
use dormouse_state::ClusterState;

use crate::common::submit;

const HOUR_S: f64 = 3_600.0;

fn job() -> JobId {
    "ads/nightly".parse().expect("an id")
}

/// A job that ends within the first hour, and its name again after 12 and after 30 hours.
fn nights(kept_days: Option<u32>) -> Vec<Arc<Recorded>> {
    let mut engine = Engine::new(START, true);
    let mut policy = Policy::default();
    policy.archive.names_kept_days = kept_days;
    engine.at(START, Action::Operator(ClusterConfigured { policy }.into()));
    let node = "n0".parse().expect("a node");
    let capacity = "cpu=8".parse().expect("amounts");
    engine.at(START, Action::Join { node, capacity });
    let payload =
        r#""demand":{"cpu":1},"containers":{"min":1,"max":4},"checkpoint":{"mode":"exit"}"#;
    for hours in [0.0, 12.0, 30.0] {
        let model = ModelJob::linear(600.0);
        submit(&mut engine, hours * HOUR_S, job().as_str(), payload, model);
    }
    engine
        .run_until(seconds_after_start(40.0 * HOUR_S))
        .expect("a healthy run");
    engine.log().to_vec()
}

fn fold<F: Fold>(log: &[Arc<Recorded>]) -> F {
    let mut state = F::default();
    for recorded in log {
        state.evolve(recorded);
        state.check_invariants().expect("invariants hold");
    }
    state
}

fn admissions(log: &[Arc<Recorded>]) -> Vec<Sequence> {
    let admitted = log
        .iter()
        .filter(|it| matches!(it.event(), Some(Event::JobAdmitted(_))));
    admitted.map(|it| it.sequence).collect()
}

fn refusals(log: &[Arc<Recorded>]) -> Vec<String> {
    let codes = log.iter().filter_map(|it| match it.event()? {
        Event::JobRefused(event) => Some(event.code.clone()),
        _ => None,
    });
    codes.collect()
}

#[test]
fn a_name_is_free_after_its_time_and_the_new_job_is_another() {
    let log = nights(Some(1));
    let admitted = admissions(&log);
    assert_eq!(admitted.len(), 2, "at once and after 30 hours");
    assert_eq!(refusals(&log), ["name_in_use"], "after 12 hours");
    let model: ReadModel = fold(&log);
    let shown = model.jobs.get(&job()).expect("shown");
    assert_eq!(shown.admitted_sequence, admitted[1]);
    assert!(shown.phase.is_over(), "{:?}", shown.phase);
    assert_eq!(model.jobs.ended().count(), 1);
    let state: AdmissionState = fold(&log);
    assert_eq!(state.ended.len(), 1, "only the second one's");
    let cluster: ClusterState = fold(&log);
    assert!(cluster.speeds.job(&job()).is_none());
    let agent: AgentState = fold(&log);
    assert_eq!(agent.jobs.len(), 0);
}

#[test]
fn the_second_use_of_a_name_is_verified_and_accounted_by_itself() {
    let log = nights(Some(1));
    let mut audit = Audit::default();
    let mut verifier = Verifier::default();
    let mut ledger = Ledger::new(None, None);
    for recorded in &log {
        audit.read(recorded);
        verifier.read(recorded);
        ledger.read(recorded);
    }
    assert_eq!(audit.violations(), []);
    let findings: Vec<Finding> = verifier.finish().findings;
    assert_eq!(findings, []);
    let table = ledger.finish(seconds_after_start(40.0 * HOUR_S));
    let rows = table.jobs.iter();
    let rows: Vec<_> = rows.filter(|row| row.resource == "containers").collect();
    assert_eq!(rows.len(), 2, "{rows:?}");
    assert!(rows.iter().all(|row| row.ended == "completed"));
}

#[test]
fn an_agent_knows_the_admission_of_the_job_that_has_the_name() {
    let log = nights(Some(1));
    let admitted = admissions(&log);
    let mut agent = AgentState::default();
    let mut seen = Vec::new();
    for recorded in &log {
        agent.evolve(recorded);
        let now = agent.jobs.get(&job()).map(|job| job.admitted);
        if seen.last() != now.as_ref() {
            seen.extend(now);
        }
    }
    assert_eq!(seen, admitted);
}

#[test]
fn null_never_frees_a_name() {
    let log = nights(None);
    assert_eq!(admissions(&log).len(), 1);
    assert_eq!(refusals(&log), ["name_in_use", "name_in_use"]);
}
