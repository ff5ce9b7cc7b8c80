//! The report of `cluster doctor`.

use serde::{Deserialize, Serialize};

use crate::render::Style;

/// All checks.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    pub of: String,
    pub name: String,
    pub state: State,
    pub found: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<String>,
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Ok,
    Warning,
    Failed,
}

impl State {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "FAILED",
        }
    }
}

/// Adds the checks of one part to a report.
pub struct Looks<'a> {
    pub of: &'static str,
    pub report: &'a mut Report,
}

impl Looks<'_> {
    pub fn add(&mut self, name: &str, state: State, found: String, advice: Option<String>) {
        self.report.checks.push(Check {
            of: self.of.to_owned(),
            name: name.to_owned(),
            state,
            found,
            advice,
        });
    }

    pub fn ok(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, State::Ok, found.into(), None);
    }

    pub fn warn(&mut self, name: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Warning, found.into(), Some(advice.into()));
    }

    pub fn fail(&mut self, name: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Failed, found.into(), Some(advice.into()));
    }
}

impl Report {
    pub fn table(&self, style: &Style) -> String {
        let mut lines = Vec::new();
        let mut of = "";
        for check in &self.checks {
            if check.of != of {
                of = &check.of;
                lines.push(style.bold(of));
            }
            let (word, name) = (check.state.word(), &check.name);
            lines.push(format!("  {word:<8} {name:<15} {}", check.found));
            if let Some(advice) = &check.advice {
                lines.push(format!("  {:<8} {:<15} {advice}", "", ""));
            }
        }
        let count = |state| self.checks.iter().filter(|it| it.state == state).count();
        lines.push(match (count(State::Failed), count(State::Warning)) {
            (0, 0) => "nothing is wrong".to_owned(),
            (0, warnings) => format!("nothing has failed; warnings: {warnings}"),
            (failed, warnings) => format!("failed: {failed}; warnings: {warnings}"),
        });
        lines.join("\n")
    }
}
