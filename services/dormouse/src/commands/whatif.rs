//! `whatif`: compares the log with its course under changes.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use comfy_table::Cell;
use dormouse_messages::{JobId, NodeId, Sequence};
use dormouse_replay::history::changes::{Asked, NewNode};
use dormouse_replay::history::whatif::{
    Answer, Answered, ForkAt, Form, History as Forkable, Metric, Options, Place, Variant, whatif,
};
use dormouse_replay::report;
use dormouse_replay::scenario::read;
use dormouse_replay::scenario::settings::Setting;

use super::common::history::{History, bounds};
use crate::cli::job_name::job_id;
use crate::cli::log_range::{At, LogFileArg, ViewArg};
use crate::context::{Context, read_text};
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::{Style, date, right, span};

/// Changes to a fork of the log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Changes")]
pub struct ChangeArgs {
    /// Set policy.FIELD, tenant.NAME.weight|quota.RESOURCE|priority or job.ID.FIELD; values separated by
    /// commas are tried one by one.
    #[arg(long = "set", value_name = "PATH=VALUE[,VALUE…]")]
    pub settings: Vec<Setting>,
    /// Add a node.
    #[arg(long = "add-node", value_name = "NAME:CAPACITY")]
    pub add_nodes: Vec<NewNode>,
    /// Lose a node.
    #[arg(long = "drop-node", value_name = "NAME")]
    pub drop_nodes: Vec<NodeId>,
    /// Drain a node.
    #[arg(long = "drain", value_name = "NAME")]
    pub drain_nodes: Vec<NodeId>,
    /// Do not submit a job; cancel the job if it exists already.
    #[arg(long = "drop-job", value_name = "ID", value_parser = job_id)]
    pub drop_jobs: Vec<JobId>,
}

