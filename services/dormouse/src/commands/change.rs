//! `job cancel|hold|release|requeue|revise`, for named jobs or all that match a filter.

use std::io::{BufRead, IsTerminal};

use anyhow::bail;
use clap::{Args, Subcommand};
use dormouse_messages::job::JobSpec;
use dormouse_messages::{JobId, Resource, TenantId};
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{JobDetail, JobRow, NodesAnswer};
use dormouse_runtime::Log;
use serde_json::{Map, Value, json};

use super::decided::{Message, decide};
use super::jobs::{Chosen, chosen};
use super::known::never_fits;
use super::wait::worse;
use super::{caught_up, query};
use crate::cli::global::Output;
use crate::cli::list::WhichArgs;
use crate::cli::since::Limit;
use crate::cli::weight::weight;
use crate::context::Context;
use crate::error::{Coded, DONE, ERROR};
use crate::print;
use crate::render::{self, Style};

/// Subcommands of `job` that change jobs.
#[derive(Debug, Subcommand)]
pub enum ChangeCommand {
    /// Cancel a job, or all that match
    #[command(
        after_help = "Examples:\n  dormouse job cancel ads/lr\n  dormouse job cancel --tenant ads --phase queued --name 'lr-*'"
    )]
    Cancel(WhichArgs),
    /// Put a job on hold: it gets no resources, and releases its containers after a checkpoint
    #[command(
        after_help = "Examples:\n  dormouse job hold ads/lr\n  dormouse job hold --tenant ads --phase queued --yes"
    )]
    Hold {
        #[command(flatten)]
        which: WhichArgs,
        /// Also hold a job that runs without a checkpoint and will start from the beginning after its
        /// release.
        #[arg(long)]
        force: bool,
    },
    /// Release a held job into the queue
    #[command(
        after_help = "Examples:\n  dormouse job release ads/lr\n  dormouse job release --tenant ads --name 'lr-*' --yes"
    )]
    Release(WhichArgs),
    /// Stop a job after a checkpoint and start it when resources allow
    #[command(after_help = "Examples:\n  dormouse job requeue ads/lr")]
    Requeue {
        #[command(flatten)]
        which: WhichArgs,
        /// Also requeue a job that runs without a checkpoint and will start from the beginning.
        #[arg(long)]
        force: bool,
    },
    /// Change a job's weight, bounds, priority, limits or GPU maximum
    #[command(
        after_help = "Examples:\n  dormouse job revise ads/lr --priority 10\n  dormouse job revise ads/lr --containers 2..16 --time-limit 4h\n  dormouse job revise ads/lr --gpu-limit 0.8\n  dormouse job revise --tenant ads --name 'lr-*' --time-limit none --yes"
    )]
    Revise(ReviseArgs),
}

/// Arguments of `job revise`.
#[derive(Debug, Clone, Args)]
pub struct ReviseArgs {
    #[command(flatten)]
    pub which: WhichArgs,
    /// Weight of its fair share.
    #[arg(long, allow_negative_numbers = true, value_parser = weight)]
    pub weight: Option<u32>,
    /// Fewest and most containers.
    #[arg(long, value_name = "MIN..MAX", value_parser = bounds)]
    pub containers: Option<(u32, u32)>,
    /// Place in the tenant's queue: the highest priority goes first.
    #[arg(long, allow_negative_numbers = true)]
    pub priority: Option<i32>,
    /// Time limit in all, such as 90s, 30m, 12h or 7d; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Limit>,
    /// Longest wait for the first start; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub queue_limit: Option<Limit>,
    /// Largest part of a GPU while others leave it idle, from the request to 1; running containers go on.
    #[arg(long, value_name = "PART")]
    pub gpu_limit: Option<String>,
}

fn bounds(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok((number(min)?, number(max)?))
}

const RELEASE: &str = "release";

struct Change {
    verb: &'static str,
    message: &'static str,
    fields: Map<String, Value>,
    changes: Option<String>,
}

const NOT_ON_HOLD: &str = "not_on_hold";

