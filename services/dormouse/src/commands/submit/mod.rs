//! `submit`: publishes jobs as any client would, and reports the decisions.
//!
//! A job that waits ends it with 2, unlike `sbatch`: scripts that go on say `--detach`.

mod dry;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use dormouse_admission::plan::Planned;
use dormouse_admission::{decode, parse_job, received};
use dormouse_messages::events::{JobAllocation, Waiting};
use dormouse_messages::job::JobDocument;
use dormouse_messages::{Event, JobId, TenantId, Timestamp, sanitize};
use dormouse_projections::queries::JobDetail;
use dormouse_runtime::{Log, LogItem, retry};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::cli::duration::Limit;
use crate::cli::global::Output;
use crate::commands::common::decided::{Decided, Message, PATIENCE, decide, publish, too_fast};
use crate::commands::common::documents::{Set, Written, documents};
use crate::commands::common::{key_identity, next_event, query, workdir};
use crate::commands::job::wait;
use crate::context::Context;
use crate::error::{Coded, DONE, ERROR, WAITS};
use crate::print;

/// Submit jobs from YAML or JSON files, folders, or - for standard input
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse submit deploy/examples/count.yaml\n  dormouse submit --tenant ads job.yaml\n  cat job.json | dormouse submit -\n  dormouse submit jobs/ --detach\n  dormouse submit job.yaml --wait && dormouse job logs ads/lr\n  dormouse submit jobs/ --wait --timeout 2h\n  dormouse submit job.yaml --name lr --set env.LR=0.1,0.01 --set env.SEED=1,2,3\n  dormouse submit job.yaml --sweep table.csv --dry-run\n\nExit code of one job: 0 it has containers, 2 it waits and runs when it has room, 1 it was refused. Of several, and with --detach: 1 if one was refused. With --wait that of `job wait`. Jobs of a table or of several values are named NAME-1, NAME-2, …"
)]
pub struct SubmitArgs {
    /// Files with one or more jobs, or folders of files (not recursive); - is standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Tenant of the job. Default: the document's, else the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// Submit only if the result still matches the `plan` token; else refuse with the difference.
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub if_plan: Option<Planned>,
    /// Job name, in place of the document's.
    #[arg(long)]
    pub name: Option<String>,
    /// Set a field, such as env.LR=0.1; several values make one job each, several flags every combination.
    #[arg(long, value_name = "PATH=VALUE[,VALUE…]")]
    pub set: Vec<Set>,
    /// Make one job per row: a .csv whose first line names the fields, or a YAML or JSON list of maps.
    #[arg(long, value_name = "FILE")]
    pub sweep: Option<PathBuf>,
    /// Show admission's decision as of now, without submitting.
    #[arg(long, conflicts_with = "detach")]
    pub dry_run: bool,
    /// Do not wait for the decision.
    #[arg(long, short)]
    pub detach: bool,
    /// Wait until every job has ended, as `job wait` does.
    #[arg(long, conflicts_with_all = ["detach", "dry_run"])]
    pub wait: bool,
    /// With --wait: the longest wait, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME", requires = "wait")]
    pub timeout: Option<Limit>,
}

fn token(text: &str) -> Result<Planned, String> {
    text.parse()
}

/// A release follows the admission at once; later the job counts as queued.
const RELEASE_PATIENCE: Duration = Duration::from_millis(300);
/// An allocation follows within a solve; later the job counts as waiting.
const ALLOCATION_PATIENCE: Duration = Duration::from_secs(3);

/// The query service is milliseconds behind the log.
const KNOWN_PATIENCE: Duration = Duration::from_secs(3);

const MOST_PLANS: u32 = 3;

#[derive(Debug, Serialize, Deserialize)]
struct Submitted {
    job: JobId,
    ingress_sequence: u64,
    /// `allocated`, `waiting`, `queued`, or `idle` (a service without replicas).
    state: String,
    containers: u32,
    reason: String,
}

