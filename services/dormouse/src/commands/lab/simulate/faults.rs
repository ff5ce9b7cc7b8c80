//! `lab simulate --faults`: runs trials in threads; a failing trial leaves its log and the command to repeat it.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::bail;
use dormouse_replay::LogWriter;
use dormouse_replay::torture::{Failure, Passed, set_back, trial};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use super::runs;
use crate::commands::lab::simulate::args::{Seeds, SimulateArgs};
use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Answer {
    trials: u64,
    passed: u64,
    events: u64,
    decisions: u64,
    failed: Vec<Failed>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Failed {
    seed: u64,
    what: String,
    log: PathBuf,
    again: String,
}

/// Runs the trials.
///
/// # Errors
/// If a scenario is wrong, or a failing trial's log cannot be written.
pub fn run(context: &Context, args: &SimulateArgs, Seeds(seeds): &Seeds) -> anyhow::Result<u8> {
    let runs = runs::plan(args)?;
    if runs.len() > 1 {
        bail!("--faults takes at most one scenario, without sweeps");
    }
    let scenario = runs.first().map(runs::Run::scenario);
    let count = seeds.end() - seeds.start() + 1;
    let style = "{bar:30} {human_pos}/{human_len} trials, {per_sec}, {msg}";
    let progress = ProgressBar::new(count).with_style(ProgressStyle::with_template(style)?);
    let next = AtomicU64::new(*seeds.start());
    let answer = Mutex::new(Answer::default());
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..runs::threads(args) {
            scope.spawn(|| {
                while let Some(seed) = take(&next, *seeds.end()) {
                    let ended = if args.log_goes_back {
                        set_back(seed)
                    } else {
                        trial(seed, scenario)
                    };
                    note(&answer, &failures, ended);
                    progress.inc(1);
                    if let Ok(failures) = failures.lock() {
                        progress.set_message(format!("{} failed", failures.len()));
                    }
                }
            });
        }
    });
    progress.finish_and_clear();
    let mut answer = answer.into_inner().unwrap_or_default();
    for failure in failures.into_inner().unwrap_or_default() {
        answer.failed.push(write(context, &failure, args)?);
    }
    answer.failed.sort_by_key(|failed| failed.seed);
    print::value(context.output()?, &answer, |answer, _| text(answer))?;
    Ok(if answer.failed.is_empty() {
        DONE
    } else {
        ERROR
    })
}

fn take(next: &AtomicU64, last: u64) -> Option<u64> {
    let seed = next.fetch_add(1, Ordering::Relaxed);
    (seed <= last).then_some(seed)
}

fn note(
    answer: &Mutex<Answer>,
    failures: &Mutex<Vec<Failure>>,
    ended: Result<Passed, Box<Failure>>,
) {
    let (Ok(mut answer), Ok(mut failures)) = (answer.lock(), failures.lock()) else {
        return;
    };
    answer.trials += 1;
    match ended {
        Ok(passed) => {
            answer.passed += 1;
            answer.events += passed.events;
            answer.decisions += passed.decisions;
        }
        Err(failure) => failures.push(*failure),
    }
}

fn write(context: &Context, failure: &Failure, args: &SimulateArgs) -> anyhow::Result<Failed> {
    let seed = failure.seed;
    let file = match &args.write_log {
        Some(file) => runs::numbered(file, seed),
        None => PathBuf::from(format!("faults-{seed}.jsonl")),
    };
    let out = context.output_file(&file, &args.read())?;
    let mut writer = LogWriter::new(out, &format!("faults-{seed}"))?;
    for recorded in &failure.log {
        writer.write(recorded)?;
    }
    writer.finish()?;
    let scenarios = args.scenarios.iter().map(|source| format!(" {source}"));
    let settings = args
        .settings
        .iter()
        .map(|setting| format!(" --set '{setting}'"));
    let policies = args
        .policies
        .iter()
        .map(|policy| format!(" --policy {policy}"));
    let rest: String = scenarios.chain(policies).chain(settings).collect();
    let back = if args.log_goes_back {
        " --log-goes-back"
    } else {
        ""
    };
    Ok(Failed {
        seed,
        what: failure.what.clone(),
        log: file,
        again: format!("dormouse lab simulate{rest} --faults {seed}{back}"),
    })
}

fn text(answer: &Answer) -> String {
    let mut text = format!(
        "{} of {} trials passed: {} events, {} decisions made again",
        answer.passed, answer.trials, answer.events, answer.decisions
    );
    for failed in answer.failed.iter().take(20) {
        let what: String = failed.what.chars().take(400).collect();
        text.push_str(&format!(
            "\nseed {}: {what}\n  its log: {}\n  again: {}",
            failed.seed,
            failed.log.display(),
            failed.again
        ));
    }
    text
}
