//! `alloc list`.

use clap::Args;

use super::folded;
use super::view::{QueueView, queues};
use crate::cli::filter::WatchArg;
use crate::commands::common::watched;
use crate::context::Context;
use crate::render::Style;

/// List the queues of Slurm allocations
#[derive(Debug, Clone, Copy, Args)]
#[command(after_help = "Examples:\n  dormouse alloc list\n  dormouse alloc list -o json")]
pub struct ListArgs {
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `alloc list`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, args: ListArgs) -> anyhow::Result<u8> {
    let ask = async || Ok(queues(&folded(context).await?));
    watched::repeat(context, args.watch, ask, table).await
}

fn table(queues: &Vec<QueueView>, style: &Style) -> String {
    if queues.is_empty() {
        return "no queues; `dormouse alloc add` makes one".to_owned();
    }
    let mut table = style.table(&[
        "QUEUE",
        "PARTITION",
        "NODE",
        "RUNNING",
        "WAITING",
        "MOST",
        "STATE",
    ]);
    for queue in queues {
        let count = |state: &str| {
            queue
                .allocations
                .iter()
                .filter(|it| it.state == state)
                .count()
        };
        let settings = &queue.settings;
        table.add_row(vec![
            queue.queue.clone(),
            settings.partition.clone().unwrap_or_else(|| "-".to_owned()),
            format!("{} × {}", settings.nodes, settings.node),
            count("running").to_string(),
            (count("requested") + count("waiting")).to_string(),
            settings.most.to_string(),
            queue
                .paused
                .clone()
                .map_or_else(|| "active".to_owned(), |why| format!("paused: {why}")),
        ]);
    }
    style.write(table)
}
