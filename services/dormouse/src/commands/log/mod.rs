//! `log …`: a file each command.

pub mod bisect;
pub mod diff;
pub mod export;
pub mod import;
pub mod slice;
pub mod state;
pub mod tail;
pub mod trace;
pub mod verify;

use std::path::Path;

use clap::Subcommand;
use serde_json::json;

use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Follow, copy, check and search the log
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse log tail\n  dormouse log export --file log.parquet\n  dormouse log verify --log log.parquet\n  dormouse log state --at 10:00:00"
)]
pub enum LogCommand {
    #[command(alias = "follow")]
    Tail(tail::TailArgs),
    Export(export::ExportArgs),
    Import(import::ImportArgs),
    Slice(slice::SliceArgs),
    Trace(trace::TraceArgs),
    Verify(verify::VerifyArgs),
    Diff(diff::DiffArgs),
    Bisect(bisect::BisectArgs),
    State(state::StateArgs),
}

/// Runs `log …`.
///
/// # Errors
/// If the log or a file fails.
pub async fn run(context: &Context, command: &LogCommand) -> anyhow::Result<u8> {
    match command {
        LogCommand::Tail(args) => tail::run(context, args).await,
        LogCommand::Export(args) => export::run(context, args).await,
        LogCommand::Import(args) => import::run(context, args).await,
        LogCommand::Slice(args) => slice::run(context, args).await,
        LogCommand::Trace(args) => trace::run(context, args).await,
        LogCommand::Verify(args) => verify::run(context, args).await,
        LogCommand::Diff(args) => diff::run(context, args).await,
        LogCommand::Bisect(args) => bisect::run(context, args).await,
        LogCommand::State(args) => state::run(context, args).await,
    }
}

/// Reports a copied file: people read a note, programs read one value.
fn copied(context: &Context, file: &Path, count: u64, said: &str) -> anyhow::Result<u8> {
    match context.output()? {
        Output::Table | Output::Wide => print::aside(said),
        output => {
            let answer = json!({"file": file.display().to_string(), "count": count});
            print::ours(output, &answer, |_| String::new())?;
        }
    }
    Ok(DONE)
}
