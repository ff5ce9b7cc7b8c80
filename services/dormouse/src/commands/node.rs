//! `node …`: drains, fences, labels, taints and removes nodes.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use dormouse_messages::events::{NodeDrained, NodeFenced, NodeLabelled, NodeRemoved, NodeRestored};
use dormouse_messages::{Event, NodeId, suggest};
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{NodeDetail, NodeRow, NodesAnswer};
use serde_json::json;

use super::{agents, caught_up, configure, known, nodes, query};
use crate::cli::list::WatchArg;
use crate::cli::node::{NodeArg, label, named, taint};
use crate::cli::since::Limit;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Act on a node
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse node show n1\n  dormouse node drain n1 --reason 'a new disk'\n  dormouse node restore n1"
)]
pub enum NodeCommand {
    /// Show everything about a node
    #[command(after_help = "Examples:\n  dormouse node show n1\n  dormouse node show n1 -o json")]
    Show(NodeShowArgs),
    /// Move everything off a node and place nothing on it
    #[command(
        after_help = "Examples:\n  dormouse node drain n1\n  dormouse node drain n1 --reason 'a new disk' --deadline 1h\n\nA job without a checkpoint stays until it ends, or until the deadline."
    )]
    Drain(DrainArgs),
    /// Use a drained node again
    #[command(after_help = "Examples:\n  dormouse node restore n1")]
    Restore(NodeArg),
    /// Declare that a node's containers have ended, for example because it is switched off: they are replaced
    /// at once
    #[command(
        after_help = "Examples:\n  dormouse node fence n1 --reason 'its power is off'\n\nIt is refused where the node's agent answers: what runs there has not ended. `node drain` moves it."
    )]
    Fence(FenceArgs),
    /// Change a node's labels: zone=a sets one, zone- removes it
    #[command(
        after_help = "Examples:\n  dormouse node label n1 zone=a disk=nvme\n  dormouse node label n1 disk-\n\nWhat runs there runs on; constraints hold at every start."
    )]
    Label(NodeLabelArgs),
    /// Keep jobs without a toleration away: owner=ads adds a taint, owner=ads- removes it
    #[command(
        after_help = "Examples:\n  dormouse node taint n1 owner=ads\n  dormouse node taint n1 owner=ads-\n\nWhat runs there runs on."
    )]
    Taint(NodeTaintArgs),
    /// Forget a node that is lost, or drained and empty
    #[command(after_help = "Examples:\n  dormouse node remove n1")]
    Remove(NodeArg),
}

/// Arguments of `node fence`.
#[derive(Debug, Clone, Args)]
pub struct FenceArgs {
    /// Node.
    pub name: NodeId,
    /// Evidence; recorded on the log.
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// Fence even if the node's agent answers: its containers may run twice for a moment.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `node drain`.
#[derive(Debug, Clone, Args)]
pub struct DrainArgs {
    #[command(flatten)]
    pub node: NodeArg,
    /// Reason; shown with the node.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Time after which the remaining containers are stopped and start elsewhere: seconds, or 10m, 2h.
    #[arg(long, value_name = "TIME")]
    pub deadline: Option<Limit>,
}

/// Arguments of `node label`.
#[derive(Debug, Clone, Args)]
pub struct NodeLabelArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Labels.
    #[arg(required = true, value_name = "LABEL=VALUE")]
    pub labels: Vec<String>,
}

/// Arguments of `node taint`.
#[derive(Debug, Clone, Args)]
pub struct NodeTaintArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Taints.
    #[arg(required = true, value_name = "TAINT")]
    pub taints: Vec<String>,
}

/// Arguments of `node show`.
#[derive(Debug, Clone, Args)]
pub struct NodeShowArgs {
    #[command(flatten)]
    pub node: NodeArg,
    #[command(flatten)]
    pub watch: WatchArg,
}

/// Runs `node fence NAME`. Jobs start elsewhere at once: live containers would run twice.
///
/// # Errors
/// If there is no such node, its agent answers, or the event cannot be appended.
pub async fn fence(context: &Context, args: &FenceArgs) -> anyhow::Result<u8> {
    let FenceArgs {
        name,
        reason,
        force,
    } = args.clone();
    let log = context.connect().await?;
    caught_up(&log).await?;
    let node: NodeDetail = query(&log, "node", json!({"node": name})).await?;
    if node.row.lost_at.is_some() {
        return unchanged(context, &format!("{name} is lost already"));
    }
    if !force && agents::answers(&log, &name).await {
        let why = format!(
            "the agent of {name} answers, so what runs there has not ended and would run twice; `dormouse node drain {name}` moves it, or stop the agent first, or say it all the same with --force"
        );
        return Err(Coded::new("not_ended", why).into());
    }
    let fenced = NodeFenced {
        node: name.clone(),
        incarnation: node.agent_incarnation,
        reason,
    };
    let said = format!("{name} is lost: what ran there is started elsewhere");
    configure::append_to(log, context, vec![Event::from(fenced)], &said).await
}

fn unchanged(context: &Context, said: &str) -> anyhow::Result<u8> {
    let answer = json!({"sequence": null});
    print::value(context.output()?, &answer, |_, _| said.to_owned())?;
    Ok(DONE)
}

/// Runs `node drain NAME`.
///
/// # Errors
/// If there is no such node or the event cannot be appended.
pub async fn drain(context: &Context, args: &DrainArgs) -> anyhow::Result<u8> {
    let node = args.node.name.clone();
    let changes = args.reason.is_some() || args.deadline.is_some();
    let is_drained = row(context, &args.node.name).await?.drained_at.is_some();
    if is_drained && !changes {
        return unchanged(context, &format!("{node} is drained already"));
    }
    let deadline_s = args.deadline.map(|deadline| deadline.0);
    let said = match deadline_s {
        None => format!(
            "{node} is drained: what can move, moves; a job without a checkpoint stays until it ends"
        ),
        Some(s) => format!("{node} is drained: what can move, moves; the rest is stopped in {s} s"),
    };
    let event = NodeDrained {
        node,
        reason: args.reason.clone(),
        deadline_s,
    };
    configure::append(context, Event::from(event), &said).await
}

/// Runs `node restore NAME`.
///
/// # Errors
/// If there is no such node or the event cannot be appended.
pub async fn restore(context: &Context, args: &NodeArg) -> anyhow::Result<u8> {
    let node = args.name.clone();
    let row = row(context, &args.name).await?;
    if row.drained_at.is_none() && row.state != NodeState::Quarantined {
        return unchanged(
            context,
            &format!("{node} is neither drained nor quarantined"),
        );
    }
    let said = match row.state {
        NodeState::Lost => {
            format!("{node} is lost now; it takes containers again when its agent is back")
        }
        _ => format!("{node} takes containers again"),
    };
    configure::append(context, Event::from(NodeRestored { node }), &said).await
}

/// Runs `node …`.
///
/// # Errors
/// If there is no such node, or the cluster does not answer.
pub async fn run(context: &Context, command: &NodeCommand) -> anyhow::Result<u8> {
    match command {
        NodeCommand::Show(args) => nodes::show(context, &args.node.name, args.watch).await,
        NodeCommand::Drain(args) => drain(context, args).await,
        NodeCommand::Restore(args) => restore(context, args).await,
        NodeCommand::Fence(args) => fence(context, args).await,
        NodeCommand::Label(args) => set_labels(context, args).await,
        NodeCommand::Taint(args) => set_taints(context, args).await,
        NodeCommand::Remove(args) => remove(context, args).await,
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
