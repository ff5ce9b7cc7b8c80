//! Writes to standard output in the requested format. [`crate::error::print`] ignores a closed pipe.
//!
//! [`plain`] sanitizes all text for people here. JSON and YAML escape control characters themselves.

use std::io::{BufRead as _, BufReader, IsTerminal as _, Read, Write};

use dormouse_messages::sanitize;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::cli::global::Output;

const LINE: u64 = 1 << 16;

/// Prints `value` as JSON or YAML, or as the text from `table`; its second argument allows wide tables.
///
/// # Errors
/// If the value cannot be represented.
pub fn value<T: Serialize + DeserializeOwned>(
    output: Output,
    value: &T,
    table: impl FnOnce(&T, bool) -> String,
) -> anyhow::Result<()> {
    if matches!(output, Output::Table | Output::Wide) {
        let cleaned = cleaned(value)?;
        return ours(output, value, |wide| {
            table(cleaned.as_ref().unwrap_or(value), wide)
        });
    }
    ours(output, value, |_| String::new())
}

/// Prints like [`value`], for a value without untrusted text.
///
/// # Errors
/// If the value cannot be represented.
pub fn ours<T: Serialize>(
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

/// A text that grows; printed parts are not printed twice.
#[derive(Debug, Default)]
pub struct Growing {
    printed: String,
}

impl Growing {
    /// Prints the new part of the text.
    ///
    /// # Errors
    /// If the value cannot be represented, or the standard output is closed.
    pub fn print<T: Serialize + DeserializeOwned>(
        &mut self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let cleaned = cleaned(value)?;
        let text = table(cleaned.as_ref().unwrap_or(value));
        let mut out = std::io::stdout();
        out.write_all(self.rest(&text).as_bytes())?;
        out.flush()?;
        self.printed = text;
        Ok(())
    }

    fn rest(&self, text: &str) -> String {
        match text.strip_prefix(&self.printed) {
            Some(rest) => rest.to_owned(),
            None => format!("\n\n{text}"),
        }
    }
}

fn cleaned<T: Serialize + DeserializeOwned>(value: &T) -> anyhow::Result<Option<T>> {
    let mut value = serde_json::to_value(value)?;
    if clean(&mut value) {
        Ok(Some(serde_json::from_value(value)?))
    } else {
        Ok(None)
    }
}

fn clean(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            let shown = sanitize::shown(text);
            let changed = shown != *text;
            *text = shown;
            changed
        }
        Value::Array(values) => clean_all(values.iter_mut()),
        Value::Object(fields) => {
            let names = fields.keys().any(|name| sanitize::shown(name) != *name);
            if names {
                let old = std::mem::take(fields);
                fields.extend(
                    old.into_iter()
                        .map(|(name, it)| (sanitize::shown(&name), it)),
                );
            }
            clean_all(fields.values_mut()) || names
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

fn clean_all<'a>(values: impl Iterator<Item = &'a mut Value>) -> bool {
    let mut changed = false;
    for value in values {
        changed |= clean(value);
    }
    changed
}

/// Copies a program's output; on a terminal, control characters are escaped.
///
/// # Errors
/// If the output cannot be read, or the standard output is closed.
pub fn program_output(file: &mut impl Read) -> anyhow::Result<()> {
    let out = std::io::stdout();
    program_text(file, out.is_terminal(), out)
}

/// Copies a program's errors like [`program_output`].
///
/// # Errors
/// If the errors cannot be read, or the standard error is closed.
pub fn program_errors(file: &mut impl Read) -> anyhow::Result<()> {
    let out = std::io::stderr();
    program_text(file, out.is_terminal(), out)
}

fn program_text(file: &mut impl Read, terminal: bool, mut out: impl Write) -> anyhow::Result<()> {
    if !terminal {
        std::io::copy(file, &mut out)?;
        out.flush()?;
        return Ok(());
    }
    let mut file = BufReader::new(file);
    let mut line = Vec::new();
    while (&mut file).take(LINE).read_until(b'\n', &mut line)? > 0 {
        out.write_all(for_terminal(&line).as_bytes())?;
        line.clear();
    }
    Ok(())
}

fn for_terminal(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    // A progress bar overwrites its line.
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    sanitize::printable_lines(&text).into_owned()
}

/// Prints one line.
///
/// # Errors
/// If the standard output is closed.
pub fn line(text: impl std::fmt::Display) -> anyhow::Result<()> {
    writeln!(std::io::stdout(), "{text}")?;
    Ok(())
}

/// Prints one document of a YAML stream, given as JSON.
///
/// # Errors
/// If the text is no JSON, or the standard output is closed.
pub fn yaml(json: &str) -> anyhow::Result<()> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    line(format_args!(
        "---\n{}",
        serde_norway::to_string(&value)?.trim_end()
    ))
}

/// Prints a note to stderr, ignoring errors.
pub fn aside(text: impl AsRef<str>) {
    let text = sanitize::printable_lines(text.as_ref());
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_text_of_an_answer_is_fit_for_a_terminal() {
        let answer =
            json!({"jobs": [{"reason": "a\u{1b}[2Jb", "metrics": {"l\u{7}": 1.5}}], "n": 1});
        let cleaned = cleaned(&answer).expect("a value").expect("cleaned");
        let shown =
            json!({"jobs": [{"reason": "a\\u{1b}[2Jb", "metrics": {"l\\u{7}": 1.5}}], "n": 1});
        assert_eq!(cleaned, shown);
        assert_eq!(super::cleaned(&shown).expect("a value"), None);
    }

    #[test]
    fn of_a_growing_text_only_the_rest_is_printed() {
        let growing = Growing {
            printed: "one".to_owned(),
        };
        assert_eq!(growing.rest("one, two"), ", two");
        assert_eq!(growing.rest("one"), "");
        assert_eq!(growing.rest("two"), "\n\ntwo");
    }

    #[test]
    fn what_programs_print_does_nothing_to_a_terminal() {
        let text = for_terminal(b"10%\r20%\r\nred \x1b[31m\tcell\n\xff");
        assert_eq!(text, "10%\n20%\nred \\u{1b}[31m\tcell\n\u{fffd}");
    }
}
