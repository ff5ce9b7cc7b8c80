//! Flags of `up`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use clap::{Args, ValueEnum};
use dormouse_messages::Amounts;

use crate::cli::node::{KeepArgs, RuntimeArg, capacity};

/// Run a local cluster: broker, services and nodes in this process
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse up\n  dormouse up --nodes 4 --capacity cpu=8,memory=16Gi\n  dormouse up --runtime docker --sync always\n\nStop it with ^C, or with `dormouse down`: containers run on, and the next `up` adopts them and repeats the flags of the last one."
)]
pub struct UpArgs {
    /// Number of nodes; 0: agents join from elsewhere.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(..=1000))]
    pub nodes: u32,
    /// Capacity of each node. Default: this machine's processors and memory, divided.
    #[arg(long, value_name = "AMOUNTS", value_parser = capacity)]
    pub capacity: Option<Amounts>,
    /// Also publish job states as JSON, under status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    /// Container runtime.
    #[arg(long, default_value = "process")]
    pub runtime: RuntimeArg,
    /// When the broker writes to disk: survive a killed process, or a power failure too.
    #[arg(long, default_value = "default")]
    pub sync: SyncArg,
    /// Broker port. Default: a free port.
    #[arg(long)]
    pub port: Option<u16>,
    /// Local address of the gateway. Default: a free port, then the same.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub gateway: Option<SocketAddr>,
    /// Local address of the page. Default: a free port, then the same.
    #[arg(long, value_name = "ADDRESS", value_parser = loopback)]
    pub page: Option<SocketAddr>,
    #[command(flatten)]
    pub keep: KeepArgs,
    /// Address of the Prometheus metrics, such as 127.0.0.1:9464.
    #[arg(long, env = "DORMOUSE_METRICS", value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
    /// Forget the flags of earlier starts.
    #[arg(long)]
    pub defaults: bool,
    /// The flags given on this command line, as written.
    #[arg(skip)]
    pub given: BTreeMap<String, String>,
}

/// When the broker writes to disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SyncArg {
    /// Every two minutes; a killed process loses nothing.
    Default,
    /// Before every acknowledgement.
    Always,
}

/// Parses an address that only this machine reaches.
fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|error| format!("{error}"))?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err(
        "everybody who reaches it is believed; give an address of this machine alone, such as 127.0.0.1:8080"
            .to_owned(),
    )
    }
}
