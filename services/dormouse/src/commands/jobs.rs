//! `jobs`.

use dormouse_projections::queries::JobsQuery;

use super::{holder, watched};
use crate::cli::JobsArgs;
use crate::context::Context;
use crate::render;

/// Lists jobs.
///
/// # Errors
/// When the query service does not answer.
pub async fn run(context: &Context, args: &JobsArgs) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let request = JobsQuery {
        tenant: holder::only(&log, args.tenant.as_deref())?,
        phase: args.phase.clone(),
        limit: args.limit,
    };
    watched::show(context, &log, "jobs", &request, args.watch, render::jobs).await
}
