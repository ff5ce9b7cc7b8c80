//! `jobs`, and the selection of jobs by filter.

use std::collections::BTreeSet;

use anyhow::bail;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dormouse_messages::JobId;
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::{JobsAnswer, JobsQuery, SortBy, TenantsAnswer};
use dormouse_runtime::Log;

use super::{key_identity, known, query, watched};
use crate::cli::global::Output;
use crate::cli::list::{FilterArgs, WatchArg};
use crate::cli::since::Since;
use crate::context::Context;
use crate::error::Coded;
use crate::{print, render};

/// List jobs
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse jobs\n  dormouse jobs --all --limit 20\n  dormouse jobs --name 'lr-*' --since 2d --sort waiting\n  dormouse jobs --tenant ads -o json\n  dormouse jobs --phase live --watch\n\nA table has the jobs that are not over and, where neither --all, --since nor --phase says which, those that ended within the last hour; its last line says how many are left out. -o json and -o yaml have all, in the order of their admission, where no flag says otherwise."
)]
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

/// Rows per answer: about 1 kB each, and a broker relays up to 8 MB.
const PAGE: usize = 1_000;

const RECENT_S: u64 = 3_600;

/// Lists jobs.
///
/// # Errors
/// If the query service does not answer.
pub async fn run(context: &Context, args: &JobsArgs) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let mut request = request(args, context.output()?);
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
fn request(args: &JobsArgs, output: Output) -> JobsQuery {
    let is_table = matches!(output, Output::Table | Output::Wide);
    let phase = (!args.phase.is_empty()).then(|| args.phase.join(","));
    let recent = is_table && !args.all && phase.is_none();
    let (ended_since, ended_within_s) = match args.since {
        Some(Since::At(time)) => (Some(time), None),
        Some(Since::Ago(seconds)) => (None, Some(seconds)),
        None => (None, recent.then_some(RECENT_S)),
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
        ended_since,
        ended_within_s,
        sort,
        descending,
        limit: args.limit,
        ..JobsQuery::default()
    }
}

/// Fetches the selected jobs in pages that a broker can relay.
///
/// # Errors
/// If the query service does not answer.
pub async fn listed(log: &Log, mut request: JobsQuery) -> anyhow::Result<JobsAnswer> {
    let wanted = match request.limit {
        0 => usize::MAX,
        limit => limit,
    };
    let mut all = JobsAnswer::default();
    // A job that changes between two pages may be in both.
    let mut seen: BTreeSet<JobId> = BTreeSet::new();
    loop {
        request.limit = PAGE.min(wanted - request.offset);
        let mut page: JobsAnswer = query(log, "jobs", serde_json::to_value(&request)?).await?;
        page.jobs.retain(|row| seen.insert(row.job.clone()));
        request.offset += request.limit;
        match request.sort {
            Some(_) => all.jobs.append(&mut page.jobs),
            // Pages come newest first, but the oldest job is listed first.
            None => all.jobs.splice(..0, page.jobs).for_each(drop),
        }
        all.refused.splice(..0, page.refused).for_each(drop);
        (all.more, all.total) = (page.more, page.total);
        all.ended_before = page.ended_before;
        if all.more == 0 || request.offset >= wanted {
            return Ok(all);
        }
    }
}

/// Named jobs, or the live jobs that match.
pub enum Chosen {
    Named(Vec<JobId>),
    Matching(JobsAnswer),
}

impl Chosen {
    /// Returns the ids.
    #[must_use]
    pub fn ids(&self) -> Vec<JobId> {
        match self {
            Self::Named(ids) => ids.clone(),
            Self::Matching(answer) => answer.jobs.iter().map(|row| row.job.clone()).collect(),
        }
    }
}

/// Returns the named jobs, or those that match.
///
/// # Errors
/// If no job is named, or none matches.
pub async fn chosen(log: &Log, filter: &FilterArgs) -> anyhow::Result<Chosen> {
    let filtered = filter.tenant.is_some() || !filter.phase.is_empty() || filter.name.is_some();
    match (filter.ids.is_empty(), filtered) {
        (false, false) => {
            let mut ids: Vec<JobId> = Vec::new();
            for named in &filter.ids {
                let id = key_identity::job(log, named)?;
                if !ids.contains(&id) {
                    ids.push(id);
                }
            }
            return Ok(Chosen::Named(ids));
        }
        (false, true) => bail!("name jobs, or say which by --tenant, --phase and --name, not both"),
        (true, false) => bail!("name a job, or say which by --tenant, --phase or --name"),
        (true, true) => {}
    }
    let phase = match filter.phase.as_slice() {
        [] => "live".to_owned(),
        phases => phases.join(","),
    };
    let request = JobsQuery {
        tenant: key_identity::only(log, filter.tenant.as_deref())?,
        phase: Some(phase),
        name: filter.name.clone(),
        ..JobsQuery::default()
    };
    let answer = listed(log, request).await?;
    if answer.jobs.is_empty() {
        Err(Coded::new("not_found", "no live job matches").into())
    } else {
        Ok(Chosen::Matching(answer))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use dormouse_messages::Timestamp;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(words: &[&str], output: Output) -> JobsQuery {
        let words = ["dormouse", "jobs"].iter().chain(words);
        match Cli::try_parse_from(words).expect("flags").command {
            Some(Command::Jobs(args)) => request(&args, output),
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
        let since = asked(&["--since", "2d", "--name", "lr-*"], Output::Table);
        assert_eq!(since.ended_within_s, Some(172_800));
        assert_eq!(since.name.as_deref(), Some("lr-*"));
        let time: Timestamp = "2026-11-23T05:30:00Z".parse().expect("a time");
        let at = asked(&["--since", "2026-11-23T05:30:00Z"], Output::Table);
        assert_eq!((at.ended_within_s, at.ended_since), (None, Some(time)));
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
