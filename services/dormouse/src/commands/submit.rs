//! `submit`: publishes a job as any client would, and says what became of it.

use std::time::Duration;

use anyhow::bail;
use dormouse_admission::plan::Planned;
use dormouse_messages::events::{JobAllocation, Waiting};
use dormouse_messages::{Event, JobId, TenantId};
use dormouse_projections::queries::JobDetail;
use dormouse_runtime::{Followed, Log};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::{next_event, query};
use crate::cli::{DEFAULT_TENANT, SubmitArgs};
use crate::context::{Context, read_document};
use crate::error::{Coded, DONE, WAITS};
use crate::print;

/// Admission answers in milliseconds; this long only when none runs.
const PATIENCE: Duration = Duration::from_secs(10);
/// A job that its queue lets go is released with the admission, or right after it; later, and the
/// answer is that it is queued.
const RELEASE_PATIENCE: Duration = Duration::from_millis(300);
/// An allocation follows within a solve; longer, and the answer is that it waits.
const ALLOCATION_PATIENCE: Duration = Duration::from_secs(3);

/// So often a plan is made again while the cluster changes.
const MOST_PLANS: u32 = 3;

/// What became of a submission.
#[derive(Debug, Serialize, Deserialize)]
struct Submitted {
    job: JobId,
    ingress_sequence: u64,
    /// `allocated`, `waiting` or `queued`.
    state: String,
    containers: u32,
    reason: String,
}

/// Publishes the document.
///
/// # Errors
/// When it is refused, with the reason on the log.
pub async fn run(context: &Context, args: &SubmitArgs) -> anyhow::Result<u8> {
    let document: Value = read_document(&args.file)?;
    let tenant = match (&args.tenant, document.get("tenant").and_then(Value::as_str)) {
        (Some(tenant), _) => TenantId::new(tenant.as_str())?,
        (None, Some(tenant)) => TenantId::new(tenant)?,
        (None, None) => TenantId::new(DEFAULT_TENANT)?,
    };
    let log = context.connect().await?;
    let submitted = match &args.if_plan {
        None => submit(&log, &tenant, &document).await?,
        Some(planned) => submit_as_planned(context, &log, &tenant, document, planned).await?,
    };
    print::value(context.output()?, &submitted, |submitted, _| {
        format!(
            "{} {}: {}",
            submitted.job, submitted.state, submitted.reason
        )
    })?;
    Ok(if submitted.state == "allocated" {
        DONE
    } else {
        WAITS
    })
}

/// Submits what still gets what was planned. What a decision depends on may have changed since: then
/// it is planned again, and submitted with the new token if it gets the same.
async fn submit_as_planned(
    context: &Context,
    log: &Log,
    tenant: &TenantId,
    mut document: Value,
    planned: &Planned,
) -> anyhow::Result<Submitted> {
    let bare = document.clone();
    let mut token = planned.clone();
    for attempt in 1.. {
        document["if_plan"] = json!(token.to_string());
        let submitted = submit(log, tenant, &document).await;
        let stale = |error: &anyhow::Error| {
            let coded = error.downcast_ref::<Coded>();
            coded.is_some_and(|coded| coded.code == "plan_stale")
        };
        match submitted {
            Err(error) if stale(&error) && attempt < MOST_PLANS => {
                let now = super::plan::again(context, tenant, &bare).await?;
                if now.containers != planned.containers {
                    let had = match planned.containers {
                        0 => "waited".to_owned(),
                        count => format!("got {count} containers"),
                    };
                    let what = format!(
                        "by the plan it {had}, now it {}{}; plan it again",
                        now.in_words(),
                        now.reason.map_or_else(String::new, |it| format!(" ({it})"))
                    );
                    return Err(Coded::new("plan_stale", what).into());
                }
                let Some(again) = now.token.and_then(|token| token.parse().ok()) else {
                    return Err(error);
                };
                token = again;
            }
            submitted => return submitted,
        }
    }
    bail!("it was not submitted")
}

