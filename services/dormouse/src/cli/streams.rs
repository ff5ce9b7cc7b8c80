//! The broker's streams in arguments.

use clap::Args;

/// Streams of the broker.
#[derive(Debug, Clone, Args)]
pub struct StreamArgs {
    /// Create or update the streams on the broker first.
    #[arg(long)]
    pub ensure_streams: bool,
    /// Replicas of each stream: 1 or 3.
    #[arg(long, env = "DORMOUSE_REPLICAS", default_value_t = 1)]
    pub replicas: usize,
}
