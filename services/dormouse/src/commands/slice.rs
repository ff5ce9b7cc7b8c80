//! `log slice|trace`: writes parts and other forms of a log.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use anyhow::bail;
use dormouse_messages::Sequence;
use dormouse_replay::history::anonymise::{Anonymiser, Seen};
use dormouse_replay::history::slice::{Before, States};
use dormouse_replay::history::trace::TraceWriter;

use super::history::{History, open_at};
use crate::cli::global::OutputArg;
use crate::cli::point::{LogFileArg, PointArgs};
use crate::context::Context;
use crate::error::DONE;
use crate::print;

/// A range of sequences: `4000..4712`, `4000..`, `..4712`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceRange {
    pub from: u64,
    pub to: Option<u64>,
}

impl FromStr for SliceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range such as 4000..4712");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong()),
        };
        let range = Self {
            from: number(from)?.unwrap_or(1),
            to: number(to)?,
        };
        if range.to.is_some_and(|to| to < range.from) || range.from == 0 {
            Err(wrong())
        } else {
            Ok(range)
        }
    }
}

fn target(context: &Context, what: &str) -> anyhow::Result<PathBuf> {
    match &context.global().output {
        OutputArg::File(file) => Ok(file.clone()),
        OutputArg::Format(_) => bail!("name the file: -o {what}"),
    }
}

/// Writes a slice. A first pass finds the inputs of the range's decisions.
///
/// # Errors
/// If the log or the file fails.
pub async fn slice(
    context: &Context,
    range: SliceRange,
    anonymise: bool,
    log: &LogFileArg,
) -> anyhow::Result<u8> {
    let file = target(context, "slice.jsonl")?;
    if file.extension().is_some_and(|ending| ending == "parquet") {
        bail!(
            "a slice is a file of lines; name it {}",
            file.with_extension("jsonl").display()
        );
    }
    let mut out = context.output_file(&file, &log.read())?;
    let from = Sequence(range.from);
    let mut before = Before::new(from);
    let mut any = false;
    let history = History::open_whole(context, log).await?;
    let read = history.read(from.0, range.to, |recorded| {
        any = true;
        before.read(recorded);
        Ok(())
    });
    read.await?;
    if !any {
        bail!("the log has no event {from}; `dormouse cluster` says where it ends");
    }
    let asof = before.sequence();
    let mut anonymiser = if anonymise {
        Some(anonymiser(context, log).await?)
    } else {
        None
    };
    let history = History::open_whole(context, log).await?;
    let identity = if anonymise {
        "anonymous".to_owned()
    } else {
        history.identity()
    };
    let mut states = history.states()?.unwrap_or_default();
    let (mut headed, mut count) = (false, 0_u64);
    let read = history.read(1, range.to, |recorded| {
        let recorded = match &mut anonymiser {
            None => Arc::clone(recorded),
            Some(anonymiser) => match anonymiser.read(recorded)? {
                Some(renamed) => renamed,
                None => return Ok(()),
            },
        };
        if recorded.sequence <= asof {
            states.read(&recorded);
            return Ok(());
        }
        if !std::mem::replace(&mut headed, true) {
            writeln!(out, "{}", head(&states, &identity, from)?)?;
        }
        count += 1;
        Ok(writeln!(out, "{}", recorded.to_json(&identity)?)?)
    });
    read.await?;
    out.finish()?;
    print::aside(format!(
        "{count} events written to {}, with the states after event {asof}",
        file.display()
    ));
    Ok(DONE)
}

async fn anonymiser(context: &Context, log: &LogFileArg) -> anyhow::Result<Anonymiser> {
    let history = History::open_whole(context, log).await?;
    if history.is_slice() {
        bail!("a slice does not say all names; make the anonymous slice from the whole log");
    }
    let mut seen = Seen::default();
    let read = history.read(1, None, |recorded| {
        seen.read(recorded);
        Ok(())
    });
    read.await?;
    Ok(Anonymiser::new(seen))
}

fn head(states: &States, identity: &str, from: Sequence) -> anyhow::Result<String> {
    Ok(states.head(identity, from, &crate::build_id::build())?)
}

/// Writes a trace for Perfetto.
///
/// # Errors
/// If the log or the file fails.
pub async fn trace(context: &Context, point: &PointArgs) -> anyhow::Result<u8> {
    let file = target(context, "cluster.pftrace")?;
    let out = context.output_file(&file, &point.log.read())?;
    let reading = open_at(context, point).await?;
    let mut writer = TraceWriter::new(out)?;
    if let Some(states) = reading.states()? {
        writer = writer.starting_from(states.model);
    }
    let mut writer = writer.seen_by(point.tenant.clone());
    let read = reading.read(|recorded| Ok(writer.read(recorded)?));
    read.await?;
    let (packets, out) = writer.finish()?;
    out.finish()?;
    print::aside(format!("{packets} packets written to {}", file.display()));
    Ok(DONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_range_of_sequences() {
        let range = |text: &str| text.parse::<SliceRange>();
        let of = |from, to| Ok(SliceRange { from, to });
        assert_eq!(range("40..47"), of(40, Some(47)));
        assert_eq!(
            (range("40.."), range("..47")),
            (of(40, None), of(1, Some(47)))
        );
        for wrong in ["40", "47..40", "0..4", "a..b"] {
            let error = range(wrong).expect_err(wrong);
            assert!(error.contains("40"), "{error}");
        }
    }
}
