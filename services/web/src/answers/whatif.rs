//! Forks of the log under changes, compared with reality.

use std::sync::{Mutex, TryLockError};

use dormouse_messages::{Sequence, Timestamp};
use dormouse_projections::steps::{summarise, thin};
use dormouse_projections::timelines::{Series, Timeline};
use dormouse_replay::history::changes::Asked;
use dormouse_replay::history::whatif::{self, ForkAt, Options, Ran};
use dormouse_replay::simulate::Outcome;
use serde::{Deserialize, Serialize};

use super::Answer;
use crate::error::AnswerError;
use crate::site::Site;

/// Limit of a forked log; decoded events take some kilobytes each.
const MOST_EVENTS: usize = 100_000;
const MOST_VARIANTS: usize = 4;
/// Samples of unknown scaling curves.
const DRAWS: u32 = 4;
const POINTS: usize = 600;

/// One fork at a time, since each occupies a processor.
static WORKING: Mutex<()> = Mutex::new(());

/// Query for a fork; the answer depends on the end.
#[derive(Debug, Deserialize)]
pub struct WhatifQuery {
    /// The last event before the fork.
    at: u64,
    /// The last event that counts.
    to: u64,
    /// Changes as the command takes them: `policy.theta2=0.2 drop-node=n1`.
    changes: String,
}

/// The result of a fork.
#[derive(Debug, Serialize)]
pub struct WhatifAnswer {
    #[serde(flatten)]
    answer: whatif::Answer,
    /// Timelines: real, modelled without changes, and with them.
    lines: Vec<Timeline>,
}

/// Forks the log and runs the services under the changes.
pub fn whatif(site: &Site, query: &WhatifQuery) -> Answer<WhatifAnswer> {
    let asked: Asked = changes(&query.changes)?;
    let variants = asked.variants().map_err(AnswerError::wrong)?;
    let changed = variants.iter().filter(|it| !it.is_empty()).count();
    if changed == 0 || changed > MOST_VARIANTS {
        return Err(AnswerError::wrong(format!(
            "{changed} changes are asked for, and 1 to {MOST_VARIANTS} can be: write one such as policy.theta2=0.2; `dormouse whatif` takes more"
        )));
    }
    let _working = match WORKING.try_lock() {
        Ok(working) => working,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return Err(AnswerError::busy()),
    };
    let events = site.page.past.head().events;
    if events > MOST_EVENTS {
        return Err(AnswerError::wrong(format!(
            "the log has {events} events, and the page forks one of {MOST_EVENTS} at most; use `dormouse whatif`, or a slice of the log"
        )));
    }
    let mut history = site.page.past.history(Sequence(query.to))?;
    history.compares(&variants);
    let forked = history.fork(ForkAt::Sequence(site.moment(Some(query.at))));
    let options = Options {
        draws: DRAWS,
        threads: 1,
    };
    let answered = whatif::whatif(&history, &forked, &variants, options);
    let answered = answered.map_err(AnswerError::wrong)?;
    let was = ("as it was".to_owned(), whatif::recorded(&forked));
    let mut courses = answered.courses;
    if let Some((name, _)) = courses.first_mut() {
        "the model, unchanged".clone_into(name);
    }
    courses.insert(0, was);
    Ok(WhatifAnswer {
        answer: answered.answer,
        lines: lines(&courses, forked.span),
    })
}

fn changes(text: &str) -> Answer<Asked> {
    let mut asked = Asked::default();
    for word in text.split_whitespace() {
        let word = word.trim_start_matches("--");
        match word.split_once('=') {
            Some(("add-node", node)) => {
                asked
                    .add_nodes
                    .push(node.parse().map_err(AnswerError::wrong)?);
            }
            Some(("drop-node", node)) => {
                asked
                    .drop_nodes
                    .push(node.parse().map_err(AnswerError::wrong)?);
            }
            Some(("drain", node)) => {
                asked
                    .drain_nodes
                    .push(node.parse().map_err(AnswerError::wrong)?);
            }
            Some(("drop-job", job)) => {
                asked
                    .drop_jobs
                    .push(job.parse().map_err(AnswerError::wrong)?);
            }
            _ => asked
                .settings
                .push(word.parse().map_err(AnswerError::wrong)?),
        }
    }
    Ok(asked)
}

fn lines(courses: &[(String, Ran)], (begun, ended): (Timestamp, Timestamp)) -> Vec<Timeline> {
    type Line = fn(&Outcome) -> &[(f64, f64)];
    let metrics: [(&str, &str, Line); 3] = [
        (
            "utilization",
            "Utilization, the sum over the resources",
            |it| &it.utilization,
        ),
        ("fairness-loss", "Fairness loss", |it| &it.loss),
        ("adjustments", "Adjusted jobs in all", |it| &it.adjustments),
    ];
    let line = |(metric, title, of): &(&str, &str, Line)| {
        let mut to = ended;
        let mut series = Vec::new();
        for (name, ran) in courses {
            let points: Vec<(Timestamp, f64)> = of(&ran.outcome)
                .iter()
                .map(|(at_s, value)| (later(begun, *at_s), *value))
                .collect();
            to = to.max(points.last().map_or(to, |(at, _)| *at));
            series.push((name.clone(), points));
        }
        let series = series.into_iter().map(|(name, points)| Series {
            name,
            summary: summarise(&points, to),
            points: thin(&points, POINTS),
        });
        Timeline {
            metric: (*metric).to_owned(),
            unit: String::new(),
            title: (*title).to_owned(),
            from: begun,
            to,
            series: series.collect(),
            omitted: 0,
        }
    };
    metrics.iter().map(line).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a simulated time stays far below 285 years"
)]
fn later(begun: Timestamp, seconds: f64) -> Timestamp {
    Timestamp::from_micros(begun.as_micros().saturating_add((seconds * 1e6) as i64))
}
