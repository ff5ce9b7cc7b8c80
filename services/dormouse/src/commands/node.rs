//! `node label`, `node taint`, `node remove`.

use std::collections::BTreeMap;

use anyhow::bail;
use dormouse_messages::events::{NodeLabelled, NodeRemoved};
use dormouse_messages::{Event, NodeId, suggest};
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{NodeRow, NodesAnswer};
use serde_json::json;

use super::{caught_up, configure, known, query};
use crate::cli::jobs::{NodeLabelArgs, NodeTaintArgs};
use crate::cli::node::{NodeArg, label, named, taint};
use crate::context::Context;
use crate::error::Coded;
use crate::print;

/// Runs `node label NAME zone=a rack-`.
///
/// # Errors
/// If a label is wrong, or the append fails.
pub async fn set_labels(context: &Context, args: &NodeLabelArgs) -> anyhow::Result<u8> {
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
    say(context, event, &said).await
}

async fn say(context: &Context, event: NodeLabelled, said: &str) -> anyhow::Result<u8> {
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
    configure::append_to(log, context, vec![Event::from(event)], said).await
}

/// Runs `node taint NAME owner=ads old-`.
///
/// # Errors
/// If a taint is wrong, or the append fails.
pub async fn set_taints(context: &Context, args: &NodeTaintArgs) -> anyhow::Result<u8> {
    let mut taints = BTreeMap::new();
    for text in &args.taints {
        let (name, is_put) = match text.strip_suffix('-') {
            Some(name) => (name, false),
            None => (text.as_str(), true),
        };
        taints.insert(taint(name).map_err(anyhow::Error::msg)?, is_put);
    }
    let words = taints.iter().map(|(taint, is_put)| match is_put {
        true => format!("tainted {taint}"),
        false => format!("no longer tainted {taint}"),
    });
    let said = format!("{}: {}", args.name, words.collect::<Vec<_>>().join(", "));
    let event = NodeLabelled {
        node: args.name.clone(),
        labels: BTreeMap::new(),
        taints,
    };
    say(context, event, &said).await
}

/// Runs `node remove NAME`.
///
/// # Errors
/// If there is no such node, it is in use, or the append fails.
pub async fn remove(context: &Context, args: &NodeArg) -> anyhow::Result<u8> {
    let node = args.name.clone();
    let row = row(context, &node).await?;
    let empty = row.containers == 0 && row.reserved == 0;
    match row.state {
        NodeState::Lost => {}
        NodeState::Drained if empty => {}
        NodeState::Drained => {
            let message = format!("{node} is drained and not empty yet: {}", row.reason);
            return Err(Coded::new("in_use", message).into());
        }
        NodeState::Up | NodeState::Quarantined => {
            let message = format!("{node} is in use; `dormouse node drain {node}` first");
            return Err(Coded::new("in_use", message).into());
        }
    }
    let said = format!("{node} is removed; an agent of that name may join again");
    configure::append(context, Event::from(NodeRemoved { node }), &said).await
}

async fn row(context: &Context, name: &NodeId) -> anyhow::Result<NodeRow> {
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
