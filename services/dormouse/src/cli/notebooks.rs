//! Arguments of `notebook …`.

use super::job_name::NamedJob;
use super::list::WatchArg;
use clap::{Args, Subcommand};

/// Subcommands of `notebook`.
#[derive(Debug, Subcommand)]
pub enum NotebookCommand {
    /// Print a notebook's address with its token; start the notebook first if it has ended
    #[command(
        after_help = "Examples:\n  dormouse notebook open ads/analysis\n  xdg-open \"$(dormouse notebook open ads/analysis)\"\n  dormouse notebook open ads/analysis -o json | jq -r .token\n\nWhere the gateway listens on another machine's own address only: ssh -L 8080:localhost:8080 MACHINE, with the gateway's port twice, and the address is right as it is printed."
    )]
    Open(OpenArgs),
    /// List notebooks: state, idle since, time of the automatic end
    #[command(
        after_help = "Examples:\n  dormouse notebook list\n  dormouse notebook list --tenant ads -o json\n  dormouse notebook list --watch"
    )]
    List(ListArgs),
}

/// Arguments of `notebook open`.
#[derive(Debug, Clone, Args)]
pub struct OpenArgs {
    /// Notebook, as TENANT/NAME.
    #[arg(value_name = "ID")]
    pub id: NamedJob,
    /// Seconds to wait for the notebook to be ready.
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    pub wait: u64,
}

/// Arguments of `notebook list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    #[command(flatten)]
    pub watch: WatchArg,
}
