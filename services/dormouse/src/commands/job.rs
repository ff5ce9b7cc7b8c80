//! `job show|events|logs|cancel|wait`.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read};
use std::path::PathBuf;

use anyhow::bail;
use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::{Event, JobId, NodeId, TenantId, plain};
use dormouse_node_agent::{log_parts, logs_path, open_log, task_output};
use dormouse_projections::queries::{JobDetail, JobQuery};
use serde::Serialize;
use serde_json::json;

use super::history::{History, read_log};
use super::{caught_up, log as log_command, next_event, trace};
use crate::cli::{JobCommand, JobHistoryArgs, JobLogsArgs, Output};
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
        JobCommand::Show(args) => show(context, args).await,
        JobCommand::Events(args) => events(context, args).await,
        JobCommand::Logs(args) => logs(context, args).await,
        JobCommand::Trace(args) => trace::run(context, args).await,
        JobCommand::Cancel(args) => cancel(context, &args.id).await,
        JobCommand::Wait(args) => wait(context, &args.id).await,
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

/// Where a job's containers were, in which order.
struct Traces {
    /// Of a task set.
    tasks: Option<u32>,
    /// With their nodes.
    containers: Vec<(ContainerId, NodeId)>,
}

impl Traces {
    async fn read(log: &dormouse_runtime::Log, id: &JobId) -> anyhow::Result<Self> {
        let mut traces = None;
        read_log(log, 1, None, |recorded| {
            match recorded.event() {
                Some(Event::JobAdmitted(event)) if event.job == *id => {
                    traces = Some(Self {
                        tasks: event.spec.tasks.as_ref().map(|tasks| tasks.count),
                        containers: Vec::new(),
                    });
                }
                Some(Event::PlacementDecided(event)) => {
                    let placed = event.create.iter().filter(|placed| placed.job == *id);
                    let placed = placed.map(|placed| (placed.container(), placed.node.clone()));
                    if let Some(traces) = &mut traces {
                        traces.containers.extend(placed);
                    }
                }
                _ => {}
            }
            Ok(())
        })
        .await?;
        traces.ok_or_else(|| not_found(id))
    }
}

/// What one file of a container holds.
#[derive(Serialize)]
struct Printed<'a> {
    container: &'a ContainerId,
    node: &'a NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    stream: &'static str,
    text: String,
}

