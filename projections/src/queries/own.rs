//! The queries of a tenant about itself. The broker's subject sets the tenant, not the request. Answers name
//! no other tenant's jobs.

use dormouse_messages::{TenantId, Timestamp};
use serde_json::{Map, Value, json};

use super::answer;
use super::error::QueryError;
use crate::ReadModel;
use crate::nodes::NodeState;
use crate::status::own_words;

/// The queries for tenants, by name.
pub const TENANT_NAMES: [&str; 8] = [
    "job",
    "jobs",
    "ledger",
    "nodes",
    "notebook",
    "notebooks",
    "tenant",
    "timeline",
];

/// Answers the query `name` of `tenant`, as [`answer`] does; the tenant may be omitted.
///
/// # Errors
/// As [`answer`]; other tenants' jobs do not exist.
pub fn answer_tenant(
    model: &ReadModel,
    tenant: &TenantId,
    name: &str,
    request: Value,
    now: Timestamp,
) -> Result<Value, QueryError> {
    if !TENANT_NAMES.contains(&name) {
        return Err(QueryError {
            code: "unknown_query".to_owned(),
            message: format!(
                "a tenant has no query {name:?}; its queries are {}",
                TENANT_NAMES.join(", ")
            ),
        });
    }
    let mut request = match request {
        Value::Null => Map::new(),
        Value::Object(request) => request,
        _ => {
            let why = format!("the request of {name} is wrong: it must be an object");
            return Err(QueryError::bad_request(why));
        }
    };
    let other = |named: &Value| named.as_str() != Some(tenant.as_str());
    if request.remove("tenant").is_some_and(|named| other(&named)) {
        let why = format!("{tenant} asks about itself; leave `tenant` out");
        return Err(QueryError::bad_request(why));
    }
    own_job(tenant, name, &mut request)?;
    if !matches!(name, "job" | "nodes" | "notebook" | "timeline") {
        request.insert("tenant".to_owned(), tenant.as_str().into());
    }
    let mut answered =
        answer(model, name, Value::Object(request), now).map_err(|error| QueryError {
            message: own_words(&error.message, tenant.as_str()),
            ..error
        })?;
    hide_others(&mut answered, tenant);
    if name == "nodes" {
        only_offers(&mut answered);
    }
    Ok(answered)
}

fn own_job(
    tenant: &TenantId,
    name: &str,
    request: &mut Map<String, Value>,
) -> Result<(), QueryError> {
    if name == "timeline" && !request.contains_key("job") {
        let why = "a tenant's timeline is that of one of its jobs; name it in `job`";
        return Err(QueryError::bad_request(why.to_owned()));
    }
    let Some(Value::String(job)) = request.get_mut("job") else {
        return Ok(());
    };
    match job.split_once('/') {
        None => *job = format!("{tenant}/{job}"),
        Some((other, _)) if other != tenant.as_str() => {
            let message = format!("{tenant} has no job {job}; the query jobs lists those it has");
            return Err(QueryError::not_found(message));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Addresses are not for tenants, and reasons may name others' jobs, paths and images.
fn only_offers(nodes: &mut Value) {
    let rows = nodes.get_mut("nodes").and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        row["address"] = "".into();
        let reason = match serde_json::from_value(row["state"].take()) {
            Ok(state) => {
                row["state"] = json!(state);
                match state {
                    NodeState::Up => "",
                    NodeState::Drained => "drained by the operator",
                    NodeState::Quarantined => "takes no containers for a while: starts have failed",
                    NodeState::Lost => "lost; its jobs restart elsewhere",
                }
            }
            Err(_) => "",
        };
        row["reason"] = reason.into();
    }
}

fn hide_others(value: &mut Value, tenant: &TenantId) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(text) if field == "reason" => {
                        *text = own_words(text, tenant.as_str());
                    }
                    value => hide_others(value, tenant),
                }
            }
        }
        Value::Array(values) => {
            for value in values {
                hide_others(value, tenant);
            }
        }
        _ => {}
    }
}