/// Runs `submit`.
///
/// # Errors
/// If a job is refused, with the reason on the log.
pub async fn run(context: &Context, args: &SubmitArgs) -> anyhow::Result<u8> {
    let sweep = args.sweep.as_deref();
    let (mut written, notes) = documents(&args.files, &args.set, sweep, args.name.as_deref())?;
    for note in notes {
        print::aside(format!("note: {note}"));
    }
    for note in written.iter().filter_map(|it| missing_file(context, it)) {
        print::aside(format!("note: {note}"));
    }
    let documents = written.iter_mut();
    let documents = documents.map(|it| (it.place.as_str(), &mut it.document));
    let packs = workdir::packed(documents).await?;
    if args.dry_run {
        let of_tenants = of_tenants(args, &written, None)?;
        return dry::run(context, &written, &of_tenants).await;
    }
    let log = context.connect_to_submit().await?;
    let of_tenants = of_tenants(args, &written, log.tenant())?;
    let places: Vec<String> = written.into_iter().map(|it| it.place).collect();
    if args.detach {
        // With --detach a refusal would go unseen.
        readable(&of_tenants, &places)?;
    }
    packs.store(&log, &of_tenants).await?;
    let [(tenant, document)] = of_tenants.as_slice() else {
        if args.if_plan.is_some() {
            bail!("--if-plan is of one job; submit it alone");
        }
        let (admitted, code) = many(context, &log, of_tenants, &places, args.detach).await?;
        return if args.wait {
            let ended = wait_for(context, &log, admitted, args).await?;
            Ok(wait::worse(code, ended))
        } else {
            Ok(code)
        };
    };
    let submitted = match &args.if_plan {
        Some(planned) => {
            submit_as_planned(context, &log, tenant, document.clone(), planned).await?
        }
        None if args.detach => {
            let (_, code) = many(context, &log, of_tenants, &places, true).await?;
            return Ok(code);
        }
        None => submit(&log, tenant, document)
            .await
            .map_err(|error| at(&places[0], error))?,
    };
    if args.wait {
        if submitted.state != "allocated" {
            let Submitted {
                job, state, reason, ..
            } = &submitted;
            print::aside(format!("{job} {state}: {reason}"));
        }
        return wait_for(context, &log, vec![submitted.job], args).await;
    }
    say(context, &submitted)
}

/// The first start would fail, and only its output would say why.
fn missing_file(context: &Context, written: &Written) -> Option<String> {
    let document = &written.document;
    if document.get("workdir").is_some() {
        return None;
    }
    let start = document.pointer("/command/start")?.as_array()?.iter();
    let program = start.take(2).filter_map(Value::as_str).find(|word| {
        let path = Path::new(word);
        path.is_relative() && word.contains('/') && path.extension().is_some()
    })?;
    let folder = context.folder_of_jobs()?;
    let is_missing = !folder.join(program).exists();
    is_missing.then(|| {
        format!(
            "{}: there is no {program} in {}, where `dormouse up` starts plain processes: name it by its whole path, send its folder along (--workdir), or start `up` where it is",
            written.place,
            folder.display()
        )
    })
}

pub(super) async fn one(
    context: &Context,
    log: &Log,
    tenant: &TenantId,
    document: &Value,
) -> anyhow::Result<u8> {
    say(context, &submit(log, tenant, document).await?)
}

fn say(context: &Context, submitted: &Submitted) -> anyhow::Result<u8> {
    print::value(context.output()?, submitted, |submitted, _| {
        format!(
            "{} {}: {}",
            submitted.job, submitted.state, submitted.reason
        )
    })?;
    Ok(match submitted.state.as_str() {
        "allocated" | "idle" => DONE,
        _ => WAITS,
    })
}

fn at(place: &str, error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Coded>() {
        Ok(coded) => Coded::new(coded.code, format!("{place}: {}", coded.message)).into(),
        Err(error) => error,
    }
}

