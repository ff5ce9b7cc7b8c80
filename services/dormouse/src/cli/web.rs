//! Arguments of the page, for `serve web` and `up`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::point::LogFileArg;

/// Arguments of `serve web`.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Of the page")]
pub struct WebArgs {
    /// Address of the page. Addresses beyond this machine need token, certificate and key.
    #[arg(
        long,
        env = "DORMOUSE_PAGE",
        default_value = "127.0.0.1:8090",
        value_name = "ADDRESS"
    )]
    pub page: SocketAddr,
    /// Name by which browsers reach the page, besides its address; may be repeated.
    #[arg(long, env = "DORMOUSE_PAGE_HOST", value_name = "NAME[:PORT]")]
    pub page_host: Vec<String>,
    /// File with the page's token: …/#token=TOKEN. Without a file, the page of a cluster makes a token at
    /// each start and prints it.
    #[arg(long, env = "DORMOUSE_PAGE_TOKEN", value_name = "FILE")]
    pub page_token: Option<PathBuf>,
    /// File with its certificates, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_CERT", value_name = "FILE")]
    pub page_cert: Option<PathBuf>,
    /// File with the certificate's key, in PEM.
    #[arg(long, env = "DORMOUSE_PAGE_KEY", value_name = "FILE")]
    pub page_key: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFileArg,
}
