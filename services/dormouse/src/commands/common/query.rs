//! Asks the query service, and waits for it and for events.

use dormouse_messages::{Event, Sequence};
use dormouse_projections::queries::ClusterAnswer;
use dormouse_runtime::{Log, LogItem, LogWentBack};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

use crate::error::Coded;

/// Longest accepted lag of the query service.
const BEHIND: Duration = Duration::from_secs(10);

/// Asks the query service.
///
/// # Errors
/// A refusal, or no answer.
pub async fn query<T: DeserializeOwned>(
    log: &Log,
    name: &str,
    request: Value,
) -> anyhow::Result<T> {
    let answer = log.request(name, serde_json::to_vec(&request)?).await;
    let answer = answer.map_err(|error| match error {
        dormouse_runtime::ApiError::Refused { code, message } => Coded::new(code, message),
        other => Coded::new("unavailable", other.to_string()),
    });
    match answer {
        Ok(answer) => Ok(serde_json::from_slice(&answer)?),
        Err(error) if name == "job" => Err(of_another_tenant(log, &request, error).await.into()),
        Err(error) => Err(error.into()),
    }
}

/// Suggests the job of that name under another tenant, but not to tenants.
async fn of_another_tenant(log: &Log, request: &Value, error: Coded) -> Coded {
    let is_unknown = error.code() == "not_found" && !error.message.contains("did you mean");
    let named = request["job"].as_str().and_then(|id| id.split_once('/'));
    let named = named.filter(|_| is_unknown && log.tenant().is_none());
    let Some((_, name)) = named else {
        return error;
    };
    let request = json!({"name": name, "limit": 1}).to_string();
    let answer = log.request("jobs", request.into_bytes()).await.ok();
    let found = answer.and_then(|it| serde_json::from_slice::<Value>(&it).ok());
    match found.as_ref().and_then(|it| it["jobs"][0]["job"].as_str()) {
        Some(meant) => Coded::new(
            error.code.clone(),
            format!("{}; did you mean {meant}?", error.message),
        ),
        None => error,
    }
}

/// Waits until the query service has folded the log up to its head; returns the head. Tenants cannot see the
/// head and do not wait.
///
/// # Errors
/// If the query service does not answer, or stays behind.
pub async fn caught_up(log: &Log) -> anyhow::Result<Sequence> {
    if log.tenant().is_some() {
        return Ok(Sequence(0));
    }
    let head = log.head().await?;
    let deadline = tokio::time::Instant::now() + BEHIND;
    loop {
        let cluster: ClusterAnswer = query(log, "cluster", Value::Null).await?;
        if cluster.log.head >= head {
            return Ok(head);
        }
        if tokio::time::Instant::now() > deadline {
            let message = format!(
                "the query service has read {} of {head} events; try again when it has caught up",
                cluster.log.head
            );
            return Err(Coded::new("unavailable", message).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Returns the first result of `wanted`, or `None` after `patience`.
///
/// # Errors
/// If the log can no longer be followed.
pub async fn next_event<T>(
    events: &mut Receiver<LogItem>,
    patience: Option<Duration>,
    mut wanted: impl FnMut(&Event) -> Option<T>,
) -> anyhow::Result<Option<T>> {
    let deadline = patience.map(|patience| tokio::time::Instant::now() + patience);
    loop {
        let received = match deadline {
            Some(deadline) => match tokio::time::timeout_at(deadline, events.recv()).await {
                Ok(received) => received,
                Err(_) => return Ok(None),
            },
            None => events.recv().await,
        };
        match received {
            Some(LogItem::Event(recorded)) => {
                if let Some(found) = recorded.event().and_then(&mut wanted) {
                    return Ok(Some(found));
                }
            }
            Some(_) => {}
            None => return Err(LogWentBack.into()),
        }
    }
}
