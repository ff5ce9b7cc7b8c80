//! `job wait`, and the wait of `submit --wait`: until all jobs have ended.

use std::time::Duration;

use clap::Args;
use dormouse_messages::{Event, JobId, sanitize};
use dormouse_projections::jobs::Phase;
use dormouse_projections::queries::JobDetail;
use dormouse_runtime::{Log, LogItem};
use serde_json::json;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

use super::selection::chosen;
use crate::cli::duration::Limit;
use crate::cli::filter::FilterArgs;
use crate::cli::global::Output;
use crate::commands::common::{caught_up, next_event, query};
use crate::context::Context;
use crate::error::{CANCELLED, Coded, DONE, ERROR, FAILED};
use crate::print;

/// Wait until a job, or all that match, have ended (exit code 0 completed, 3 failed, 4 cancelled)
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse job wait ads/lr && dormouse job logs ads/lr\n  dormouse job wait ads/lr-1 ads/lr-2 --timeout 2h\n  dormouse job wait --tenant ads --name 'lr-*'\n\nExit code of several: 3 if one has failed, else 4 if one was cancelled, else 0; 124: the time is over."
)]
pub struct WaitArgs {
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Longest wait, such as 90s, 10m or 2h.
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<Limit>,
}

/// A tenant's event message may be lost, so a silence leads to a query.
const SILENCE: Duration = Duration::from_secs(2);

const NAMED: usize = 5;

/// Runs `job wait`.
///
/// # Errors
/// If there is no such job, none matches, or the time is over.
pub async fn run(context: &Context, args: &WaitArgs) -> anyhow::Result<u8> {
    let log = context.connect_as_holder().await?;
    let mut events = events(&log).await?;
    let jobs = chosen(&log, &args.filter).await?.ids();
    until_ended(context, &log, &mut events, jobs, args.timeout).await
}

/// Follows future ends; the query service's answers hold earlier ones.
///
/// # Errors
/// If the query service does not answer, or stays behind.
pub async fn events(log: &Log) -> anyhow::Result<Receiver<LogItem>> {
    Ok(match log.tenant() {
        None => log.follow(caught_up(log).await?.next()),
        Some(_) => log.events_from_now().await?,
    })
}

struct End {
    phase: Phase,
    reason: String,
}

impl End {
    fn new(phase: Phase, reason: &str) -> Self {
        Self {
            phase,
            reason: reason.to_owned(),
        }
    }

    fn of(event: &Event) -> Option<(&JobId, Self)> {
        Some(match event {
            Event::JobCompleted(it) => (&it.job, Self::new(Phase::Completed, &it.reason)),
            Event::JobFailed(it) => (&it.job, Self::new(Phase::Failed, &it.reason)),
            Event::JobCancelled(it) => (&it.job, Self::new(Phase::Cancelled, &it.reason)),
            _ => return None,
        })
    }

    const fn code(&self) -> u8 {
        match self.phase {
            Phase::Completed => DONE,
            Phase::Cancelled => CANCELLED,
            _ => FAILED,
        }
    }
}

/// Returns the worse exit code: an error, a failure, a cancellation, none.
#[must_use]
pub fn worse(a: u8, b: u8) -> u8 {
    let badness = |code| match code {
        DONE => 0,
        CANCELLED => 1,
        FAILED => 2,
        ERROR => 3,
        _ => 4,
    };
    if badness(a) >= badness(b) { a } else { b }
}

/// Reports each job's end and returns the worst exit code.
///
/// # Errors
/// If there is no such job, the time is over, or a job can no longer be observed.
pub async fn until_ended(
    context: &Context,
    log: &Log,
    events: &mut Receiver<LogItem>,
    mut open: Vec<JobId>,
    timeout: Option<Limit>,
) -> anyhow::Result<u8> {
    let limit = timeout.filter(|limit| limit.0 > 0);
    let until = limit.map(|limit| Instant::now() + Duration::from_secs(limit.0.into()));
    let several = open.len() > 1;
    let mut code = DONE;
    while !open.is_empty() {
        for id in std::mem::take(&mut open) {
            match asked(log, &id).await? {
                Some(end) => code = worse(code, say(context, &id, &end, several)?),
                None => open.push(id),
            }
        }
        while !open.is_empty() {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            let silence = log.tenant().map(|_| SILENCE);
            let patience = left.into_iter().chain(silence).min();
            let ended = next_event(events, patience, |event| {
                let (id, end) = End::of(event)?;
                let place = open.iter().position(|it| it == id)?;
                Some((open.swap_remove(place), end))
            });
            match ended.await? {
                Some((id, end)) => code = worse(code, say(context, &id, &end, several)?),
                None if until.is_some_and(|until| Instant::now() >= until) => {
                    return Err(late(&open, limit).into());
                }
                None => break,
            }
        }
    }
    Ok(code)
}

async fn asked(log: &Log, id: &JobId) -> anyhow::Result<Option<End>> {
    let detail: JobDetail = query(log, "job", json!({"job": id})).await?;
    let row = detail.row;
    Ok(row.ended_at.map(|_| End::new(row.phase, &row.reason)))
}

fn say(context: &Context, id: &JobId, end: &End, several: bool) -> anyhow::Result<u8> {
    let answer = json!({"job": id, "phase": end.phase, "reason": end.reason});
    match context.output()? {
        Output::Yaml if several => print::yaml(&answer.to_string())?,
        output => print::value(output, &answer, |_, _| {
            format!("{id} {}: {}", end.phase, sanitize::shown(&end.reason))
        })?,
    }
    Ok(end.code())
}

fn late(open: &[JobId], limit: Option<Limit>) -> Coded {
    let seconds = limit.map_or(0, |limit| limit.0);
    let named = sanitize::listed(open, NAMED);
    let has = match open.len() {
        1 => "has",
        _ => "have",
    };
    let message =
        format!("{named} {has} not ended within {seconds} s; `dormouse jobs` says how they are");
    Coded::new("timeout", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_worst_end() {
        for (codes, worst) in [
            (&[DONE, DONE][..], DONE),
            (&[DONE, CANCELLED, DONE], CANCELLED),
            (&[CANCELLED, FAILED, DONE], FAILED),
            (&[FAILED, ERROR, CANCELLED], ERROR),
        ] {
            let all = codes.iter().copied().reduce(worse);
            assert_eq!(all, Some(worst), "{codes:?}");
        }
    }

    #[test]
    fn who_is_late_is_named() {
        let jobs: Vec<JobId> = (0..7)
            .map(|number| format!("ads/j{number}").parse().expect("an id"))
            .collect();
        let said = late(&jobs, Some(Limit(90))).message;
        assert!(
            said.contains("ads/j4 and 2 more have not ended within 90 s"),
            "{said}"
        );
        let one = late(&jobs[..1], Some(Limit(1))).message;
        assert!(one.starts_with("ads/j0 has not ended"), "{one}");
    }
}
