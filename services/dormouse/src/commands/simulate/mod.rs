//! `simulate`: runs the real services over a virtual clock.
//!
//! - `args`: flags; `runs`: scenarios, policies and threads; `faults`: trials with faults.
//! - `table`, `mixed` (services with training), `serving` (scaling rules): tables.

pub mod args;
mod faults;
mod mixed;
mod runs;
mod serving;
mod table;

use std::path::Path;

use dormouse_replay::report;
use dormouse_replay::scenario::generate::generate;
use dormouse_replay::simulate::compare::{Difference, compare};
use dormouse_replay::simulate::{Figures, Outcome};
use serde::Serialize;

pub use args::SimulateArgs;
use runs::Run;

use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::Style;

#[derive(Debug, Serialize)]
struct Answer<'a> {
    runs: Vec<AnswerRun<'a>>,
    comparison: Vec<AnswerComparison<'a>>,
}

#[derive(Debug, Serialize)]
struct AnswerRun<'a> {
    scenario: &'a str,
    variant: &'a str,
    #[serde(flatten)]
    figures: &'a Figures,
}

#[derive(Debug, Serialize)]
struct AnswerComparison<'a> {
    variant: &'a str,
    against: &'a str,
    differences: Vec<Difference>,
}

/// Runs `simulate`.
///
/// # Errors
/// If a scenario is wrong, or a simulation gives no figures.
pub fn run(context: &Context, args: &SimulateArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    if let Some(kind) = args.generate {
        let scenario = generate(kind, args.seed, runs::size(args));
        print::line(format_args!("{scenario:#}"))?;
        return Ok(DONE);
    }
    if let Some(seeds) = &args.faults {
        return faults::run(context, args, seeds);
    }
    if let Some(traces) = args.served()? {
        return serving::run(context, args, &traces);
    }
    let runs =
        runs::plan(args).map_err(|error| Coded::new("bad_scenario", format!("{error:#}")))?;
    let create = |file: &Path| context.output_file(file, &args.read());
    // Fail before the simulation if a file cannot be written.
    let report = args.report.as_deref().map(create).transpose()?;
    for file in runs.iter().filter_map(Run::log) {
        drop(create(file)?);
    }
    let outcomes = runs::run(&runs, args, &create)?;
    if let Some(report) = report {
        let said = format!("the report is in {}", report.path().display());
        report.write_whole(&page(&runs, &outcomes))?;
        print::aside(said);
    }
    let answer = answer(&runs, &outcomes);
    // Scenario names were sanitized on reading.
    print::ours(output, &answer, |wide| {
        table::text(&answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

fn page(runs: &[Run], outcomes: &[Outcome]) -> String {
    let several = runs.iter().any(|run| run.scenario != runs[0].scenario);
    let name = |run: &Run| match (several, run.variant.as_str()) {
        (false, "") => run.scenario.clone(),
        (false, variant) => variant.to_owned(),
        (true, variant) => format!("{} {variant}", run.scenario).trim().to_owned(),
    };
    let named = runs.iter().zip(outcomes).map(|(run, outcome)| report::Run {
        name: name(run),
        outcome,
    });
    let title = match (several, runs.first()) {
        (false, Some(run)) => format!("Simulation of {}", run.scenario),
        _ => format!("{} simulations", runs.len()),
    };
    report::page(&title, &named.collect::<Vec<_>>())
}

fn answer<'a>(runs: &'a [Run], outcomes: &'a [Outcome]) -> Answer<'a> {
    let with_figures = runs.iter().zip(outcomes);
    let listed = with_figures.clone().map(|(run, outcome)| AnswerRun {
        scenario: &run.scenario,
        variant: &run.variant,
        figures: &outcome.figures,
    });
    let of = |variant: &str| -> Vec<&Figures> {
        let of = with_figures
            .clone()
            .filter(|(run, _)| run.variant == variant);
        of.map(|(_, outcome)| &outcome.figures).collect()
    };
    let mut variants: Vec<&str> = Vec::new();
    for run in runs {
        if !variants.contains(&run.variant.as_str()) {
            variants.push(&run.variant);
        }
    }
    let (against, others) = variants
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (*first, rest));
    let comparison = others.iter().map(|variant| AnswerComparison {
        variant,
        against,
        differences: compare(&of(against), &of(variant)),
    });
    Answer {
        runs: listed.collect(),
        comparison: comparison.collect(),
    }
}
