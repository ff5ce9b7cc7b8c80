//! A page is complete, self-contained, and shows every run.

use crate::common::scenario;
use dormouse_replay::report::{Run, page};
use dormouse_replay::simulate::{Options, Outcome, simulate};

fn outcome(policy: &str) -> Outcome {
    let scenario = scenario("dorm-seed1", policy);
    simulate(&scenario, &Options::default(), |_| Ok(()), |_| ()).expect("simulates")
}

#[test]
fn a_page_shows_every_run_and_needs_nothing_else() {
    let outcomes = [("static", outcome("static")), ("a <b> & c", outcome("drf"))];
    let runs: Vec<Run<'_>> = outcomes
        .iter()
        .map(|(name, outcome)| Run {
            name: (*name).to_owned(),
            outcome,
        })
        .collect();
    let page = page("Table II", &runs);
    for heading in [
        "Utilization",
        "Fairness loss",
        "Adjustments",
        "Speed-up",
        "Waiting by tenant",
        "Jobs: static",
    ] {
        assert!(page.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    assert!(page.contains("a &lt;b&gt; &amp; c") && !page.contains("a <b>"));
    for foreign in [
        "<script", "http://", "https://", "src=", "@import", "NaN", "inf",
    ] {
        assert!(!page.contains(foreign), "{foreign} is in the page");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    assert_eq!(page.matches("<svg").count(), 7);
}
