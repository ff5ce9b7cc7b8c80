//! A change of jobs that are named or match a filter: asks for confirmation, sends the change to admission and
//! prints the decisions.

use std::io::{BufRead, IsTerminal};

use dormouse_messages::{JobId, TenantId};
use dormouse_runtime::Log;
use serde_json::{Map, Value, json};

use super::selection::{Chosen, chosen};
use crate::cli::filter::WhichArgs;
use crate::cli::global::Output;
use crate::commands::common::decided::{Message, decide};
use crate::context::Context;
use crate::error::{Coded, DONE, ERROR};
use crate::print;
use crate::render::{self, Style};

/// A change that admission decides.
#[derive(Debug, Clone)]
pub struct Change {
    /// The command's verb.
    pub verb: &'static str,
    /// The kind of message.
    pub message: &'static str,
    /// The fields of the message.
    pub fields: Map<String, Value>,
    /// The changes in words, for one job.
    pub changes: Option<String>,
}

impl Change {
    /// Returns a change of a job's document.
    pub fn new(verb: &'static str, message: &'static str, fields: Map<String, Value>) -> Self {
        Self {
            verb,
            message,
            fields,
            changes: None,
        }
    }

    /// Returns a change of one flag of a job.
    pub fn of_flag(verb: &'static str, flag: &str, value: bool, force: bool) -> Self {
        let mut fields = Map::new();
        fields.insert(flag.to_owned(), value.into());
        if force {
            fields.insert("force".to_owned(), true.into());
        }
        Self::new(verb, "revise", fields)
    }
}

/// Carries out a change of all selected jobs, if the user confirms it.
///
/// # Errors
/// If a job is refused, or no admission service answers.
pub async fn run(context: &Context, which: &WhichArgs, change: &Change) -> anyhow::Result<u8> {
    let log = context.connect_to_submit().await?;
    let chosen = chosen(&log, &which.filter).await?;
    match confirmed(chosen, which.yes, change.verb)? {
        Some(jobs) => carry_out(context, &log, &jobs, change).await,
        None => Ok(DONE),
    }
}

/// Shows the matching jobs for confirmation; named jobs need none.
///
/// # Errors
/// If nobody can be asked.
pub fn confirmed(chosen: Chosen, yes: bool, verb: &str) -> anyhow::Result<Option<Vec<JobId>>> {
    let jobs = chosen.ids();
    let answer = match chosen {
        Chosen::Named(_) => return Ok(Some(jobs)),
        Chosen::Matching(_) if yes => return Ok(Some(jobs)),
        Chosen::Matching(answer) => answer,
    };
    print::aside(render::jobs(&answer, &Style::plain()));
    let count = match jobs.len() {
        1 => "this job".to_owned(),
        count => format!("these {count} jobs"),
    };
    if !std::io::stdin().is_terminal() {
        let message = format!("say --yes to {verb} {count}");
        return Err(Coded::new("not_confirmed", message).into());
    }
    print::aside(format!("{verb} {count}? [y/N]"));
    let mut answered = String::new();
    std::io::stdin().lock().read_line(&mut answered)?;
    let yes = matches!(answered.trim(), "y" | "Y" | "yes");
    if !yes {
        print::aside("nothing is done");
    }
    Ok(yes.then_some(jobs))
}

fn messages(jobs: &[JobId], change: &Change) -> anyhow::Result<Vec<Message>> {
    let message = |job: &JobId| {
        let mut document = change.fields.clone();
        document.insert("job".to_owned(), job.name().into());
        Ok(Message {
            tenant: TenantId::new(job.tenant())?,
            verb: change.message,
            payload: serde_json::to_vec(&document)?.into(),
        })
    };
    jobs.iter().map(message).collect()
}

/// Sends the change, and prints the decisions.
///
/// # Errors
/// If the one job is refused, or no admission service answers.
pub async fn carry_out(
    context: &Context,
    log: &Log,
    jobs: &[JobId],
    change: &Change,
) -> anyhow::Result<u8> {
    let output = context.output()?;
    let mut decided = decide(log, messages(jobs, change)?).await?;
    if let [_] = jobs {
        // For one job, a refusal is the command's error.
        let (ingress_sequence, became) = decided.remove(0);
        let (job, said) = became?;
        let mut answer = json!({"job": job, "ingress_sequence": ingress_sequence, "state": said});
        let mut line = format!("{job} {said}");
        if let Some(changes) = &change.changes {
            answer["changes"] = changes.as_str().into();
            line = format!("{line}: {changes}");
        }
        print::value(output, &answer, |_, _| line.clone())?;
        return Ok(DONE);
    }
    let mut code = DONE;
    for (job, (ingress_sequence, became)) in jobs.iter().zip(decided) {
        let mut answer = json!({"job": job, "ingress_sequence": ingress_sequence});
        let line = match became {
            Ok((job, said)) => {
                answer["state"] = said.into();
                format!("{job} {said}")
            }
            Err(refusal) => {
                code = ERROR;
                answer["error"] = json!({"code": refusal.code, "message": refusal.message});
                format!("{job}: {refusal}")
            }
        };
        match output {
            Output::Json => print::line(answer)?,
            Output::Yaml => print::yaml(&answer.to_string())?,
            Output::Table | Output::Wide => print::line(line)?,
        }
    }
    Ok(code)
}
