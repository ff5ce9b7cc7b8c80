//! `nodes`, `node show`, `cluster`.

use dormouse_messages::NodeId;
use dormouse_projections::queries::{ClusterAnswer, NodeDetail, NodeQuery, NodesAnswer};
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
    print::value(context.output()?, &answer, |wide| {
        render::nodes(&answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// Shows one node.
///
/// # Errors
/// When there is no such node, or the query service does not answer.
pub async fn show(context: &Context, name: &NodeId) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let request = NodeQuery { node: name.clone() };
    let answer: NodeDetail = query(&log, "node", serde_json::to_value(request)?).await?;
    print::value(context.output()?, &answer, |wide| {
        render::node(&answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// Shows the cluster at a glance.
///
/// # Errors
/// When the query service does not answer.
pub async fn cluster(context: &Context) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let answer: ClusterAnswer = query(&log, "cluster", Value::Null).await?;
    print::value(context.output()?, &answer, |wide| {
        render::cluster(&answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}
