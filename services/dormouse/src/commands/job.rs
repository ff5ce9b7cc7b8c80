//! `job show|events|wait`, and where the other commands about a job are.

use anyhow::bail;
use dormouse_messages::{Event, JobId, plain};
use dormouse_projections::queries::{JobDetail, JobQuery};
use serde_json::json;

use super::history::History;
use super::{caught_up, log as log_command, next_event, trace};
use crate::cli::{JobCommand, JobHistoryArgs, Output};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{CANCELLED, Coded, DONE, FAILED};
use crate::print;
use crate::render::{self, Style};

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
    let history = History::open_whole(context, &args.log).await?;
    let detail = detail(history, &args.job.id).await?;
    print::value(context.output()?, &detail, |detail, wide| {
        render::job(detail, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// The document that made a job: of one that has ended from its admission on the log.
async fn document_of(context: &Context, args: &JobHistoryArgs) -> anyhow::Result<u8> {
    let id = &args.job.id;
    let mut spec = None;
    if args.log.file.is_none() {
        let history = History::open(context, &args.log).await?;
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
    let (output, id) = (context.output()?, &args.job.id);
    let history = History::open(context, &args.log).await?;
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

async fn wait(context: &Context, id: &JobId) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    // An end up to the head is in the answer, a later one comes as an event.
    let head = caught_up(&log).await?;
    let mut events = log.follow(head.next());
    let detail = detail(History::Cluster(log), id).await?;
    let ended = |phase: &str, reason: &str, code: u8| {
        let answer = json!({"job": id, "phase": phase, "reason": reason});
        print::value(context.output()?, &answer, |_, _| {
            format!("{id} {phase}: {}", plain::shown(reason))
        })?;
        Ok(code)
    };
    if detail.row.ended_at.is_some() {
        let phase = serde_json::to_value(detail.row.phase)?;
        let phase = phase.as_str().unwrap_or("ended");
        let code = match phase {
            "completed" => DONE,
            "cancelled" => CANCELLED,
            _ => FAILED,
        };
        return ended(phase, &detail.row.reason, code);
    }
    let end = next_event(&mut events, None, |event| match event {
        Event::JobCompleted(event) if event.job == *id => {
            Some(("completed", event.reason.clone(), DONE))
        }
        Event::JobFailed(event) if event.job == *id => {
            Some(("failed", event.reason.clone(), FAILED))
        }
        Event::JobCancelled(event) if event.job == *id => {
            Some(("cancelled", event.reason.clone(), CANCELLED))
        }
        _ => None,
    })
    .await?;
    match end {
        Some((phase, reason, code)) => ended(phase, &reason, code),
        None => bail!("the log ended"),
    }
}
