//! `doctor`: checks this machine (`machine`) and the cluster (`cluster`), with advice.
//!
//! Checks change nothing, but take a lease for an instant to test the broker's storage.

mod cluster;
mod machine;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;
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

struct Looks<'a> {
    of: &'static str,
    report: &'a mut Report,
}

impl Looks<'_> {
    fn add(&mut self, name: &str, state: State, found: String, advice: Option<String>) {
        self.report.checks.push(Check {
            of: self.of.to_owned(),
            name: name.to_owned(),
            state,
            found,
            advice,
        });
    }

    fn ok(&mut self, name: &str, found: impl Into<String>) {
        self.add(name, State::Ok, found.into(), None);
    }

    fn warn(&mut self, name: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Warning, found.into(), Some(advice.into()));
    }

    fn fail(&mut self, name: &str, found: impl Into<String>, advice: impl Into<String>) {
        self.add(name, State::Failed, found.into(), Some(advice.into()));
    }
}

/// Runs all checks and prints the report.
///
/// # Errors
/// If the standard output is closed.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let mut report = Report::default();
    machine::look(
        context,
        &mut Looks {
            of: "machine",
            report: &mut report,
        },
    )
    .await;
    cluster::look(
        context,
        &mut Looks {
            of: "cluster",
            report: &mut report,
        },
    )
    .await;
    print::value(context.output()?, &report, |report, wide| {
        report.table(&Style::of_stdout(wide))
    })?;
    let failed = report.checks.iter().any(|it| it.state == State::Failed);
    Ok(if failed { ERROR } else { DONE })
}

impl Report {
    fn table(&self, style: &Style) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_stands_with_what_to_do() {
        let mut report = Report::default();
        let mut looks = Looks {
            of: "machine",
            report: &mut report,
        };
        looks.ok("sandbox", "this is root");
        looks.warn("disk", "1 GiB is free", "free some");
        let table = report.table(&Style::plain());
        let expected = "machine\n  ok       sandbox         this is root\n  warning  disk            1 GiB is free\n                           free some\nnothing has failed; warnings: 1";
        assert_eq!(table, expected);
    }
}
