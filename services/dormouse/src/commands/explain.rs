//! `explain`: explains the state of a job, a tenant, a node or a decision.

use std::sync::Arc;

use clap::Args;
use comfy_table::Cell;
use dormouse_replay::history::explain::{ExplainError, Explainer, Explanation, SOLVES, Subject};

use super::common::history::open_near;
use crate::cli::global::Output;
use crate::cli::log_range::PointArgs;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print::{self, Growing};
use crate::render::{Style, date, right};

/// Explain a job, a tenant, a node or a decision, and find changes with another outcome
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse explain ads/lr\n  dormouse explain ads/lr --at 03:00:00 -o json\n  dormouse explain ads/lr -v                            # all changes with their proofs\n  dormouse explain tenant ads --log log.parquet\n  dormouse explain node n3\n  dormouse explain epoch/12\n  dormouse explain ads/lr --as ads                      # other tenants as amounts\n\nEach listed change was decided on a fork of the log, and is the least of its kind that is enough."
)]
pub struct ExplainArgs {
    /// A job (tenant/name), epoch/N, or the word tenant or node before a name.
    #[arg(value_name = "ID|epoch/N|tenant|node")]
    pub what: String,
    /// Name of the tenant or node.
    pub name: Option<String>,
    /// Most decisions computed to search for changes.
    #[arg(long, value_name = "N", default_value_t = SOLVES)]
    pub solves: usize,
    /// Also print the constraints, all changes with their proofs, other allocations and the decision.
    #[arg(short, long)]
    pub verbose: bool,
    #[command(flatten)]
    pub point: PointArgs,
}

/// Runs `explain`.
///
/// # Errors
/// If the log cannot be read, or does not know the subject.
pub async fn run(context: &Context, args: &ExplainArgs) -> anyhow::Result<u8> {
    let subject = subject(args)?;
    let viewer = args.point.view.viewer.clone();
    let mut explainer = Explainer::new(subject, viewer, args.solves);
    let reading = open_near(context, &args.point).await?;
    if let Some(states) = reading.states()? {
        explainer = explainer.starting_from(states.fork, states.model);
    }
    let read = reading.read(|recorded| {
        explainer.read(&Arc::clone(recorded));
        Ok(())
    });
    read.await?;
    let output = context.output()?;
    let for_people = matches!(output, Output::Table | Output::Wide);
    let (mut growing, mut printed) = (Growing::default(), Ok(()));
    let answer = explainer.explain_step_by_step(|so_far| {
        if for_people && printed.is_ok() {
            printed = growing.print(so_far, if args.verbose { head } else { reason });
        }
    });
    let answer = answer.map_err(|error| match error {
        ExplainError::NotThere { .. } => Coded::new("not_found", error.to_string()),
        ExplainError::NotSeen(_) => Coded::new("not_seen", error.to_string()),
    })?;
    printed?;
    if !for_people {
        print::ours(output, &answer, |_| String::new())?;
        return Ok(DONE);
    }
    let style = Style::of_stdout(output == Output::Wide);
    growing.print(&answer, |answer| {
        let text = if args.verbose {
            text(answer, &style)
        } else {
            brief(answer)
        };
        format!("{}\n", text.trim_end())
    })?;
    Ok(DONE)
}

/// Parses `ID`, `epoch/N`, `tenant NAME` or `node NAME`.
fn subject(args: &ExplainArgs) -> anyhow::Result<Subject> {
    let wrong = |error: &dyn std::fmt::Display| {
        Coded::new(
            "usage",
            format!("{error}; explain a job (tenant/name), epoch/N, tenant NAME or node NAME"),
        )
    };
    let (first, second) = (args.what.as_str(), args.name.as_deref());
    Ok(match (first, second) {
        ("tenant", Some(name)) => Subject::Tenant(name.parse().map_err(|error| wrong(&error))?),
        ("node", Some(name)) => Subject::Node(name.parse().map_err(|error| wrong(&error))?),
        ("tenant" | "node", None) => {
            return Err(wrong(&format!("which {first} is not said")).into());
        }
        (_, Some(second)) => {
            return Err(wrong(&format!("{first} {second} is nothing that is explained")).into());
        }
        (job, None) => match job.strip_prefix("epoch/").map(str::parse) {
            Some(Ok(epoch)) => Subject::Epoch(dormouse_messages::Epoch(epoch)),
            Some(Err(error)) => return Err(wrong(&error).into()),
            None => Subject::Job(crate::cli::job_name::job_id(job).map_err(|error| wrong(&error))?),
        },
    })
}

/// Renders the reason in one sentence, then the facts.
fn reason(answer: &Explanation) -> String {
    let dominant = answer.dominant.as_ref().map(|it| &it.words);
    let Some(why) = dominant.or(answer.words.first()) else {
        return format!("{} is {}", answer.about, answer.state);
    };
    let mut text = format!("{} is {}: {why}", answer.about, answer.state);
    for words in answer.words.iter().filter(|words| *words != why) {
        text.push_str(&format!("\n  {words}"));
    }
    text
}

