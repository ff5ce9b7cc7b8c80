//! `job logs`: prints the output of a job's containers.
//!
//! 1. The query service lists incarnations and nodes.
//! 2. Each node's agent lists its containers (`source`) and returns output in pieces (`text`).
//! 3. [`follow`] continues until the job has ended and all is read.

mod follow;
mod source;
mod text;

use std::collections::BTreeSet;

use anyhow::bail;
use dormouse_messages::ids::{ContainerId, Incarnation, Rank};
use dormouse_messages::{JobId, NodeId, TenantId, Timestamp, sanitize};
use dormouse_node_agent::logs::{LogsQuery, Stream};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::{IncarnationRow, JobDetail};
use serde::Serialize;

use crate::cli::global::Output;
use crate::cli::job_name::NamedJob;
use crate::cli::log_range::{At, LogFileArg, moment};
use crate::commands::common::history::bounds;
use crate::commands::common::key_identity;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use clap::Args;
pub use follow::{Style, follow, say_why_it_waits};
pub use source::{Found, Source};
use text::Lines;

/// Print the output of a job's containers
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job logs ads/lr\n  dormouse job logs ads/lr -f --tail 20\n  dormouse job logs ads/lr --from 10m --all\n  dormouse job logs ads/lr --incarnation 1 --rank 0\n  dormouse job logs ads/sweep --task 17"
)]
pub struct LogsArgs {
    /// Job: tenant/name.
    pub id: NamedJob,
    /// Print until the job has ended, also across its resizes.
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines of each output.
    #[arg(long, value_name = "LINES")]
    pub tail: Option<u32>,
    /// Only output since this time or age.
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "tail")]
    pub from: Option<At>,
    /// Only this rank.
    #[arg(long)]
    pub rank: Option<u32>,
    /// Only this incarnation; default: the newest.
    #[arg(long)]
    pub incarnation: Option<u32>,
    /// Print every incarnation.
    #[arg(long, conflicts_with = "incarnation")]
    pub all: bool,
    /// Only this task of a task set, on any container.
    #[arg(long, conflicts_with_all = ["rank", "incarnation", "all", "follow", "tail", "from"])]
    pub task: Option<u32>,
    /// Ask as this tenant, as its own key does.
    #[arg(long = "as", value_name = "TENANT")]
    pub of: Option<String>,
}

/// The selected containers and lines.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub rank: Option<Rank>,
    /// If none, the newest; when following also later ones.
    pub incarnation: Option<Incarnation>,
    pub all: bool,
    pub tail: Option<u32>,
    pub since: Option<Timestamp>,
}

impl Wanted {
    fn query(&self, container: &ContainerId, stream: Stream) -> LogsQuery {
        LogsQuery {
            since: self.since,
            tail: self.tail,
            ..Source::query(container, stream)
        }
    }

    fn takes(&self, container: &ContainerId) -> bool {
        self.rank.is_none_or(|rank| container.rank == rank)
    }
}

#[derive(Serialize)]
struct Printed<'a> {
    container: &'a ContainerId,
    node: &'a NodeId,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<u32>,
    stream: &'static str,
    text: String,
}

/// Runs `job logs`.
///
/// # Errors
/// If there is no such job or container, or the query service does not answer.
pub async fn run(context: &Context, args: &LogsArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let tenant = args.of.as_deref().map(TenantId::new).transpose()?;
    let log = context.connect_as_holder().await?;
    let id = key_identity::job(&log, &args.id)?;
    let source = Source::new(log, tenant);
    let wanted = Wanted {
        rank: args.rank.map(Rank),
        incarnation: args.incarnation.map(Incarnation),
        all: args.all,
        tail: args.tail,
        since: bounds(context, args.from, &LogFileArg::default()).await?.1,
    };
    if args.follow {
        let style = Style::of(output, wanted.rank.is_none());
        // An unknown job must fail instead of waiting.
        let detail = source.job(&id).await?;
        let waiting = tokio::spawn(say_why_it_waits(source.clone(), id.clone()));
        let read = follow(&source, &id, &wanted, style).await;
        waiting.abort();
        let read = read?;
        if !read.any
            && wanted.since.is_none()
            && wanted.tail != Some(0)
            && detail.row.tasks.is_none()
        {
            print::aside(nothing(&read.detail, "it"));
        }
        return Ok(DONE);
    }
    let detail = source.job(&id).await?;
    if let Some(task) = args.task {
        task_logs(&source, output, &detail, task).await?;
        return Ok(DONE);
    }
    whole(&source, output, &detail, &wanted).await?;
    Ok(DONE)
}

fn nothing(detail: &JobDetail, what: &str) -> String {
    let row = &detail.row;
    let (id, phase, reason) = (&row.job, row.phase, sanitize::shown(&row.reason));
    // The hint would repeat the running command.
    let here = format!("; see `dormouse job logs {id}`");
    let reason = reason.strip_suffix(&here).unwrap_or(&reason);
    match what {
        "it" => format!("{id} has printed nothing; it is {phase}: {reason}"),
        what => format!("{what} of {id} has printed nothing; the job is {phase}: {reason}"),
    }
}

