//! The answer of `lab simulate`: the figures of each run, and the differences between variants.

use dormouse_replay::simulate::compare::{Difference, compare};
use dormouse_replay::simulate::{Figures, Outcome};
use serde::Serialize;

use super::runs::Run;

/// All runs, and their differences.
#[derive(Debug, Serialize)]
pub struct Answer<'a> {
    pub runs: Vec<AnswerRun<'a>>,
    pub comparison: Vec<AnswerComparison<'a>>,
}

/// One run.
#[derive(Debug, Serialize)]
pub struct AnswerRun<'a> {
    pub scenario: &'a str,
    pub variant: &'a str,
    #[serde(flatten)]
    pub figures: &'a Figures,
}

/// The differences between two variants.
#[derive(Debug, Serialize)]
pub struct AnswerComparison<'a> {
    pub variant: &'a str,
    pub against: &'a str,
    pub differences: Vec<Difference>,
}

impl<'a> Answer<'a> {
    /// Returns the runs' answer.
    pub fn of(runs: &'a [Run], outcomes: &'a [Outcome]) -> Self {
        let with_figures = runs.iter().zip(outcomes);
        let listed = with_figures.clone().map(|(run, outcome)| AnswerRun {
            scenario: &run.scenario,
            variant: &run.variant,
            figures: &outcome.figures,
        });
        let of = |variant: &str| -> Vec<&Figures> {
            let of = with_figures
                .clone()
                .filter(|(run, _)| run.variant == variant);
            of.map(|(_, outcome)| &outcome.figures).collect()
        };
        let mut variants: Vec<&str> = Vec::new();
        for run in runs {
            if !variants.contains(&run.variant.as_str()) {
                variants.push(&run.variant);
            }
        }
        let (against, others) = variants
            .split_first()
            .map_or(("", &[][..]), |(first, rest)| (*first, rest));
        let comparison = others.iter().map(|variant| AnswerComparison {
            variant,
            against,
            differences: compare(&of(against), &of(variant)),
        });
        Self {
            runs: listed.collect(),
            comparison: comparison.collect(),
        }
    }
}
