//! `job show|events|wait`, and where the other commands about a job are.

use std::time::Duration;

use anyhow::bail;
use dormouse_messages::{Event, JobId, plain};
use dormouse_projections::queries::{JobDetail, JobQuery};
use dormouse_runtime::{Followed, Log};
use serde_json::json;
use tokio::sync::mpsc::Receiver;

use super::history::History;
use super::{caught_up, holder, log as log_command, next_event, query, trace};
use crate::cli::{JobCommand, JobHistoryArgs, NamedJob, Output};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{CANCELLED, Coded, DONE, FAILED};
use crate::print;
use crate::render::{self, Style};

/// How long a tenant's key hears nothing before it asks.
const SILENCE: Duration = Duration::from_secs(2);

/// `job …`.
///
/// # Errors
/// When the job is not known, or the cluster does not answer.
pub async fn run(context: &Context, command: &JobCommand) -> anyhow::Result<u8> {
    match command {
        JobCommand::Show { of, document } => match document {
            true => document_of(context, of).await,
            false => show(context, of).await,
        },
        JobCommand::Events(args) => events(context, args).await,
        JobCommand::Logs(args) => super::logs::run(context, args).await,
        JobCommand::Exec(args) => super::exec::run(context, args).await,
        JobCommand::Trace(args) => trace::run(context, args).await,
        JobCommand::Wait(args) => wait(context, &args.id).await,
        JobCommand::Cancel(_)
        | JobCommand::Hold { .. }
        | JobCommand::Release(_)
        | JobCommand::Requeue { .. }
        | JobCommand::Revise(_) => super::change::run(context, command).await,
    }
}

async fn detail(history: History, id: &JobId) -> anyhow::Result<JobDetail> {
    let request = JobQuery { job: id.clone() };
    history.ask("job", serde_json::to_value(request)?).await
}

async fn show(context: &Context, args: &JobHistoryArgs) -> anyhow::Result<u8> {
    let history = History::open_to_ask(context, &args.log).await?;
    let id = history.job(&args.job.id)?;
    let detail = detail(history, &id).await?;
    print::value(context.output()?, &detail, |detail, wide| {
        render::job(detail, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// The document that made a job: of one that has ended from its admission on the log.
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

pub(super) fn not_found(id: &JobId) -> anyhow::Error {
    Coded::new(
        "not_found",
        format!("there is no job {id}; `dormouse jobs` lists them"),
    )
    .into()
}

async fn wait(context: &Context, named: &NamedJob) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let id = holder::job(&log, named)?;
    // An end up to the head is in the answer, a later one comes as an event.
    let mut events = match log.tenant() {
        None => log.follow(caught_up(&log).await?.next()),
        Some(_) => log.events_from_now().await?,
    };
    let (phase, reason) = end(&log, &mut events, &id).await?;
    ended(context, &id, &phase, &reason)
}

/// Says how a job has ended: on the output, and by the exit code.
///
/// # Errors
/// When the standard output is closed.
pub fn ended(context: &Context, id: &JobId, phase: &str, reason: &str) -> anyhow::Result<u8> {
    let answer = json!({"job": id, "phase": phase, "reason": reason});
    print::value(context.output()?, &answer, |_, _| {
        format!("{id} {phase}: {}", plain::shown(reason))
    })?;
    Ok(match phase {
        "completed" => DONE,
        "cancelled" => CANCELLED,
        _ => FAILED,
    })
}

/// Waits until a job has ended: its phase, and why. Of what a tenant is shown a message can be lost,
/// so that after a silence the query service is asked.
///
/// # Errors
/// When there is no such job, or nothing tells of it any more.
pub async fn end(
    log: &Log,
    events: &mut Receiver<Followed>,
    id: &JobId,
) -> anyhow::Result<(String, String)> {
    let silence = log.tenant().map(|_| SILENCE);
    loop {
        let detail: JobDetail = query(log, "job", json!({"job": id})).await?;
        if detail.row.ended_at.is_some() {
            let phase = serde_json::to_value(detail.row.phase)?;
            let phase = phase.as_str().unwrap_or("ended").to_owned();
            return Ok((phase, detail.row.reason));
        }
        let end = next_event(events, silence, |event| match event {
            Event::JobCompleted(it) if it.job == *id => Some(("completed", it.reason.clone())),
            Event::JobFailed(it) if it.job == *id => Some(("failed", it.reason.clone())),
            Event::JobCancelled(it) if it.job == *id => Some(("cancelled", it.reason.clone())),
            _ => None,
        });
        match (end.await?, silence) {
            (Some((phase, reason)), _) => return Ok((phase.to_owned(), reason)),
            (None, Some(_)) => {}
            (None, None) => bail!("the log ended"),
        }
    }
}
