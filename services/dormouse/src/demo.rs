//! `demo`: real training jobs grow and shrink on a local cluster.
//!
//! 1. Start a cluster of four nodes in a folder of its own.
//! 2. Submit the jobs of `demo/plan.json` at their times; without training frameworks, of `demo/plain.json`.
//! 3. Print the events until every job has ended.
//! 4. Print results per job and over time; archive the log and verify the archive; export the log.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use dormouse_archive::{Archive, seal_now};
use dormouse_messages::policy::Policy;
use dormouse_messages::{
    Amounts, Event, Fold, Prefix, Recorded, Sequence, TenantId, Writer, sanitize,
};
use dormouse_node_agent::{Retention, RuntimeKind};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::{self, JobsAnswer, TimelineQuery};
use dormouse_projections::{ReadModel, timelines::Timeline};
use dormouse_replay::{OutputFile, Report};
use dormouse_runtime::{Log, LogItem};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde::Deserialize;
use serde_json::Value;

use crate::commands::common::history::History;
use crate::commands::log::export::export_to;
use crate::commands::log::{tail, verify};
use crate::context::{Context, read_document};
use crate::error::DONE;
use crate::render::{self, Style};
use crate::serve::archiver::default_place;
use crate::up::{LocalCluster, LocalOptions};
use crate::{build_id, clock, print, serve};

/// Run a demo: a local cluster that grows and shrinks real training jobs
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse demo                               # in any folder: writes demo/\n  dormouse demo --write-log /tmp/log.jsonl"
)]
pub struct DemoArgs {
    /// Folder of the example jobs. Default: deploy/examples, in this folder or of the package.
    #[arg(long, value_name = "DIR")]
    pub examples: Option<PathBuf>,
    /// File for the exported log.
    #[arg(long, default_value = "demo/log.jsonl", value_name = "FILE")]
    pub write_log: PathBuf,
}

const PATIENCE: Duration = Duration::from_secs(1_800);

const EXAMPLES: &str = "deploy/examples";

#[derive(Debug, Deserialize)]
struct Planned {
    at_s: f64,
    file: PathBuf,
}

/// The jobs of the demo, and what they need.
struct Show {
    examples: PathBuf,
    plan: Vec<Planned>,
    kind: &'static str,
    /// Folders before the others on the jobs' PATH.
    path: Vec<PathBuf>,
    missing: Option<String>,
}

