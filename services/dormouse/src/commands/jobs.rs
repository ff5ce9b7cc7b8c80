//! `jobs`.

use dormouse_messages::TenantId;
use dormouse_projections::queries::{JobsAnswer, JobsQuery};

use super::query;
use crate::cli::JobsArgs;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Lists jobs.
///
/// # Errors
/// When the query service does not answer.
pub async fn run(context: &Context, args: &JobsArgs) -> anyhow::Result<u8> {
    let tenant = args.tenant.as_deref().map(TenantId::new).transpose()?;
    let request = JobsQuery {
        tenant,
        phase: args.phase.clone(),
        limit: args.limit,
    };
    let log = context.connect().await?;
    let answer: JobsAnswer = query(&log, "jobs", serde_json::to_value(request)?).await?;
    print::value(context.output()?, &answer, |wide| {
        render::jobs(&answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}
