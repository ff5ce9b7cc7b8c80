//! The query service: folds the log, answers queries, publishes tenants' job states, stores packed folders.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use dormouse_messages::envelope::CONTENT_TYPE;
use dormouse_messages::{Fold, Recorded, Sequence, TenantId};
use dormouse_projections::ReadModel;
use dormouse_projections::queries::{self, QueryError};
use dormouse_projections::status::{Shown, StatusView};
use dormouse_runtime::{Asked, Log, LogItem, LogWentBack, Published, ServiceOptions};
use serde_json::Value;
use tokio::sync::{RwLock, watch};
use tokio_util::sync::CancellationToken;

use super::role::{DeciderArgs, Role};
use crate::cli::node::TenantStorageArg;
use crate::context::Context;
use crate::{clock, cluster_metrics};

/// Answer queries, and publish tenants' job states
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse serve api --server nats://broker:4222\n  dormouse serve api --json-status --tenant-storage 10Gi"
)]
pub struct ApiArgs {
    /// Also publish job states as JSON, under status.TENANT._json.
    #[arg(long, env = "DORMOUSE_JSON_STATUS")]
    pub json_status: bool,
    #[command(flatten)]
    pub storage: TenantStorageArg,
    #[command(flatten)]
    pub decider: DeciderArgs,
}

/// Runs `serve api`.
///
/// # Errors
/// The reason of an early end.
pub async fn serve(context: &Context, args: &ApiArgs) -> anyhow::Result<u8> {
    let role = Role {
        json_status: args.json_status,
        tenant_bytes: args.storage.limit.0,
        ..args.decider.role(context)
    };
    let started = args.decider.common.start(context, "api", None).await?;
    let run = |log, shutdown| async move { run(log, &role, shutdown).await };
    started.run(run).await
}

/// For reading the log after the start.
const READING: Duration = Duration::from_secs(3);

