//! `log tail`, and the line of an event.

use std::ops::ControlFlow;

use clap::Args;
use dormouse_messages::{Recorded, Sequence, Timestamp, sanitize};
use dormouse_runtime::{Log, LogItem, LogWentBack};

use crate::cli::global::Output;
use crate::cli::log_range::{At, LogFileArg, RangeArgs};
use crate::commands::common::history::{History, bounds, read_log_while, sequences};
use crate::context::Context;
use crate::describe::described;
use crate::error::DONE;
use crate::print;

/// Print events as they happen, or those of a range
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type\n  dormouse log tail --from 10m               # what has happened in the last ten minutes, and goes on\n  dormouse log tail --from 2026-11-24 --to 2026-11-25\n  dormouse log tail --log log.jsonl\n  dormouse log tail --from 1 --who olga      # what she did; ads/alice where several tenants have an alice"
)]
pub struct TailArgs {
    /// Start: a sequence, a time, or an age such as 2h; default: now; with --to, --log or --archive the start of
    /// the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// End here instead of following: a sequence, a time, or an age.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
    /// Only actions of this user, as authenticated by the broker: NAME, or TENANT/NAME.
    #[arg(long, value_name = "NAME")]
    pub who: Option<String>,
    #[command(flatten)]
    pub log: LogFileArg,
}

impl TailArgs {
    fn is_wanted(&self, recorded: &Recorded) -> bool {
        let who = self.who.as_deref();
        who.is_none_or(|who| recorded.by().is_some_and(|by| by.is(who)))
    }
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
/// If the log cannot be read or followed.
pub async fn run(context: &Context, args: &TailArgs) -> anyhow::Result<u8> {
    if args.to.is_some() || !args.log.is_cluster() {
        return past(context, args).await;
    }
    let output = context.output()?;
    let (sequence, since) = bounds(context, args.from, &args.log).await?;
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
            "the log begins at event {first}: those before are in its archive; --to reads them, too"
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
                if is_late && args.is_wanted(&recorded) {
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

/// Prints the events of a range, and ends.
async fn past(context: &Context, args: &TailArgs) -> anyhow::Result<u8> {
    let output = context.output()?;
    let range = RangeArgs {
        from: args.from,
        to: args.to,
    };
    let (from, to) = sequences(context, range, &args.log).await?;
    let history = History::open(context, &args.log).await?;
    let identity = history.identity();
    let mut count = 0;
    let read = history.read(from, to, |recorded| {
        if args.is_wanted(recorded) {
            count += 1;
            event(recorded, &identity, output)?;
        }
        Ok(())
    });
    read.await?;
    if count == 0 {
        print::aside("no such event there");
    }
    Ok(DONE)
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
