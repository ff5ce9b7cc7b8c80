//! `cluster prune`: removes old files of ended containers on this machine's nodes, and packed folders that no
//! live job needs. For nodes elsewhere, it prints the command to run there.

use std::path::Path;

use clap::Args;
use dormouse_messages::{NodeId, sanitize};
use dormouse_node_agent::cache::prune::Old;
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::layout::Layout;
use dormouse_node_agent::prune::{old, prune};
use dormouse_projections::ReadModel;
use dormouse_projections::queries::{NodeRow, NodesAnswer};
use dormouse_runtime::{Log, Stored};
use serde_json::{Value, json};

use crate::cli::duration::Span;
use crate::clock;
use crate::commands::common::query;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// Show the files that ended containers have left on this machine's nodes, or remove them
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster prune                        # shows what would be removed\n  dormouse cluster prune --older-than 7d --yes"
)]
pub struct PruneArgs {
    /// Only files last written to at least this long ago.
    #[arg(long, default_value = "30d", value_name = "TIME")]
    pub older_than: Span,
    /// Remove the files; without this flag they are only shown.
    #[arg(long)]
    pub yes: bool,
}

fn look(data: &Path, args: &PruneArgs) -> anyhow::Result<Vec<Old>> {
    let keep = args.older_than.0;
    let mut found = Vec::new();
    let nodes = data.join("nodes");
    let Ok(entries) = std::fs::read_dir(&nodes) else {
        return Ok(found);
    };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(node) = NodeId::new(name) else {
            continue;
        };
        // The checkpoint folder is not pruned.
        let layout = Layout::new(data, &data.join("checkpoints"), &node);
        let marks = ContainerRecords::open(&layout)?;
        found.extend(old(&layout, &marks, keep)?);
        if args.yes {
            let _ = prune(&layout, &marks, keep);
        }
    }
    Ok(found)
}

async fn needed(log: &Log) -> anyhow::Result<Vec<(String, String)>> {
    let model = log.folded::<ReadModel>().await?.state;
    let packed = model.jobs.live().filter_map(|(id, job)| {
        let packed = job.workdir.as_ref()?;
        Some((id.tenant().to_owned(), packed.sha256.clone()))
    });
    Ok(packed.collect())
}

async fn stored(log: &Log, args: &PruneArgs) -> anyhow::Result<Vec<Stored>> {
    let (code, now) = (log.code(), clock::now());
    let mut old = code.list().await?;
    // After the listing: a job submitted meanwhile with an old packed folder is on the log by now.
    let needed = needed(log).await?;
    let keep_s = args.older_than.0.as_secs_f64();
    old.retain(|it| {
        let is_old = it.at.is_none_or(|at| now.seconds_since(at) >= keep_s);
        is_old && !needed.contains(&(it.tenant.clone(), it.sha256.clone()))
    });
    for it in old.iter().filter(|_| args.yes) {
        code.remove(&it.tenant, &it.sha256).await?;
    }
    Ok(old)
}

/// Runs `cluster prune`.
///
/// # Errors
/// If the folder or the cluster's store cannot be read.
pub async fn run(context: &Context, args: &PruneArgs) -> anyhow::Result<u8> {
    let (data, asked) = (context.data.clone(), args.clone());
    let has_nodes = data.join("nodes").is_dir();
    let found = tokio::task::spawn_blocking(move || look(&data, &asked)).await??;
    // The machine's folder needs no cluster.
    let (packed, nodes) = match context.connect().await {
        Ok(log) => {
            let nodes = query::<NodesAnswer>(&log, "nodes", Value::Null).await;
            let nodes = nodes.map(|answer| answer.nodes).unwrap_or_default();
            (stored(&log, args).await?, nodes)
        }
        Err(_) if has_nodes => (Vec::new(), Vec::new()),
        Err(error) => {
            let data = context.data.display();
            return Err(error.context(format!("no node has run in {data}")));
        }
    };
    let elsewhere = elsewhere(&nodes, |node| {
        context.data.join("nodes").join(node).is_dir()
    });
    let bytes: u64 = found.iter().map(|it| it.bytes).sum();
    let listed = found
        .iter()
        .map(|it| json!({"path": it.path.display().to_string(), "bytes": it.bytes}));
    let packed_listed = packed
        .iter()
        .map(|it| json!({"tenant": it.tenant, "sha256": it.sha256, "bytes": it.bytes}));
    let answer = json!({
        "removed": args.yes, "bytes": bytes, "directories": listed.collect::<Vec<_>>(),
        "workdirs": packed_listed.collect::<Vec<_>>(),
        "not_looked_at": elsewhere.iter().map(|it| &it.node).collect::<Vec<_>>(),
    });
    print::value(context.output()?, &answer, |_, _| {
        text(&found, &packed, args) + &not_looked_at(&elsewhere, args)
    })?;
    Ok(DONE)
}

