//! The selection of jobs by name or filter.

use std::collections::BTreeSet;

use anyhow::bail;
use dormouse_messages::JobId;
use dormouse_projections::queries::{JobsAnswer, JobsQuery};
use dormouse_runtime::Log;

use crate::cli::filter::FilterArgs;
use crate::commands::common::{key_identity, query};
use crate::error::Coded;

/// Rows per answer: about 1 kB each, and a broker relays up to 8 MB.
const PAGE: usize = 1_000;

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
