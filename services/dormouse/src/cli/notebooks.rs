//! `notebook …`.

use super::jobs::NamedJob;
use super::list::WatchArg;
use clap::{Args, Subcommand};

/// `notebook …`.
#[derive(Debug, Subcommand)]
pub enum NotebookCommand {
    /// Print the address of a notebook with its token, starting it first where it was ended
    #[command(
        after_help = "Examples:\n  dormouse notebook open ads/analysis\n  xdg-open \"$(dormouse notebook open ads/analysis)\"\n  dormouse notebook open ads/analysis -o json | jq -r .token\n\nWhere the gateway listens on another machine's own address only: ssh -L 8080:localhost:8080 MACHINE, with the gateway's port twice, and the address is right as it is printed."
    )]
    Open(OpenArgs),
    /// List notebooks: how each is, since when it is idle, when it will be ended
    #[command(
        after_help = "Examples:\n  dormouse notebook list\n  dormouse notebook list --tenant ads -o json\n  dormouse notebook list --watch"
    )]
    List(ListArgs),
}

/// `notebook open`.
#[derive(Debug, Clone, Args)]
pub struct OpenArgs {
    /// The notebook, as TENANT/NAME.
    #[arg(value_name = "ID")]
    pub id: NamedJob,
    /// Seconds to wait until it is ready.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub wait: u64,
}

/// `notebook list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Again and again.
    #[command(flatten)]
    pub watch: WatchArg,
}
