//! `run`: submits a command as a job, prints its output, and returns its exit code.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use dormouse_messages::events::ContainerExited;
use dormouse_messages::{Event, Incarnation, JobId, TenantId, sanitize};
use dormouse_node_agent::NO_PROGRAM;
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::JobDetail;
use dormouse_runtime::{Log, LogItem, LogWentBack};
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::timeout;

use super::common::documents::{Set, change};
use super::common::{key_identity, workdir};
use super::job::logs::{Source, Style, Wanted, follow, say_why_it_waits};
use super::submit::{admitted, known, one};
use crate::cli::duration::Limit;
use crate::context::Context;
use crate::error::{self, CANCELLED, DONE, FAILED};
use crate::print;
use crate::serve::asked_to_stop;

/// Run a command as a job: prints its output, returns its exit code, ^C cancels it
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse run -- python3 train.py --epochs 3\n  dormouse run --tenant ads --demand cpu=2,memory=4Gi -e SEED=7 -- ./train.sh\n  dormouse run --gpu 0.5 --time-limit 1h --set priority=10 -- ./train.sh\n  dormouse run --detach --name lr -- ./train.sh\n  dormouse job logs -f lr\n\nExit code: the command's own; 127: no such program, 4: cancelled; with --detach that of `submit`. It prints the lines of every container, across restarts, and why it waits. Standard input is not passed on: `dormouse job exec` does that."
)]
pub struct RunArgs {
    /// Tenant of the job. Default: the key's, else `default`.
    #[arg(long, env = "DORMOUSE_TENANT")]
    pub tenant: Option<String>,
    /// Job name; default: a generated name.
    #[arg(long)]
    pub name: Option<String>,
    /// Resources of one container.
    #[arg(long, default_value = "cpu=1", value_name = "AMOUNTS", value_parser = demand)]
    pub demand: BTreeMap<String, String>,
    /// GPUs of one container, or a part of a GPU such as 0.25; as gpu= in --demand.
    #[arg(long, value_name = "GPUS")]
    pub gpu: Option<String>,
    /// Number of containers; all run the command.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub containers: u32,
    /// Time limit over all restarts: 90s, 10m, 2h or 1d.
    #[arg(long, value_name = "TIME")]
    pub time_limit: Option<Limit>,
    /// Do not wait for the job's end.
    #[arg(long, short = 'd')]
    pub detach: bool,
    /// Environment variable NAME=VALUE; may be repeated.
    #[arg(long, short = 'e', value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Set a field of the job's document, such as priority=10.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<Set>,
    /// Image for the Docker runtime.
    #[arg(long)]
    pub image: Option<String>,
    /// Folder to send along, without the files that .gitignore names.
    #[arg(long, value_name = "FOLDER", value_hint = clap::ValueHint::DirPath)]
    pub workdir: Option<PathBuf>,
    /// Python packages for the command: a requirements file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub requirements: Option<PathBuf>,
    /// Command, after --.
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Parses `cpu=1,memory=2Gi` into the demand of a job document.
fn demand(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pair = |pair: &str| {
        let (name, amount) = pair
            .split_once('=')
            .ok_or_else(|| format!("{pair:?} is no amount such as cpu=1 or memory=2Gi"))?;
        Ok((name.trim().to_owned(), amount.trim().to_owned()))
    };
    text.split(',').map(pair).collect()
}

const BY_SIGNAL: i32 = 128;

const LATE: Duration = Duration::from_secs(3);

struct End {
    phase: &'static str,
    reason: String,
    exit_code: Option<u8>,
}

impl End {
    fn of(detail: &JobDetail) -> Self {
        let phase = match detail.row.phase {
            Phase::Completed => "completed",
            Phase::Cancelled => "cancelled",
            _ => "failed",
        };
        Self {
            phase,
            reason: detail.row.reason.clone(),
            exit_code: None,
        }
    }
}

/// Runs `run`.
///
/// # Errors
/// If the job is refused, or the cluster cannot be followed.
pub async fn run(context: &Context, args: &RunArgs) -> anyhow::Result<u8> {
    let mut document = document(args)?;
    let packs = workdir::packed(std::iter::once(("the job", &mut document))).await?;
    let log = context.connect_to_submit().await?;
    let tenant = key_identity::tenant(log.tenant(), args.tenant.as_deref())?;
    let documents = [(tenant.clone(), document)];
    packs.store(&log, &documents).await?;
    if args.detach {
        return one(context, &log, &tenant, &documents[0].1).await;
    }
    let mut events = log.events_from_now().await?;
    let payload = serde_json::to_vec(&documents[0].1)?;
    let ingress = log
        .publish_ingress(&tenant, "submit", "application/json", payload.into())
        .await?;
    let job = admitted(&mut events, &tenant, ingress).await?;
    known(&log, &job).await;
    print::aside(format!("── {job} is submitted; ^C cancels it"));
    if has_input() {
        print::aside(
            "── the standard input is not passed on to the job: give it a file, or use `dormouse job exec`",
        );
    }
    let ended = tokio::spawn(end(events, job.clone()));
    let source = Source::new(log.clone(), None);
    let waiting = tokio::spawn(say_why_it_waits(source.clone(), job.clone()));
    let wanted = Wanted {
        all: true,
        ..Wanted::default()
    };
    let following = follow(&source, &job, &wanted, Style::AsPrinted);
    let followed = cancelled_on_request(&log, &tenant, &job, following).await;
    waiting.abort();
    let detail = followed?.detail;
    let end = match log.tenant() {
        None => ended.await??,
        // A tenant's event message may be lost.
        Some(_) => match timeout(LATE, ended).await {
            Ok(ended) => ended??,
            Err(_) => End::of(&detail),
        },
    };
    let (phase, reason) = (end.phase, sanitize::shown(&end.reason));
    Ok(match (phase, end.exit_code) {
        ("completed", _) => DONE,
        ("cancelled", _) => {
            print::aside(format!("── {job} cancelled: {reason}"));
            CANCELLED
        }
        (_, exit_code) => {
            print::aside(format!("── {job} failed: {reason}"));
            exit_code.unwrap_or(FAILED)
        }
    })
}

fn document(args: &RunArgs) -> anyhow::Result<Value> {
    let mut env = serde_json::Map::new();
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=') else {
            bail!("--env {pair}: write NAME=VALUE");
        };
        env.insert(name.to_owned(), value.into());
    }
    let containers = args.containers;
    let mut document = json!({
        "command": {"start": args.command},
        "demand": args.demand,
        "containers": {"min": containers, "max": containers},
        "env": env,
    });
    if let Some(name) = &args.name {
        document["name"] = json!(name);
    }
    if let Some(gpu) = &args.gpu {
        document["demand"]["gpu"] = json!(gpu);
    }
    if let Some(limit) = args.time_limit.filter(|it| it.0 > 0) {
        document["time_limit_s"] = json!(limit.0);
    }
    if let Some(image) = &args.image {
        document["image"] = json!(image);
    }
    if let Some(folder) = &args.workdir {
        document["workdir"] = json!(folder);
    }
    if let Some(file) = &args.requirements {
        document["python"] = json!({"requirements": file});
    }
    change(&mut document, &args.set)?;
    workdir::resolve(&mut document, Path::new(""));
    Ok(document)
}

