//! Values and lines to standard output, in the form that was asked for. A reader that goes away,
//! as `head` does, is an error that [`crate::error::print`] keeps to itself.

use std::io::Write;

use serde::Serialize;

use crate::cli::Output;

/// Prints `value` as JSON or YAML, or as what `table` makes of it (given whether it may be wide).
///
/// # Errors
/// When the value cannot be represented.
pub fn value<T: Serialize>(
    output: Output,
    value: &T,
    table: impl FnOnce(bool) -> String,
) -> anyhow::Result<()> {
    let text = match output {
        Output::Json => serde_json::to_string(value)?,
        Output::Yaml => serde_norway::to_string(value)?,
        Output::Table => table(false),
        Output::Wide => table(true),
    };
    line(text.trim_end())
}

/// Prints one line.
///
/// # Errors
/// When the standard output is closed.
pub fn line(text: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// Prints one document of a stream of YAML documents, given as JSON.
///
/// # Errors
/// When it is no JSON, or the standard output is closed.
pub fn yaml(json: &str) -> anyhow::Result<()> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    line(format_args!(
        "---\n{}",
        serde_norway::to_string(&value)?.trim_end()
    ))
}

/// Says something beside the answer; whether anyone hears it does not matter.
pub fn aside(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
