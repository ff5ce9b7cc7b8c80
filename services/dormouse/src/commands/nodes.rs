//! `nodes`.

use dormouse_projections::queries::NodesAnswer;
use serde_json::Value;

use super::query;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// Lists nodes.
///
/// # Errors
/// When the query service does not answer.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let answer: NodesAnswer = query(&log, "nodes", Value::Null).await?;
    print::value(context.output()?, &answer, |wide| render::nodes(&answer, &Style::of_stdout(wide)))?;
    Ok(DONE)
}
