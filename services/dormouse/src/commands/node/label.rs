//! `node label`.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::NodeLabelled;
use dormouse_messages::{Event, NodeId};
use dormouse_projections::queries::NodesAnswer;
use serde_json::json;

use crate::cli::node::{label, named};
use crate::commands::common::{caught_up, known, operator, query};
use crate::context::Context;
use crate::error::Coded;
use crate::print;

/// Change a node's labels: zone=a sets one, zone- removes it
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse node label n1 zone=a disk=nvme\n  dormouse node label n1 disk-\n\nWhat runs there runs on; constraints hold at every start."
)]
pub struct LabelArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Labels.
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
}

/// Runs `node label NAME zone=a rack-`.
///
/// # Errors
/// If a label is wrong, or the append fails.
pub async fn run(context: &Context, args: &LabelArgs) -> anyhow::Result<u8> {
    let mut labels = BTreeMap::new();
    for text in &args.labels {
        let (name, value) = match text.strip_suffix('-').filter(|_| !text.contains('=')) {
            Some(name) => {
                named(name).map_err(anyhow::Error::msg)?;
                (name.to_owned(), None)
            }
            None => {
                let (name, value) = label(text).map_err(anyhow::Error::msg)?;
                (name, Some(value))
            }
        };
        if labels.insert(name.clone(), value).is_some() {
            bail!("{name} is named twice");
        }
    }
    let words = labels.iter().map(|(name, value)| match value {
        Some(value) => format!("{name}={value}"),
        None => format!("without {name}"),
    });
    let said = format!("{}: {}", args.name, words.collect::<Vec<_>>().join(", "));
    let event = NodeLabelled {
        node: args.name.clone(),
        labels,
        taints: BTreeMap::new(),
    };
    append(context, event, &said).await
}

/// Appends changed labels or taints, with notes on names that the cluster does not know.
///
/// # Errors
/// If the node has none of the named ones, or the append fails.
pub async fn append(context: &Context, event: NodeLabelled, said: &str) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    caught_up(&log).await?;
    let nodes: NodesAnswer = query(&log, "nodes", json!({"all": true})).await?;
    if let Some(new) = known::new_node(&event.node, &nodes.nodes) {
        print::aside(format!("note: {new}"));
    }
    if let Some(row) = nodes.nodes.iter().find(|row| row.node == event.node) {
        let missing = known::not_there(&event, row);
        if row.joined_at.is_some() && missing.len() == event.labels.len() + event.taints.len() {
            return Err(Coded::new("not_found", missing.join("; ")).into());
        }
        for word in missing {
            print::aside(format!("note: {word}"));
        }
    }
    operator::append_to(log, context, vec![Event::from(event)], said).await
}
