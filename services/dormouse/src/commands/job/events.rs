//! `job events`.

use clap::Args;

use super::JobHistoryArgs;
use crate::commands::common::history::History;
use crate::commands::common::known::not_found;
use crate::commands::log::tail;
use crate::context::Context;
use crate::describe::concerns;
use crate::error::DONE;

/// Show a job's events on the log
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job events ads/lr\n  dormouse job events ads/lr -o json | jq .type\n  dormouse job events ads/lr --log log.jsonl"
)]
pub struct EventsArgs {
    #[command(flatten)]
    pub of: JobHistoryArgs,
}

/// Runs `job events`.
///
/// # Errors
/// If the job is unknown, or the log cannot be read.
pub async fn run(context: &Context, args: &EventsArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let history = History::open(context, &args.of.log).await?;
    let id = &history.job(&args.of.job.id)?;
    let identity = history.identity();
    let mut found = 0;
    let read = history.read(1, None, |recorded| {
        if recorded.event().is_some_and(|event| concerns(event, id)) {
            found += 1;
            tail::event(recorded, &identity, output)?;
        }
        Ok(())
    });
    read.await?;
    if found == 0 {
        return Err(not_found(id));
    }
    Ok(DONE)
}
