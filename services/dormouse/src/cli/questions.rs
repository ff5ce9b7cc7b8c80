//! `explain`, `ledger`: questions about a log, at any place of it.

use clap::Args;
use dormouse_messages::{JobId, TenantId};
use dormouse_replay::history::explain::SOLVES;

use super::history::{At, LogFileArg};
use super::jobs::job_id;
use super::list::WatchArg;

/// Which log, up to where, and who asks.
#[derive(Debug, Clone, Args)]
pub struct PointArgs {
    /// After this sequence, or as it was at this time (RFC 3339, a time of the day of the log's last
    /// event, in UTC, or 10m for ten minutes ago: of a file before its last event); default: the end.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Answer as this tenant may see it: its own names, and others' as amounts.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    /// Where it is read.
    #[command(flatten)]
    pub log: LogFileArg,
}

/// `explain`.
#[derive(Debug, Clone, Args)]
pub struct ExplainArgs {
    /// A job (tenant/name), epoch/N, or the word tenant or node before a name.
    #[arg(value_name = "ID|epoch/N|tenant|node")]
    pub what: String,
    /// The tenant's or the node's name.
    pub name: Option<String>,
    /// Decisions that may be made to look for changes.
    #[arg(long, value_name = "N", default_value_t = SOLVES)]
    pub solves: usize,
    /// Which log, up to where, and who asks.
    #[command(flatten)]
    pub point: PointArgs,
}

/// `ledger`.
#[derive(Debug, Clone, Args)]
pub struct LedgerArgs {
    /// The window begins here; default: with the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// The window ends here; default: with what is read of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
    /// Only this job's rows.
    #[arg(long, value_parser = job_id)]
    pub job: Option<JobId>,
    /// Whether it is shown again.
    #[command(flatten)]
    pub watch: WatchArg,
    /// Where the reading ends: what a life lost is known only when it has ended.
    #[command(flatten)]
    pub point: PointArgs,
}