async fn wait_for(
    context: &Context,
    log: &Log,
    jobs: Vec<JobId>,
    args: &SubmitArgs,
) -> anyhow::Result<u8> {
    let mut events = wait::events(log).await?;
    for job in &jobs {
        known(log, job).await;
    }
    wait::until_ended(context, log, &mut events, jobs, args.timeout).await
}

/// Submits a job if it still gets its planned containers. If the cluster has changed, a new plan decides.
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
            // A plan needs the whole log, which a tenant's key cannot read.
            Err(error) if stale(&error) && attempt < MOST_PLANS && log.tenant().is_none() => {
                let now = crate::commands::plan::again(context, tenant, &bare).await?;
                if now.containers != planned.containers {
                    let had = match planned.containers {
                        0 => "waited".to_owned(),
                        count => format!("got {}", sanitize::containers(count)),
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

fn of_tenants(
    args: &SubmitArgs,
    written: &[Written],
    key: Option<&TenantId>,
) -> anyhow::Result<Vec<(TenantId, Value)>> {
    let of_tenant = |it: &Written| {
        let named = it.document.get("tenant").and_then(Value::as_str);
        let tenant = match &args.tenant {
            Some(tenant) => key_identity::tenant(key, Some(tenant)),
            None => key_identity::tenant_by(key, named, &it.place),
        };
        Ok((tenant?, it.document.clone()))
    };
    written.iter().map(of_tenant).collect()
}

/// Uses admission's own parser; whether admission accepts the job also depends on the cluster.
fn readable(documents: &[(TenantId, Value)], places: &[String]) -> anyhow::Result<()> {
    for ((tenant, document), place) in documents.iter().zip(places) {
        let payload = serde_json::to_vec(document)?;
        let event = received(
            0,
            Timestamp::default(),
            tenant.as_str(),
            "submit",
            Some("application/json"),
            &payload,
        );
        let Event::SubmissionReceived(event) = event else {
            continue;
        };
        let parsed = decode::<JobDocument>(&event)
            .and_then(|document| parse_job(document, tenant, "unnamed", 0));
        if let Err(refusal) = parsed {
            let message = format!("{place}: {}; nothing was submitted", refusal.reason);
            return Err(Coded::new(refusal.code, message).into());
        }
    }
    Ok(())
}

/// Waits until the query service knows an admitted job. Only tenants need this: their events may be ahead of
/// the service, while operators' queries carry the last event seen.
pub async fn known(log: &Log, job: &JobId) {
    if log.tenant().is_none() {
        return;
    }
    let is_unknown = |error: &anyhow::Error| {
        let coded = error.downcast_ref::<Coded>();
        coded.is_some_and(|coded| coded.code == "not_found")
    };
    let ask = || query::<JobDetail>(log, "job", json!({"job": job}));
    let asked = retry(Duration::from_millis(20), KNOWN_PATIENCE, is_unknown, ask);
    let _ = tokio::time::timeout(KNOWN_PATIENCE, asked).await;
}

/// With `detach`, reports only that each document is stored.
async fn many(
    context: &Context,
    log: &Log,
    documents: Vec<(TenantId, Value)>,
    places: &[String],
    detach: bool,
) -> anyhow::Result<(Vec<JobId>, u8)> {
    let mut messages = Vec::with_capacity(documents.len());
    let mut named = Vec::with_capacity(documents.len());
    for (tenant, document) in &documents {
        let name = document["name"].as_str();
        named.push(name.and_then(|name| JobId::new(tenant, name).ok()));
        messages.push(Message {
            tenant: tenant.clone(),
            verb: "submit",
            payload: serde_json::to_vec(document)?.into(),
        });
    }
    let decided: Vec<(u64, Option<Decided>)> = if detach {
        let sequences = publish(log, messages).await?;
        sequences.into_iter().map(|it| (it, None)).collect()
    } else {
        let decided = decide(log, messages).await?;
        let decided = decided.into_iter();
        decided.map(|(it, became)| (it, Some(became))).collect()
    };
    let (output, mut code) = (context.output()?, DONE);
    let mut admitted = Vec::new();
    for ((job, place), (ingress_sequence, became)) in named.iter().zip(places).zip(decided) {
        let mut answer = json!({"ingress_sequence": ingress_sequence});
        let line = match became {
            None => {
                answer["state"] = "stored".into();
                if let Some(job) = job {
                    answer["job"] = json!(job);
                }
                let name = job.as_ref().map_or(place.as_str(), JobId::as_str);
                format!("{name} is stored as submission {ingress_sequence}")
            }
            Some(Ok((job, said))) => {
                answer["job"] = json!(job);
                answer["state"] = "admitted".into();
                let line = format!("{job} {said}");
                admitted.push(job);
                line
            }
            Some(Err(refusal)) => {
                code = ERROR;
                answer["document"] = json!(place);
                answer["error"] = json!({"code": refusal.code, "message": refusal.message});
                let name = job.as_ref().map(|job| format!(" ({job})"));
                format!("{place}{}: {refusal}", name.unwrap_or_default())
            }
        };
        match output {
            Output::Json => print::line(answer)?,
            Output::Yaml => print::yaml(&answer.to_string())?,
            Output::Table | Output::Wide => print::line(sanitize::shown(&line))?,
        }
    }
    Ok((admitted, code))
}

async fn submit(log: &Log, tenant: &TenantId, document: &Value) -> anyhow::Result<Submitted> {
    let mut events = log.events_from_now().await?;
    let payload = serde_json::to_vec(document)?;
    let ingress = log
        .publish_ingress(tenant, "submit", "application/json", payload.into())
        .await?;
    let job = admitted(&mut events, tenant, ingress).await?;
    if is_idle(log, document, &job).await {
        return Ok(Submitted {
            reason: "admitted; it has no replica until it is asked for".to_owned(),
            state: "idle".to_owned(),
            ingress_sequence: ingress,
            containers: 0,
            job,
        });
    }
    allocation(log, &mut events, job, ingress).await
}

/// Nothing allocates a service that is to have no replica yet.
async fn is_idle(log: &Log, document: &Value, job: &JobId) -> bool {
    if document["containers"]["min"].as_u64() != Some(0) {
        return false;
    }
    known(log, job).await;
    let detail = query::<JobDetail>(log, "job", json!({"job": job})).await;
    detail.is_ok_and(|detail| detail.row.kind.is_served() && detail.row.containers.target == 0)
}

/// Waits for the job that a submission became.
///
/// # Errors
/// If the submission is refused, or admission does not answer.
pub async fn admitted(
    events: &mut Receiver<LogItem>,
    tenant: &TenantId,
    ingress: u64,
) -> anyhow::Result<JobId> {
    let decided = next_event(events, Some(PATIENCE), |event| match event {
        Event::JobAdmitted(event) if event.ingress_sequence == ingress => {
            Some(Ok(event.job.clone()))
        }
        Event::JobRefused(event) if event.ingress_sequence == ingress => {
            Some(Err(Coded::new(event.code.clone(), event.reason.clone())))
        }
        Event::SubmissionsRateLimited(event)
            if event.tenant == tenant.as_str() && (event.first..=event.last).contains(&ingress) =>
        {
            Some(Err(too_fast(event)))
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

async fn standing(log: &Log, job: &JobId) -> String {
    let request = json!({"job": job});
    match query::<JobDetail>(log, "job", request).await {
        Ok(detail) if !detail.row.reason.is_empty() => detail.row.reason,
        _ => format!("nothing has allocated it yet; `dormouse job show {job}` says why"),
    }
}

async fn released(events: &mut Receiver<LogItem>, job: &JobId) -> anyhow::Result<Released> {
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

enum Released {
    Now,
    Later,
    Never(String),
}

async fn allocation(
    log: &Log,
    events: &mut Receiver<LogItem>,
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
                sanitize::containers(has.containers),
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
                Event::AllocationUnchanged(event) => found(&[], &event.outcome.waiting),
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
