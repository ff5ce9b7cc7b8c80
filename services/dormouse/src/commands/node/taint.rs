//! `node taint`.

use std::collections::BTreeMap;

use clap::Args;
use dormouse_messages::NodeId;
use dormouse_messages::events::NodeLabelled;

use super::label::append;
use crate::cli::node::taint;
use crate::context::Context;

/// Keep jobs without a toleration away: owner=ads adds a taint, owner=ads- removes it
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse node taint n1 owner=ads\n  dormouse node taint n1 owner=ads-\n\nWhat runs there runs on."
)]
pub struct TaintArgs {
    /// Node; it need not have joined yet.
    pub name: NodeId,
    /// Taints.
    #[arg(required = true, value_name = "TAINT")]
    pub taints: Vec<String>,
}

/// Runs `node taint NAME owner=ads old-`.
///
/// # Errors
/// If a taint is wrong, or the append fails.
pub async fn run(context: &Context, args: &TaintArgs) -> anyhow::Result<u8> {
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
    append(context, event, &said).await
}
