//! `replay state|verify|bisect`: works on the cluster's log or a file.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Subcommand;
use dormouse_messages::{Fold, Timestamp};
use dormouse_projections::queries::{JobsAnswer, NodesAnswer};
use dormouse_projections::{ReadModel, queries};
use dormouse_replay::history::bisect::{Bisect, Found, Looked, Predicate};
use dormouse_replay::scenario::settings::Setting;
use dormouse_replay::{Report, Verifier};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::history::{self, History};
use crate::cli::point::{At, LogFileArg, PointArgs};
use crate::context::Context;
use crate::describe::concerns;
use crate::error::{Coded, DONE, ERROR};
use crate::print;
use crate::render::Style;

/// Reconstruct and check past states and decisions
#[derive(Debug, Subcommand)]
#[command(
    after_help = "Examples:\n  dormouse replay state --at 10:00:00\n  dormouse replay verify"
)]
pub enum ReplayCommand {
    /// Show the jobs and nodes after an event
    #[command(
        after_help = "Examples:\n  dormouse replay state --at 4712\n  dormouse replay state --at 2026-11-21T10:00:00Z\n  dormouse replay state --at 10:00:00               # today, in UTC\n  dormouse replay state --log log.jsonl --at 100 -o json"
    )]
    State {
        /// After this sequence, or at this time (RFC 3339, a time of the day of the log's last event in UTC,
        /// or 10m for ten minutes ago); default: the end.
        #[arg(long, value_name = "SEQUENCE|TIME")]
        at: Option<At>,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Find the first decision on which another policy, this build, or another log differs
    #[command(
        after_help = "Examples:\n  dormouse replay diff --set policy.theta2=0.5 --log log.parquet\n  dormouse replay diff --set policy.allocation=drf -o json\n  dormouse replay diff --log old.parquet                      # this build against the one that decided\n  dormouse replay diff --log old.parquet --against new.parquet  # two logs, allocation by allocation\n  dormouse replay diff --set policy.theta2=0.5 --at 4712 --tenant ads\n\nPolicies are compared at the states that the log's decisions were made from; what would have followed is the question of `dormouse whatif`."
    )]
    Diff {
        /// Fields of the other policy: policy.FIELD=VALUE.
        #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "against")]
        settings: Vec<Setting>,
        /// Another log, such as another build's log of the same inputs.
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        #[command(flatten)]
        point: PointArgs,
    },
    /// Find the first event after which a condition holds
    #[command(
        after_help = "Examples:\n  dormouse replay bisect ads/lr=running\n  dormouse replay bisect ads/lr.containers=4 --log log.parquet\n  dormouse replay bisect 'utilization>0.9'\n  dormouse replay bisect 'fairness-loss>0.5' -o json\n  dormouse replay bisect broken --log log.parquet     # an invariant of the services\n  dormouse replay bisect broken --some              # some place, looked for by halving\n\nMetrics: utilization, fairness-loss, waiting, running. What stays so (a job was seen, has ended) is looked for by halving; everything else after every event, so that the place is the first one also where a metric crosses its value again and again. Nothing is read behind the place."
    )]
    Bisect {
        /// JOB=PHASE, JOB=seen, JOB.containers=N, METRIC>VALUE, METRIC<VALUE or broken.
        predicate: Predicate,
        /// Check every 4,096th event and bisect: finds some change of the condition, not always the first.
        #[arg(long)]
        some: bool,
        #[command(flatten)]
        point: PointArgs,
    },
    /// Recompute every decision from its basis and compare
    #[command(
        after_help = "Examples:\n  dormouse replay verify\n  dormouse replay verify --log log.jsonl"
    )]
    Verify {
        #[command(flatten)]
        log: LogFileArg,
    },
}

/// Runs `replay …`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, command: &ReplayCommand) -> anyhow::Result<u8> {
    match command {
        ReplayCommand::State { at, log } => state(context, *at, log).await,
        ReplayCommand::Diff {
            settings,
            against,
            point,
        } => super::diff::run(context, settings, against.as_deref(), point).await,
        ReplayCommand::Bisect {
            predicate,
            some,
            point,
        } => bisect(context, predicate, *some, point).await,
        ReplayCommand::Verify { log } => {
            let report = verify(context, log).await?;
            print::value(context.output()?, &report, |report, _| text(report))?;
            Ok(if report.findings.is_empty() {
                DONE
            } else {
                ERROR
            })
        }
    }
}

async fn bisect(
    context: &Context,
    predicate: &Predicate,
    some: bool,
    point: &PointArgs,
) -> anyhow::Result<u8> {
    let viewer = point.tenant.as_ref();
    if let (Some(job), Some(viewer)) = (predicate.job(), viewer)
        && job.tenant() != viewer.as_str()
    {
        let message = format!("{viewer} has no job {job}; ask about one of its own");
        return Err(Coded::new("not_found", message).into());
    }
    let reading = history::open_at(context, point).await?;
    let mut bisect = Bisect::new(predicate.clone());
    if some {
        bisect = bisect.some();
    }
    let mut unknown = predicate.job();
    if let Some(states) = reading.states()? {
        unknown.take_if(|job| states.model.jobs.get(job).is_some());
        bisect = bisect.starting_from(states);
    }
    let read = reading.read_while(|recorded| {
        let event = recorded.event();
        unknown.take_if(|job| event.is_some_and(|event| concerns(event, job)));
        if bisect.read(recorded) {
            Ok(ControlFlow::Break(()))
        } else {
            Ok(ControlFlow::Continue(()))
        }
    });
    read.await?;
    let (found, events) = bisect.finish();
    let found = match (found, &point.tenant) {
        (Some(found), Some(tenant)) => Some(found.seen_by(tenant)?),
        (found, _) => found,
    };
    let Some(found) = found else {
        let message = match unknown {
            Some(job) => format!(
                "there is no job {job} in {events} events; `dormouse jobs --all` lists those that are known"
            ),
            None => format!("it never is so in {events} events"),
        };
        return Err(Coded::new("not_found", message).into());
    };
    print::value(context.output()?, &found, |it, _| self::found(it))?;
    Ok(DONE)
}