/// Runs the query service.
pub async fn run(log: Log, role: &Role, shutdown: CancellationToken) -> anyhow::Result<()> {
    let started = log.start::<ReadModel>(None).await?;
    let model = Arc::new(RwLock::new(started.state));
    let holder = ServiceOptions::default().holder;
    let (identity, json) = (log.identity(), role.json_status);
    let mut events = log.follow(started.sequence.next());
    let folded = Arc::clone(&model);
    // `None` until the log of the start is read: answers would be outdated.
    let (reached, read) = watch::channel(None);
    cluster_metrics::describe();
    let showing = show_metrics(Arc::clone(&model), read.clone());
    let folding = async move {
        let (mut batch, mut is_live) = (Vec::new(), false);
        while events.recv_many(&mut batch, 1_024).await > 0 {
            let mut model = folded.write().await;
            let mut last = Sequence(0);
            for followed in batch.drain(..) {
                match followed {
                    LogItem::Event(recorded) => {
                        last = recorded.sequence;
                        model.evolve(&recorded);
                        if is_live {
                            cluster_metrics::observe(&model, &recorded);
                        }
                    }
                    LogItem::Flagged { sequence, why, .. } => {
                        last = sequence;
                        model.flag(sequence, why);
                    }
                    LogItem::CaughtUp(sequence) => {
                        last = sequence;
                        is_live = true;
                    }
                }
            }
            drop(model);
            if is_live {
                reached.send_replace(Some(last));
            }
        }
        anyhow::Ok(())
    };
    let answer = move |asked: Asked| {
        let (model, mut read) = (Arc::clone(&model), read.clone());
        let after = asked.after.unwrap_or_default();
        let refuse = |code: &str, why: String| (code.to_owned(), why);
        let answering = move || {
            let answer = answer(&model.blocking_read(), &asked)
                .map_err(|error| (error.code, error.message))?;
            serde_json::to_vec(&answer).map_err(|error| refuse("internal", error.to_string()))
        };
        async move {
            if !reads_to(&mut read, after, READING).await {
                let why = "the query service is still reading the log; ask again in a moment";
                return Err(refuse("unavailable", why.to_owned()));
            }
            // A long answer must not delay others on this thread.
            let answered = tokio::task::spawn_blocking(answering).await;
            answered.unwrap_or_else(|error| Err(refuse("internal", error.to_string())))
        }
    };
    tokio::select! {
        folded = folding => folded.and_then(|()| Err(LogWentBack.into())),
        served = log.serve_api(&queries::NAMES, &queries::TENANT_NAMES, answer) => served.map_err(anyhow::Error::from),
        taken = log.serve_code(role.tenant_bytes) => taken.map_err(anyhow::Error::from),
        shown = log.publish_status(&holder, role.takeover, || shown(&identity, json), shutdown.clone()) => {
            shown.map_err(anyhow::Error::from)
        }
        never = showing => never,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// Waits until the reader has reached `after`; a log that was rolled back never does. Reports whether the log
/// of the start is read.
async fn reads_to(
    read: &mut watch::Receiver<Option<Sequence>>,
    after: Sequence,
    patience: Duration,
) -> bool {
    let there = read.wait_for(|read| read.is_some_and(|read| read >= after));
    let _ = tokio::time::timeout(patience, there).await;
    read.borrow().is_some()
}

async fn show_metrics(
    model: Arc<RwLock<ReadModel>>,
    mut read: watch::Receiver<Option<Sequence>>,
) -> anyhow::Result<()> {
    read.wait_for(Option::is_some).await?;
    loop {
        let model = Arc::clone(&model);
        let shown = move || {
            let model = model.blocking_read();
            cluster_metrics::show(&model, model.time_at(clock::now()));
        };
        tokio::task::spawn_blocking(shown).await?;
        tokio::time::sleep(cluster_metrics::SHOW_EVERY).await;
    }
}

fn answer(model: &ReadModel, asked: &Asked) -> Result<Value, QueryError> {
    let refuse = |error: &dyn std::fmt::Display| QueryError {
        code: "bad_request".to_owned(),
        message: error.to_string(),
    };
    let request: Value = if asked.request.is_empty() {
        Value::Null
    } else {
        serde_json::from_slice(&asked.request).map_err(|error| refuse(&error))?
    };
    tracing::debug!(query = asked.name, tenant = asked.tenant, "asked");
    let now = model.time_at(clock::now());
    let Some(tenant) = &asked.tenant else {
        return queries::answer(model, &asked.name, request, now);
    };
    let tenant = TenantId::new(tenant.as_str()).map_err(|error| refuse(&error))?;
    queries::answer_tenant(model, &tenant, &asked.name, request, now)
}

/// With `json` also under `<tenant>._json.>`.
fn shown(log: &str, json: bool) -> impl FnMut(&Recorded) -> Vec<Published> {
    let mut view = StatusView::default();
    move |recorded| {
        let mut published = Vec::new();
        for shown in view.show(recorded) {
            let mirrored = json.then(|| mirrored(log, recorded, &shown)).flatten();
            if let Ok(payload) = shown.envelope.to_msgpack() {
                published.push(Published {
                    subjects: shown.subjects,
                    content_type: CONTENT_TYPE,
                    payload: payload.into(),
                });
            }
            published.extend(mirrored);
        }
        published
    }
}

fn mirrored(log: &str, recorded: &Recorded, shown: &Shown<'_>) -> Option<Published> {
    let subjects = shown.subjects.iter().filter_map(|subject| {
        let (tenant, rest) = subject.split_once('.')?;
        Some(format!("{tenant}._json.{rest}"))
    });
    Some(Published {
        subjects: subjects.collect(),
        content_type: "application/cloudevents+json",
        payload: shown.to_json(recorded, log).ok()?.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    #[tokio::test]
    async fn a_query_waits_until_the_reader_knows_what_its_client_has_seen() {
        let (reached, mut read) = watch::channel(Some(Sequence(4)));
        let mut other = read.clone();
        let waiting = tokio::spawn(async move { reads_to(&mut other, Sequence(5), LONG).await });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        reached.send_replace(Some(Sequence(5)));
        assert!(waiting.await.expect("joins"));
        assert!(reads_to(&mut read, Sequence(5), LONG).await);
    }

    #[tokio::test]
    async fn an_event_that_never_comes_is_not_waited_for_without_end() {
        let (_reached, mut read) = watch::channel(Some(Sequence(4)));
        assert!(reads_to(&mut read, Sequence(5), Duration::ZERO).await);
        let (_reached, mut read) = watch::channel(None);
        assert!(!reads_to(&mut read, Sequence(0), Duration::ZERO).await);
    }
}
