//! `serve archiver`: seals the log's segments.

use std::path::PathBuf;

use clap::Args;
use dormouse_archive::{Archive, Sealer, SealerOptions};
use dormouse_archiver::Archiver;
use dormouse_bucket::Place;
use dormouse_runtime::Log;
use tokio_util::sync::CancellationToken;

use super::service::decider;
use super::{DeciderArgs, Role};
use crate::build_id;
use crate::cli::log_range::ArchiveOptionsArg;
use crate::context::Context;

/// Seal the log's segments in an archive: a folder or a bucket
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve archiver --archive /srv/dormouse/archive\n  dormouse serve archiver --archive s3://bucket/dormouse --archive-options archive.env\n\nThe policy says when a segment is sealed: archive: {segment_events: 200000, segment_hours: 24}."
)]
pub struct ArchiverArgs {
    /// Archive: a folder, or s3://BUCKET/PREFIX. Default: `archive` below --data.
    #[arg(long, env = "DORMOUSE_ARCHIVE", value_name = "PLACE")]
    pub archive: Option<Place>,
    #[command(flatten)]
    pub options: ArchiveOptionsArg,
    #[command(flatten)]
    pub decider: DeciderArgs,
}

/// Runs `serve archiver`.
///
/// # Errors
/// The reason of an early end.
pub async fn serve(context: &Context, args: &ArchiverArgs) -> anyhow::Result<u8> {
    let started = args.decider.common.start(context, "archiver", None).await?;
    let role = args.decider.role(context);
    let place = args.archive.clone();
    let place = place.unwrap_or_else(|| default_place(&role.data));
    let archive = Archive::create(&place, args.options.archive_options.as_deref())?;
    let run = |log, shutdown| async move { run(log, archive, &role, shutdown).await };
    started.run(run).await
}

/// Returns the archive below a cluster's folder.
pub fn default_place(data: &std::path::Path) -> Place {
    Place::Folder(PathBuf::from(data).join("archive"))
}

/// Runs the archiver until `shutdown`.
///
/// # Errors
/// The reason of an early end.
pub async fn run(
    log: Log,
    archive: Archive,
    role: &Role,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let options = SealerOptions {
        disk: role.broker.clone(),
        ..SealerOptions::new(build_id::build())
    };
    let sealer = Sealer::start(log.clone(), archive, options);
    decider(Archiver, log, role, Some(Box::new(sealer)), shutdown).await
}