/// Runs `job cancel|hold|release|requeue|revise`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, command: &ChangeCommand) -> anyhow::Result<u8> {
    let fields = |name: &str, value: bool, force: bool| {
        let mut fields = Map::new();
        fields.insert(name.to_owned(), value.into());
        if force {
            fields.insert("force".to_owned(), true.into());
        }
        fields
    };
    let (which, change) = match command {
        ChangeCommand::Cancel(which) => (which, change("cancel", "cancel", Map::new())),
        ChangeCommand::Hold { which, force } => {
            let fields = fields("held", true, *force);
            (which, change("hold", "revise", fields))
        }
        ChangeCommand::Release(which) => {
            let fields = fields("held", false, false);
            (which, change(RELEASE, "revise", fields))
        }
        ChangeCommand::Requeue { which, force } => {
            let fields = fields("requeue", true, *force);
            (which, change("requeue", "revise", fields))
        }
        ChangeCommand::Revise(args) => (&args.which, change("revise", "revise", revised(args)?)),
    };
    let log = context.connect_to_submit().await?;
    let Some(jobs) = confirmed(&log, which, &change).await? else {
        return Ok(DONE);
    };
    match command {
        ChangeCommand::Release(which) if !which.filter.ids.is_empty() => {
            release(context, &log, jobs, &change).await
        }
        ChangeCommand::Revise(args) => {
            let before = match &jobs[..] {
                [job] => spec(&log, job).await,
                _ => None,
            };
            if let Some(before) = &before {
                note_what_never_fits(&log, before, args).await;
            }
            let changes = before.map(|before| changes(&before, args));
            carry_out(context, &log, &jobs, &Change { changes, ..change }).await
        }
        _ => carry_out(context, &log, &jobs, &change).await,
    }
}

async fn spec(log: &Log, job: &JobId) -> Option<JobSpec> {
    caught_up(log).await.ok()?;
    let known: anyhow::Result<JobDetail> = query(log, "job", json!({"job": job})).await;
    known.ok()?.spec
}

async fn note_what_never_fits(log: &Log, before: &JobSpec, args: &ReviseArgs) {
    let Some((least, _)) = args.containers else {
        return;
    };
    let nodes = query::<NodesAnswer>(log, "nodes", json!({"all": true})).await;
    let Ok(nodes) = nodes else { return };
    let there = nodes.nodes.iter().filter(|it| it.state != NodeState::Lost);
    let there = there.map(|it| (&it.capacity, &it.labels));
    if let Some(why) = never_fits(there, before, least) {
        print::aside(format!("note: {why}"));
    }
}

fn changes(before: &JobSpec, args: &ReviseArgs) -> String {
    let limit = |seconds: Option<u32>| match seconds.unwrap_or(0) {
        0 => "none".to_owned(),
        seconds => render::span(f64::from(seconds)),
    };
    let bounds = |(min, max): (u32, u32)| format!("{min}–{max}");
    let gpu = before.gpu_limit_milli.map(|it| Resource::Gpu.display(it));
    let pairs = [
        (
            "weight",
            before.weight.to_string(),
            args.weight.map(|it| it.to_string()),
        ),
        (
            "containers",
            bounds((before.containers.min, before.containers.max)),
            args.containers.map(bounds),
        ),
        (
            "priority",
            before.priority.to_string(),
            args.priority.map(|it| it.to_string()),
        ),
        (
            "time limit",
            limit(before.time_limit_s),
            args.time_limit.map(|it| limit(Some(it.0))),
        ),
        (
            "queue limit",
            limit(before.queue_limit_s),
            args.queue_limit.map(|it| limit(Some(it.0))),
        ),
        (
            "GPU limit",
            gpu.unwrap_or_else(|| "none".to_owned()),
            args.gpu_limit.clone(),
        ),
    ];
    let changes = pairs.into_iter().filter_map(|(name, before, after)| {
        let after = after?;
        Some(format!("{name} {before} → {after}"))
    });
    changes.collect::<Vec<_>>().join(", ")
}

async fn release(
    context: &Context,
    log: &Log,
    jobs: Vec<JobId>,
    change: &Change,
) -> anyhow::Result<u8> {
    caught_up(log).await?;
    let (mut held, mut others) = (Vec::new(), Vec::new());
    for job in jobs {
        let detail: JobDetail = query(log, "job", json!({"job": job})).await?;
        if detail.row.on_hold {
            held.push(job)
        } else {
            others.push(not_on_hold(&detail.row))
        }
    }
    match (held.is_empty(), others.len()) {
        (true, 1) => return Err(Coded::new(NOT_ON_HOLD, others.remove(0)).into()),
        _ => others.iter().for_each(print::aside),
    }
    let code = if others.is_empty() { DONE } else { ERROR };
    if held.is_empty() {
        Ok(code)
    } else {
        Ok(worse(code, carry_out(context, log, &held, change).await?))
    }
}

fn not_on_hold(row: &JobRow) -> String {
    format!(
        "{} is not on hold, so there is nothing to let go; it is {}: {}",
        row.job, row.phase, row.reason
    )
}

