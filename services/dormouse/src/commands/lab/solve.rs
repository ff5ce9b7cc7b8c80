//! `lab solve`: runs the optimizer on a problem in a file.

use std::path::PathBuf;

use clap::Args;

use crate::cli::global::Output;
use crate::context::{Context, read_text, shown};
use crate::error::{Coded, DONE};
use crate::print;

/// Run the optimizer once on a problem in a file, without a cluster
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse lab solve problem.json\n  dormouse lab solve - < problem.json"
)]
pub struct SolveArgs {
    /// File; - is standard input.
    pub file: PathBuf,
}

/// Runs `lab solve`.
///
/// # Errors
/// If the document cannot be read, or is no problem.
pub fn run(context: &Context, args: &SolveArgs) -> anyhow::Result<u8> {
    let text = read_text(&args.file)?;
    let answer = dormouse_optimizer::solve_document(&text)
        .map_err(|error| Coded::new("bad_problem", format!("{}: {error}", shown(&args.file))))?;
    match context.output()? {
        Output::Yaml => print::line(serde_norway::to_string(&answer)?.trim_end())?,
        Output::Json => print::line(answer)?,
        Output::Table | Output::Wide => print::line(format_args!("{answer:#}"))?,
    }
    Ok(DONE)
}
