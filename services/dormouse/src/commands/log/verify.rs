//! `log verify`.

use std::time::Duration;

use clap::Args;
use dormouse_replay::{Report, Verifier};
use indicatif::{ProgressBar, ProgressStyle};

use dormouse_archive::{Archive, Verification};

use crate::cli::log_range::LogFileArg;
use crate::commands::common::history::History;
use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;

/// Recompute every decision from its basis and compare; of an archive, check every object too
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log verify\n  dormouse log verify --log log.jsonl\n  dormouse log verify --archive s3://bucket/dormouse"
)]
pub struct VerifyArgs {
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `log verify`.
///
/// # Errors
/// If the log cannot be read.
pub async fn run(context: &Context, args: &VerifyArgs) -> anyhow::Result<u8> {
    if let Some(archive) = args.log.archive()? {
        let found = verify_archive(&archive).await?;
        print::value(context.output()?, &found, |found, _| archived(found))?;
        let is_right = found.decisions.findings.is_empty();
        return Ok(if is_right { DONE } else { ERROR });
    }
    let report = verify(context, &args.log).await?;
    print::value(context.output()?, &report, |report, _| text(report))?;
    let is_right = report.findings.is_empty();
    Ok(if is_right { DONE } else { ERROR })
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

async fn verify_archive(archive: &Archive) -> anyhow::Result<Verification> {
    let progress = ProgressBar::new(1).with_style(ProgressStyle::with_template(
        "{spinner} segment {pos} of {len}, {msg}, {elapsed}",
    )?);
    progress.enable_steady_tick(Duration::from_millis(100));
    let mut events = 0;
    let found = archive.verify(|checked| {
        events += checked.events;
        progress.set_length(checked.of);
        progress.set_position(checked.number);
        progress.set_message(format!("{events} events"));
    });
    let found = found.await?;
    progress.finish_and_clear();
    Ok(found)
}

/// Describes an archive's verification.
#[must_use]
pub fn archived(found: &Verification) -> String {
    let unread = match found.unread_states {
        0 => String::new(),
        states => format!(
            "\nthe states of {states} segments have other shapes than this build's, and were not compared"
        ),
    };
    format!(
        "{} segments, events {} to {}, {} in {}\n{}{unread}\nthe newest manifest is {}: keep this digest elsewhere, since any later change to the archive changes it",
        found.segments,
        found.first,
        found.last,
        indicatif::DecimalBytes(found.bytes),
        found.place,
        text(&found.decisions),
        found.digest
    )
}

/// Describes a verification.
#[must_use]
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{} events, {} decisions made again, {} the same",
        report.events, report.decisions, report.verified
    );
    let failed = report.decisions - report.verified;
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
