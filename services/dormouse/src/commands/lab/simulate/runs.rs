//! Runs every scenario under every policy and setting, in threads.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use dormouse_messages::sanitize;
use dormouse_replay::scenario::dynamoml::dynamoml;
use dormouse_replay::scenario::generate::{Size, generate};
use dormouse_replay::scenario::settings::{Combination, combinations};
use dormouse_replay::scenario::{Scenario, presets, read, read_value};
use dormouse_replay::simulate::{Options, Outcome, simulate};
use dormouse_replay::{LogWriter, OutputError, OutputFile, in_threads};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::commands::lab::simulate::args::{SimulateArgs, Source};
use crate::context::read_text;

/// Creates an output file.
pub type Create<'a> = dyn Fn(&Path) -> Result<OutputFile, OutputError> + Sync + 'a;

/// One simulation.
pub struct Run {
    pub scenario: String,
    pub variant: String,
    checked: Scenario,
    log: Option<PathBuf>,
}

impl Run {
    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.checked
    }

    /// Returns the path for the log.
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }
}

/// Returns the number of parallel simulations.
pub fn threads(args: &SimulateArgs) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    args.threads.unwrap_or(cores).max(1)
}

/// Reads all scenarios, so that mistakes show before anything runs.
///
/// # Errors
/// The first mistake, with its file.
pub fn plan(args: &SimulateArgs) -> anyhow::Result<Vec<Run>> {
    let policies = if args.policies.is_empty() {
        vec!["scenario".to_owned()]
    } else {
        args.policies.clone()
    };
    let combinations = combinations(&args.settings);
    let mut runs = Vec::new();
    for source in &args.scenarios {
        for (name, document) in documents(source, size(args))? {
            for policy in &policies {
                for settings in &combinations {
                    runs.push(variant(&name, &document, (policy, settings), args)?);
                }
            }
        }
    }
    let several = runs.len() > 1;
    for (index, run) in runs.iter_mut().enumerate() {
        run.log = args.write_log.as_deref().map(|file| {
            if several {
                numbered(file, index as u64 + 1)
            } else {
                file.to_owned()
            }
        });
    }
    Ok(runs)
}

/// Returns the size from the flags.
#[must_use]
pub fn size(args: &SimulateArgs) -> Size {
    Size {
        jobs: args.size.jobs,
        nodes: args.size.nodes,
        days: args.size.period.as_secs_f64() / 86_400.0,
    }
}

fn documents(source: &Source, size: Size) -> anyhow::Result<Vec<(String, Value)>> {
    match source {
        Source::File(path) => {
            let text = read_text(path)?;
            // Errors from the text have line numbers.
            read(&text).with_context(|| path.display().to_string())?;
            let document = serde_json::from_str(&text)?;
            Ok(vec![(path.display().to_string(), document)])
        }
        Source::Experiment(configuration) => {
            Ok(vec![(source.to_string(), dynamoml(*configuration))])
        }
        Source::Served(_) => bail!("{source} stands alone: it takes no --faults"),
        Source::Generated(kind, seeds) => {
            let seeds = seeds.0.clone();
            Ok(seeds
                .map(|seed| (format!("seed {seed}"), generate(*kind, seed, size)))
                .collect())
        }
    }
}

fn variant(
    name: &str,
    document: &Value,
    (policy, settings): (&str, &Combination),
    args: &SimulateArgs,
) -> anyhow::Result<Run> {
    let mut document = document.clone();
    let Some(fields) = presets::preset(policy) else {
        bail!(
            "{policy:?} is no policy; --policy takes {}",
            presets::NAMES.join(", ")
        );
    };
    presets::apply(&fields, &mut document);
    settings.apply(&mut document)?;
    // The scenario was valid without the settings.
    let checked = read_value(document).with_context(|| format!("{name}{settings}"))?;
    let policy = if args.policies.is_empty() { "" } else { policy };
    let variant = format!("{policy} {}", settings.label());
    Ok(Run {
        scenario: sanitize::shown(&checked.name),
        variant: sanitize::shown(variant.trim()),
        checked,
        log: None,
    })
}

/// Makes `log-3.jsonl` of `log.jsonl`.
pub fn numbered(file: &Path, number: u64) -> PathBuf {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy();
    let ending = file
        .extension()
        .map(|ending| format!(".{}", ending.to_string_lossy()));
    file.with_file_name(format!("{stem}-{number}{}", ending.unwrap_or_default()))
}

/// Runs all; returns the outcomes in order.
///
/// # Errors
/// The first simulation without an outcome.
pub fn run(runs: &[Run], args: &SimulateArgs, create: &Create<'_>) -> anyhow::Result<Vec<Outcome>> {
    let jobs: u64 = runs
        .iter()
        .map(|run| run.checked.submissions.len() as u64)
        .sum();
    let style = "{bar:30} {human_pos}/{human_len} jobs in {prefix}, {msg}, {elapsed}";
    let progress = ProgressBar::new(jobs).with_style(ProgressStyle::with_template(style)?);
    progress.set_prefix(match runs.len() {
        1 => "one simulation".to_owned(),
        count => format!("{count} simulations"),
    });
    let outcomes = in_threads(runs.len(), threads(args), |index| {
        one(&runs[index], args.check, &progress, create)
    });
    progress.finish_and_clear();
    let ended = outcomes.into_iter().zip(runs);
    let ended = ended.map(|(outcome, run)| {
        outcome.with_context(|| {
            format!("{} {}", run.scenario, run.variant)
                .trim()
                .to_owned()
        })
    });
    ended.collect()
}

fn one(
    run: &Run,
    check: bool,
    progress: &ProgressBar,
    create: &Create<'_>,
) -> anyhow::Result<Outcome> {
    let identity = format!("simulated-{}", run.scenario);
    let out = run.log().map(create).transpose()?;
    let writer = out.map(|out| LogWriter::new(out, &identity));
    let mut writer = writer.transpose()?;
    let options = Options {
        check,
        ..Options::default()
    };
    let mut ended = 0;
    let outcome = simulate(
        &run.checked,
        &options,
        |recorded| match &mut writer {
            Some(writer) => writer.write(recorded).map_err(|error| error.to_string()),
            None => Ok(()),
        },
        |done| {
            progress.inc(done.ended - ended);
            progress.set_message(format!("{} events", done.events));
            ended = done.ended;
        },
    )?;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(outcome)
}
