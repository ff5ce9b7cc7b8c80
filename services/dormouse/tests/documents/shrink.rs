//! `docs/ask-the-log.md` shows the real output of its commands.

use std::sync::Arc;

use dormouse_messages::{Recorded, Timestamp};
use dormouse_replay::Verifier;
use dormouse_replay::history::bisect::Bisect;
use dormouse_replay::history::explain::{Explainer, Subject};
use dormouse_replay::history::ledger::Ledger;
use dormouse_replay::scenario;
use dormouse_replay::simulate::{Options, simulate};

use super::{assert_generated, read};
use crate::commands::log::{bisect, verify};
use crate::commands::{explain, ledger};
use crate::render::Style;

const PAGE: &str = "docs/ask-the-log.md";

fn log() -> Vec<Arc<Recorded>> {
    let scenario = scenario::read(&read("docs/images/three-teams.json")).expect("a scenario");
    let mut log = Vec::new();
    let each = |recorded: &Arc<Recorded>| {
        log.push(Arc::clone(recorded));
        Ok(())
    };
    simulate(&scenario, &Options::default(), each, |_| {}).expect("it runs to its end");
    log
}

fn explained(log: &[Arc<Recorded>], subject: Subject, until: Timestamp) -> String {
    let mut explainer = Explainer::new(subject, None, 600);
    let counts = log.iter().filter(|recorded| recorded.stored_at <= until);
    counts.for_each(|recorded| explainer.read(recorded));
    explain::text(
        &explainer.explain().expect("it is there"),
        &Style::default(),
    )
}

fn part(name: &str, command: &str, printed: &str) {
    let block = format!("```\n$ {command}\n{}\n```", printed.trim_end());
    assert_generated(PAGE, name, &block);
}

#[test]
fn the_page_shows_what_is_printed() {
    let log = log();
    let file = "--log three-teams.jsonl";
    let at = |text: &str| text.parse::<Timestamp>().expect("a time");
    let end = log.last().expect("events").stored_at;
    let mut bisect = Bisect::new("ads/lr.containers=14".parse().expect("a predicate"));
    log.iter().for_each(|recorded| {
        bisect.read(recorded);
    });
    let found = bisect.finish().0.expect("it shrinks");
    let command = format!("dormouse log bisect ads/lr.containers=14 {file}");
    part("first", &command, &bisect::found(&found));
    let lr = Subject::Job("ads/lr".parse().expect("a job"));
    let command = format!("dormouse explain ads/lr --at 00:15:00 -v {file}");
    part(
        "why",
        &command,
        &explained(&log, lr, at("2026-01-01T00:15:00Z")),
    );
    let mut booked = Ledger::new(None, None);
    log.iter().for_each(|recorded| booked.read(recorded));
    let command = format!("dormouse ledger {file}");
    part(
        "ledger",
        &command,
        &ledger::text(&booked.finish(end), &Style::default()),
    );
    let mut verifier = Verifier::default();
    log.iter().for_each(|recorded| verifier.read(recorded));
    let command = format!("dormouse log verify {file}");
    part("verify", &command, &verify::text(&verifier.finish()));
}
