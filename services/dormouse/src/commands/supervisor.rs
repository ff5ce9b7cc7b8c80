//! `supervisor --engine`: ends a node's containers in an engine. The agent calls it.

use clap::Args;

use crate::error::DONE;

/// Supervises a node's containers. The agent starts `supervisor FOLDER` (an absolute path), which is parsed
/// before this command line
#[derive(Debug, Clone, Args)]
#[command(hide = true)]
pub struct SupervisorArgs {
    /// End a node's containers in an engine, found by the labels of cluster and node.
    #[arg(long, num_args = 2, required = true, value_names = ["CLUSTER", "NODE"])]
    pub engine: Vec<String>,
}

/// Runs `supervisor --engine CLUSTER NODE`.
pub async fn run(args: &SupervisorArgs) -> u8 {
    if let [cluster, node] = &args.engine[..] {
        dormouse_node_agent::docker::end_all(cluster, node).await;
    }
    DONE
}