/// Renders the reason and the least change.
fn brief(answer: &Explanation) -> String {
    let mut text = reason(answer);
    if let Some(it) = answer.corrections.first() {
        let containers = if it.becomes == 1 {
            "container"
        } else {
            "containers"
        };
        let (change, becomes) = (&it.change, it.becomes);
        text.push_str(&format!(
            "\n\n{change} would have given it {becomes} {containers}"
        ));
    }
    text.push_str("\n\n-v says more: all changes with their proofs, and the decision");
    text
}

fn head(answer: &Explanation) -> String {
    let mut text = format!(
        "{} is {}, after event {}, {}\n",
        answer.about,
        answer.state,
        answer.at,
        date(answer.time)
    );
    for words in &answer.words {
        text.push_str(&format!("\n  {words}"));
    }
    text
}

/// Renders an explanation for a terminal.
#[must_use]
pub fn text(answer: &Explanation, style: &Style) -> String {
    let mut text = head(answer);
    if !answer.conflict.is_empty() {
        text.push_str(&format!(
            "\n\ncannot all hold if it has more: {}",
            answer.conflict.join(", ")
        ));
        let sets: Vec<String> = answer
            .relaxations
            .iter()
            .map(|set| set.join(" and "))
            .collect();
        text.push_str(&format!("\nenough to give up: {}", sets.join("; or ")));
    }
    text.push_str(&corrections(answer, style));
    text.push_str(&alternatives(answer, style));
    if !answer.not_searched.is_empty() {
        text.push_str(&format!(
            "\n\nnot searched to the end: {}; give more with --solves",
            answer.not_searched.join(", ")
        ));
    }
    text.push_str(&jobs(answer, style));
    text.push_str(&keys(answer, style));
    if let Some(decision) = &answer.decision {
        let epoch = decision
            .epoch
            .map_or_else(|| "kept".to_owned(), |epoch| format!("epoch {epoch}"));
        text.push_str(&format!(
            "\n\nby the decision at event {} ({epoch}), made by build {}; made again by this build: {}",
            decision.sequence, decision.build, decision.remade
        ));
    }
    text
}

fn corrections(answer: &Explanation, style: &Style) -> String {
    if answer.corrections.is_empty() {
        return String::new();
    }
    let mut table = style.table(&[
        "CHANGE", "FROM", "TO", "BECOMES", "PROOF", "NOT AT", "WRITTEN",
    ]);
    for it in &answer.corrections {
        table.add_row(vec![
            Cell::new(&it.kind),
            right(&it.from),
            right(&it.to),
            right(it.becomes),
            Cell::new(&it.verified_by.proof),
            right(it.not_at.as_deref().unwrap_or("-")),
            Cell::new(&it.change),
        ]);
    }
    format!("\n\n{}", style.write(table))
}

fn alternatives(answer: &Explanation, style: &Style) -> String {
    if answer.alternatives.is_empty() {
        return String::new();
    }
    let mut table = style.table(&["INSTEAD", "OBJECTIVE", "LOSS", "RESTARTS", "WHY NOT"]);
    for it in &answer.alternatives {
        let shown = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        let adjusted = it.adjusted_jobs.map(|count| count.to_string());
        table.add_row(vec![
            Cell::new(&it.what),
            right(shown(it.objective, 4)),
            right(shown(it.fairness_loss, 3)),
            right(adjusted.unwrap_or_else(|| "-".to_owned())),
            Cell::new(&it.words),
        ]);
    }
    format!("\n\n{}", style.write(table))
}

fn keys(answer: &Explanation, style: &Style) -> String {
    if answer.keys.is_empty() {
        return String::new();
    }
    let mut table = style.table(&["KEY", "ROLE", "STATE", "WHAT WAS DONE"]);
    for it in &answer.keys {
        let done = it.holder.acts.iter().map(|act| {
            let by = act.by.as_ref();
            let by = by.map_or_else(|| "the owner".to_owned(), ToString::to_string);
            format!("{} {} by {by}", act.what.words(), date(act.at))
        });
        let done: Vec<String> = done.collect();
        let role = it.holder.role.map(|role| role.to_string());
        table.add_row(vec![
            Cell::new(&it.name),
            Cell::new(role.unwrap_or_else(|| "-".to_owned())),
            Cell::new(match it.holder.key {
                Some(_) => "valid",
                None => "revoked",
            }),
            Cell::new(done.join("\n")),
        ]);
    }
    format!("\n\n{}", style.write(table))
}

fn jobs(answer: &Explanation, style: &Style) -> String {
    if answer.jobs.is_empty() {
        return String::new();
    }
    let mut table = style.table(&[
        "JOB",
        "FROM",
        "CONTAINERS",
        "SHARE",
        "FAIR",
        "CODE",
        "REASON",
    ]);
    for it in &answer.jobs {
        table.add_row(vec![
            Cell::new(&it.job),
            right(
                it.from
                    .map_or_else(|| "-".to_owned(), |from| from.to_string()),
            ),
            right(it.containers),
            right(format!("{:.3}", it.share)),
            right(format!("{:.3}", it.fair_share)),
            Cell::new(&it.code),
            Cell::new(&it.reason),
        ]);
    }
    format!("\n\n{}", style.write(table))
}
