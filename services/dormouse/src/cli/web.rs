//! What is said of the page: `serve web`, `up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::history::LogFileArg;

/// The page of `serve web`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Of the page")]
pub struct WebArgs {
    /// Where the page listens. Elsewhere than on this machine it needs token, certificate and key.
    #[arg(
        long,
        env = "DORMOUSE_PAGE",
        default_value = "127.0.0.1:8090",
        value_name = "ADDRESS"
    )]
    pub page: SocketAddr,
    /// A name by which browsers reach it, besides its address; may be given several times.
    #[arg(long, env = "DORMOUSE_PAGE_HOST", value_name = "NAME[:PORT]")]
    pub page_host: Vec<String>,
    /// File with the token that opens it: …/#token=TOKEN. Without it the page of a cluster makes one at each start, and says it.
    #[arg(long, env = "DORMOUSE_PAGE_TOKEN", value_name = "FILE")]
    pub page_token: Option<PathBuf>,
    /// File with its certificates, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_CERT", value_name = "FILE")]
    pub page_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_KEY", value_name = "FILE")]
    pub page_key: Option<PathBuf>,
    /// Which log it shows.
    #[command(flatten)]
    pub log: LogFileArg,
}
