//! Checks the builds: which run where, and what the next format of the log waits for.

use std::collections::BTreeMap;

use dormouse_projections::queries::BuildsAnswer;
use dormouse_state::Gate;

use super::report::Looks;

/// Longer lists end in a count.
const MOST_NAMES: usize = 12;

pub fn look(builds: &BuildsAnswer, looks: &mut Looks<'_>) {
    let mut by_build: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (process, build) in &builds.processes {
        let of = by_build.entry(build.to_string()).or_default();
        of.push(process);
    }
    for (build, processes) in &by_build {
        looks.ok("build", format!("{build}: {}", listed(processes)));
    }
    let found = format!("the log has format {}", builds.format);
    match &builds.gate {
        Gate::Idle => looks.ok("format", found),
        Gate::Settles { format, .. } | Gate::Opens { format } => {
            looks.ok(
                "format",
                format!("{found}; format {format} begins in seconds"),
            );
        }
        Gate::Waits { format, processes } => {
            let names: Vec<&str> = processes.iter().map(String::as_str).collect();
            looks.warn(
                "format",
                format!("{found}; format {format} waits for {}", listed(&names)),
                "start the newer build there, or stop them; until then a downgrade is possible",
            );
        }
        Gate::Unapproved { format } => looks.warn(
            "format",
            format!("{found}; every process reads format {format}"),
            "`dormouse cluster upgrade` begins to write it; older builds no longer run then",
        ),
    }
}

fn listed(names: &[&str]) -> String {
    match names.split_at_checked(MOST_NAMES) {
        Some((shown, rest)) if !rest.is_empty() => {
            format!("{} and {} more", shown.join(", "), rest.len())
        }
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::{Build, Format, Reads};

    use super::super::report::{Report, State};
    use super::*;

    #[test]
    fn builds_stand_with_their_processes_and_the_gate_with_what_it_waits_for() {
        let build = |name: &str, newest| {
            let reads = Reads {
                oldest: Format(1),
                newest: Format(newest),
            };
            Build {
                reads,
                ..Build::own(name)
            }
        };
        let processes = [
            ("agent/n0", build("0.1.0-a", 1)),
            ("placer/h-1", build("0.2.0-b", 2)),
            ("placer/h-2", build("0.2.0-b", 2)),
        ];
        let answer = BuildsAnswer {
            format: Format(1),
            processes: processes
                .map(|(name, build)| (name.to_owned(), build))
                .into(),
            gate: Gate::Waits {
                format: Format(2),
                processes: vec!["agent/n0".to_owned()],
            },
        };
        let mut report = Report::default();
        let mut looks = Looks {
            of: "cluster",
            report: &mut report,
        };
        look(&answer, &mut looks);
        let found: Vec<&str> = report.checks.iter().map(|it| it.found.as_str()).collect();
        let expected = [
            "0.1.0-a (formats 1 to 1): agent/n0",
            "0.2.0-b (formats 1 to 2): placer/h-1, placer/h-2",
            "the log has format 1; format 2 waits for agent/n0",
        ];
        assert_eq!(found, expected);
        assert_eq!(report.checks[2].state, State::Warning);
    }

    #[test]
    fn a_long_list_ends_in_a_count() {
        assert_eq!(listed(&["n"; MOST_NAMES]).matches('n').count(), MOST_NAMES);
        assert!(listed(&["n"; MOST_NAMES + 2]).ends_with(" and 2 more"));
    }
}
