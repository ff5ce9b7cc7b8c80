//! `tenant show`.

use clap::Args;
use dormouse_projections::queries::TenantQuery;

use super::TenantArg;
use crate::cli::filter::WatchArg;
use crate::commands::common::{key_identity, watched};
use crate::context::Context;
use crate::render;

/// Show a tenant's entitlement, use and queue head
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse tenant show ads\n  dormouse tenant show ads -o json")]
pub struct ShowArgs {
    #[command(flatten)]
    pub tenant: TenantArg,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `tenant show`.
///
/// # Errors
/// If there is no such tenant, or the query service does not answer.
pub async fn run(context: &Context, args: &ShowArgs) -> anyhow::Result<u8> {
    let name = &args.tenant.name;
    let request = TenantQuery {
        tenant: name.clone(),
    };
    let log = context.connect_as_holder().await?;
    key_identity::only(&log, Some(name.as_str()))?;
    let watch = args.watch;
    watched::show(context, &log, "tenant", &request, watch, render::tenant).await
}
