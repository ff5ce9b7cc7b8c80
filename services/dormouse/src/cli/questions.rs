//! Arguments of `explain` and `ledger`, and the point on a log that such queries share.

use clap::Args;
use dormouse_messages::{JobId, TenantId};
use dormouse_replay::history::explain::SOLVES;

use super::history::{At, LogFileArg};
use super::jobs::job_id;
use super::list::WatchArg;

/// A log, a point on the log, and the tenant who asks.
#[derive(Debug, Clone, Args)]
pub struct PointArgs {
    /// After this sequence, or at this time (RFC 3339, a time of the day of the log's last event in UTC, or
    /// 10m for ten minutes before now, or before a file's last event); default: the end.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Answer with this tenant's view: its own names, and other tenants as amounts.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    #[command(flatten)]
    pub log: LogFileArg,
}

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
