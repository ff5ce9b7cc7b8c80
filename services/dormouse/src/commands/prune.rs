//! `cluster prune`: what ended containers have left on the nodes of this machine's folder.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use dormouse_messages::NodeId;
use dormouse_node_agent::layout::Layout;
use dormouse_node_agent::marks::Marks;
use dormouse_node_agent::prune::{Old, old, prune};
use serde_json::json;

use crate::cli::PruneArgs;
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// What is old on the nodes below a folder, and whether it is gone.
fn look(data: &Path, args: &PruneArgs) -> anyhow::Result<Vec<Old>> {
    let keep = Duration::from_secs(u64::from(args.older_than) * 86_400);
    let mut found = Vec::new();
    let nodes = data.join("nodes");
    let entries = std::fs::read_dir(&nodes);
    let entries = entries.with_context(|| format!("no node has run in {}", data.display()))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Ok(node) = NodeId::new(name) else {
            continue;
        };
        // Checkpoints stay, wherever they are.
        let layout = Layout::new(data, &data.join("checkpoints"), &node);
        let marks = Marks::open(&layout)?;
        found.extend(old(&layout, &marks, keep)?);
        if args.yes {
            let _ = prune(&layout, &marks, keep);
        }
    }
    Ok(found)
}

/// `cluster prune`.
///
/// # Errors
/// When the folder cannot be read.
pub async fn run(context: &Context, args: &PruneArgs) -> anyhow::Result<u8> {
    let (data, asked) = (context.data.clone(), args.clone());
    let found = tokio::task::spawn_blocking(move || look(&data, &asked)).await??;
    let bytes: u64 = found.iter().map(|it| it.bytes).sum();
    let listed = found
        .iter()
        .map(|it| json!({"path": it.path.display().to_string(), "bytes": it.bytes}));
    let answer = json!({
        "removed": args.yes, "bytes": bytes, "directories": listed.collect::<Vec<_>>(),
    });
    print::value(context.output()?, &answer, |_, _| {
        let lines = found.iter().map(|it| format!("{}\n", it.path.display()));
        let list: String = lines.collect();
        let mib = bytes >> 20;
        match (found.len(), args.yes) {
            (0, _) => format!("Nothing is older than {} days.", args.older_than),
            (count, true) => format!("{list}Removed {count} directories of {mib} MiB."),
            (count, false) => format!(
                "{list}{count} directories of {mib} MiB would be removed; checkpoints stay. Add --yes to remove them."
            ),
        }
    })?;
    Ok(DONE)
}
