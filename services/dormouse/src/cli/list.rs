//! Arguments of `jobs`, and the job filters that other commands share.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::SortBy;

use super::job_name::NamedJob;
use super::since::{Limit, Since};

/// Arguments of `jobs`.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only jobs in these phases, such as running or queued,starting; live for all that are not over, refused
    /// for refused submissions.
    #[arg(long, value_delimiter = ',', value_name = "PHASE", value_parser = phases())]
    pub phase: Vec<String>,
    /// Only jobs with a matching name: * stands for any text, ? for one character.
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
    /// Of ended jobs, only those that ended since 90s, 10m, 2h, 1d ago, or since a time (RFC 3339). Default
    /// of tables: the last hour.
    #[arg(long, value_name = "AGO|TIME", conflicts_with = "all")]
    pub since: Option<Since>,
    /// Include all ended jobs.
    #[arg(long)]
    pub all: bool,
    /// Sort order. Default of tables: by state (running, waiting, over).
    #[arg(long, value_name = "FIELD")]
    pub sort: Option<JobsSort>,
    /// Reverse the order.
    #[arg(long)]
    pub reverse: bool,
    /// Largest number of jobs, from the first in order; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
    #[command(flatten)]
    pub watch: WatchArg,
}

fn phases() -> PossibleValuesParser {
    let names = Phase::ALL.iter().map(|phase| phase.as_str());
    PossibleValuesParser::new(names.chain(["live", "refused"]))
}

fn live_phases() -> PossibleValuesParser {
    let live = Phase::ALL.iter().filter(|phase| !phase.is_over());
    PossibleValuesParser::new(live.map(|phase| phase.as_str()).chain(["live"]))
}

/// Sort orders of `jobs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JobsSort {
    /// Running jobs, newest first; then waiting jobs, oldest first; then ended jobs, the last to end first.
    State,
    /// Newest first.
    Admitted,
    /// By tenant and name.
    Job,
    /// In the order of the phases of a job.
    Phase,
    /// Most containers first.
    Containers,
    /// Largest share first.
    Share,
    /// Largest deficit from the fair share first.
    Lacks,
    /// Longest wait for the first start first.
    Waiting,
    /// Oldest first.
    Age,
    /// Most resizes first.
    Resizes,
}

impl JobsSort {
    /// Returns the sort key of the query, and true for descending order.
    #[must_use]
    pub const fn of_query(self) -> (SortBy, bool) {
        match self {
            Self::State => (SortBy::State, false),
            Self::Admitted => (SortBy::Admitted, true),
            Self::Job => (SortBy::Job, false),
            Self::Phase => (SortBy::Phase, false),
            Self::Containers => (SortBy::Containers, true),
            Self::Share => (SortBy::Share, true),
            Self::Lacks => (SortBy::Lacks, true),
            Self::Waiting => (SortBy::Waiting, true),
            Self::Age => (SortBy::Age, true),
            Self::Resizes => (SortBy::Resizes, true),
        }
    }
}

/// Refresh flag of lists.
#[derive(Debug, Clone, Copy, Args)]
pub struct WatchArg {
    /// Refresh every N seconds (2 if N is not given) until ^C.
    #[arg(
        long = "watch",
        value_name = "SECONDS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2",
        value_parser = between_looks
    )]
    pub seconds: Option<f64>,
}

pub(super) fn between_looks(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if (0.1..=86_400.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("from 0.1 to 86400 seconds".to_owned())
    }
}

/// Jobs: by name, or all live ones that match.
#[derive(Debug, Clone, Default, Args)]
pub struct FilterArgs {
    /// tenant/name, one or more.
    #[arg(value_name = "ID")]
    pub ids: Vec<NamedJob>,
    /// All of this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// All in these phases, such as queued or running,starting.
    #[arg(long, value_delimiter = ',', value_name = "PHASE", value_parser = live_phases())]
    pub phase: Vec<String>,
    /// All with a matching name: * stands for any text, ? for one character.
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
}

/// Jobs that a command acts on.
#[derive(Debug, Clone, Args)]
pub struct WhichArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Do not ask; otherwise the matching jobs are shown for confirmation.
    #[arg(long, short)]
    pub yes: bool,
}

/// Arguments of `job wait`.
#[derive(Debug, Clone, Args)]
pub struct WaitArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Longest wait, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Limit>,
}
