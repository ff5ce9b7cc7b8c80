//! `job show`.

use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use dormouse_messages::{Event, JobId};
use dormouse_projections::queries::{JobDetail, JobQuery};

use super::JobHistoryArgs;
use crate::cli::filter::WatchArg;
use crate::cli::global::Output;
use crate::commands::common::history::History;
use crate::commands::common::known::not_found;
use crate::commands::common::watched;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Show a job
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job show ads/lr -o json\n  dormouse job show ads/lr --document > lr.yaml\n  dormouse job show ads/lr --file speed.svg    # its speed by containers\n  dormouse job show ads/lr --log log.jsonl     # as it was at the end of an exported log"
)]
pub struct ShowArgs {
    #[command(flatten)]
    pub of: JobHistoryArgs,
    /// Show the job's complete document, ready to submit, in YAML or with -o json in JSON.
    #[arg(long, conflicts_with = "every")]
    pub document: bool,
    /// Draw the job's speed by its number of containers into this SVG file.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["document", "every"])]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `job show`.
///
/// # Errors
/// If the job is unknown, or the cluster does not answer.
pub async fn run(context: &Context, args: &ShowArgs) -> anyhow::Result<u8> {
    match &args.file {
        Some(file) => draw(context, &args.of, file).await,
        None if args.document => document_of(context, &args.of).await,
        None => show(context, &args.of, args.watch).await,
    }
}

/// Draws the speed curve of a live job.
async fn draw(context: &Context, args: &JobHistoryArgs, file: &Path) -> anyhow::Result<u8> {
    let svg = context.output_file(file, &args.log.read())?;
    let history = History::open_to_ask(context, &args.log).await?;
    let id = history.job(&args.job.id)?;
    let speed = detail(history, &id).await?.speed;
    let speed = speed.ok_or_else(|| {
        anyhow!(
            "{id} has no speed curve: only a live job has one, under objective.value: speed, from its progress at two numbers of containers or its document's speed"
        )
    })?;
    let said = format!("drawn into {}", svg.path().display());
    svg.write_whole(&render::speed_svg(&id, &speed)?)?;
    print::aside(said);
    Ok(DONE)
}

async fn detail(history: History, id: &JobId) -> anyhow::Result<JobDetail> {
    let request = JobQuery { job: id.clone() };
    history.ask("job", serde_json::to_value(request)?).await
}

async fn show(context: &Context, args: &JobHistoryArgs, watch: WatchArg) -> anyhow::Result<u8> {
    let history = History::open_to_ask(context, &args.log).await?;
    let id = history.job(&args.job.id)?;
    if let History::Cluster(log, _) = &history {
        let request = JobQuery { job: id };
        return watched::show(context, log, "job", &request, watch, render::job).await;
    }
    let detail = detail(history, &id).await?;
    print::value(context.output()?, &detail, |detail, wide| {
        render::job(detail, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// Prints a job's document; for an ended job, from its admission on the log.
async fn document_of(context: &Context, args: &JobHistoryArgs) -> anyhow::Result<u8> {
    let mut spec = None;
    let history = History::open_to_ask(context, &args.log).await?;
    let id = &history.job(&args.job.id)?;
    if args.log.file.is_none() {
        spec = detail(history, id).await?.spec;
    }
    if spec.is_none() {
        let history = History::open(context, &args.log).await?;
        let read = history.read(1, None, |recorded| {
            if let Some(Event::JobAdmitted(event)) = recorded.event()
                && event.job == *id
            {
                spec = Some(event.spec.clone());
            }
            Ok(())
        });
        read.await?;
    }
    let spec = spec.ok_or_else(|| not_found(id))?;
    let output = match context.output()? {
        Output::Json => Output::Json,
        _ => Output::Yaml,
    };
    print::ours(output, &spec, |_| String::new())?;
    Ok(DONE)
}
