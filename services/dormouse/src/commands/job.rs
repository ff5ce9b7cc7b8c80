//! `job show|events`, and dispatch of other `job` commands.

use clap::{Args, Subcommand};
use dormouse_messages::{Event, JobId};
use dormouse_projections::queries::{JobDetail, JobQuery};

use super::change::ChangeCommand;
use super::exec::JobExecArgs;
use super::history::History;
use super::known::not_found;
use super::logs::JobLogsArgs;
use super::wait::WaitArgs;
use super::{log as log_command, wait, watched};
use crate::cli::global::Output;
use crate::cli::job_name::NamedJob;
use crate::cli::list::WatchArg;
use crate::cli::point::LogFileArg;
use crate::context::Context;
use crate::describe::concerns;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Show one job, or act on it
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job logs ads/lr -f\n  dormouse job cancel ads/lr"
)]
pub enum JobCommand {
    /// Show everything about a job
    #[command(
        after_help = "Examples:\n  dormouse job show ads/lr\n  dormouse job show ads/lr -o json\n  dormouse job show ads/lr --document > lr.yaml\n  dormouse job show ads/lr --log log.jsonl     # as it was at the end of an exported log"
    )]
    Show {
        #[command(flatten)]
        of: JobHistoryArgs,
        /// Show the complete document that made the job, ready to submit; in YAML, or with -o json in JSON.
        #[arg(long, conflicts_with = "seconds")]
        document: bool,
        #[command(flatten)]
        watch: WatchArg,
    },
    /// Show a job's events on the log
    #[command(
        after_help = "Examples:\n  dormouse job events ads/lr\n  dormouse job events ads/lr -o json | jq .type\n  dormouse job events ads/lr --log log.jsonl"
    )]
    Events(JobHistoryArgs),
    Logs(JobLogsArgs),
    Exec(JobExecArgs),
    #[command(flatten)]
    Change(ChangeCommand),
    Wait(WaitArgs),
}

/// A job argument.
#[derive(Debug, Clone, Args)]
pub struct JobArg {
    /// tenant/name; a bare name belongs to DORMOUSE_TENANT, else to the key's tenant, else to `default`.
    pub id: NamedJob,
}

/// A job, now or in an exported log.
#[derive(Debug, Clone, Args)]
pub struct JobHistoryArgs {
    #[command(flatten)]
    pub job: JobArg,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `job …`.
///
/// # Errors
/// If the job is unknown, or the cluster does not answer.
pub async fn run(context: &Context, command: &JobCommand) -> anyhow::Result<u8> {
    match command {
        JobCommand::Show {
            of,
            document,
            watch,
        } => match document {
            true => document_of(context, of).await,
            false => show(context, of, *watch).await,
        },
        JobCommand::Events(args) => events(context, args).await,
        JobCommand::Logs(args) => super::logs::run(context, args).await,
        JobCommand::Exec(args) => super::exec::run(context, args).await,
        JobCommand::Wait(args) => wait::run(context, args).await,
        JobCommand::Change(command) => super::change::run(context, command).await,
    }
}

async fn detail(history: History, id: &JobId) -> anyhow::Result<JobDetail> {
    let request = JobQuery { job: id.clone() };
    history.ask("job", serde_json::to_value(request)?).await
}

async fn show(context: &Context, args: &JobHistoryArgs, watch: WatchArg) -> anyhow::Result<u8> {
    let history = History::open_to_ask(context, &args.log).await?;
    let id = history.job(&args.job.id)?;
    if let History::Cluster(log) = &history {
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

async fn events(context: &Context, args: &JobHistoryArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let history = History::open(context, &args.log).await?;
    let id = &history.job(&args.job.id)?;
    let identity = history.identity();
    let mut found = 0;
    let read = history.read(1, None, |recorded| {
        if recorded.event().is_some_and(|event| concerns(event, id)) {
            found += 1;
            log_command::event(recorded, &identity, output)?;
        }
        Ok(())
    });
    read.await?;
    if found == 0 {
        return Err(not_found(id));
    }
    Ok(DONE)
}