/// Runs `demo`.
///
/// # Errors
/// If a part fails, or a decision does not verify.
pub async fn run(context: &Context, args: &DemoArgs) -> anyhow::Result<u8> {
    let _telemetry = serve::telemetry_quiet("dormouse-demo")?;
    let write_log = std::path::absolute(&args.write_log)?;
    let show = Show::find(args.examples.as_deref())?;
    let parent = write_log.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let folder = parent.join("cluster");
    let export = context.output_file(&write_log, &[])?;
    if folder.exists() {
        if !context.global().overwrite {
            bail!(
                "{} exists already, and is left as it is; name another place with --write-log, or say --overwrite",
                folder.display()
            );
        }
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::create_dir_all(&folder)?;
    let options = options(folder.canonicalize()?, show.path.clone())?;
    print::line(format_args!(
        "A cluster of {} nodes × {}, and {} {}.\n",
        options.nodes,
        options.capacity,
        show.plan.len(),
        show.kind
    ))?;
    if let Some(missing) = &show.missing {
        print::line(format_args!("Note: {missing}\n"))?;
    }
    let mut cluster = LocalCluster::start(&options).await?;
    let configured = dormouse_messages::events::ClusterConfigured {
        policy: Policy {
            theta1: 0.2,
            theta2: 0.5,
            ..Policy::default()
        },
    };
    let mut operator = cluster.log.appender(Writer::Operator, None);
    operator.append(Event::from(configured), &[]).await?;
    let log = cluster.log.clone();
    let submitted = show.plan.len();
    let publisher = tokio::spawn(async move { publish(&log, &show.plan, &show.examples).await });
    let log = cluster.log.clone();
    let model = tokio::select! {
        model = watch(&log, submitted) => model?,
        ended = cluster.ended() => {
            ended?;
            bail!("a service ended early");
        }
    };
    publisher.await??;
    let verified = finish(&cluster.log, &options.data, &model, export).await;
    cluster.stop().await;
    verified.map(|()| DONE)
}

impl Show {
    /// Finds the jobs: training where its frameworks are installed, else jobs that need Python alone.
    fn find(examples: Option<&Path>) -> anyhow::Result<Self> {
        let tools = std::env::var_os("DORMOUSE_TOOLS")
            .map_or_else(|| PathBuf::from(".tools"), PathBuf::from);
        let trainers = tools.join("venv").join("bin");
        let trained = trainers.canonicalize();
        let examples = match examples {
            Some(folder) => folder.to_owned(),
            None => enter_examples()?,
        };
        let (file, kind, path, missing) = match trained {
            Ok(path) => (
                "plan.json",
                "training jobs (MPI and MXNet, handwritten digits)",
                vec![path],
                None,
            ),
            Err(_) => (
                "plain.json",
                "jobs that count in plain Python",
                own_python()?,
                Some(format!(
                    "MPI and MXNet are not installed in {}, so the jobs train nothing; `make demo` in the repository installs them.",
                    trainers.display()
                )),
            ),
        };
        let plan = read_document(&examples.join("demo").join(file))
            .context("name the folder of the example jobs with --examples")?;
        Ok(Self {
            examples,
            plan,
            kind,
            path,
            missing,
        })
    }
}

/// Returns the folder of the example jobs. Jobs name their programs from the folder above `deploy`: where a
/// package has it, this process goes there.
fn enter_examples() -> anyhow::Result<PathBuf> {
    let here = PathBuf::from(EXAMPLES);
    if here.is_dir() {
        return Ok(here);
    }
    let program = std::env::current_exe()?;
    let program_folder = program.parent().unwrap_or(Path::new("/"));
    let roots = [
        program_folder.to_owned(),
        program_folder.join("../share/dormouse"),
    ];
    let Some(root) = roots.iter().find(|root| root.join(EXAMPLES).is_dir()) else {
        bail!(
            "there is no {EXAMPLES} here, and none beside {}; name the folder of the example jobs with --examples",
            program.display()
        )
    };
    std::env::set_current_dir(root).with_context(|| root.display().to_string())?;
    Ok(here)
}

/// Returns the folder of this program if a Python is there, as in a virtual environment.
fn own_python() -> anyhow::Result<Vec<PathBuf>> {
    let has_python = |folder: &PathBuf| folder.join("python3").is_file();
    let program = std::env::current_exe()?;
    let own = program.parent().map(Path::to_path_buf);
    let own: Vec<PathBuf> = own.into_iter().filter(has_python).collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    if own.is_empty() && !std::env::split_paths(&path).any(|folder| has_python(&folder)) {
        bail!(
            "no python3 on the PATH: the demo's jobs are Python programs; install it, or start `dormouse up` and run a program of yours (`dormouse run -- PROGRAM`)"
        );
    }
    Ok(own)
}

fn options(data: PathBuf, path: Vec<PathBuf>) -> anyhow::Result<LocalOptions> {
    let capacity: Amounts = "cpu=8,memory=16Gi".parse()?;
    Ok(LocalOptions {
        data,
        prefix: Prefix::default(),
        nodes: 4,
        capacity,
        runtime: RuntimeKind::Process,
        json_status: false,
        sync_always: false,
        port: None,
        keep: Retention::default(),
        gateway: None,
        page: None,
        path,
    })
}

async fn publish(log: &Log, plan: &[Planned], examples: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    for planned in plan {
        let due = Duration::from_secs_f64(planned.at_s.max(0.0));
        tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
        let document: Value = read_document(&examples.join("demo").join(&planned.file))?;
        let tenant = document
            .get("tenant")
            .and_then(Value::as_str)
            .unwrap_or("demo");
        let tenant = TenantId::new(tenant)?;
        let payload = serde_json::to_vec(&document)?;
        log.publish_ingress(&tenant, "submit", "application/json", payload.into())
            .await?;
    }
    Ok(())
}

async fn watch(log: &Log, submitted: usize) -> anyhow::Result<ReadModel> {
    let bars = MultiProgress::new();
    let bar = bars.add(ProgressBar::new(submitted as u64));
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {elapsed_precise}  {pos} of {len} jobs ended  {msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let quiet = bar.is_hidden();
    let say = |line: String| {
        if quiet {
            print::line(line)
        } else {
            bar.println(line);
            Ok(())
        }
    };
    let mut model = ReadModel::default();
    let mut events = log.follow(Sequence(1));
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut ended = 0;
    while ended < submitted {
        let followed = tokio::time::timeout_at(deadline, events.recv()).await;
        let followed = followed.context("the jobs do not end; see `dormouse jobs`")?;
        let Some(followed) = followed else {
            bail!("the log ended")
        };
        let LogItem::Event(recorded) = followed else {
            continue;
        };
        model.evolve(&recorded);
        if is_news(&recorded) {
            say(short(&tail::line(&recorded)))?;
        }
        match recorded.event() {
            Some(
                Event::JobCompleted(_)
                | Event::JobFailed(_)
                | Event::JobCancelled(_)
                | Event::JobRefused(_),
            ) => {
                ended += 1;
                bar.set_position(ended as u64);
            }
            Some(Event::AllocationDecided(event)) => {
                bar.set_message(format!(
                    "utilization {:.2}",
                    event.outcome.utilization.total
                ));
            }
            _ => {}
        }
    }
    bar.finish_and_clear();
    // The last allocation, for the empty cluster, ends the timelines.
    let rest = tokio::time::Instant::now() + Duration::from_secs(2);
    while let Ok(Some(followed)) = tokio::time::timeout_at(rest, events.recv()).await {
        if let LogItem::Event(recorded) = followed {
            model.evolve(&recorded);
            if matches!(recorded.event(), Some(Event::AllocationUnchanged(_))) {
                break;
            }
        }
    }
    Ok(model)
}

fn short(line: &str) -> String {
    sanitize::printable(line).chars().take(150).collect()
}

fn is_news(recorded: &Recorded) -> bool {
    matches!(
        recorded.event(),
        Some(
            Event::JobAdmitted(_)
                | Event::JobRefused(_)
                | Event::AllocationDecided(_)
                | Event::CheckpointSaved(_)
                | Event::CheckpointFailed(_)
                | Event::PartitionStarted(_)
                | Event::PartitionStopped(_)
                | Event::JobCompleted(_)
                | Event::JobFailed(_)
                | Event::NodeLost(_)
                | Event::NodeFenced(_)
        )
    )
}

/// Archives the whole log, and verifies the archive alone.
async fn archived(log: &Log, data: &Path) -> anyhow::Result<Report> {
    let place = default_place(data);
    let archive = Archive::create(&place, None)?;
    seal_now(log.clone(), archive.clone(), build_id::build()).await?;
    let found = archive.verify(|_| {}).await?;
    let text = verify::archived(&found);
    print::line(format_args!("log verify --archive {place}:\n{text}\n"))?;
    Ok(found.decisions)
}

async fn finish(
    log: &Log,
    data: &Path,
    model: &ReadModel,
    export: OutputFile,
) -> anyhow::Result<()> {
    let path = export.path().to_owned();
    let now = model.time_at(clock::now());
    let jobs: JobsAnswer =
        serde_json::from_value(queries::answer(model, "jobs", Value::Null, now)?)?;
    let ledger = queries::answer(model, "ledger", Value::Null, now)?;
    let style = Style::of_stdout(false);
    let ledger = render::ledger(&serde_json::from_value(ledger)?, &style);
    print::line(format_args!("\n{ledger}\n"))?;
    for metric in ["utilization", "fairness-loss", "containers"] {
        let query = TimelineQuery {
            metric: metric.to_owned(),
            ..TimelineQuery::default()
        };
        let answer = queries::answer(model, "timeline", serde_json::to_value(query)?, now)?;
        let timeline: Timeline = serde_json::from_value(answer)?;
        let drawn = render::timeline(&timeline, &style);
        print::line(format_args!("{drawn}\n"))?;
    }
    let report = archived(log, data).await?;
    let events = export_to(History::Cluster(log.clone(), None), export, 1, None).await?;
    print::line(format_args!(
        "{events} events exported to {}",
        path.display()
    ))?;
    print::line(format_args!(
        "\nNext:\n  dormouse log state --log {0} --at 100    the cluster after event 100\n  dormouse log verify --log {0}            every decision made again, of the exported log\n  dormouse up --nodes 2                        a cluster of your own\n  dormouse run -- sh -c 'echo hello'           a job of your own, in another terminal",
        path.display()
    ))?;
    let failed = jobs
        .jobs
        .iter()
        .filter(|job| job.phase != Phase::Completed)
        .count();
    if !report.findings.is_empty() || failed > 0 {
        bail!(
            "{failed} jobs did not complete, {} decisions did not verify",
            report.findings.len()
        );
    }
    Ok(())
}