fn chosen(detail: &JobDetail, wanted: &Wanted) -> anyhow::Result<Vec<Incarnation>> {
    let known: Vec<_> = detail
        .incarnations
        .iter()
        .map(|it| it.incarnation)
        .collect();
    let Some(newest) = known.last().copied() else {
        let row = &detail.row;
        bail!(
            "{} has had no container yet; it is {}: {}",
            row.job,
            row.phase,
            row.reason
        );
    };
    if wanted.all {
        return Ok(known);
    }
    let one = wanted.incarnation.unwrap_or(newest);
    if known.contains(&one) {
        return Ok(vec![one]);
    }
    let known: Vec<String> = known.iter().map(ToString::to_string).collect();
    let message = format!(
        "{} has no incarnation {one}; it has had {}",
        detail.row.job,
        known.join(", ")
    );
    Err(Coded::new("not_found", message).into())
}

async fn whole(
    source: &Source,
    output: Output,
    detail: &JobDetail,
    wanted: &Wanted,
) -> anyhow::Result<()> {
    let id = &detail.row.job;
    let (mut any, mut ranks, mut silent) = (false, BTreeSet::new(), false);
    let chosen = chosen(detail, wanted)?;
    for incarnation in &chosen {
        let listed = source.containers(detail, *incarnation).await;
        silent |= listed.tell();
        ranks.extend(listed.found.iter().map(|found| found.container().rank));
        for found in listed
            .found
            .iter()
            .filter(|it| wanted.takes(it.container()))
        {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let query = wanted.query(found.container(), stream);
                any |= stream_out(source, output, found, query, None).await?;
            }
        }
    }
    if let Some(rank) = wanted.rank
        && !ranks.is_empty()
        && !ranks.contains(&rank)
    {
        let last = ranks.last().copied().unwrap_or_default();
        let message = format!(
            "incarnation {} of {id} has no rank {rank}; its ranks are 0 to {last}",
            chosen.last().copied().unwrap_or_default()
        );
        return Err(Coded::new("not_found", message).into());
    }
    if detail.row.tasks.is_some() {
        print::aside(format!(
            "what the tasks of {id} printed: `dormouse job logs {id} --task 0`, and so on"
        ));
    } else if !any && !silent && wanted.since.is_none() && wanted.tail != Some(0) {
        // A container without output has a folder all the same.
        let has_run =
            |it: &IncarnationRow| chosen.contains(&it.incarnation) && it.started_at.is_some();
        // Replicas that could not start leave no folder.
        let starts = detail.row.phase == Phase::Starting;
        let is_gone = ranks.is_empty() && !starts && detail.incarnations.iter().any(has_run);
        let chosen: Vec<String> = chosen.iter().map(ToString::to_string).collect();
        let which = format!("incarnation {}", chosen.join(", "));
        if is_gone {
            print::aside(format!(
                "what {which} of {id} printed is not kept any more: its nodes were told to remove it (`dormouse cluster prune`, --keep-logs), or are gone"
            ))
        } else {
            print::aside(nothing(detail, &which))
        }
    }
    Ok(())
}

async fn stream_out(
    source: &Source,
    output: Output,
    found: &Found,
    mut query: LogsQuery,
    task: Option<u32>,
) -> anyhow::Result<bool> {
    let is_text = matches!(output, Output::Table | Output::Wide);
    let (container, stream) = (found.container(), query.stream);
    let end = found.end(stream);
    let (mut lines, mut whole, mut any) = (Lines::default(), Vec::new(), false);
    loop {
        let chunk = source.chunk(&found.node, &query).await?;
        if !any && !chunk.bytes.is_empty() && is_text {
            let task = task.map(|task| format!("task {task} in "));
            let task = task.unwrap_or_default();
            print::aside(format!(
                "── {task}{container} on {}, {}",
                found.node,
                stream.name()
            ));
        }
        any |= !chunk.bytes.is_empty();
        if is_text {
            lines.print(&chunk.bytes)?
        } else {
            whole.extend_from_slice(&chunk.bytes)
        }
        // The stream may grow meanwhile.
        if chunk.bytes.is_empty() || end.is_some_and(|end| chunk.next >= end) {
            break;
        }
        query = LogsQuery {
            offset: Some(chunk.next),
            ..query
        };
    }
    lines.finish()?;
    if any && !is_text {
        let printed = Printed {
            container,
            node: &found.node,
            task,
            stream: stream.name(),
            text: String::from_utf8_lossy(&whole).into_owned(),
        };
        let value = serde_json::to_string(&printed)?;
        match output {
            Output::Yaml => print::yaml(&value)?,
            _ => print::line(value)?,
        }
    }
    Ok(any)
}

async fn task_logs(
    source: &Source,
    output: Output,
    detail: &JobDetail,
    task: u32,
) -> anyhow::Result<()> {
    let id: &JobId = &detail.row.job;
    match detail.row.tasks {
        None => bail!("{id} is no task set; leave --task out"),
        Some(tasks) if task >= tasks.count => {
            bail!("the tasks of {id} are 0 to {}", tasks.count - 1)
        }
        Some(_) => {}
    }
    let mut any = false;
    for own in &detail.incarnations {
        let listed = source.containers(detail, own.incarnation).await;
        listed.tell();
        for found in &listed.found {
            let query = Source::query(found.container(), Stream::Task(task));
            any |= stream_out(source, output, found, query, Some(task)).await?;
        }
    }
    if !any {
        let yet = if detail.row.phase.is_over() {
            ""
        } else {
            " yet"
        };
        print::aside(format!("task {task} of {id} has printed nothing{yet}"));
    }
    Ok(())
}
