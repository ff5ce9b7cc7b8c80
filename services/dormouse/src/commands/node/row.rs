//! Finds a node, and says what stays as it is.

use dormouse_messages::{NodeId, suggest};
use dormouse_projections::queries::{NodeRow, NodesAnswer};
use serde_json::json;

use crate::commands::common::{caught_up, query};
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Returns the row of a node.
///
/// # Errors
/// If there is no such node.
pub async fn row(context: &Context, name: &NodeId) -> anyhow::Result<NodeRow> {
    let log = context.connect().await?;
    caught_up(&log).await?;
    let nodes: NodesAnswer = query(&log, "nodes", json!({"all": true})).await?;
    let names: Vec<String> = nodes.nodes.iter().map(|it| it.node.to_string()).collect();
    let row = nodes.nodes.into_iter().find(|row| row.node == *name);
    row.ok_or_else(|| {
        let near = suggest::nearest(name.as_str(), names.iter().map(String::as_str));
        let near = suggest::hint(near);
        let message = format!("there is no node {name}{near}; `dormouse nodes --all` lists them");
        Coded::new("not_found", message).into()
    })
}

/// Prints that nothing changed.
///
/// # Errors
/// If the standard output is closed.
pub fn unchanged(context: &Context, said: &str) -> anyhow::Result<u8> {
    let answer = json!({"sequence": null});
    print::value(context.output()?, &answer, |_, _| said.to_owned())?;
    Ok(DONE)
}
