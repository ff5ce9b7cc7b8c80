//! `cluster doctor`: checks this machine (`machine`) and the cluster (`cluster`, `archive`, `builds`), with advice.
//!
//! Checks change nothing, but take a lease for an instant to test the broker's storage.

mod archive;
mod builds;
mod cluster;
mod machine;
mod report;

use clap::Args;
use report::{Looks, Report, State};

use crate::context::Context;
use crate::error::{DONE, ERROR};
use crate::print;
use crate::render::Style;

/// Check that this machine and the cluster have all they need, with advice
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse cluster doctor\n  dormouse cluster doctor --server nats://broker:4222 --nkey operator.nk\n  dormouse cluster doctor -o json\n\nIt changes nothing. Exit code: 1 if a check has failed; warnings do not count."
)]
pub struct DoctorArgs;

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
