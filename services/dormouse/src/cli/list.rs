//! `jobs`, and the filters of jobs that other commands take too.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::SortBy;

use super::{Limit, NamedJob, Since};

/// `jobs`.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Only this tenant's.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only jobs in these phases, such as running or queued,starting; live for all that are not
    /// over, refused for refused submissions.
    #[arg(long, value_delimiter = ',', value_name = "PHASE", value_parser = phases())]
    pub phase: Vec<String>,
    /// Only jobs of such a name: * stands for any text, ? for one character.
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
    /// Of jobs that are over only those that ended since: 90s, 10m, 2h, 1d ago, or from a time on
    /// (RFC 3339). Without it a table has those of the last hour.
    #[arg(long, value_name = "AGO|TIME", conflicts_with = "all")]
    pub since: Option<Since>,
    /// Also those that ended earlier.
    #[arg(long)]
    pub all: bool,
    /// The order. A table is in that of the state: what has containers, what waits, what is over.
    #[arg(long, value_name = "FIELD")]
    pub sort: Option<JobsSort>,
    /// The other way round.
    #[arg(long)]
    pub reverse: bool,
    /// At most this many, the first ones of the order; 0 for all.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub limit: usize,
    /// Whether it is shown again.
    #[command(flatten)]
    pub watch: WatchArg,
}

/// The phases that a list of jobs may be of.
fn phases() -> PossibleValuesParser {
    let names = Phase::ALL.iter().map(|phase| phase.as_str());
    PossibleValuesParser::new(names.chain(["live", "refused"]))
}

/// The phases of jobs that are not over.
fn live_phases() -> PossibleValuesParser {
    let live = Phase::ALL.iter().filter(|phase| !phase.is_over());
    PossibleValuesParser::new(live.map(|phase| phase.as_str()).chain(["live"]))
}

/// By what jobs are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum JobsSort {
    /// What has containers, the newest first; what waits, the first one first; what is over, the
    /// last one first.
    State,
    /// The newest first.
    Admitted,
    /// By tenant and name.
    Job,
    /// In the order of a job's life.
    Phase,
    /// The most containers first.
    Containers,
    /// The largest share first.
    Share,
    /// Who lacks most of its fair share first.
    Lacks,
    /// The longest wait for the first start first.
    Waiting,
    /// The oldest first.
    Age,
    /// The most resizes first.
    Resizes,
}

impl JobsSort {
    /// As the query has it, and whether the greatest goes first.
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

/// A list that is shown again as it changes.
#[derive(Debug, Clone, Copy, Args)]
pub struct WatchArg {
    /// Show it again every so many seconds, 2 where none are given, until ^C.
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
    match (0.1..=86_400.0).contains(&seconds) {
        true => Ok(seconds),
        false => Err("from 0.1 to 86400 seconds".to_owned()),
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
    /// All of such a name: * stands for any text, ? for one character.
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
}

/// Jobs that something is done to.
#[derive(Debug, Clone, Args)]
pub struct WhichArgs {
    /// Which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Do not ask: what matches is shown and confirmed otherwise.
    #[arg(long, short)]
    pub yes: bool,
}

/// `job wait`.
#[derive(Debug, Clone, Args)]
pub struct WaitArgs {
    /// For which.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Not longer than this, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Limit>,
}
