//! Tests of programs that may listen on their own ports only.

use std::path::{Path, PathBuf};

use crate::common::*;
use crate::hostile_mounts::Node;
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::config::Contain;

const KERNEL: &str = r#"
from jupyter_client.manager import KernelManager
manager = KernelManager(transport="ipc", ip="/tmp/kernel")
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
client.execute_interactive("print(6 * 7)")
manager.shutdown_kernel(now=True)
"#;

#[tokio::test]
async fn a_notebooks_kernels_run_where_it_may_listen_on_its_own_ports_only() {
    let tools = std::env::var_os("DORMOUSE_TOOLS").map(PathBuf::from);
    let tools = tools.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools"));
    let python = tools.join("notebook/bin/python3");
    if !python.exists() {
        return skipped("no Jupyter: scripts/install.sh notebook");
    }
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    let notebook = tools.join("notebook").canonicalize().expect("a folder");
    let shown = |config: &mut AgentConfig, _: &Path| config.path = vec![notebook.clone()];
    let mut node = Node::with(shown).await.expect("root");
    let mut plan = node.plan(&[], "");
    plan.argv = [
        &notebook.join("bin/python3").display().to_string(),
        "-c",
        KERNEL,
    ]
    .map(str::to_owned)
    .into();
    let outcome = node.run(plan).await;
    assert!(outcome.text().contains("42"), "{outcome:?}");
}
