//! `plan`: predicts the effect of a change.

use std::path::{Path, PathBuf};

use clap::Args;
use dormouse_messages::{Sequence, TenantId, Timestamp};
use dormouse_replay::history::plan::{Moves, Plan, Subject, plan};
use dormouse_replay::history::whatif::{ForkAt, History as Forkable};
use serde_json::Value;

use super::common::history::bounds;
use super::common::workdir;
use super::whatif::{ChangeArgs, asked, forkable};
use crate::cli::job_name::DEFAULT_TENANT;
use crate::cli::log_range::{At, LogFileArg, ViewArg};
use crate::context::{Context, read_map, shown};
use crate::error::{Coded, DONE, ERROR, WAITS};
use crate::print;
use crate::render::{Style, date, span};

/// Predict the effect of a job, a drain, a node or a policy before submitting it
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse plan job.yaml\n  dormouse plan job.yaml --tenant ads --as ads -o json\n  dormouse plan --drain n3\n  dormouse plan --add-node n9:cpu=16,memory=64Gi\n  dormouse plan --set policy.theta2=0.3\n  dormouse submit job.yaml --if-plan plan1.4712.9f86d081884c7d65.4\n\nExit code: 0 it runs now, or the cluster is changed; 2 it waits; 1 it would be refused."
)]
pub struct PlanArgs {
    /// Job, or - for standard input. Without a job, plan changes of the cluster.
    #[arg(value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Job name, in place of the document's.
    #[arg(long, requires = "job")]
    pub name: Option<String>,
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Plan after this sequence, or at this time; default: the end of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Tenant of the job. Default: the document's, else `default`.
    #[arg(long, value_name = "TENANT", requires = "job")]
    pub tenant: Option<TenantId>,
    #[command(flatten)]
    pub view: ViewArg,
    #[command(flatten)]
    pub log: LogFileArg,
    /// Simulated runs that estimate the start.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
}

/// Runs `plan`.
///
/// # Errors
/// If the log cannot be read, or the document or a change is wrong.
pub async fn run(context: &Context, args: &PlanArgs) -> anyhow::Result<u8> {
    let mut subject = subject(args)?;
    if let Subject::Job(_, document) = &mut subject {
        let place = args.job.as_deref().map(shown).unwrap_or_default();
        workdir::packed(std::iter::once((place.as_str(), document))).await?;
    }
    let at = match bounds(context, args.at, &args.log).await? {
        (Some(sequence), _) => ForkAt::Sequence(Sequence(sequence)),
        (_, Some(time)) => ForkAt::Time(time),
        (None, None) => ForkAt::Sequence(Sequence(u64::MAX)),
    };
    let history = forkable(context, &args.log).await?.up_to(at);
    let live = args.at.is_none() && args.log.file.is_none();
    let now = live.then(crate::clock::now);
    let mut plan = planned(&history, &subject, args.draws, now)?;
    if let Some(tenant) = &args.view.viewer {
        plan = plan.seen_by(tenant)?;
    }
    print::value(context.output()?, &plan, |plan, wide| {
        text(plan, &Style::of_stdout(wide))
    })?;
    Ok(match plan.code.as_str() {
        "waits" => WAITS,
        "refused" => ERROR,
        _ => DONE,
    })
}

/// Plans at the end of a history, or at the wall-clock time `now`.
///
/// # Errors
/// If a change does not fit.
pub fn planned(
    history: &Forkable,
    subject: &Subject,
    draws: u32,
    now: Option<Timestamp>,
) -> anyhow::Result<Plan> {
    let forked = history.fork(ForkAt::Sequence(Sequence(u64::MAX)));
    let now = now.map_or(forked.now, |now| history.time_at(now));
    let forked = forked.later(now);
    let plan = plan(history, &forked, subject, draws);
    Ok(plan.map_err(|error| Coded::new("bad_change", error.to_string()))?)
}

/// Plans a document at the head of the log.
///
/// # Errors
/// If the log cannot be read.
pub async fn again(context: &Context, tenant: &TenantId, document: &Value) -> anyhow::Result<Plan> {
    let history = forkable(context, &LogFileArg::default()).await?;
    let subject = Subject::Job(tenant.clone(), document.clone());
    planned(&history, &subject, 0, Some(crate::clock::now()))
}

