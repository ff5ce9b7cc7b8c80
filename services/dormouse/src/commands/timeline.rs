//! `timeline`.

use std::path::PathBuf;

use clap::Args;
use dormouse_projections::queries::TimelineQuery;
use dormouse_projections::timelines::Timeline;

use super::common::history::{History, Times, window};
use crate::cli::job_name::NamedJob;
use crate::cli::log_range::{LogFileArg, RangeArgs};
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Draw a metric over time
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse timeline utilization\n  dormouse timeline utilization --from 2h\n  dormouse timeline containers --file containers.svg\n  dormouse timeline fairness-loss -o json\n  dormouse timeline jobs --log log.jsonl\n  dormouse timeline latency --job ads/line\n\nMetrics of the cluster: utilization, fairness-loss, adjustments, containers, jobs, unfairness, forecast-error; by tenant: dominant-share, demand-share, waiting, fairness-loss-by-tenant, balance; by job (--job): containers, fairness-loss-by-job, gpu-use; by service (--job): latency, request-rate, attainment, replicas."
)]
pub struct TimelineArgs {
    /// Metric to draw.
    pub metric: String,
    /// Only this job.
    #[arg(long, value_name = "ID")]
    pub job: Option<NamedJob>,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Draw into this SVG file.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `timeline`.
///
/// # Errors
/// If the query service does not answer, or the file cannot be written.
pub async fn run(context: &Context, args: &TimelineArgs) -> anyhow::Result<u8> {
    let read = args.log.read();
    let svg = args.file.as_ref();
    let svg = svg
        .map(|file| context.output_file(file, &read))
        .transpose()?;
    let history = match args.job {
        Some(_) => History::open_to_ask(context, &args.log).await?,
        None => History::open_whole(context, &args.log).await?,
    };
    let job = args.job.as_ref().map(|job| history.job(job)).transpose()?;
    let (from, to) = window(context, args.range, &args.log).await?;
    // Extend the last values to the present.
    let goes_on = from.is_some() && args.log.file.is_none();
    let to = match to {
        None if goes_on => Some(Times::of(context, &args.log).await?.now),
        to => to,
    };
    let request = TimelineQuery {
        metric: args.metric.clone(),
        job,
        from,
        to,
        ..TimelineQuery::default()
    };
    let timeline: Timeline = history
        .ask("timeline", serde_json::to_value(request)?)
        .await?;
    if let Some(svg) = svg {
        let said = format!("drawn into {}", svg.path().display());
        svg.write_whole(&render::timeline_svg(&timeline)?)?;
        print::aside(said);
        return Ok(DONE);
    }
    print::value(context.output()?, &timeline, |timeline, wide| {
        render::timeline(timeline, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}
