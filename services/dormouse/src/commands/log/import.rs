//! `log import`.

use std::path::{Path, PathBuf};

use clap::Args;
use dormouse_archive::Archive;
use dormouse_bucket::Place;
use dormouse_replay::LogReader;

use super::copied;
use crate::build_id;
use crate::cli::log_range::ArchiveOptionsArg;
use crate::context::Context;

/// Import an exported log, or the end of an archive, into the empty log of a broker
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333\n  dormouse log import --archive s3://bucket/dormouse   # every broker is lost: the cluster goes on with what is archived"
)]
pub struct ImportArgs {
    /// File to import.
    #[arg(required_unless_present = "archive", conflicts_with = "archive")]
    pub file: Option<PathBuf>,
    /// Archive to continue: a folder, or s3://BUCKET/PREFIX. Its newest events and states are imported.
    #[arg(long, value_name = "PLACE")]
    pub archive: Option<Place>,
    #[command(flatten)]
    pub options: ArchiveOptionsArg,
}

/// Runs `log import`.
///
/// # Errors
/// If the file or the archive is damaged, or the broker's log is not empty.
pub async fn run(context: &Context, args: &ImportArgs) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    log.ensure_streams().await?;
    if let Some(place) = &args.archive {
        let archive = Archive::open(place, args.options.archive_options.as_deref())?;
        let count = archive.restore(&log, &build_id::build()).await?;
        let head = log.head().await?;
        let said = format!(
            "the log goes on after event {head}: {count} events imported from {place}; what was written later is lost"
        );
        return copied(context, Path::new(&place.to_string()), count, &said);
    }
    let file = args.file.as_deref().unwrap_or(Path::new(""));
    let count = log.import(LogReader::open(file)?, None).await?;
    let said = format!("{count} events imported from {}", file.display());
    copied(context, file, count, &said)
}