async fn submit(log: &Log, tenant: &TenantId, document: &Value) -> anyhow::Result<Submitted> {
    let head = log.head().await?;
    let mut events = log.follow(head.next());
    let payload = serde_json::to_vec(document)?;
    let ingress = log
        .publish_ingress(tenant, "submit", "application/json", payload.into())
        .await?;
    let job = admitted(&mut events, ingress).await?;
    allocation(log, &mut events, job, ingress).await
}

/// The job that a submission became.
///
/// # Errors
/// Its refusal, or that nothing decides.
pub async fn admitted(events: &mut Receiver<Followed>, ingress: u64) -> anyhow::Result<JobId> {
    let decided = next_event(events, Some(PATIENCE), |event| match event {
        Event::JobAdmitted(event) if event.ingress_sequence == ingress => {
            Some(Ok(event.job.clone()))
        }
        Event::JobRefused(event) if event.ingress_sequence == ingress => {
            Some(Err(Coded::new(event.code.clone(), event.reason.clone())))
        }
        Event::SubmissionsShed(event)
            if event.tenant == tenant.as_str() && (event.first..=event.last).contains(&ingress) =>
        {
            let reason = format!(
                "{tenant} submits faster than {} a second; submit it again more slowly, or have the operator raise it with `dormouse tenant set {tenant} --max-rate {}`",
                event.max_rate,
                event.max_rate.saturating_mul(2)
            );
            Some(Err(Coded::new("too_fast", reason)))
        }
        _ => None,
    })
    .await?;
    match decided {
        Some(decided) => Ok(decided?),
        None => bail!(
            "submission {ingress} is stored, but nothing decides on it: is admission running? \
             It will be decided when it is; do not submit it again"
        ),
    }
}

/// Why nothing has allocated the job yet, as the query service sees it.
async fn standing(log: &Log, job: &JobId) -> String {
    let request = json!({"job": job});
    match query::<JobDetail>(log, "job", request).await {
        Ok(detail) if !detail.row.reason.is_empty() => detail.row.reason,
        _ => format!("nothing has allocated it yet; `dormouse job show {job}` says why"),
    }
}

/// Whether the queue lets the job go, or an allocation names it already.
async fn released(events: &mut Receiver<Followed>, job: &JobId) -> anyhow::Result<Released> {
    let found = next_event(events, Some(RELEASE_PATIENCE), |event| match event {
        Event::JobReleased(event) if event.job == *job => Some(Released::Now),
        Event::JobCancelled(event) if event.job == *job => {
            Some(Released::Never(event.reason.clone()))
        }
        _ => None,
    })
    .await?;
    Ok(found.unwrap_or(Released::Later))
}

/// What the queue did with a job that was just admitted.
enum Released {
    Now,
    Later,
    Never(String),
}

async fn allocation(
    log: &Log,
    events: &mut Receiver<Followed>,
    job: JobId,
    ingress_sequence: u64,
) -> anyhow::Result<Submitted> {
    let found = |allocated: &[JobAllocation], waiting: &[Waiting]| {
        let wait = waiting.iter().find(|waiting| waiting.job == job);
        let has = allocated
            .iter()
            .find(|allocated| allocated.job == job && allocated.containers > 0);
        match (has, wait) {
            (Some(has), _) => Some((
                "allocated",
                has.containers,
                format!("{} containers", has.containers),
            )),
            (None, Some(wait)) => Some(("waiting", 0, wait.reason.clone())),
            (None, None) => None,
        }
    };
    let answer = match released(events, &job).await? {
        Released::Later => None,
        Released::Never(reason) => bail!("{job} is cancelled: {reason}"),
        Released::Now => {
            next_event(events, Some(ALLOCATION_PATIENCE), |event| match event {
                Event::AllocationDecided(event) => found(&event.jobs, &event.outcome.waiting),
                Event::AllocationKept(event) => found(&[], &event.outcome.waiting),
                _ => None,
            })
            .await?
        }
    };
    let (state, containers, reason) = match answer {
        Some(answer) => answer,
        None => ("queued", 0, standing(log, &job).await),
    };
    Ok(Submitted {
        job,
        ingress_sequence,
        state: state.to_owned(),
        containers,
        reason,
    })
}
