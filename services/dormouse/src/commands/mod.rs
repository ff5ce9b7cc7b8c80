//! The commands that ask or tell a cluster something, one file each.

pub mod accounts;
pub mod change;
pub mod configure;
pub mod decided;
pub mod documents;

pub mod diff;
pub mod doctor;
pub mod down;
pub mod dry;
pub mod exec;
pub mod explain;
mod grants;
pub mod history;
pub mod holder;
pub mod job;
pub mod jobs;
pub mod key;
mod known;
pub mod ledger;
pub mod log;
pub mod logs;
pub mod names;
pub mod node;
pub mod nodes;
pub mod notebook;
pub mod overview;
pub mod plan;
pub mod prune;
pub mod replay;
pub mod requirements;
pub mod run;
pub mod schema;
pub mod simulate;
pub mod slice;
pub mod solve;
pub mod submit;
pub mod tenants;
pub mod timeline;
pub mod trace;
pub mod version;
pub mod wait;
pub mod watched;
pub mod webhook;
pub mod whatif;
pub mod workdir;

use dormouse_messages::{Event, Sequence};
use dormouse_projections::queries::ClusterAnswer;
use dormouse_runtime::{Followed, Log};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc::Receiver;

use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;
use crate::render::Style;

/// How far the query service may be behind, in time.
const BEHIND: Duration = Duration::from_secs(10);

/// Asks the query service.
///
/// # Errors
/// Its refusal, or that nothing answers.
pub async fn query<T: DeserializeOwned>(
    log: &Log,
    name: &str,
    request: Value,
) -> anyhow::Result<T> {
    let answer = log.request(name, serde_json::to_vec(&request)?).await;
    let answer = answer.map_err(|error| match error {
        dormouse_runtime::ApiError::Refused { code, message } => Coded::new(code, message),
        other => Coded::new("unavailable", other.to_string()),
    })?;
    Ok(serde_json::from_slice(&answer)?)
}

/// Asks the query service and prints its answer.
///
/// # Errors
/// Its refusal, or that nothing answers.
pub async fn show<T: Serialize + DeserializeOwned>(
    context: &Context,
    log: &Log,
    name: &str,
    request: &impl Serialize,
    render: fn(&T, &Style) -> String,
) -> anyhow::Result<u8> {
    let answer: T = query(log, name, serde_json::to_value(request)?).await?;
    print::value(context.output()?, &answer, |answer, wide| {
        render(answer, &Style::of_stdout(wide))
    })?;
    Ok(DONE)
}

/// Waits until the query service has folded the log as it is now, which it returns the head of: for
/// what is decided on its answers. A tenant's key does not show the head: then nothing is waited for.
///
/// # Errors
/// When it does not answer, or stays behind.
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

/// The next event that `wanted` makes something of, or `None` after `patience`.
///
/// # Errors
/// When the log can no longer be followed.
pub async fn next_event<T>(
    events: &mut Receiver<Followed>,
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
            Some(Followed::Event(recorded)) => {
                if let Some(found) = recorded.event().and_then(&mut wanted) {
                    return Ok(Some(found));
                }
            }
            Some(_) => {}
            None => anyhow::bail!(
                "the log can no longer be followed; is the broker's disk an older one?"
            ),
        }
    }
}
