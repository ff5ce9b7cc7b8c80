//! `jobs`.

use dormouse_messages::TenantId;
use dormouse_projections::queries::JobsQuery;

use super::watched;
use crate::cli::JobsArgs;
use crate::context::Context;
use crate::render;

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
    watched::show(context, "jobs", &request, args.watch, render::jobs).await
}
