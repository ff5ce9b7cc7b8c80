//! `job list`, with the short form `jobs`.

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dormouse_messages::Timestamp;
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::{JobsQuery, SortBy, TenantsAnswer};

use super::selection::listed;
use crate::cli::filter::WatchArg;
use crate::cli::global::Output;
use crate::cli::log_range::{At, LogFileArg, moment};
use crate::commands::common::history::bounds;
use crate::commands::common::{key_identity, known, query, watched};
use crate::context::Context;
use crate::{print, render};

/// List jobs
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job list\n  dormouse job list --all --limit 20\n  dormouse job list --name 'lr-*' --from 2d --sort waiting\n  dormouse job list --tenant ads -o json\n  dormouse job list --phase live --watch\n\nA table has the jobs that are not over and, unless --all, --from or --phase says otherwise, those that ended within the last hour. -o json and -o yaml have all, in the order of admission. `dormouse jobs` is short for this command."
)]
pub struct ListArgs {
    /// Only this tenant.
    #[arg(long)]
    pub tenant: Option<String>,
    /// Only jobs in these phases, such as queued,starting; live: all that are not over; refused: refused
    /// submissions.
    #[arg(long, value_delimiter = ',', value_name = "PHASE", value_parser = phases())]
    pub phase: Vec<String>,
    /// Only jobs with a matching name: * stands for any text, ? for one character.
    #[arg(long, value_name = "PATTERN")]
    pub name: Option<String>,
    /// Leave out jobs that ended before this time or age. Default of tables: 1h.
    #[arg(long, value_name = "TIME", value_parser = moment, conflicts_with = "all")]
    pub from: Option<At>,
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

/// Sort orders of `job list`.
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

const RECENT_S: u64 = 3_600;

/// Lists jobs.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: &ListArgs) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let from = match args.from {
        None | Some(At::Ago(_)) => None,
        at => bounds(context, at, &LogFileArg::default()).await?.1,
    };
    let mut request = request(args, context.output()?, from);
    request.tenant = key_identity::only(&log, args.tenant.as_deref())?;
    if log.tenant().is_none()
        && let Some(tenant) = &args.tenant
    {
        let there: TenantsAnswer = query(&log, "tenants", serde_json::Value::Null).await?;
        let new = tenant.parse().ok();
        let new = new.and_then(|tenant| known::new_tenant(&tenant, &there.tenants));
        new.into_iter()
            .for_each(|new| print::aside(format!("note: {new}")));
    }
    let ask = || listed(&log, request.clone());
    watched::repeat(context, args.watch, ask, render::jobs).await
}

/// Programs that set no flag get all jobs in order of admission.
fn request(args: &ListArgs, output: Output, from: Option<Timestamp>) -> JobsQuery {
    let is_table = matches!(output, Output::Table | Output::Wide);
    let phase = (!args.phase.is_empty()).then(|| args.phase.join(","));
    let recent = is_table && !args.all && phase.is_none();
    let ended_within_s = match args.from {
        Some(At::Ago(ago)) => Some(ago.0.as_secs()),
        Some(_) => None,
        None => recent.then_some(RECENT_S),
    };
    let (sort, descending) = match args.sort {
        Some(sort) => {
            let (sort, descending) = sort.of_query();
            (Some(sort), descending != args.reverse)
        }
        None if is_table => (Some(SortBy::State), args.reverse),
        None if args.reverse => (Some(SortBy::Admitted), true),
        None => (None, false),
    };
    JobsQuery {
        phase,
        name: args.name.clone(),
        ended_since: from,
        ended_within_s,
        sort,
        descending,
        limit: args.limit,
        ..JobsQuery::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(words: &[&str], output: Output) -> JobsQuery {
        let words = ["dormouse", "jobs"].iter().chain(words);
        match Cli::try_parse_from(words).expect("flags").command {
            Some(Command::Jobs(args)) => request(&args, output, None),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_table_has_what_lives_and_what_has_just_ended() {
        let table = asked(&[], Output::Table);
        assert_eq!(table.ended_within_s, Some(RECENT_S));
        assert_eq!((table.sort, table.descending), (Some(SortBy::State), false));
        for all in [&["--all"][..], &["--phase", "completed,failed"]] {
            let query = asked(all, Output::Wide);
            assert_eq!((query.ended_within_s, query.ended_since), (None, None));
        }
        let since = asked(&["--from", "2d", "--name", "lr-*"], Output::Table);
        assert_eq!(since.ended_within_s, Some(172_800));
        assert_eq!(since.name.as_deref(), Some("lr-*"));
        let at = asked(&["--from", "2026-11-23T05:30:00Z"], Output::Table);
        assert_eq!(at.ended_within_s, None);
    }

    #[test]
    fn programs_get_what_they_always_got() {
        assert_eq!(asked(&[], Output::Json), JobsQuery::default());
        let sorted = asked(&["--sort", "waiting", "--limit", "3"], Output::Json);
        assert_eq!(
            (sorted.sort, sorted.descending, sorted.limit),
            (Some(SortBy::Waiting), true, 3)
        );
        let reversed = asked(&["--sort", "waiting", "--reverse"], Output::Json);
        assert!(!reversed.descending);
    }
}
