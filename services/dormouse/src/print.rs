//! One value to standard output, in the form that was asked for.

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
    println!("{}", text.trim_end());
    Ok(())
}
