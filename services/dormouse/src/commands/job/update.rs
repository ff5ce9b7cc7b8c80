//! `job update`.

use anyhow::bail;
use clap::Args;
use dormouse_messages::job::JobSpec;
use dormouse_messages::{JobId, Resource};
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{JobDetail, NodesAnswer};
use dormouse_runtime::Log;
use serde_json::{Map, Value, json};

use super::change::{Change, carry_out, confirmed};
use super::selection::chosen;
use crate::cli::duration::Limit;
use crate::cli::filter::WhichArgs;
use crate::cli::weight::weight;
use crate::commands::common::known::never_fits;
use crate::commands::common::{caught_up, query};
use crate::context::Context;
use crate::error::DONE;
use crate::{print, render};

/// Change a job's weight, bounds, priority, limits or GPU maximum
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job update ads/lr --priority 10\n  dormouse job update ads/lr --containers 2..16 --time-limit 4h\n  dormouse job update ads/lr --gpu-limit 0.8\n  dormouse job update --tenant ads --name 'lr-*' --time-limit none --yes"
)]
pub struct UpdateArgs {
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
    /// Time limit in all; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Limit>,
    /// Longest wait for the first start; none lifts the limit.
    #[arg(long, value_name = "TIME")]
    pub queue_limit: Option<Limit>,
    /// Most of a GPU while others leave it idle, from the request to 1; running containers go on.
    #[arg(long, value_name = "PART")]
    pub gpu_limit: Option<String>,
}

fn bounds(text: &str) -> Result<(u32, u32), String> {
    let (min, max) = text.split_once("..").unwrap_or((text, text));
    let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
    Ok((number(min)?, number(max)?))
}

/// Runs `job update`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, args: &UpdateArgs) -> anyhow::Result<u8> {
    let mut change = Change::new("update", "revise", fields(args)?);
    let log = context.connect_to_submit().await?;
    let chosen = chosen(&log, &args.which.filter).await?;
    let Some(jobs) = confirmed(chosen, args.which.yes, change.verb)? else {
        return Ok(DONE);
    };
    if let [job] = &jobs[..]
        && let Some(before) = spec(&log, job).await
    {
        note_what_never_fits(&log, &before, args).await;
        change.changes = Some(changes(&before, args));
    }
    carry_out(context, &log, &jobs, &change).await
}

async fn spec(log: &Log, job: &JobId) -> Option<JobSpec> {
    caught_up(log).await.ok()?;
    let known: anyhow::Result<JobDetail> = query(log, "job", json!({"job": job})).await;
    known.ok()?.spec
}

async fn note_what_never_fits(log: &Log, before: &JobSpec, args: &UpdateArgs) {
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

fn changes(before: &JobSpec, args: &UpdateArgs) -> String {
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

fn fields(args: &UpdateArgs) -> anyhow::Result<Map<String, Value>> {
    let limit = |limit: Option<Limit>| limit.map(|limit| json!(limit.0));
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
