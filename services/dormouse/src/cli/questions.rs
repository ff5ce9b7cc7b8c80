//! Arguments of `explain` and `ledger`.

use clap::Args;
use dormouse_messages::JobId;
use dormouse_replay::history::explain::SOLVES;

use super::job_name::job_id;
use super::list::WatchArg;
use super::point::{At, PointArgs};

/// Arguments of `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// A job (tenant/name), epoch/N, or the word tenant or node before a name.
    #[arg(value_name = "ID|epoch/N|tenant|node")]
    pub what: String,
    /// Name of the tenant or node.
    pub name: Option<String>,
    /// Largest number of decisions computed to search for changes.
    #[arg(long, value_name = "N", default_value_t = SOLVES)]
    pub solves: usize,
    #[command(flatten)]
    pub point: PointArgs,
}

/// Arguments of `ledger`.
#[derive(Debug, Clone, Args)]
pub struct LedgerArgs {
    /// Start of the window; default: the start of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// End of the window; default: the end of the log that is read.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
    /// Only this job.
    #[arg(long, value_parser = job_id)]
    pub job: Option<JobId>,
    #[command(flatten)]
    pub watch: WatchArg,
    /// The end of the reading: the loss of an incarnation is known only after the incarnation's end.
    #[command(flatten)]
    pub point: PointArgs,
}
