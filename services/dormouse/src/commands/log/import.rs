//! `log import`.

use std::path::PathBuf;

use clap::Args;
use dormouse_replay::LogReader;

use super::copied;
use crate::context::Context;

/// Import an exported log into the empty log of a broker
#[derive(Debug, Clone, Args)]
#[command(after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333")]
pub struct ImportArgs {
    /// File to import.
    pub file: PathBuf,
}

/// Runs `log import`.
///
/// # Errors
/// If the file is damaged, or the broker's log is not empty.
pub async fn run(context: &Context, args: &ImportArgs) -> anyhow::Result<u8> {
    let file = &args.file;
    let log = context.connect().await?;
    log.ensure_streams().await?;
    let count = log.import(LogReader::open(file)?).await?;
    let said = format!("{count} events imported from {}", file.display());
    copied(context, file, count, &said)
}