const fn change(verb: &'static str, message: &'static str, fields: Map<String, Value>) -> Change {
    Change {
        verb,
        message,
        fields,
        changes: None,
    }
}

fn revised(args: &ReviseArgs) -> anyhow::Result<Map<String, Value>> {
    let limit = |limit: Option<crate::cli::since::Limit>| limit.map(|limit| json!(limit.0));
    let fields = [
        ("weight", args.weight.map(Value::from)),
        (
            "containers",
            args.containers.map(|it| json!({"min": it.0, "max": it.1})),
        ),
        ("priority", args.priority.map(Value::from)),
        ("time_limit_s", limit(args.time_limit)),
        ("queue_limit_s", limit(args.queue_limit)),
        ("gpu_limit", args.gpu_limit.clone().map(Value::from)),
    ];
    let given = fields.into_iter();
    let given: Map<String, Value> = given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    if given.is_empty() {
        bail!("say what changes, such as --priority 10 or --time-limit 2h")
    } else {
        Ok(given)
    }
}

async fn confirmed(
    log: &Log,
    which: &WhichArgs,
    change: &Change,
) -> anyhow::Result<Option<Vec<JobId>>> {
    let verb = change.verb;
    let mut chosen = chosen(log, &which.filter).await?;
    if let Chosen::Matching(answer) = &mut chosen
        && verb == RELEASE
    {
        answer.jobs.retain(|row| row.on_hold);
        if answer.jobs.is_empty() {
            return Err(Coded::new("not_found", "no job on hold matches").into());
        }
    }
    let jobs = chosen.ids();
    let answer = match chosen {
        Chosen::Named(_) => return Ok(Some(jobs)),
        Chosen::Matching(_) if which.yes => return Ok(Some(jobs)),
        Chosen::Matching(answer) => answer,
    };
    print::aside(render::jobs(&answer, &Style::plain()));
    let count = match jobs.len() {
        1 => "this job".to_owned(),
        count => format!("these {count} jobs"),
    };
    if !std::io::stdin().is_terminal() {
        let message = format!("say --yes to {verb} {count}");
        return Err(Coded::new("not_confirmed", message).into());
    }
    print::aside(format!("{verb} {count}? [y/N]"));
    let mut answered = String::new();
    std::io::stdin().lock().read_line(&mut answered)?;
    let yes = matches!(answered.trim(), "y" | "Y" | "yes");
    if !yes {
        print::aside("nothing is done");
    }
    Ok(yes.then_some(jobs))
}

fn messages(jobs: &[JobId], change: &Change) -> anyhow::Result<Vec<Message>> {
    let message = |job: &JobId| {
        let mut document = change.fields.clone();
        document.insert("job".to_owned(), job.name().into());
        Ok(Message {
            tenant: TenantId::new(job.tenant())?,
            verb: change.message,
            payload: serde_json::to_vec(&document)?.into(),
        })
    };
    jobs.iter().map(message).collect()
}

async fn carry_out(
    context: &Context,
    log: &Log,
    jobs: &[JobId],
    change: &Change,
) -> anyhow::Result<u8> {
    let output = context.output()?;
    let mut decided = decide(log, messages(jobs, change)?).await?;
    if let [_] = jobs {
        // For one job, a refusal is the command's error.
        let (ingress_sequence, became) = decided.remove(0);
        let (job, said) = became?;
        let mut answer = json!({"job": job, "ingress_sequence": ingress_sequence, "state": said});
        let mut line = format!("{job} {said}");
        if let Some(changes) = &change.changes {
            answer["changes"] = changes.as_str().into();
            line = format!("{line}: {changes}");
        }
        print::value(output, &answer, |_, _| line.clone())?;
        return Ok(DONE);
    }
    let mut code = DONE;
    for (job, (ingress_sequence, became)) in jobs.iter().zip(decided) {
        let mut answer = json!({"job": job, "ingress_sequence": ingress_sequence});
        let line = match became {
            Ok((job, said)) => {
                answer["state"] = said.into();
                format!("{job} {said}")
            }
            Err(refusal) => {
                code = ERROR;
                answer["error"] = json!({"code": refusal.code, "message": refusal.message});
                format!("{job}: {refusal}")
            }
        };
        match output {
            Output::Json => print::line(answer)?,
            Output::Yaml => print::yaml(&answer.to_string())?,
            Output::Table | Output::Wide => print::line(line)?,
        }
    }
    Ok(code)
}
