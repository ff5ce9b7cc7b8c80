//! `log trace`.

use clap::Args;
use dormouse_replay::history::trace::TraceWriter;

use super::copied;
use crate::cli::log_range::{OutputFileArg, PointArgs};
use crate::commands::common::history::open_at;
use crate::context::Context;

/// Write the log as a trace for Perfetto (ui.perfetto.dev): nodes and jobs as tracks
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log trace --file cluster.pftrace\n  dormouse log trace --log log.parquet --at 4712 --file cluster.pftrace"
)]
pub struct TraceArgs {
    #[command(flatten)]
    pub out: OutputFileArg,
    #[command(flatten)]
    pub point: PointArgs,
}

/// Runs `log trace`.
///
/// # Errors
/// If the log or the file fails.
pub async fn run(context: &Context, args: &TraceArgs) -> anyhow::Result<u8> {
    let file = args.out.file.as_path();
    let out = context.output_file(file, &args.point.log.read())?;
    let reading = open_at(context, &args.point).await?;
    let mut writer = TraceWriter::new(out)?;
    if let Some(states) = reading.states()? {
        writer = writer.starting_from(states.model);
    }
    let mut writer = writer.seen_by(args.point.view.viewer.clone());
    let read = reading.read(|recorded| Ok(writer.read(recorded)?));
    read.await?;
    let (packets, out) = writer.finish()?;
    out.finish()?;
    let said = format!("{packets} packets written to {}", file.display());
    copied(context, file, packets, &said)
}
