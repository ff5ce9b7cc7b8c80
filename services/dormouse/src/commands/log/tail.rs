//! `log tail`, and the line of an event.

use std::ops::ControlFlow;

use clap::Args;
use dormouse_messages::{Recorded, Sequence, Timestamp, sanitize};
use dormouse_runtime::{Log, LogItem, LogWentBack};

use crate::cli::global::Output;
use crate::cli::log_range::{At, LogFileArg};
use crate::commands::common::history::{bounds, read_log_while};
use crate::context::Context;
use crate::describe::described;
use crate::print;

/// Print events as they happen
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type\n  dormouse log tail --from 10m               # what has happened in the last ten minutes, and goes on\n  dormouse log tail --from 1 --who olga      # what she did; ads/alice where several tenants have an alice"
)]
pub struct TailArgs {
    /// Start at this sequence, at this time, or this long ago (10m, 2h), instead of now.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// Only actions of this user, as authenticated by the broker: NAME, or TENANT/NAME.
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
}

/// Formats an event as one line.
#[must_use]
pub fn line(recorded: &Recorded) -> String {
    let time = recorded.stored_at.to_string();
    let time = time.get(11..23).unwrap_or(&time);
    match recorded.event() {
        Some(event) => format!(
            "{time}Z {:>7} {:<26} {:<24} {}",
            recorded.sequence.0,
            event.subject_name(),
            recorded.envelope.subject.as_str(),
            described(recorded)
        ),
        None => format!(
            "{time}Z {:>7} (a type that this build does not know)",
            recorded.sequence.0
        ),
    }
}

/// Prints an event.
///
/// # Errors
/// If the standard output is closed.
pub fn event(recorded: &Recorded, identity: &str, output: Output) -> anyhow::Result<()> {
    match output {
        Output::Json => print::line(recorded.to_json(identity)?),
        Output::Yaml => print::yaml(&recorded.to_json(identity)?),
        Output::Table | Output::Wide => print::line(sanitize::printable(&line(recorded))),
    }
}

/// Runs `log tail`.
///
/// # Errors
/// If the log cannot be followed.
pub async fn run(context: &Context, args: &TailArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let (sequence, since) = bounds(context, args.from, &LogFileArg::default()).await?;
    let log = context.connect().await?;
    let head = log.head().await?;
    let from = match (sequence, since) {
        (Some(sequence), _) => Sequence(sequence),
        (None, Some(since)) => first_since(&log, since, head).await?,
        (None, None) => head.next(),
    };
    let first = log.first();
    if from < first {
        print::aside(format!(
            "the log begins at event {first}: those before are in its archive (`dormouse log export`)"
        ));
    }
    let from = from.max(first);
    if from > head.next() {
        print::aside(format!(
            "the log ends at event {head}; waiting for event {from}"
        ));
    }
    let identity = log.identity();
    let mut events = log.follow(from);
    while let Some(followed) = events.recv().await {
        match followed {
            LogItem::Event(recorded) => {
                let is_late = since.is_none_or(|since| recorded.stored_at >= since);
                if is_late
                    && args
                        .who
                        .as_deref()
                        .is_none_or(|who| recorded.by().is_some_and(|by| by.is(who)))
                {
                    event(&recorded, &identity, output)?;
                }
            }
            LogItem::Flagged { sequence, why, .. } => {
                print::aside(format!("event {sequence} is flagged: {why}"));
            }
            LogItem::CaughtUp(_) => {}
        }
    }
    Err(LogWentBack.into())
}

/// After a backward step of the brokers' clock, this may find a later event.
async fn first_since(log: &Log, since: Timestamp, head: Sequence) -> anyhow::Result<Sequence> {
    let (mut low, mut high) = (log.first().0, head.0 + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        // Flagged events have no time.
        let mut next = None;
        let read = read_log_while(log, middle, Some(high - 1), |recorded| {
            next = Some((recorded.sequence.0, recorded.stored_at));
            Ok(ControlFlow::Break(()))
        });
        read.await?;
        match next.filter(|(_, stored_at)| *stored_at < since) {
            Some((earlier, _)) => low = earlier + 1,
            None => high = middle,
        }
    }
    Ok(Sequence(low))
}
