//! `alloc show`.

use clap::Args;
use dormouse_messages::Timestamp;

use super::view::{QueueView, queues};
use super::{QueueArg, folded, known};
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{Style, date};

/// Show a queue, its settings and its allocations
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse alloc show gpu\n  dormouse alloc show gpu -o json")]
pub struct ShowArgs {
    #[command(flatten)]
    pub queue: QueueArg,
}

/// Runs `alloc show QUEUE`.
///
/// # Errors
/// If there is no such queue.
pub async fn run(context: &Context, args: &ShowArgs) -> anyhow::Result<u8> {
    let state = folded(context).await?;
    known(&state, &args.queue.queue)?;
    let name = args.queue.queue.as_str();
    let view = queues(&state).into_iter().find(|view| view.queue == name);
    if let Some(view) = view {
        print::value(context.output()?, &view, |view, wide| {
            text(view, &Style::of_stdout(wide))
        })?;
    }
    Ok(DONE)
}

fn text(view: &QueueView, style: &Style) -> String {
    let it = &view.settings;
    let or_default = |text: &Option<String>| text.clone().unwrap_or_else(|| "default".to_owned());
    let mut lines = vec![
        format!("queue       {}", view.queue),
        format!(
            "state       {}",
            match &view.paused {
                Some(why) => format!("paused: {why}"),
                None => "active".to_owned(),
            }
        ),
        format!("partition   {}", or_default(&it.partition)),
        format!("account     {}", or_default(&it.account)),
        format!(
            "allocation  {} × {}, for {} s",
            it.nodes, it.node, it.time_limit_s
        ),
        format!("drained     {} s before its end", it.drain_s),
        format!(
            "at most     {}, and {} of them waiting in Slurm",
            it.most, it.backlog
        ),
        format!("given back  after {} s without a container", it.idle_s),
    ];
    if let Some(why) = &view.last_failure {
        lines.push(format!("failures    {}, the last: {why}", view.failures));
    }
    if view.allocations.is_empty() {
        return lines.join("\n");
    }
    let mut table = style.table(&[
        "NUMBER",
        "STATE",
        "SLURM JOB",
        "NODES",
        "TIME",
        "REASON",
        "FOR",
    ]);
    for it in &view.allocations {
        let at = |what: &str, at: Option<Timestamp>| at.map(|at| format!("{what} {}", date(at)));
        let time = at("starts", it.starts_at).or(at("ends", it.ends_at));
        let dash = || "-".to_owned();
        table.add_row(vec![
            it.number.to_string(),
            it.state.clone(),
            it.slurm_job.map_or_else(dash, |job| job.to_string()),
            it.nodes.join(" "),
            time.unwrap_or_else(dash),
            it.reason.clone().unwrap_or_else(dash),
            it.jobs.join(" "),
        ]);
    }
    format!("{}\n\n{}", lines.join("\n"), style.write(table))
}