fn elsewhere(nodes: &[NodeRow], is_here: impl Fn(&str) -> bool) -> Vec<&NodeRow> {
    let nodes = nodes.iter();
    nodes.filter(|it| !is_here(it.node.as_str())).collect()
}

fn not_looked_at(elsewhere: &[&NodeRow], args: &PruneArgs) -> String {
    if elsewhere.is_empty() {
        return String::new();
    }
    let named = elsewhere.iter();
    let named = named.map(|it| format!("{} ({})", it.node, it.address));
    let named = sanitize::listed(named, MOST_LISTED);
    let age = args.older_than;
    let yes = if args.yes { " --yes" } else { "" };
    format!(
        "\nNot looked at: {named}. Their folders are on other machines; run there: dormouse cluster prune --older-than {age}{yes} --data FOLDER, with the folder of the agent."
    )
}

const MOST_LISTED: usize = 30;

fn text(found: &[Old], packed: &[Stored], args: &PruneArgs) -> String {
    let folders = found.iter().map(|it| format!("{}\n", it.path.display()));
    let workdirs = packed
        .iter()
        .map(|it| format!("packed folder {} of {}\n", it.sha256, it.tenant));
    let all: Vec<String> = folders.chain(workdirs).collect();
    let mut list = all.iter().take(MOST_LISTED).cloned().collect::<String>();
    if all.len() > MOST_LISTED {
        let more = all.len() - MOST_LISTED;
        list.push_str(&format!("and {more} more; -o json lists all\n"));
    }
    let bytes: u64 = found.iter().map(|it| it.bytes).sum();
    let stored: u64 = packed.iter().map(|it| it.bytes).sum();
    let (mib, stored_mib) = (bytes >> 20, stored >> 20);
    let (count, packed) = (found.len(), packed.len());
    match (count + packed, args.yes) {
        (0, _) => format!("Nothing is older than {}.", args.older_than),
        (_, true) => format!(
            "{list}Removed {count} directories of {mib} MiB, and {packed} packed folders of {stored_mib} MiB from the cluster's store."
        ),
        (_, false) => format!(
            "{list}{count} directories of {mib} MiB would be removed, and {packed} packed folders of {stored_mib} MiB from the cluster's store; checkpoints stay. Add --yes to remove them."
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_whose_folders_are_elsewhere_are_named_with_what_to_run_there() {
        let node = |name: &str| -> NodeRow {
            let row = json!({
                "node": name, "state": "up", "reason": "", "capacity": {}, "used": {},
                "containers": 0, "running": 0, "reserved": 0, "runtime": "process",
                "address": format!("{name}.example.org"),
            });
            serde_json::from_value(row).expect("a row")
        };
        let nodes = [node("n0"), node("n1")];
        let args = PruneArgs {
            older_than: "7d".parse().expect("a time"),
            yes: true,
        };
        let others = elsewhere(&nodes, |node| node == "n0");
        let said = not_looked_at(&others, &args);
        assert!(
            said.contains("Not looked at: n1 (n1.example.org)."),
            "{said}"
        );
        assert!(
            said.contains("cluster prune --older-than 7d --yes --data"),
            "{said}"
        );
        assert_eq!(not_looked_at(&elsewhere(&nodes, |_| true), &args), "");
    }
}
