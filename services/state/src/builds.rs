//! The builds that run, the log's format, and the gate before the next format.
//!
//! The gate opens when every living process reads a newer format, no process came or left for [`SETTLE_MS`],
//! and an operator has approved the format where the policy asks for that. A process is living from
//! `build.joined` to `build.left`.

use std::collections::BTreeMap;

use dormouse_messages::events::{BuildJoined, UpgradeApproved};
use dormouse_messages::policy::Upgrades;
use dormouse_messages::{Build, Format, Sequence, Timestamp};
use serde::{Deserialize, Serialize};

/// Longer than the gap between the stop of a process and the start of its next build, and than the start of
/// all processes of a cluster.
pub const SETTLE_MS: u64 = 5_000;

/// A living process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pub build: Build,
    /// The event that said so.
    pub since: Sequence,
}

/// Living processes by service and instance, and the log's format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Builds {
    /// The format that is written.
    pub format: Format,
    /// The newest format that an operator approved.
    pub approved: Format,
    pub processes: BTreeMap<String, Process>,
    /// The newest arrival, departure or approval.
    pub changed: Sequence,
    pub changed_at: Timestamp,
}

/// The state of the gate before the next format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "gate")]
pub enum Gate {
    /// No process reads a newer format.
    #[default]
    Idle,
    /// These processes do not read the newer format.
    Waits {
        format: Format,
        processes: Vec<String>,
    },
    /// The policy asks for an operator's approval.
    Unapproved { format: Format },
    /// Processes came or left lately.
    Settles { format: Format, until: Timestamp },
    /// The format may be written from now on.
    Opens { format: Format },
}

impl Builds {
    pub(crate) fn joined(&mut self, event: &BuildJoined, at: (Sequence, Timestamp)) {
        let process = Process {
            build: event.build.clone(),
            since: at.0,
        };
        self.processes.insert(event.process.clone(), process);
        self.change(at);
    }

    pub(crate) fn left(&mut self, process: &str, at: (Sequence, Timestamp)) {
        if self.processes.remove(process).is_some() {
            self.change(at);
        }
    }

    pub(crate) fn approved(&mut self, event: &UpgradeApproved, at: (Sequence, Timestamp)) {
        self.approved = event.format;
        self.change(at);
    }

    pub(crate) fn upgraded(&mut self, format: Format) {
        self.format = self.format.max(format);
    }

    const fn change(&mut self, (sequence, at): (Sequence, Timestamp)) {
        self.changed = sequence;
        self.changed_at = at;
    }

    /// Returns the build of each process.
    #[must_use]
    pub fn builds(&self) -> BTreeMap<String, Build> {
        let processes = self.processes.iter();
        let builds = processes.map(|(name, it)| (name.clone(), it.build.clone()));
        builds.collect()
    }

    /// Returns the state of the gate.
    #[must_use]
    pub fn gate(&self, upgrades: Upgrades, now: Timestamp) -> Gate {
        let newest = || self.processes.values().map(|it| it.build.reads.newest);
        let newer = newest().filter(|format| *format > self.format);
        let Some(format) = newer.min() else {
            return Gate::Idle;
        };
        let is_old = |it: &Process| it.build.reads.newest < format;
        let old = self.processes.iter().filter(|(_, it)| is_old(it));
        let old: Vec<String> = old.map(|(name, _)| name.clone()).collect();
        if !old.is_empty() {
            let processes = old;
            return Gate::Waits { format, processes };
        }
        if upgrades == Upgrades::Manual && self.approved < format {
            return Gate::Unapproved { format };
        }
        let until = self.changed_at.plus_ms(SETTLE_MS);
        if now < until {
            return Gate::Settles { format, until };
        }
        Gate::Opens { format }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Reads;

    use super::*;

    const SETTLED: Timestamp = Timestamp::from_micros(1_000_000_000);

    fn build(newest: u32) -> Build {
        let reads = Reads {
            oldest: Format::FIRST,
            newest: Format(newest),
        };
        Build {
            reads,
            ..Build::own("a-build")
        }
    }

    fn builds(of: &[(&str, u32)]) -> Builds {
        let mut builds = Builds::default();
        for ((process, newest), at) in of.iter().zip(1..) {
            let event = BuildJoined {
                process: (*process).to_owned(),
                build: build(*newest),
            };
            builds.joined(&event, (Sequence(at), Timestamp::from_micros(0)));
        }
        builds
    }

    #[test]
    fn an_old_process_holds_the_gate_until_it_leaves() {
        let mut builds = builds(&[("placer/a", 2), ("agent/n0", 1), ("gateway/g0", 1)]);
        let gate = |builds: &Builds| builds.gate(Upgrades::Auto, SETTLED);
        let waits = |processes: &[&str]| Gate::Waits {
            format: Format(2),
            processes: processes.iter().map(ToString::to_string).collect(),
        };
        assert_eq!(gate(&builds), waits(&["agent/n0", "gateway/g0"]));
        builds.left("agent/n0", (Sequence(4), Timestamp::from_micros(0)));
        assert_eq!(gate(&builds), waits(&["gateway/g0"]));
        let again = BuildJoined {
            process: "gateway/g0".to_owned(),
            build: build(2),
        };
        builds.joined(&again, (Sequence(5), Timestamp::from_micros(0)));
        assert_eq!(gate(&builds), Gate::Opens { format: Format(2) });
        builds.upgraded(Format(2));
        assert_eq!(gate(&builds), Gate::Idle);
    }

    #[test]
    fn one_format_follows_the_other() {
        let mut builds = builds(&[("placer/a", 3), ("agent/n0", 2)]);
        let gate = |builds: &Builds| builds.gate(Upgrades::Auto, SETTLED);
        assert_eq!(gate(&builds), Gate::Opens { format: Format(2) });
        builds.upgraded(Format(2));
        let processes = vec!["agent/n0".to_owned()];
        let format = Format(3);
        assert_eq!(gate(&builds), Gate::Waits { format, processes });
    }

    #[test]
    fn nothing_opens_for_nobody_or_for_what_has_just_come() {
        let none = Builds::default();
        assert_eq!(none.gate(Upgrades::Auto, SETTLED), Gate::Idle);
        let mut builds = builds(&[("placer/a", 2)]);
        let at = SETTLED.plus_ms(1);
        builds.left("no such process", (Sequence(2), at));
        let (format, gate) = (Format(2), builds.gate(Upgrades::Auto, at));
        assert_eq!(gate, Gate::Opens { format }, "nothing changed");
        builds.left("placer/a", (Sequence(2), at));
        let event = BuildJoined {
            process: "placer/b".to_owned(),
            build: build(2),
        };
        builds.joined(&event, (Sequence(3), at));
        let until = at.plus_ms(SETTLE_MS);
        let gate = |now| builds.gate(Upgrades::Auto, now);
        assert_eq!(gate(at), Gate::Settles { format, until });
        assert_eq!(gate(until), Gate::Opens { format });
    }

    #[test]
    fn a_manual_upgrade_waits_for_an_approval() {
        let mut builds = builds(&[("placer/a", 2)]);
        let gate = |builds: &Builds| builds.gate(Upgrades::Manual, SETTLED);
        let format = Format(2);
        assert_eq!(gate(&builds), Gate::Unapproved { format });
        let approved = UpgradeApproved { format };
        builds.approved(&approved, (Sequence(2), Timestamp::from_micros(0)));
        assert_eq!(gate(&builds), Gate::Opens { format });
    }
}
