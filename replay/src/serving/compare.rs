//! Compares rules on equal arrivals, with an oracle that knows the rate.

use serde::Serialize;

use super::traces::Kind;
use super::{Figures, Rule, simulate};
use crate::engine::EngineError;
use crate::threads::in_threads;

/// A rule's result on a trace over all seeds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    pub trace: &'static str,
    /// Seconds from a decision to a ready replica.
    pub start_s: f64,
    pub rule: &'static str,
    pub seeds: usize,
    /// The fraction of requests answered in time, averaged over the seeds.
    pub attainment: f64,
    pub worst: f64,
    pub replicas: f64,
    /// Replicas relative to the oracle's.
    pub of_oracle: f64,
    pub changes: f64,
    /// Mean seconds from a jump of the rate to the next increase within a minute; `None` without jumps.
    pub reaction_s: Option<f64>,
}

/// Simulates every rule on every trace, with every start-up time, for every seed.
///
/// # Errors
/// The first broken invariant.
pub fn compare(
    traces: &[Kind],
    starts_s: &[f64],
    seeds: &[u64],
    threads: usize,
) -> Result<Vec<Row>, EngineError> {
    let cases: Vec<(Kind, f64, Rule)> = traces
        .iter()
        .flat_map(|trace| starts_s.iter().map(move |start_s| (*trace, *start_s)))
        .flat_map(|(trace, start_s)| Rule::ALL.map(|rule| (trace, start_s, rule)))
        .collect();
    let rows = in_threads(cases.len(), threads, |index| row(cases[index], seeds));
    let mut rows = rows.into_iter().collect::<Result<Vec<Row>, _>>()?;
    for case in rows.chunks_mut(Rule::ALL.len()) {
        let oracle = case.last().map_or(1.0, |row| row.replicas);
        case.iter_mut()
            .for_each(|row| row.of_oracle = row.replicas / oracle);
    }
    Ok(rows)
}

fn row((trace, start_s, rule): (Kind, f64, Rule), seeds: &[u64]) -> Result<Row, EngineError> {
    let runs = seeds.iter().map(|seed| {
        let run = simulate(trace, *seed, rule, start_s);
        run.map(|(figures, _)| figures)
    });
    let runs = runs.collect::<Result<Vec<Figures>, _>>()?;
    let mean = |of: &dyn Fn(&Figures) -> f64| mean(runs.iter().map(of)).unwrap_or(0.0);
    let reactions = runs.iter().flat_map(|run| run.reactions_s.iter().copied());
    Ok(Row {
        trace: trace.as_str(),
        start_s,
        rule: rule.as_str(),
        seeds: seeds.len(),
        attainment: mean(&Figures::attainment),
        worst: runs.iter().map(Figures::attainment).fold(1.0, f64::min),
        replicas: mean(&|run| run.replicas),
        of_oracle: 1.0,
        changes: mean(&|run| f64::from(run.changes)),
        reaction_s: match rule {
            Rule::Oracle => None,
            Rule::Scaling(_) => self::mean(reactions),
        },
    })
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for value in values {
        sum += value;
        count += 1.0;
    }
    (count > 0.0).then(|| sum / count)
}
