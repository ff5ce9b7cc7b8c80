//! `lab simulate`: runs the real services over a virtual clock.
//!
//! - `args`: flags; `runs`: scenarios, policies and threads; `faults`: trials with faults.
//! - `answer`: the answer; `table`, `mixed` (services with training), `serving` (scaling rules): its tables.

mod answer;
pub mod args;
mod faults;
mod mixed;
mod runs;
mod serving;
pub(super) mod table;

use std::path::Path;

use dormouse_replay::report;
use dormouse_replay::scenario::generate::generate;
use dormouse_replay::simulate::Outcome;

use answer::Answer;
use args::SimulateArgs;
use runs::Run;

use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::Style;

/// Runs `lab simulate`.
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
    let answer = Answer::of(&runs, &outcomes);
    // Scenario names were sanitized on reading.
    print::ours(output, &answer, |wide| {
        text(&answer, &Style::of_stdout(wide))
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

/// Renders the runs, their differences, and with `wide` the tenants.
fn text(answer: &Answer<'_>, style: &Style) -> String {
    let mut parts = vec![table::runs(answer, style)];
    if !answer.comparison.is_empty() {
        parts.push(table::comparison(answer, style));
    }
    let several_tenants = answer.runs.iter().any(|run| run.figures.tenants.len() > 1);
    if answer.runs.iter().any(|run| run.figures.mixed.is_some()) {
        parts.push(mixed::services(answer, style));
        parts.push(mixed::training(answer, style));
    }
    if style.wide || several_tenants {
        parts.push(table::tenants(answer, style));
    }
    parts.join("\n\n")
}