fn subject(args: &PlanArgs) -> anyhow::Result<Subject> {
    let mut variants = asked(&args.changes)
        .variants()
        .map_err(|error| Coded::new("bad_change", error.to_string()))?;
    let usage = |what: &str| Coded::new("usage", what.to_owned());
    let changes = match variants.len() {
        1 => variants.pop().unwrap_or_default(),
        _ => return Err(usage("a plan is for one value of each setting").into()),
    };
    match (&args.job, changes.is_empty()) {
        (Some(_), false) => Err(usage("plan a job or changes of the cluster, not both").into()),
        (None, true) => Err(usage("name a job's file, --drain NAME or another change").into()),
        (None, false) => Ok(Subject::Changes(Box::new(changes))),
        (Some(file), true) => {
            let mut document = read_map(file)?;
            if let (Some(name), Some(fields)) = (&args.name, document.as_object_mut()) {
                fields.insert("name".to_owned(), name.clone().into());
            }
            workdir::resolve(&mut document, file.parent().unwrap_or(Path::new("")));
            let named = document.get("tenant").and_then(Value::as_str);
            let tenant = match (&args.tenant, named) {
                (Some(tenant), _) => tenant.clone(),
                (None, named) => TenantId::new(named.unwrap_or(DEFAULT_TENANT))?,
            };
            Ok(Subject::Job(tenant, document))
        }
    }
}

/// Renders a plan for a terminal.
#[must_use]
pub fn text(plan: &Plan, _style: &Style) -> String {
    let mut text = format!(
        "{} {}, after event {}, {}",
        plan.about,
        match plan.code.as_str() {
            "changes" if plan.shrinks.is_empty() && plan.gains.is_empty() => {
                "moves what runs, and changes no number".to_owned()
            }
            "changes" => "changes the allocation".to_owned(),
            "nothing" => "changes nothing now".to_owned(),
            "refused" => "would be refused".to_owned(),
            _ => plan.in_words(),
        },
        plan.asof,
        date(plan.at)
    );
    if let Some(reason) = plan.reason.as_ref().or(plan.waits_for.as_ref()) {
        text.push_str(&format!("\n  {reason}"));
    }
    if !plan.nodes.is_empty() {
        let nodes = plan.nodes.iter();
        let nodes: Vec<String> = nodes
            .map(|it| format!("{} × {}", it.node, it.containers))
            .collect();
        text.push_str(&format!("\n  on {}", nodes.join(", ")));
    }
    let start = plan.start.as_ref();
    if let Some(start) = start.filter(|start| !(start.unknown && plan.containers > 0)) {
        let shown = |part: Option<f64>| part.map_or_else(|| "not within reach".to_owned(), span);
        text.push_str(&match (start.unknown, start.p50_s) {
            (true, _) => format!(
                "\n  when it starts is unknown: {} jobs have completed, 30 are needed",
                start.basis
            ),
            (false, None) => "\n  it does not start in half of the runs forward".to_owned(),
            (false, p50) => format!(
                "\n  starts in {} (80 %: {} to {}, from {} completed jobs)",
                shown(p50),
                shown(start.p10_s),
                shown(start.p90_s),
                start.basis
            ),
        });
    }
    let others = [
        ("shrinks", &plan.shrinks),
        ("grows", &plan.gains),
        ("moves", &plan.moves),
    ];
    for (what, moves) in others {
        for it in moves {
            text.push_str(&format!("\n  {}", moved(what, it)));
        }
    }
    if let (Some(before), Some(after)) = (plan.loss_before, plan.loss_after) {
        text.push_str(&format!("\n  fairness loss {before:.3} → {after:.3}"));
    }
    if let Some(token) = &plan.token {
        text.push_str(&format!("\n\nto hold it to this: submit --if-plan {token}"));
    }
    text
}

fn moved(what: &str, it: &Moves) -> String {
    let cost = match it.cost_s {
        _ if it.to == 0 => ", and waits for room".to_owned(),
        Some(cost_s) if cost_s > 0.0 => format!(", stands still for {}", span(cost_s)),
        Some(_) => ", in place".to_owned(),
        None => String::new(),
    };
    let what = match it.to {
        0 => "is stopped",
        _ if it.from == 0 => "starts",
        _ => what,
    };
    let anyway = if it.anyway {
        "; a decision now does so without it, too"
    } else {
        ""
    };
    let count = if it.from == it.to {
        it.to.to_string()
    } else {
        format!("{} → {}", it.from, it.to)
    };
    format!("{} {what}: {count}{cost}{anyway}", it.job)
}
