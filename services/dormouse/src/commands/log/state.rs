//! `log state`.

use std::ops::ControlFlow;

use anyhow::bail;
use clap::Args;
use dormouse_messages::{Fold, Timestamp};
use dormouse_projections::queries::{JobsAnswer, NodesAnswer};
use dormouse_projections::{ReadModel, queries};
use serde_json::{Value, json};

use crate::cli::log_range::{At, LogFileArg};
use crate::commands::common::history::{self, History};
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::Style;

/// Show the jobs and nodes after an event
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log state --at 4712\n  dormouse log state --at 2026-11-21T10:00:00Z\n  dormouse log state --at 10:00:00               # today, in UTC\n  dormouse log state --log log.jsonl --at 100 -o json"
)]
pub struct StateArgs {
    /// After this sequence, or at this time: RFC 3339, a UTC time of the last event's day, or an age such as
    /// 10m; default: the end.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `log state`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, args: &StateArgs) -> anyhow::Result<u8> {
    let mut model = ReadModel::default();
    let mut now = Timestamp::default();
    let mut last = 0;
    let (to, until) = history::bounds(context, args.at, &args.log).await?;
    let history = History::open_whole(context, &args.log).await?;
    let history = history.near(to, until).await?;
    if let Some(states) = history.states()? {
        (model, last, now) = (states.model, states.fork.sequence.0, states.fork.now);
    }
    let read = history.read_while(1, to, |recorded| {
        let at = model.queues.cluster.clock.at(recorded);
        if until.is_some_and(|until| at > until) {
            return Ok(ControlFlow::Break(()));
        }
        model.evolve(recorded);
        (now, last) = (at, recorded.sequence.0);
        Ok(ControlFlow::Continue(()))
    });
    read.await?;
    if let (None, Some(until), 0) = (to, until, last) {
        bail!("the log begins after {until}");
    }
    if !history::say_end(to, until, last) {
        // Ages are computed as of the requested time.
        now = until.unwrap_or(now);
    }
    let output = context.output()?;
    let ask = |name| queries::answer(&model, name, Value::Null, now);
    let (jobs, nodes) = (ask("jobs")?, ask("nodes")?);
    let answer = json!({"sequence": last, "time": now, "jobs": jobs["jobs"], "nodes": nodes["nodes"], "cluster": ask("cluster")?});
    print::value(output, &answer, |answer, wide| {
        let style = Style::of_stdout(wide);
        let nodes = json!({"nodes": answer["nodes"]});
        let nodes: NodesAnswer = serde_json::from_value(nodes).unwrap_or_default();
        let jobs = json!({"jobs": answer["jobs"], "more": 0});
        let jobs: JobsAnswer = serde_json::from_value(jobs).unwrap_or_default();
        let place = match last {
            0 => "before the first event".to_owned(),
            last => format!("after event {last}, {}", crate::render::date(now)),
        };
        format!(
            "{place}\n\n{}\n\n{}",
            crate::render::nodes(&nodes, &style),
            crate::render::jobs(&jobs, &style)
        )
    })?;
    Ok(DONE)
}
