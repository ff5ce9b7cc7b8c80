//! `log …`: follows, exports and imports a log; `slice` has `log slice|trace`.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Subcommand;
use dormouse_messages::{Recorded, Sequence, Timestamp, sanitize};
use dormouse_replay::{LogReader, LogWriter, OutputFile};
use dormouse_runtime::{Log, LogItem, LogWentBack};

use super::history::{History, bounds, read_log_while};
use super::slice;
use super::slice::SliceRange;
use crate::cli::global::{Output, OutputArg};
use crate::cli::point::{At, LogFileArg, PointArgs};
use crate::context::Context;
use crate::describe::described;
use crate::error::DONE;
use crate::print;

/// Read the log
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  dormouse log tail\n  dormouse log export -o log.parquet")]
pub enum LogCommand {
    /// Print events as they happen
    #[command(
        after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type\n  dormouse log tail --from 10m               # what has happened in the last ten minutes, and goes on\n  dormouse log tail --from 1 --who olga      # what she did; ads/alice where several tenants have an alice"
    )]
    Tail {
        /// Start at this sequence, at this time, or this long ago (10m, 2h), instead of now.
        #[arg(long, value_name = "SEQUENCE|TIME")]
        from: Option<At>,
        /// Only actions of this user, as authenticated by the broker: NAME, or TENANT/NAME.
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
    },
    /// Write the log to a file: JSON lines, or Parquet if it ends in .parquet
    #[command(
        after_help = "Examples:\n  dormouse log export -o log.jsonl\n  dormouse log export -o log.parquet --to 4712\n  dormouse log export | jq .type\n  dormouse log export --log log.parquet -o log.jsonl     # Parquet as JSON lines\n\n-o names the file here; without it the events go to the standard output."
    )]
    Export {
        /// First sequence.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Last sequence.
        #[arg(long)]
        to: Option<u64>,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Write a part of the log that can be read alone: the states before the range, and the events of the
    /// range
    #[command(
        after_help = "Examples:\n  dormouse log slice 4000..4712 -o bug.jsonl\n  dormouse log slice 4000.. --log log.parquet -o bug.jsonl\n  dormouse log slice 4000..4712 --anonymise -o bug.jsonl\n  dormouse replay verify --log bug.jsonl\n  dormouse explain ads/lr --log bug.jsonl\n\nThe states are those that the decisions in the slice were made from: each can be made again. They have versions; a build with others says which build to use."
    )]
    Slice {
        /// First and last sequence; either may be left out.
        #[arg(value_name = "FROM..TO")]
        range: SliceRange,
        /// Replace names, keeping their order; drop commands, environments, paths and program output.
        #[arg(long)]
        anonymise: bool,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Write the log as a trace for Perfetto (ui.perfetto.dev): nodes and jobs as tracks
    #[command(
        after_help = "Examples:\n  dormouse log trace -o cluster.pftrace\n  dormouse log trace --log log.parquet --at 4712 -o cluster.pftrace"
    )]
    Trace {
        #[command(flatten)]
        point: PointArgs,
    },
    /// Import an exported log into the empty log of a broker
    #[command(
        after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333"
    )]
    Import {
        /// File to import.
        file: PathBuf,
    },
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

/// Runs `log …`.
///
/// # Errors
/// If the log or a file fails.
pub async fn run(context: &Context, command: &LogCommand) -> anyhow::Result<u8> {
    match command {
        LogCommand::Tail { from, who } => tail(context, *from, who.as_deref()).await,
        LogCommand::Export { from, to, log } => export(context, *from, *to, log).await,
        LogCommand::Slice {
            range,
            anonymise,
            log,
        } => slice::slice(context, *range, *anonymise, log).await,
        LogCommand::Trace { point } => slice::trace(context, point).await,
        LogCommand::Import { file } => import(context, file).await,
    }
}

/// Runs `log tail`.
///
/// # Errors
/// If the log cannot be followed.
pub async fn tail(context: &Context, from: Option<At>, who: Option<&str>) -> anyhow::Result<u8> {
    let output = context.output()?;
    let (sequence, since) = bounds(context, from, &LogFileArg::default()).await?;
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
