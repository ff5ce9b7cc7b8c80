//! `schema`: prints the JSON Schema of a document.

use clap::{Args, ValueEnum};
use dormouse_messages::job::JobDocument;
use dormouse_messages::policy::Policy;

use crate::cli::global::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Print the JSON Schema of a document, for editors
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse schema job > job.schema.json\n  dormouse schema policy -o yaml\n\nEditors with the YAML language server take it from the document's first line:\n# yaml-language-server: $schema=job.schema.json"
)]
pub struct SchemaArgs {
    /// Document type.
    pub of: SchemaOf,
}

/// Documents with a JSON Schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// A job.
    Job,
    /// The cluster's policy.
    Policy,
}

/// Runs `schema`.
///
/// # Errors
/// If the standard output is closed.
pub fn run(context: &Context, args: SchemaArgs) -> anyhow::Result<u8> {
    let schema = match args.of {
        SchemaOf::Job => schemars::schema_for!(JobDocument),
        SchemaOf::Policy => schemars::schema_for!(Policy),
    };
    match context.output()? {
        Output::Yaml => print::yaml(&serde_json::to_string(&schema)?)?,
        _ => print::line(serde_json::to_string_pretty(&schema)?)?,
    }
    Ok(DONE)
}