/// True for a nonempty file, or a pipe that holds bytes already.
fn has_input() -> bool {
    let input = std::io::stdin();
    let Ok(file) = fstat(&input) else {
        return false;
    };
    match FileType::from_raw_mode(file.st_mode) {
        FileType::RegularFile => file.st_size > 0,
        FileType::Fifo => ioctl_fionread(&input).is_ok_and(|bytes| bytes > 0),
        _ => false,
    }
}

/// On a stop signal, cancels the job and waits for its end; a second signal ends the wait.
async fn cancelled_on_request<T>(
    log: &Log,
    tenant: &TenantId,
    job: &JobId,
    following: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    let mut following = pin!(following);
    tokio::select! {
        ended = &mut following => return ended,
        () = asked_to_stop() => {}
    }
    print::aside(format!(
        "── cancelling {job}; ^C again stops waiting for its end"
    ));
    let payload = serde_json::to_vec(&json!({"job": job.name()}))?;
    log.publish_ingress(tenant, "cancel", "application/json", payload.into())
        .await?;
    tokio::select! {
        ended = following => ended,
        () = asked_to_stop() => bail!("{job} is being cancelled; its end was not waited for"),
    }
}

async fn end(mut events: Receiver<LogItem>, job: JobId) -> anyhow::Result<End> {
    let mut failed: Option<(Incarnation, u8)> = None;
    while let Some(followed) = events.recv().await {
        let LogItem::Event(recorded) = followed else {
            continue;
        };
        let (phase, reason) = match recorded.event() {
            Some(Event::ContainerExited(exited)) if exited.container.job == job => {
                let newer = failed.is_none_or(|(of, _)| of < exited.container.incarnation);
                if let Some(code) = code_of(exited).filter(|_| newer) {
                    failed = Some((exited.container.incarnation, code));
                }
                continue;
            }
            Some(Event::JobCompleted(event)) if event.job == job => ("completed", &event.reason),
            Some(Event::JobFailed(event)) if event.job == job => ("failed", &event.reason),
            Some(Event::JobCancelled(event)) if event.job == job => ("cancelled", &event.reason),
            _ => continue,
        };
        return Ok(End {
            phase,
            reason: reason.clone(),
            exit_code: failed.map(|(_, code)| code),
        });
    }
    bail!("{LogWentBack}; `dormouse job show {job}` says whether the job is still there")
}

fn code_of(exited: &ContainerExited) -> Option<u8> {
    let why = exited.reason.as_deref();
    if why.is_some_and(|why| why.ends_with(NO_PROGRAM)) {
        return Some(error::NO_PROGRAM);
    }
    let code = match (exited.exit_code, exited.signal) {
        _ if exited.evicted => return None,
        (Some(0), _) | (None, None) => return None,
        (Some(code), _) => code,
        (None, Some(signal)) => BY_SIGNAL + signal,
    };
    u8::try_from(code).ok()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn made(words: &[&str]) -> anyhow::Result<Value> {
        let words = ["dormouse", "run"].iter().chain(words);
        match Cli::try_parse_from(words).expect("flags").command {
            Some(Command::Run(args)) => document(&args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn flags_make_the_document() {
        let flags = [
            "--gpu",
            "0.5",
            "--demand",
            "cpu=2",
            "--containers",
            "3",
            "-e",
            "A=b",
            "--time-limit",
            "1m",
            "--set",
            "priority=3",
            "--",
            "true",
        ];
        let expected = json!({
            "command": {"start": ["true"]}, "demand": {"cpu": "2", "gpu": "0.5"},
            "containers": {"min": 3, "max": 3}, "env": {"A": "b"}, "time_limit_s": 60, "priority": 3,
        });
        assert_eq!(made(&flags).expect("a document"), expected);
        let several = made(&["--set", "priority=1,2", "--", "true"]).expect_err("one job");
        assert!(several.to_string().contains("several values"), "{several}");
    }
}
