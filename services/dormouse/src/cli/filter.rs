//! Arguments of lists: how often they are refreshed, and which jobs a command takes.

use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use dormouse_projections::jobs::Phase;

use super::duration::between;
use super::job_name::NamedJob;

fn live_phases() -> PossibleValuesParser {
    let live = Phase::ALL.iter().filter(|phase| !phase.is_over());
    PossibleValuesParser::new(live.map(|phase| phase.as_str()).chain(["live"]))
}

/// Refresh flag of lists.
#[derive(Debug, Clone, Copy, Args)]
pub struct WatchArg {
    /// Refresh until ^C, every 2s or as often as given.
    #[arg(
        long = "watch",
        value_name = "TIME",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "2s",
        value_parser = between_looks
    )]
    pub every: Option<Duration>,
}

/// Parses the time between two refreshes.
///
/// # Errors
/// A message with the bounds.
pub fn between_looks(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(100)..=Duration::from_hours(24))
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
