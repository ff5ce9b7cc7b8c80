//! `notebook list`.

use clap::Args;
use dormouse_projections::queries::NotebooksQuery;

use crate::cli::filter::WatchArg;
use crate::commands::common::{key_identity, watched};
use crate::context::Context;
use crate::render;

/// List notebooks: state, idle since, time of the automatic end
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse notebook list\n  dormouse notebook list --tenant ads -o json\n  dormouse notebook list --watch"
)]
pub struct ListArgs {
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `notebook list`.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: &ListArgs) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let tenant = key_identity::only(&log, args.tenant.as_deref())?;
    let request = NotebooksQuery { tenant };
    watched::show(
        context,
        &log,
        "notebooks",
        &request,
        args.watch,
        render::notebooks,
    )
    .await
}
