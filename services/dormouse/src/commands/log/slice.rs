//! `log slice`.

use std::io::Write;
use std::sync::Arc;

use anyhow::bail;
use clap::Args;
use dormouse_messages::Sequence;
use dormouse_replay::history::anonymise::{Anonymiser, Seen};
use dormouse_replay::history::slice::{Before, States};

use super::copied;
use crate::cli::log_range::{LogFileArg, OutputFileArg, RangeArgs};
use crate::commands::common::history::{History, sequences};
use crate::context::Context;

/// Write a part of the log that can be read alone: the states before the range, and the events of the range
#[derive(Debug, Clone, Args)]
#[command(
    after_help = "Examples:\n  dormouse log slice --from 4000 --to 4712 --file bug.jsonl\n  dormouse log slice --from 4000 --log log.parquet --file bug.jsonl\n  dormouse log slice --from 4000 --to 4712 --anonymise --file bug.jsonl\n  dormouse log verify --log bug.jsonl\n  dormouse explain ads/lr --log bug.jsonl\n\nEvery decision in the slice can be made again. States have versions; another build names the build to use."
)]
pub struct SliceArgs {
    #[command(flatten)]
    pub range: RangeArgs,
    /// Replace names, keeping their order; drop commands, environments, paths and program output.
    #[arg(long)]
    pub anonymise: bool,
    #[command(flatten)]
    pub out: OutputFileArg,
    #[command(flatten)]
    pub log: LogFileArg,
}

/// Runs `log slice`. A first pass finds the inputs of the range's decisions.
///
/// # Errors
/// If the log or the file fails.
pub async fn run(context: &Context, args: &SliceArgs) -> anyhow::Result<u8> {
    let (from, to) = sequences(context, args.range, &args.log).await?;
    let file = args.out.file.as_path();
    if file.extension().is_some_and(|ending| ending == "parquet") {
        bail!(
            "a slice is a file of lines; name it {}",
            file.with_extension("jsonl").display()
        );
    }
    let mut out = context.output_file(file, &args.log.read())?;
    let from = Sequence(from);
    let mut before = Before::new(from);
    let mut any = false;
    let history = History::open_whole(context, &args.log).await?;
    let read = history.read(from.0, to, |recorded| {
        any = true;
        before.read(recorded);
        Ok(())
    });
    read.await?;
    if !any {
        bail!("the log has no event {from}; `dormouse cluster status` says where it ends");
    }
    let asof = before.sequence();
    let mut anonymiser = if args.anonymise {
        Some(anonymiser(context, &args.log).await?)
    } else {
        None
    };
    let history = History::open_whole(context, &args.log).await?;
    let identity = if args.anonymise {
        "anonymous".to_owned()
    } else {
        history.identity()
    };
    let mut states = history.states()?.unwrap_or_default();
    let (mut headed, mut count) = (false, 0_u64);
    let read = history.read(1, to, |recorded| {
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
    let said = format!(
        "{count} events written to {}, with the states after event {asof}",
        file.display()
    );
    copied(context, file, count, &said)
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
