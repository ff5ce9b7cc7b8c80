//! `log export`.

use std::path::{Path, PathBuf};

use clap::Args;
use dormouse_replay::{LogWriter, OutputFile};

use super::copied;
use crate::cli::log_range::{LogFileArg, RangeArgs};
use crate::commands::common::history::{History, sequences};
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Write the log to a file: JSON lines, or Parquet if it ends in .parquet
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log export --file log.jsonl\n  dormouse log export --file log.parquet --to 4712\n  dormouse log export --from 2h | jq .type\n  dormouse log export --log log.parquet --file log.jsonl     # Parquet as JSON lines\n\nWithout --file the events go to the standard output, as JSON lines."
)]
pub struct ExportArgs {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Write into this file.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `log export`.
///
/// # Errors
/// If the log or the file fails.
pub async fn run(context: &Context, args: &ExportArgs) -> anyhow::Result<u8> {
    let (from, to) = sequences(context, args.range, &args.log).await?;
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let out = context.output_file(file, &args.log.read())?;
    let history = History::open(context, &args.log).await?;
    let count = export_to(history, out, from, to).await?;
    if count == 0 {
        print::aside(format!(
            "there is no event {from}; `dormouse cluster status` says where the log ends"
        ));
    }
    match &args.file {
        Some(file) => {
            let said = format!("{count} events written to {}", file.display());
            copied(context, file, count, &said)
        }
        None => Ok(DONE),
    }
}

/// Writes the log to a file; returns the number of events.
///
/// # Errors
/// If the log or the file fails.
pub async fn export_to(
    history: History,
    out: OutputFile,
    from: u64,
    to: Option<u64>,
) -> anyhow::Result<u64> {
    let mut writer = LogWriter::new(out, &history.identity())?;
    let mut count = 0;
    let read = history.read(from, to, |recorded| {
        count += 1;
        Ok(writer.write(recorded)?)
    });
    read.await?;
    writer.finish()?;
    Ok(count)
}
