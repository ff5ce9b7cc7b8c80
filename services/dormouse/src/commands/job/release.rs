//! `job release`.

use clap::Args;
use dormouse_messages::JobId;
use dormouse_projections::queries::{JobDetail, JobRow};
use dormouse_runtime::Log;
use serde_json::json;

use super::change::{Change, carry_out, confirmed};
use super::selection::{Chosen, chosen};
use super::wait::worse;
use crate::cli::filter::WhichArgs;
use crate::commands::common::{caught_up, query};
use crate::context::Context;
use crate::error::{Coded, DONE, ERROR};
use crate::print;

const NOT_ON_HOLD: &str = "not_on_hold";

/// Release a held job into the queue
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job release ads/lr\n  dormouse job release --tenant ads --name 'lr-*' --yes"
)]
pub struct ReleaseArgs {
    #[command(flatten)]
    pub which: WhichArgs,
}

/// Runs `job release`.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, args: &ReleaseArgs) -> anyhow::Result<u8> {
    let change = Change::of_flag("release", "held", false, false);
    let log = context.connect_to_submit().await?;
    let mut chosen = chosen(&log, &args.which.filter).await?;
    if let Chosen::Matching(answer) = &mut chosen {
        answer.jobs.retain(|row| row.on_hold);
        if answer.jobs.is_empty() {
            return Err(Coded::new("not_found", "no job on hold matches").into());
        }
    }
    let are_named = matches!(chosen, Chosen::Named(_));
    let Some(jobs) = confirmed(chosen, args.which.yes, change.verb)? else {
        return Ok(DONE);
    };
    if are_named {
        release(context, &log, jobs, &change).await
    } else {
        carry_out(context, &log, &jobs, &change).await
    }
}

/// Named jobs that are not on hold are reported.
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
