//! Jobs by page, cut on the server.

use dormouse_messages::{JobId, TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use super::jobs::{JobRow, places, row};
use super::selection::{Phases, SortBy, compare};
use crate::ReadModel;
use crate::jobs::{Job, room::Room};

const ROWS: usize = 60;
const MOST_ROWS: usize = 500;

/// Filters, order and page.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct JobsPageQuery {
    pub tenant: Option<TenantId>,
    /// Comma-separated; `live` for all not ended.
    pub phase: Option<String>,
    pub search: String,
    pub sort: SortBy,
    pub descending: bool,
    pub offset: usize,
    /// 0 for 60.
    pub limit: usize,
}

/// A page of jobs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobsPage {
    pub jobs: Vec<JobRow>,
    pub offset: usize,
    pub total: usize,
    /// Dropped from the table.
    pub forgotten: u64,
}

/// Returns a page.
///
/// # Errors
/// When a phase is unknown.
pub fn jobs_page(
    model: &ReadModel,
    query: &JobsPageQuery,
    now: Timestamp,
) -> Result<JobsPage, QueryError> {
    let phases = Phases::read(query.phase.as_deref())?;
    let search = query.search.to_lowercase();
    let of_tenant = |id: &JobId| {
        let tenant = query.tenant.as_ref();
        tenant.is_none_or(|tenant| tenant.as_str() == id.tenant())
    };
    let all = model.jobs.live().chain(model.jobs.ended());
    let mut found: Vec<(&JobId, &Job)> = all
        .filter(|(id, job)| of_tenant(id) && phases.has(job.phase))
        .filter(|(id, _)| search.is_empty() || id.as_str().contains(&search))
        .collect();
    let order = |a: &(&JobId, &Job), b: &(&JobId, &Job)| {
        let by = compare(query.sort, *a, *b, now);
        let by = if query.descending { by.reverse() } else { by };
        by.then_with(|| a.0.cmp(b.0))
    };
    let limit = match query.limit {
        0 => ROWS,
        limit => limit.min(MOST_ROWS),
    };
    let total = found.len();
    let end = query.offset.saturating_add(limit).min(total);
    let offset = query.offset.min(end);
    // Entries behind the page need no order.
    if end < total {
        found.select_nth_unstable_by(end, order);
        found.truncate(end);
    }
    found.sort_unstable_by(order);
    let places = places(&model.queues);
    let rows = found.drain(offset..);
    let room = Room::new(&model.queues, &model.jobs);
    let rows = rows.map(|(id, job)| row((model, &room), id, job, places.get(id).copied(), now));
    let ended = model
        .jobs
        .counts()
        .iter()
        .filter(|(phase, _)| phase.is_over());
    let ended: u64 = ended.map(|(_, count)| count).sum();
    Ok(JobsPage {
        jobs: rows.collect(),
        offset,
        total,
        forgotten: ended.saturating_sub(model.jobs.ended().count() as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_state::history::History;

    fn page(model: &ReadModel, query: &JobsPageQuery) -> (Vec<String>, usize) {
        let page = jobs_page(model, query, model.cluster.now).expect("a page");
        let ids = page.jobs.iter().map(|row| row.job.to_string()).collect();
        (ids, page.total)
    }

    #[test]
    fn a_page_is_a_part_of_the_sorted_whole() {
        let mut history = History::default();
        history.join("n0", 1);
        for (number, containers) in [(3, 1), (1, 3), (2, 2), (4, 4)] {
            history.run(&format!("ads/j{number}"), containers);
        }
        history.run("web/j9", 9);
        let model = history.fold::<ReadModel>();
        let query = JobsPageQuery {
            sort: SortBy::Containers,
            descending: true,
            ..JobsPageQuery::default()
        };
        let (all, total) = page(&model, &query);
        assert_eq!(all, ["web/j9", "ads/j4", "ads/j1", "ads/j2", "ads/j3"]);
        assert_eq!(total, 5);
        let part = JobsPageQuery {
            offset: 1,
            limit: 2,
            ..query.clone()
        };
        assert_eq!(page(&model, &part), (all[1..3].to_vec(), 5));
        let beyond = JobsPageQuery {
            offset: 99,
            ..query
        };
        assert_eq!(page(&model, &beyond), (Vec::new(), 5));
    }

    #[test]
    fn it_is_searched_where_the_jobs_are() {
        let mut history = History::default();
        history.join("n0", 1).run("ads/lr", 1).run("web/lr-2", 1);
        let model = history.fold::<ReadModel>();
        let search = |search: &str, tenant: Option<&str>, phase: Option<&str>| {
            let query = JobsPageQuery {
                search: search.to_owned(),
                tenant: tenant.map(|it| it.parse().expect("a tenant")),
                phase: phase.map(str::to_owned),
                ..JobsPageQuery::default()
            };
            page(&model, &query).0
        };
        assert_eq!(search("LR", None, None), ["ads/lr", "web/lr-2"]);
        assert_eq!(search("-2", None, None), ["web/lr-2"]);
        assert_eq!(search("", Some("ads"), None), ["ads/lr"]);
        assert_eq!(search("", None, Some("completed")), [""; 0]);
        let wrong = JobsPageQuery {
            phase: Some("asleep".to_owned()),
            ..JobsPageQuery::default()
        };
        assert!(jobs_page(&model, &wrong, model.cluster.now).is_err());
    }
}
