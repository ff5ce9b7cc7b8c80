//! Answers from the whole log.

use dormouse_messages::{Epoch, JobId, Sequence, Timestamp};
use dormouse_projections::queries::{self, Difference};
use dormouse_projections::timelines::Timeline;
use dormouse_replay::history::explain::{Explanation, SOLVES, Subject};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Answer, EVENTS, EventRow};
use crate::error::AnswerError;
use crate::site::Site;

const CHANGES: usize = 100;
const POINTS: usize = 1_200;

/// Query for a timeline.
#[derive(Debug, Deserialize)]
pub struct TimelineQuery {
    metric: String,
    job: Option<JobId>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    points: Option<usize>,
}

/// Returns a metric over time. Thinning keeps first, least, greatest and last of each slice.
pub fn timeline(site: &Site, query: &TimelineQuery) -> Answer<Timeline> {
    let asked = json!({
        "metric": query.metric, "job": query.job, "from": query.from, "to": query.to,
        "points": query.points.unwrap_or(POINTS).min(4 * POINTS), "busiest": 5,
    });
    let now = site.page.past.head().now;
    let answer = site
        .page
        .past
        .newest(|model| queries::answer(model, "timeline", asked, now))?;
    serde_json::from_value(answer).map_err(AnswerError::internal)
}

/// Query for an axis.
#[derive(Debug, Deserialize)]
pub struct AxisQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    points: Option<usize>,
}

/// Events at the points of a time axis.
#[derive(Debug, Serialize)]
pub struct AxisAnswer {
    from: Timestamp,
    to: Timestamp,
    sequences: Vec<Sequence>,
}

/// Returns the events of an axis.
pub fn axis(site: &Site, query: &AxisQuery) -> Answer<AxisAnswer> {
    let head = site.page.past.head();
    let from = query.from.unwrap_or(head.begun);
    let to = query.to.unwrap_or(head.now);
    let points = query.points.unwrap_or(POINTS).min(4 * POINTS);
    let sequences = site.page.past.indexed(|index| index.axis(from, to, points));
    Ok(AxisAnswer {
        from,
        to,
        sequences,
    })
}

/// Query for a step along the log.
#[derive(Debug, Deserialize)]
pub struct StepQuery {
    at: Option<u64>,
    /// `event`, `decision`, `time` or `epoch`.
    by: String,
    #[serde(default)]
    count: i64,
    time: Option<Timestamp>,
}

/// A position on the log.
#[derive(Debug, Serialize)]
pub struct StepAnswer {
    sequence: Sequence,
    at: Timestamp,
}

/// Returns a position, relative, at a time, or of an epoch.
pub fn step(site: &Site, query: &StepQuery) -> Answer<StepAnswer> {
    let at = site.moment(query.at);
    let found = site.page.past.indexed(|index| {
        let place = match query.by.as_str() {
            "event" => {
                let count = isize::try_from(query.count).unwrap_or(0);
                index
                    .place(at)
                    .saturating_add_signed(count)
                    .clamp(1, index.len())
            }
            "decision" => index.decision(at, query.count)?.place + 1,
            "epoch" => {
                let epoch = u64::try_from(query.count).ok()?;
                index.epoch(Epoch(epoch))?.place + 1
            }
            _ => index.place_at(query.time?),
        };
        index.before(place)
    });
    let (sequence, at) =
        found.ok_or_else(|| AnswerError::not_found("the log has no such place".to_owned()))?;
    Ok(StepAnswer { sequence, at })
}

/// Query for events.
#[derive(Debug, Deserialize)]
pub struct EventsQuery {
    at: Option<u64>,
    #[serde(default)]
    before: usize,
    #[serde(default)]
    after: usize,
}

/// Returns the events around a moment.
pub fn events(site: &Site, query: &EventsQuery) -> Answer<Vec<EventRow>> {
    let at = site.moment(query.at);
    let places: Vec<usize> = site.page.past.indexed(|index| {
        let place = index.place(at);
        let from = place.saturating_sub(query.before.min(EVENTS));
        (from..(place + query.after.min(EVENTS)).min(index.len())).collect()
    });
    let events = site.page.past.events(&places)?;
    Ok(events.iter().map(|it| site.event(it)).collect())
}

/// Query for an explanation: a job's id, `epoch/N`, `tenant/…` or `node/…`.
#[derive(Debug, Deserialize)]
pub struct ExplainQuery {
    at: Option<u64>,
    kind: String,
    id: String,
}

/// Explains a subject.
pub fn explain(site: &Site, query: &ExplainQuery) -> Answer<Explanation> {
    explained(site, query, |_| {})
}

/// Explains a subject step by step.
pub fn explaining(site: &Site, query: &ExplainQuery, tell: &dyn Fn(&Explanation)) -> Answer<()> {
    let whole = explained(site, query, tell)?;
    tell(&whole);
    Ok(())
}

fn explained(
    site: &Site,
    query: &ExplainQuery,
    tell: impl FnMut(&Explanation),
) -> Answer<Explanation> {
    let id = query.id.as_str();
    let subject = match query.kind.as_str() {
        "job" => Subject::Job(id.parse().map_err(AnswerError::wrong)?),
        "tenant" => Subject::Tenant(id.parse().map_err(AnswerError::wrong)?),
        "node" => Subject::Node(id.parse().map_err(AnswerError::wrong)?),
        "epoch" => {
            let epoch = id.parse().map_err(AnswerError::wrong)?;
            Subject::Epoch(Epoch(epoch))
        }
        other => {
            return Err(AnswerError::wrong(format!(
                "{other} is nothing that is explained"
            )));
        }
    };
    let at = site.moment(query.at);
    let explained = site.page.past.explain(subject, at, SOLVES, tell)?;
    explained.map_err(|error| AnswerError::not_found(error.to_string()))
}

/// Query for a comparison of two moments.
#[derive(Debug, Deserialize)]
pub struct DifferenceQuery {
    at: Option<u64>,
    from: u64,
}

/// Compares two moments.
pub fn difference(site: &Site, query: &DifferenceQuery) -> Answer<Difference> {
    let from = site.model(Some(query.from))?;
    let to = site.model(query.at)?;
    Ok(queries::difference(&from, &to, CHANGES))
}
