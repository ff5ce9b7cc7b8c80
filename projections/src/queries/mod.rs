//! The queries of the NATS service API and the command line; [`answer`] is the entry. Readers tolerate
//! unknown fields.
//!
//! - `list.rs`, `selection.rs`, `jobs.rs`: jobs; `ledger.rs`: their cost
//! - `cluster.rs`, `nodes.rs`, `tenants.rs`, `notebooks.rs`, `timeline.rs`: one query group each
//! - `own.rs`: queries of a tenant; `difference.rs`: two moments compared; `error.rs`: a failed query

mod cluster;
mod difference;
mod error;
mod jobs;
mod ledger;
mod list;
mod nodes;
mod notebooks;
mod own;
mod selection;
mod tenants;
#[cfg(test)]
mod tests;
mod timeline;

use dormouse_messages::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use cluster::{
    ArchiveAnswer, BuildsAnswer, ClusterAnswer, FlaggedEvent, LogHead, NodeCounts, ResourceUse,
};
pub use difference::{Change, Difference, Side, difference};
pub use error::QueryError;
pub use jobs::{
    ContainerCounts, IDLE, IncarnationRow, JobDetail, JobQuery, JobRow, SpeedAt, SpeedRow, Spread,
};
pub use ledger::{LedgerAnswer, LedgerQuery, LedgerRow, TenantLedger};
pub use list::{JobsAnswer, JobsQuery, jobs};
pub use nodes::{
    LOST_LISTED_S, NodeContainer, NodeDetail, NodeQuery, NodeRow, NodesAnswer, NodesQuery,
};
pub use notebooks::{NotebookQuery, NotebookRow, NotebooksAnswer, NotebooksQuery};
pub use own::{TENANT_NAMES, answer_tenant};
pub use selection::SortBy;
pub use tenants::{BudgetRow, QueuedJob, TenantDetail, TenantQuery, TenantRow, TenantsAnswer};
pub use timeline::TimelineQuery;

use crate::ReadModel;
pub use crate::jobs::Refused as RefusedRow;

/// The queries by name.
pub const NAMES: [&str; 11] = [
    "cluster",
    "job",
    "jobs",
    "ledger",
    "node",
    "nodes",
    "notebook",
    "notebooks",
    "tenant",
    "tenants",
    "timeline",
];

/// Answers the query `name`. `request` is JSON; null if all fields are optional.
///
/// # Errors
/// When the query is unknown, the request invalid, or the item missing.
pub fn answer(
    model: &ReadModel,
    name: &str,
    request: Value,
    now: Timestamp,
) -> Result<Value, QueryError> {
    match name {
        "cluster" => value(&cluster::cluster(model, now)),
        "job" => value(&jobs::job(model, &read(name, request)?, now)?),
        "jobs" => value(&list::jobs(model, &read(name, request)?, now)?),
        "ledger" => value(&ledger::ledger(model, &read(name, request)?, now)),
        "node" => value(&nodes::node(model, &read(name, request)?)?),
        "nodes" => value(&nodes::nodes(model, read(name, request)?, now)),
        "notebook" => value(&notebooks::notebook(model, &read(name, request)?)?),
        "notebooks" => value(&notebooks::notebooks(model, &read(name, request)?)),
        "tenant" => value(&tenants::tenant(model, &read(name, request)?, now)?),
        "tenants" => value(&tenants::tenants(model, now)),
        "timeline" => value(&timeline::timeline(model, &read(name, request)?, now)?),
        _ => Err(QueryError {
            code: "unknown_query".to_owned(),
            message: format!(
                "there is no query {name:?}; the queries are {}",
                NAMES.join(", ")
            ),
        }),
    }
}

fn read<T: DeserializeOwned>(name: &str, request: Value) -> Result<T, QueryError> {
    let request = match request {
        Value::Null => Value::Object(serde_json::Map::new()),
        request => request,
    };
    serde_json::from_value(request).map_err(|error| {
        QueryError::bad_request(format!("the request of {name} is wrong: {error}"))
    })
}

fn value(answer: &impl Serialize) -> Result<Value, QueryError> {
    serde_json::to_value(answer).map_err(|error| QueryError {
        code: "internal".to_owned(),
        message: format!("the answer cannot be written: {error}"),
    })
}
