//! `log tail|export|import`.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::bail;
use dormouse_messages::{Recorded, Sequence, Timestamp, sanitize};
use dormouse_replay::{LogReader, LogWriter, OutputFile};
use dormouse_runtime::{Log, LogItem, LogWentBack};

use super::history::{History, bounds, read_log_while};
use crate::cli::global::{Output, OutputArg};
use crate::cli::point::{At, LogFileArg};
use crate::context::Context;
use crate::describe::described;
use crate::error::DONE;
use crate::print;

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
pub async fn tail(context: &Context, from: Option<At>, who: Option<&str>) -> anyhow::Result<u8> {
    let output = context.output()?;
    let (sequence, since) = bounds(context, from, &LogFileArg { file: None }).await?;
    let log = context.connect().await?;
    let head = log.head().await?;
    let from = match (sequence, since) {
        (Some(sequence), _) => Sequence(sequence),
        (None, Some(since)) => first_since(&log, since, head).await?,
        (None, None) => head.next(),
    };
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
                if is_late && who.is_none_or(|who| recorded.by().is_some_and(|by| by.is(who))) {
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
    let (mut low, mut high) = (1, head.0 + 1);
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

/// Runs `log export`.
///
/// # Errors
/// If the log or the file fails.
pub async fn export(
    context: &Context,
    from: u64,
    to: Option<u64>,
    log: &LogFileArg,
) -> anyhow::Result<u8> {
    let file = match &context.global().output {
        OutputArg::File(file) => file.as_path(),
        OutputArg::Format(_) => Path::new("-"),
    };
    if to.is_some_and(|to| to < from) {
        bail!(
            "nothing lies between event {from} and an earlier one; --to must not be below --from"
        );
    }
    let out = context.output_file(file, &log.read())?;
    let history = History::open(context, log).await?;
    let count = export_to(history, out, from, to).await?;
    if count == 0 {
        print::aside(format!(
            "there is no event {from}; `dormouse cluster` says where the log ends"
        ));
    }
    if file.as_os_str() != "-" {
        print::aside(format!("{count} events written to {}", file.display()));
    }
    Ok(DONE)
}

/// Writes the log to a file; returns the number of events.
///
/// # Errors
/// If the log or the file fails.
pub async fn export_to(
    history: History,
    out: OutputFile,
    from: u64,
    to: Option<u64>,
) -> anyhow::Result<u64> {
    let mut writer = LogWriter::new(out, &history.identity())?;
    let mut count = 0;
    let read = history.read(from, to, |recorded| {
        count += 1;
        Ok(writer.write(recorded)?)
    });
    read.await?;
    writer.finish()?;
    Ok(count)
}

/// Runs `log import`.
///
/// # Errors
/// If the file is damaged, or the broker's log is not empty.
pub async fn import(context: &Context, file: &Path) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    log.ensure_streams().await?;
    let count = log.import(LogReader::open(file)?).await?;
    print::aside(format!("{count} events imported from {}", file.display()));
    Ok(DONE)
}
