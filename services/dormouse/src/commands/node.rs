//! `node label`, `node taint`, `node remove`, and the node flags of an agent.

use std::collections::BTreeMap;

use anyhow::bail;
use dormouse_messages::events::{Gpu, NodeLabelled, NodeRemoved};
use dormouse_messages::needs::{NODE_LABEL, RESERVED, is_label, is_taint, is_value};
use dormouse_messages::{Event, NodeId, Resource, suggest};
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{NodeRow, NodesAnswer};
use serde_json::json;

use super::{caught_up, configure, known, query};
use crate::cli::{NodeArg, NodeLabelArgs, NodeTaintArgs};
use crate::context::Context;
use crate::error::Coded;
use crate::print;

/// Parses an agent's `--label zone=a`.
///
/// # Errors
/// Describes the mistake.
pub fn label(text: &str) -> Result<(String, String), String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("{text:?} has no value; write zone=a"));
    };
    named(name)?;
    if is_value(value) {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err(format!("{value:?} cannot be a label's value"))
    }
}

/// Parses an agent's `--gpu GPU-5a1c,H200,141Gi`.
///
/// # Errors
/// Describes the mistake.
pub fn gpu(text: &str) -> Result<Gpu, String> {
    let mut parts = text.split(',');
    let (uuid, model) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let memory = parts.next().unwrap_or("0");
    if uuid.is_empty() || parts.next().is_some() {
        return Err(format!("{text:?} is not of the form GPU-5a1c,H200,141Gi"));
    }
    let memory = Resource::Memory.parse(memory);
    Ok(Gpu {
        uuid: uuid.to_owned(),
        model: model.to_owned(),
        memory_bytes: memory.map_err(|error| error.to_string())?,
    })
}

/// Parses an agent's `--taint owner=ads`.
///
/// # Errors
/// Describes the mistake.
pub fn taint(text: &str) -> Result<String, String> {
    if is_taint(text) {
        Ok(text.to_owned())
    } else {
        Err(format!(
            "{text:?} cannot be a taint; write a label such as old, or owner=ads"
        ))
    }
}

fn named(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) || name == NODE_LABEL {
        return Err(format!("{name} has a meaning of its own in constraints"));
    }
    if is_label(name) {
        Ok(())
    } else {
        Err(format!(
            "{name:?} cannot be a label; it has letters, digits, `.`, `_`, `/` and `-`"
        ))
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_taints_are_read_or_refused() {
        assert_eq!(label("zone=a"), Ok(("zone".to_owned(), "a".to_owned())));
        assert_eq!(taint("owner=ads"), Ok("owner=ads".to_owned()));
        for wrong in ["zone", "spread=a", "node=n7", "a b=c", "zone="] {
            assert!(label(wrong).is_err(), "{wrong}");
        }
        assert!(taint("=x").is_err());
        let named = gpu("GPU-5a1c,H200,141Gi").expect("a GPU");
        assert_eq!(
            (named.model.as_str(), named.memory_bytes),
            ("H200", 141 << 30)
        );
        assert_eq!(gpu("GPU-5a1c").expect("a GPU").memory_bytes, 0);
        assert!(gpu(",H200").is_err() && gpu("GPU-5a1c,H200,much").is_err());
    }
}