/// Fork the log, change something, and compare the outcomes
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse whatif --log log.parquet                                   # the model's own error\n  dormouse whatif --set policy.theta2=0.2,0.5 --log log.parquet\n  dormouse whatif --set tenant.ads.weight=3 --at 4712 -o json\n  dormouse whatif --set job.ads/lr.containers.min=2 --report report.html\n  dormouse whatif --add-node n9:cpu=16,memory=64Gi --drop-job ads/count\n  dormouse whatif --drop-node n3 --add-jobs more.json\n\nSubmissions and losses keep their times; the services decide again. The run without changes shows the model's error. Users who react to waiting are not modelled."
)]
pub struct WhatifArgs {
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Also submit the jobs of a scenario; at_s counts from the fork.
    #[arg(long, value_name = "SCENARIO.json", help_heading = "Changes")]
    pub add_jobs: Option<PathBuf>,
    /// Fork after this sequence, or at this time; default: the beginning of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    #[command(flatten)]
    pub view: ViewArg,
    #[command(flatten)]
    pub log: LogFileArg,
    /// Runs with sampled curves, for the intervals.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
    /// Parallel runs; default: the number of processors.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Write one page that compares the runs, with charts.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}

const MOST_JOBS: usize = 12;

/// Runs `whatif`.
///
/// # Errors
/// If the log cannot be read, or a change does not fit.
pub async fn run(context: &Context, args: &WhatifArgs) -> anyhow::Result<u8> {
    let mut read_files = args.log.read();
    read_files.extend(args.add_jobs.as_deref());
    let report = args.report.as_ref();
    let report = report.map(|file| context.output_file(file, &read_files));
    let report = report.transpose()?;
    let mut asked = asked(&args.changes);
    if let Some(file) = &args.add_jobs {
        let scenario = read(&read_text(file)?).with_context(|| file.display().to_string())?;
        asked.added = scenario.submissions;
    }
    let wrong = |error: &dyn std::fmt::Display| Coded::new("bad_change", error.to_string());
    let variants = asked.variants().map_err(|error| wrong(&error))?;
    let at = match bounds(context, args.at, &args.log).await? {
        (Some(sequence), _) => ForkAt::Sequence(Sequence(sequence)),
        (_, Some(time)) => ForkAt::Time(time),
        (None, None) => ForkAt::Sequence(Sequence(0)),
    };
    let mut history = forkable(context, &args.log).await?;
    history.compares(&variants);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = Options {
        draws: args.draws,
        threads: args.threads.unwrap_or(cores).max(1),
    };
    let forked = history.fork(at);
    let answered = whatif(&history, &forked, &variants, options).map_err(|error| wrong(&error))?;
    if let Some(report) = report {
        let said = format!("the report is in {}", report.path().display());
        report.write_whole(&page(&answered))?;
        print::aside(said);
    }
    let answer = match &args.view.viewer {
        Some(tenant) => answered.answer.seen_by(tenant)?,
        None => answered.answer,
    };
    print::value(context.output()?, &answer, |answer, wide| {
        text(answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// Converts the flags into changes.
pub fn asked(args: &ChangeArgs) -> Asked {
    Asked {
        settings: args.settings.clone(),
        add_nodes: args.add_nodes.clone(),
        drop_nodes: args.drop_nodes.clone(),
        drain_nodes: args.drain_nodes.clone(),
        drop_jobs: args.drop_jobs.clone(),
        added: Vec::new(),
    }
}

/// Reads the whole log for forking.
///
/// # Errors
/// If the log cannot be read.
pub async fn forkable(context: &Context, log: &LogFileArg) -> anyhow::Result<Forkable> {
    let history = History::open_whole(context, log).await?;
    let mut forkable = match history.states()? {
        Some(states) => Forkable::starting_from(states),
        None => Forkable::default(),
    };
    let read = history.read(1, None, |recorded| {
        forkable.read(recorded);
        Ok(())
    });
    read.await?;
    Ok(forkable)
}

fn page(answered: &Answered) -> String {
    let runs = answered.courses.iter().map(|(name, ran)| report::Run {
        name: name.clone(),
        outcome: &ran.outcome,
    });
    let title = format!("What if, from event {} on", answered.answer.fork);
    report::page(&title, &runs.collect::<Vec<_>>())
}

/// Renders an answer for a terminal.
#[must_use]
pub fn text(answer: &Answer, style: &Style) -> String {
    let mut parts = vec![format!(
        "forked after event {}, {}; the log ends with event {}",
        answer.fork,
        date(answer.at),
        answer.end
    )];
    parts.push(identity(answer));
    for variant in &answer.variants {
        parts.push(one(variant, style));
    }
    parts.join("\n\n")
}

fn identity(answer: &Answer) -> String {
    let error = &answer.identity;
    let mut text = format!(
        "without changes: {} of {} allocations come out again; completion times of {} jobs off by {:.1} % (median), {:.1} % (9 in 10); fairness loss off by {:+.4}",
        error.decisions_equal,
        error.decisions,
        error.jobs,
        error.jct_p50 * 100.0,
        error.jct_p90 * 100.0,
        error.loss
    );
    let weaknesses = error.weaknesses();
    if !weaknesses.is_empty() {
        text.push_str(&format!(
            "\nthe model is weak on this log, so differences say little: {}",
            weaknesses.join("; ")
        ));
    }
    if let Some(place) = &error.first_difference {
        text.push_str(&format!("\nfirst other allocation: {}", differs(place)));
    }
    for line in &answer.forms {
        let form = match line.form {
            Form::Fitted => "step times fitted, from three numbers of containers or more",
            Form::FittedTwo => "step times fitted from two numbers of containers",
            Form::Pooled => "step times fitted together with jobs alike",
            Form::LinearAssumed => "one number of containers seen: speed taken to grow with them",
            Form::NoProgress => "no progress reported: speed taken to grow with the containers",
        };
        let error = line.error.map_or_else(String::new, |error| {
            format!(
                "; a number left out is off by {:.1} % (median)",
                error * 100.0
            )
        });
        text.push_str(&format!("\n{} jobs: {form}{error}", line.jobs));
    }
    text
}

fn differs(place: &Place) -> String {
    let shown =
        |count: Option<u32>| count.map_or_else(|| "as before".to_owned(), |n| n.to_string());
    let jobs = place.jobs.iter().take(MOST_JOBS);
    let jobs: Vec<String> = jobs
        .map(|it| {
            format!(
                "{} {} instead of {}",
                it.job,
                shown(it.right),
                shown(it.left)
            )
        })
        .collect();
    format!(
        "epoch {} (event {}, {}): {}",
        place.epoch,
        place.sequence,
        date(place.at),
        jobs.join(", ")
    )
}

fn one(variant: &Variant, style: &Style) -> String {
    let mut text = format!("with {}", variant.changes.join(" "));
    match &variant.first_difference {
        Some(place) => text.push_str(&format!("\nfirst other allocation: {}", differs(place))),
        None => text.push_str("\nevery allocation is the same"),
    }
    let mut table = style.table(&["", "METRIC", "UNCHANGED", "CHANGED", "DIFFERENCE", "80 %"]);
    let mut rows = |name: &str, metrics: &[Metric]| {
        for metric in metrics {
            table.add_row(vec![
                Cell::new(name),
                Cell::new(metric.metric.trim_end_matches("_s")),
                right(shown(metric, metric.identity)),
                right(shown(metric, metric.changed)),
                right(signed(metric, metric.difference)),
                right(interval(metric)),
            ]);
        }
    };
    rows("cluster", &variant.cluster);
    if variant.by_tenant.len() > 1 {
        for tenant in &variant.by_tenant {
            rows(&tenant.tenant, &tenant.metrics);
        }
    }
    let mut jobs: Vec<_> = variant.by_job.iter().collect();
    let by = |line: &&dormouse_replay::history::whatif::JobLine| {
        let jct = line.metrics.iter().find(|it| it.metric == "jct_s");
        -jct.map_or(0.0, |it| it.difference.abs())
    };
    jobs.sort_by(|left, right| by(left).total_cmp(&by(right)));
    let listed = if style.wide { jobs.len() } else { MOST_JOBS };
    for line in jobs.iter().take(listed) {
        let jct = line.metrics.iter().filter(|it| it.metric == "jct_s");
        rows(&line.job.to_string(), &jct.cloned().collect::<Vec<_>>());
    }
    text.push_str(&format!("\n\n{}", style.write(table)));
    if jobs.len() > listed {
        text.push_str(&format!("\n{} more jobs; see -o wide", jobs.len() - listed));
    }
    if variant.extrapolated_jobs > 0 {
        text.push_str(&format!(
            "\n{} jobs ran with numbers of containers that were not measured",
            variant.extrapolated_jobs
        ));
    }
    for why in [
        "no_progress",
        "no_steps_total",
        "not_ended",
        "refused",
        "left_out",
        "new",
    ] {
        let count = variant.excluded_jobs.iter().filter(|it| it.why == why);
        match count.count() {
            0 => {}
            count => text.push_str(&format!("\nnot compared, {why}: {count} jobs")),
        }
    }
    text
}

fn shown(metric: &Metric, value: f64) -> String {
    match metric.metric.as_str() {
        "adjustments" => format!("{value:.0}"),
        "container_h" => format!("{value:.2}h"),
        name if name.ends_with("_s") => span(value.max(0.0)),
        _ => format!("{value:.3}"),
    }
}

fn signed(metric: &Metric, value: f64) -> String {
    let sign = match value {
        value if value > 1e-9 => "+",
        value if value < -1e-9 => "−",
        _ => "",
    };
    format!("{sign}{}", shown(metric, value.abs()))
}

/// By the uncertainty of the curves, else by sampling jobs.
fn interval(metric: &Metric) -> String {
    match metric.interval.or(metric.interval_jobs) {
        Some([low, high]) => format!("{} … {}", signed(metric, low), signed(metric, high)),
        None => "-".to_owned(),
    }
}
