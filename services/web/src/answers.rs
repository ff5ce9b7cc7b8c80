//! Answers for the page: queries of the read models at a moment, and of the history.
//!
//! `log`: from the whole log; `map`: nodes and containers; `whatif`: forks.

mod log;
mod map;
mod whatif;

use std::sync::Arc;

use dormouse_messages::{JobId, NodeId, Recorded, Sequence, TenantId, Timestamp};
use dormouse_projections::ReadModel;
use dormouse_projections::queries::{self, ClusterAnswer, JobRow, NodeRow, SortBy, TenantsAnswer};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use log::{axis, difference, events, explain, explaining, step, timeline};
pub use map::NodeMap;
pub use whatif::whatif;

use crate::error::AnswerError;
use crate::site::Site;

/// Limit of listed events about one subject.
const EVENTS: usize = 400;
const ROWS: usize = 60;

type Answer<T> = Result<T, AnswerError>;

impl Site {
    fn moment(&self, at: Option<u64>) -> Sequence {
        let head = self.page.past.head().head;
        at.map_or(head, |at| Sequence(at).min(head))
    }

    fn model(&self, at: Option<u64>) -> Answer<Arc<ReadModel>> {
        Ok(self.page.past.at(self.moment(at))?)
    }

    fn event(&self, recorded: &Recorded) -> EventRow {
        let event = recorded.event();
        EventRow {
            sequence: recorded.sequence,
            at: self
                .page
                .past
                .indexed(|index| index.time(recorded.sequence)),
            event: event.map_or("unknown", |it| it.subject_name()).to_owned(),
            about: recorded.envelope.subject.to_string(),
            words: event.map(self.describe).unwrap_or_default(),
        }
    }
}

/// A moment; default: the head.
#[derive(Debug, Deserialize)]
pub struct AtQuery {
    at: Option<u64>,
}

/// A described event.
#[derive(Debug, Serialize)]
pub struct EventRow {
    sequence: Sequence,
    at: Timestamp,
    event: String,
    about: String,
    words: String,
}

/// The cluster at a moment.
#[derive(Debug, Serialize)]
pub struct StateAnswer {
    sequence: Sequence,
    at: Timestamp,
    event: Option<EventRow>,
    cluster: ClusterAnswer,
    tenants: TenantsAnswer,
    map: NodeMap,
}

/// Returns the cluster at a moment.
pub fn state(site: &Site, query: &AtQuery) -> Answer<StateAnswer> {
    let model = site.model(query.at)?;
    let now = model.cluster.now;
    let mut cluster: ClusterAnswer = ask(&model, "cluster", Value::Null)?;
    cluster.events.clear();
    let place = site
        .page
        .past
        .indexed(|index| index.place(model.cluster.head));
    let last = place
        .checked_sub(1)
        .map(|last| site.page.past.events(&[last]));
    let last = last
        .transpose()?
        .and_then(|events| events.into_iter().next());
    Ok(StateAnswer {
        sequence: model.cluster.head,
        at: now,
        event: last.map(|recorded| site.event(&recorded)),
        cluster,
        tenants: ask(&model, "tenants", Value::Null)?,
        map: map::of(&model),
    })
}

fn ask<T: serde::de::DeserializeOwned>(model: &ReadModel, name: &str, query: Value) -> Answer<T> {
    let answer = queries::answer(model, name, query, model.cluster.now)?;
    serde_json::from_value(answer).map_err(AnswerError::internal)
}

/// Filter and page of jobs.
#[derive(Debug, Deserialize)]
#[serde(default)]
#[derive(Default)]
pub struct JobsQuery {
    at: Option<u64>,
    tenant: Option<TenantId>,
    phase: Option<String>,
    search: String,
    sort: SortBy,
    descending: bool,
    offset: usize,
    limit: usize,
}

/// A page of jobs.
#[derive(Debug, Serialize)]
pub struct JobsPage {
    jobs: Vec<JobRow>,
    offset: usize,
    total: usize,
    /// Dropped from the table.
    forgotten: u64,
}

const MOST_ROWS: usize = 500;

