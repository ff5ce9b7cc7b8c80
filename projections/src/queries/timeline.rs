//! The query `timeline`.

use dormouse_messages::{JobId, Timestamp};
use serde::{Deserialize, Serialize};

use super::error::QueryError;
use crate::ReadModel;
use crate::timelines::{Metric, Timeline, Window, draw};

/// More lines are hard to tell apart.
const BUSIEST: usize = 7;
/// Finer than any terminal or page.
const POINTS: usize = 2_000;

/// The query's parameters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimelineQuery {
    /// One of [`Metric::ALL`].
    pub metric: String,
    /// The only one drawn.
    #[serde(default)]
    pub job: Option<JobId>,
    /// Jobs drawn without `job`.
    #[serde(default)]
    pub busiest: Option<usize>,
    #[serde(default)]
    pub from: Option<Timestamp>,
    #[serde(default)]
    pub to: Option<Timestamp>,
    #[serde(default)]
    pub points: Option<usize>,
}

pub(super) fn timeline(
    model: &ReadModel,
    query: &TimelineQuery,
    now: Timestamp,
) -> Result<Timeline, QueryError> {
    let metric: Metric = query.metric.parse().map_err(QueryError::bad_request)?;
    if let Some(job) = &query.job {
        if !metric.is_of_jobs() {
            let of_jobs = Metric::ALL.into_iter().filter(|it| it.is_of_jobs());
            let names: Vec<&str> = of_jobs.map(Metric::as_str).collect();
            return Err(QueryError::bad_request(format!(
                "{} is not of one job; of one job there are {}",
                metric.as_str(),
                names.join(", ")
            )));
        }
        if model.jobs.get(job).is_none() && model.timelines.job(job).is_none() {
            return Err(QueryError::not_found(format!(
                "there is no job {job}; `dormouse jobs` lists those that are known"
            )));
        }
    }
    let window = Window {
        from: query.from,
        // An old log is drawn to its end.
        to: query.to.map(|to| to.min(now)),
    };
    let mut of_tenants = model.fairness.series(metric);
    of_tenants.extend(model.forecasts.series(metric));
    if !of_tenants.is_empty() {
        let mut drawn = draw(metric, &of_tenants, window, model.queues.cluster.now);
        if metric == Metric::Unfairness {
            let area = model.fairness.area(model.queues.cluster.now);
            drawn.title = format!("{}; area {area:.1} share-seconds", drawn.title);
        }
        return Ok(drawn.bounded(query.points.unwrap_or(POINTS)));
    }
    let busiest = query.busiest.unwrap_or(BUSIEST);
    if metric.is_of_services() {
        let named = model.services.series(metric, query.job.as_ref(), busiest);
        let drawn = draw(metric, &named, window, model.cluster.now);
        return Ok(drawn.bounded(query.points.unwrap_or(POINTS)));
    }
    let drawn = model
        .timelines
        .timeline(metric, query.job.as_ref(), window, busiest);
    Ok(drawn.bounded(query.points.unwrap_or(POINTS)))
}