/// Prints what files hold, as one text; whether there was any. They are the job's, who may have put
/// a pipe or a link in their place: that is said, and not followed.
fn printed(output: Output, of: Printed<'_>, paths: &[PathBuf]) -> anyhow::Result<bool> {
    let mut text: Box<dyn Read> = Box::new(std::io::empty());
    let mut bytes = 0;
    for path in paths {
        match open_log(path) {
            Ok(file) => {
                // What is there now: a file that grows meanwhile has an end, too.
                let length = file.metadata()?.len();
                bytes += length;
                text = Box::new(text.chain(file.take(length)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => print::aside(format!("{} is not read: {error}", path.display())),
        }
    }
    if bytes == 0 {
        return Ok(false);
    }
    match output {
        Output::Table | Output::Wide => {
            let task = of.task.map(|task| format!("task {task} in "));
            let (task, container) = (task.unwrap_or_default(), of.container);
            print::aside(format!(
                "── {task}{container} on {}, {}",
                of.node, of.stream
            ));
            print::program_output(&mut text)?;
        }
        Output::Json | Output::Yaml => {
            let mut bytes = Vec::new();
            text.read_to_end(&mut bytes)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let value = serde_json::to_string(&Printed { text, ..of })?;
            match output {
                Output::Json => print::line(value)?,
                _ => print::yaml(&value)?,
            }
        }
    }
    Ok(true)
}

async fn logs(context: &Context, args: &JobLogsArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let log = context.connect().await?;
    let Traces { tasks, containers } = Traces::read(&log, &args.id).await?;
    if let Some(task) = args.task {
        return task_logs(context, &args.id, tasks, &containers, task);
    }
    let newest = containers.iter().map(|(id, _)| id.incarnation).max();
    let Some(incarnation) = args.incarnation.map(Incarnation).or(newest) else {
        let became = became(log, &args.id).await?;
        bail!("{} has had no container yet; it is {became}", args.id);
    };
    let wanted = |id: &ContainerId| {
        id.incarnation == incarnation && args.rank.is_none_or(|rank| id.rank == Rank(rank))
    };
    let chosen: Vec<_> = containers.iter().filter(|(id, _)| wanted(id)).collect();
    if chosen.is_empty() {
        return Err(nothing_such(&args.id, incarnation, args.rank, &containers));
    }
    let (mut any, mut elsewhere) = (false, false);
    for (container, node) in chosen {
        let Some(paths) = logs_path(&context.data, container) else {
            elsewhere = true;
            print::aside(format!(
                "{container} is on node {node}, and its files are not below {}: run this there, or name that agent's --data",
                context.data.display()
            ));
            continue;
        };
        for (stream, path) in [("stdout", paths.stdout), ("stderr", paths.stderr)] {
            let of = Printed {
                container,
                node,
                task: None,
                stream,
                text: String::new(),
            };
            any |= printed(output, of, &log_parts(&path))?;
        }
    }
    if tasks.is_some() {
        print::aside(format!(
            "what the tasks of {} printed: `dormouse job logs {} --task 0`, and so on",
            args.id, args.id
        ));
    } else if !any && !elsewhere {
        let became = became(log, &args.id).await?;
        print::aside(format!(
            "incarnation {incarnation} of {} has printed nothing; the job is {became}",
            args.id
        ));
    }
    Ok(DONE)
}

/// The job's phase and the reason, for who looks for what it printed and finds nothing.
async fn became(log: dormouse_runtime::Log, id: &JobId) -> anyhow::Result<String> {
    let row = detail(History::Cluster(log), id).await?.row;
    Ok(format!("{}: {}", row.phase, row.reason))
}

/// Which containers there are, where none of those that were asked for is.
fn nothing_such(
    id: &JobId,
    incarnation: Incarnation,
    rank: Option<u32>,
    containers: &[(ContainerId, NodeId)],
) -> anyhow::Error {
    let of_life = containers
        .iter()
        .filter(|(id, _)| id.incarnation == incarnation);
    let ranks = of_life.map(|(id, _)| id.rank.0).max();
    let message = match (ranks, rank) {
        (Some(last), Some(rank)) => {
            format!(
                "incarnation {incarnation} of {id} has no rank {rank}; its ranks are 0 to {last}"
            )
        }
        _ => {
            let lives: BTreeSet<_> = containers.iter().map(|(id, _)| id.incarnation).collect();
            let lives: Vec<String> = lives.iter().map(ToString::to_string).collect();
            format!(
                "{id} has no incarnation {incarnation}; it has had {}",
                lives.join(", ")
            )
        }
    };
    Coded::new("not_found", message).into()
}

/// What one task printed, in every container that it ran in.
fn task_logs(
    context: &Context,
    id: &JobId,
    tasks: Option<u32>,
    containers: &[(ContainerId, NodeId)],
    task: u32,
) -> anyhow::Result<u8> {
    match tasks {
        None => bail!("{id} is no task set; leave --task out"),
        Some(count) if task >= count => bail!("the tasks of {id} are 0 to {}", count - 1),
        Some(_) => {}
    }
    let output = context.output()?;
    let mut any = false;
    for (container, node) in containers {
        let of = Printed {
            container,
            node,
            task: Some(task),
            stream: "output",
            text: String::new(),
        };
        if let Some(path) = task_output(&context.data, container, task) {
            any |= printed(output, of, &[path])?;
        }
    }
    if !any {
        print::aside(format!(
            "task {task} has printed nothing yet below {}",
            context.data.display()
        ));
    }
    Ok(DONE)
}

async fn cancel(context: &Context, id: &JobId) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let head = log.head().await?;
    let mut events = log.follow(head.next());
    let tenant = TenantId::new(id.tenant())?;
    let payload = serde_json::to_vec(&json!({"job": id.name()}))?;
    let ingress = log
        .publish_ingress(&tenant, "cancel", "application/json", payload.into())
        .await?;
    let patience = Some(std::time::Duration::from_secs(10));
    let decided = next_event(&mut events, patience, |event| match event {
        Event::JobCancelRequested(event) if event.ingress_sequence == ingress => {
            Some(Ok("is being cancelled"))
        }
        Event::JobCancelled(event) if event.ingress_sequence == Some(ingress) => {
            Some(Ok("is cancelled"))
        }
        Event::JobRefused(event) if event.ingress_sequence == ingress => {
            Some(Err(Coded::new(event.code.clone(), event.reason.clone())))
        }
        _ => None,
    })
    .await?;
    let Some(said) = decided.transpose()? else {
        bail!(
            "the request is stored and holds, but nothing decides on it now: is `dormouse up`, or admission, running? Do not repeat it"
        );
    };
    let answer = json!({"job": id, "ingress_sequence": ingress, "state": said});
    print::value(context.output()?, &answer, |_, _| format!("{id} {said}"))?;
    Ok(DONE)
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