/// Describes the place found.
#[must_use]
pub fn found(found: &Found) -> String {
    let place = if found.exact {
        "the first such place"
    } else {
        "some such place, perhaps not the first"
    };
    let how = match found.looked {
        Looked::Before => {
            return format!(
                "event {}, {}: {} at the beginning of the slice; look in the whole log for when it became so",
                found.sequence,
                crate::render::date(found.at),
                found.after
            );
        }
        Looked::OneByOne => format!("{} events folded one by one", found.folds),
        Looked::Halving => format!(
            "{} events folded, and the block with it halved {} times",
            found.folds, found.halves
        ),
    };
    format!(
        "event {} ({} of {}, {}): {} before, {} since; {place}, {how}",
        found.sequence,
        found.event,
        found.subject,
        crate::render::date(found.at),
        found.before,
        found.after
    )
}

async fn verify(context: &Context, log: &LogFileArg) -> anyhow::Result<Report> {
    let history = History::open_whole(context, log).await?;
    let progress = ProgressBar::new_spinner().with_style(ProgressStyle::with_template(
        "{spinner} {pos} events, {per_sec}, {elapsed}",
    )?);
    progress.enable_steady_tick(Duration::from_millis(100));
    let mut verifier = Verifier::default();
    if let Some(states) = history.states()? {
        verifier = verifier.starting_from(&states);
    }
    let read = history.read(1, None, |recorded| {
        verifier.read(recorded);
        progress.inc(1);
        Ok(())
    });
    read.await?;
    progress.finish_and_clear();
    Ok(verifier.finish())
}

/// Describes a verification.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{} events, {} decisions made again, {} the same",
        report.events,
        report.decisions - report.checked,
        report.verified
    );
    if report.checked > 0 {
        text.push_str(&format!(
            "; {} that their time limit stopped were checked",
            report.checked
        ));
    }
    let failed = report.decisions - report.verified - report.checked;
    if failed > 0 {
        text.push_str(&format!("; {failed} failed"));
    }
    if report.before_slice > 0 {
        text.push_str(&format!(
            "; {} at the slice's beginning were made from what is before it",
            report.before_slice
        ));
    }
    if let Some(first) = report.first_missing {
        let events = match report.missing {
            1 => format!("event {first} is not there"),
            missing => format!("{missing} events are not there, the first is {first}"),
        };
        text.push_str(&format!(
            "\n{events}: flagged as not permitted on the log (`dormouse log tail --from {first}` says why), or removed from a file"
        ));
    }
    for finding in report.findings.iter().take(20) {
        let what: String = finding.what.chars().take(400).collect();
        text.push_str(&format!(
            "\nevent {} ({}): {what}",
            finding.sequence, finding.type_name
        ));
    }
    if report.findings.len() > 20 {
        text.push_str(&format!(
            "\n… and {} more; see -o json",
            report.findings.len() - 20
        ));
    }
    text
}

async fn state(context: &Context, at: Option<At>, log: &LogFileArg) -> anyhow::Result<u8> {
    let mut model = ReadModel::default();
    let mut now = Timestamp::default();
    let mut last = 0;
    let (to, until) = history::bounds(context, at, log).await?;
    let history = History::open_whole(context, log).await?;
    let history = history.near(to, until).await?;
    if let Some(states) = history.states()? {
        (model, last, now) = (states.model, states.fork.sequence.0, states.fork.now);
    }
    let read = history.read_while(1, to, |recorded| {
        let at = model.queues.cluster.clock.at(recorded);
        if until.is_some_and(|until| at > until) {
            return Ok(ControlFlow::Break(()));
        }
        model.evolve(recorded);
        (now, last) = (at, recorded.sequence.0);
        Ok(ControlFlow::Continue(()))
    });
    read.await?;
    if let (None, Some(until), 0) = (to, until, last) {
        bail!("the log begins after {until}");
    }
    if !history::say_end(to, until, last) {
        // Ages are computed as of the requested time.
        now = until.unwrap_or(now);
    }
    let output = context.output()?;
    let ask = |name| queries::answer(&model, name, Value::Null, now);
    let (jobs, nodes) = (ask("jobs")?, ask("nodes")?);
    let answer = json!({"sequence": last, "time": now, "jobs": jobs["jobs"], "nodes": nodes["nodes"], "cluster": ask("cluster")?});
    print::value(output, &answer, |answer, wide| {
        let style = Style::of_stdout(wide);
        let nodes = json!({"nodes": answer["nodes"]});
        let nodes: NodesAnswer = serde_json::from_value(nodes).unwrap_or_default();
        let jobs = json!({"jobs": answer["jobs"], "more": 0});
        let jobs: JobsAnswer = serde_json::from_value(jobs).unwrap_or_default();
        let place = match last {
            0 => "before the first event".to_owned(),
            last => format!("after event {last}, {}", crate::render::date(now)),
        };
        format!(
            "{place}\n\n{}\n\n{}",
            crate::render::nodes(&nodes, &style),
            crate::render::jobs(&jobs, &style)
        )
    })?;
    Ok(DONE)
}
