//! `schema`: prints the JSON Schema of a document.

use dormouse_messages::job::JobDocument;
use dormouse_messages::policy::Policy;

use crate::cli::SchemaOf;
use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Runs `schema`.
///
/// # Errors
/// If the standard output is closed.
pub fn run(context: &Context, of: SchemaOf) -> anyhow::Result<u8> {
    let schema = match of {
        SchemaOf::Job => schemars::schema_for!(JobDocument),
        SchemaOf::Policy => schemars::schema_for!(Policy),
    };
    match context.output()? {
        Output::Yaml => print::yaml(&serde_json::to_string(&schema)?)?,
        _ => print::line(serde_json::to_string_pretty(&schema)?)?,
    }
    Ok(DONE)
}