/// Returns a page of jobs.
pub fn jobs(site: &Site, query: &JobsQuery) -> Answer<JobsPage> {
    let model = site.model(query.at)?;
    let page = queries::JobsQuery {
        tenant: query.tenant.clone(),
        phase: query.phase.clone(),
        search: Some(query.search.clone()),
        sort: Some(query.sort),
        descending: query.descending,
        offset: query.offset,
        limit: match query.limit {
            0 => ROWS,
            limit => limit.min(MOST_ROWS),
        },
        ..queries::JobsQuery::default()
    };
    let answer = queries::jobs(&model, &page, model.cluster.now)?;
    Ok(JobsPage {
        offset: query.offset.min(answer.total),
        jobs: answer.jobs,
        total: answer.total,
        forgotten: model.jobs.forgotten(),
    })
}

/// A job at a moment.
#[derive(Debug, Deserialize)]
pub struct JobQuery {
    at: Option<u64>,
    id: JobId,
}

/// A job and its events.
#[derive(Debug, Serialize)]
pub struct JobAnswer {
    job: Value,
    events: Vec<EventRow>,
    more: usize,
    decisions: Vec<(u64, Sequence)>,
}

/// Returns a job at a moment.
pub fn job(site: &Site, query: &JobQuery) -> Answer<JobAnswer> {
    let model = site.model(query.at)?;
    let asked = json!({ "job": query.id });
    let mut job = queries::answer(&model, "job", asked, model.cluster.now)?;
    // Only the newest model has the whole timeline.
    let window = json!({"metric": "containers", "job": query.id, "to": model.cluster.now});
    let line = site
        .page
        .past
        .newest(|newest| queries::answer(newest, "timeline", window, model.cluster.now));
    job["containers_timeline"] = line.unwrap_or_default();
    let (events, more) = about(site, query.id.as_str(), query.at)?;
    let incarnations = model
        .jobs
        .get(&query.id)
        .map(|job| job.incarnations.as_slice());
    let epochs = incarnations.unwrap_or_default().iter().map(|it| it.epoch);
    let decisions = site.page.past.indexed(|index| {
        let found = epochs.filter_map(|epoch| Some((epoch.0, index.epoch(epoch)?.sequence)));
        found.collect()
    });
    Ok(JobAnswer {
        job,
        events,
        more,
        decisions,
    })
}

/// Returns the last events about a subject, and the number of earlier ones.
fn about(site: &Site, what: &str, at: Option<u64>) -> Answer<(Vec<EventRow>, usize)> {
    let moment = site.moment(at);
    let places = site
        .page
        .past
        .indexed(|index| index.about(what, index.place(moment)));
    let more = places.len().saturating_sub(EVENTS);
    let events = site.page.past.events(&places[more..])?;
    Ok((events.iter().map(|it| site.event(it)).collect(), more))
}

/// Filter and page of nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct NodesQuery {
    at: Option<u64>,
    search: String,
    offset: usize,
}

/// A page of nodes.
#[derive(Debug, Serialize)]
pub struct NodesPage {
    nodes: Vec<NodeRow>,
    offset: usize,
    total: usize,
}

/// Returns a page of nodes.
pub fn nodes(site: &Site, query: &NodesQuery) -> Answer<NodesPage> {
    let model = site.model(query.at)?;
    let all: queries::NodesAnswer = ask(&model, "nodes", json!({"all": true}))?;
    let search = query.search.to_lowercase();
    let found = all.nodes.into_iter();
    let mut nodes: Vec<NodeRow> = found
        .filter(|row| row.node.as_str().contains(&search))
        .collect();
    let total = nodes.len();
    let offset = query.offset.min(total);
    nodes.drain(..offset);
    nodes.truncate(ROWS);
    Ok(NodesPage {
        nodes,
        offset,
        total,
    })
}

/// A node at a moment.
#[derive(Debug, Deserialize)]
pub struct NodeQuery {
    at: Option<u64>,
    id: NodeId,
}

/// Returns a node at a moment.
pub fn node(site: &Site, query: &NodeQuery) -> Answer<Value> {
    let model = site.model(query.at)?;
    let node = queries::answer(&model, "node", json!({"node": query.id}), model.cluster.now)?;
    let (events, more) = about(site, query.id.as_str(), query.at)?;
    Ok(json!({"node": node, "events": events, "more": more}))
}

/// A tenant at a moment.
#[derive(Debug, Deserialize)]
pub struct TenantQuery {
    at: Option<u64>,
    id: TenantId,
}

/// Returns a tenant at a moment.
pub fn tenant(site: &Site, query: &TenantQuery) -> Answer<Value> {
    let model = site.model(query.at)?;
    let asked = json!({"tenant": query.id});
    Ok(queries::answer(&model, "tenant", asked, model.cluster.now)?)
}
