//! `submit`: publishes a job as any client would, and says what became of it.

use std::time::Duration;

use anyhow::bail;
use dormouse_messages::events::{JobAllocation, Waiting};
use dormouse_messages::{Event, JobId, TenantId, plain};
use dormouse_projections::queries::JobDetail;
use dormouse_runtime::{Followed, Log};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use super::decided::{Decided, Message, PATIENCE, decide, publish};
use super::documents::documents;
use super::{dry, next_event, query};
use crate::cli::{DEFAULT_TENANT, Output, SubmitArgs};
use crate::context::Context;
use crate::error::{Coded, DONE, ERROR, WAITS};
use crate::print;

/// A job that its queue lets go is released with the admission, or right after it; later, and the
/// answer is that it is queued.
const RELEASE_PATIENCE: Duration = Duration::from_millis(300);
/// An allocation follows within a solve; longer, and the answer is that it waits.
const ALLOCATION_PATIENCE: Duration = Duration::from_secs(3);

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

/// Publishes the documents.
///
/// # Errors
/// When it is refused, with the reason on the log.
pub async fn run(context: &Context, args: &SubmitArgs) -> anyhow::Result<u8> {
    let sweep = args.sweep.as_deref();
    let documents = documents(&args.files, &args.set, sweep, args.name.as_deref())?;
    let mut of_tenants = Vec::with_capacity(documents.len());
    for document in documents {
        of_tenants.push((tenant_of(args, &document)?, document));
    }
    if args.dry_run {
        return dry::run(context, &of_tenants).await;
    }
    let log = context.connect().await?;
    let [(tenant, document)] = of_tenants.as_slice() else {
        return many(context, &log, of_tenants, args.detach).await;
    };
    if args.detach {
        return many(context, &log, of_tenants, true).await;
    }
    let submitted = submit(&log, tenant, document).await?;
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

fn tenant_of(args: &SubmitArgs, document: &Value) -> anyhow::Result<TenantId> {
    let named = document.get("tenant").and_then(Value::as_str);
    let tenant = args.tenant.as_deref().or(named);
    Ok(TenantId::new(tenant.unwrap_or(DEFAULT_TENANT))?)
}

/// Publishes all, and says what admission decides on each; `detach`: as what each is stored.
async fn many(
    context: &Context,
    log: &Log,
    documents: Vec<(TenantId, Value)>,
    detach: bool,
) -> anyhow::Result<u8> {
    let mut messages = Vec::with_capacity(documents.len());
    let mut names = Vec::with_capacity(documents.len());
    for (tenant, document) in &documents {
        let name = document["name"].as_str();
        names.push(name.map_or_else(|| tenant.to_string(), |name| format!("{tenant}/{name}")));
        messages.push(Message {
            tenant: tenant.clone(),
            verb: "submit",
            payload: serde_json::to_vec(document)?.into(),
        });
    }
    let decided: Vec<(u64, Option<Decided>)> = match detach {
        true => {
            let sequences = publish(log, messages).await?;
            sequences.into_iter().map(|it| (it, None)).collect()
        }
        false => {
            let decided = decide(log, messages).await?;
            let decided = decided.into_iter();
            decided.map(|(it, became)| (it, Some(became))).collect()
        }
    };
    let (output, mut code) = (context.output()?, DONE);
    for (name, (ingress_sequence, became)) in names.iter().zip(decided) {
        let mut answer = json!({"ingress_sequence": ingress_sequence});
        let line = match became {
            None => {
                answer["state"] = "stored".into();
                format!("{name} is stored as submission {ingress_sequence}")
            }
            Some(Ok((job, said))) => {
                answer["job"] = json!(job);
                answer["state"] = "admitted".into();
                format!("{job} {said}")
            }
            Some(Err(refusal)) => {
                code = ERROR;
                answer["error"] = json!({"code": refusal.code, "message": refusal.message});
                format!("{name}: {refusal}")
            }
        };
        match output {
            Output::Json => print::line(answer)?,
            Output::Yaml => print::yaml(&answer.to_string())?,
            Output::Table | Output::Wide => print::line(plain::shown(&line))?,
        }
    }
    Ok(code)
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
