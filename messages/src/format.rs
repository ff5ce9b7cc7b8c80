//! The log's format: a number that grows when a build adds an event, a field or a state that earlier builds
//! do not know. A cluster writes the additions of a format once `cluster.upgraded` has named the format.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::ids::Sequence;

/// A format of the log.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct Format(pub u32);

/// What each format adds to the one before, oldest first: an event's type, or a type with its field. What is
/// not listed belongs to the first format.
pub const ADDITIONS: &[(Format, &str)] = &[
    #[cfg(feature = "test-format")]
    (Format(2), "job.completed.v1: format"),
];

impl Format {
    /// The format of a new log.
    pub const FIRST: Self = Self(1);
    /// The oldest format that this build reads.
    pub const OLDEST_READ: Self = Self::FIRST;
    /// The newest format that this build reads and writes.
    pub const NEWEST: Self = match ADDITIONS.last() {
        Some((format, _)) => *format,
        None => Self::FIRST,
    };
}

impl Default for Format {
    fn default() -> Self {
        Self::FIRST
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The formats that a build reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reads {
    /// The oldest format.
    pub oldest: Format,
    /// The newest format, which the build also writes.
    pub newest: Format,
}

impl Reads {
    /// Those of this build.
    pub const OWN: Self = Self {
        oldest: Format::OLDEST_READ,
        newest: Format::NEWEST,
    };
}

/// A build of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Build {
    /// Version of the release.
    pub version: String,
    /// Name of the build, as in the basis of a decision.
    pub name: String,
    /// Formats of the log that the build reads.
    pub reads: Reads,
}

impl Build {
    /// Longest version or name that a process may give.
    pub const MOST_BYTES: usize = 80;

    /// Returns this build under its name.
    #[must_use]
    pub fn own(name: &str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            name: name.to_owned(),
            reads: Reads::OWN,
        }
    }

    /// True if version and name are short and printable, since processes next to jobs give them too.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        let is_short = |text: &str| {
            text.len() <= Self::MOST_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
        };
        is_short(&self.version) && is_short(&self.name) && self.reads.oldest <= self.reads.newest
    }
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Reads { oldest, newest } = self.reads;
        write!(f, "{} (formats {oldest} to {newest})", self.name)
    }
}

/// The cluster writes a format that this build does not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewerFormat {
    /// The event that says so.
    pub sequence: Sequence,
    /// The format.
    pub format: Format,
    /// The build that decided the upgrade.
    pub by: Option<String>,
}

impl std::error::Error for NewerFormat {}

impl std::fmt::Display for NewerFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            sequence,
            format,
            by,
        } = self;
        let by = by.as_deref().unwrap_or("a build that reads it");
        write!(
            f,
            "event {sequence} upgraded the cluster to format {format} of the log, and this build ({}) reads formats {} to {}; it refuses to run. Start {by}, or a later build; `dormouse cluster doctor` of such a build says which builds run where",
            env!("CARGO_PKG_VERSION"),
            Format::OLDEST_READ,
            Format::NEWEST,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn additions_stand_in_the_order_of_their_formats() {
        assert!(ADDITIONS.is_sorted());
        assert!(ADDITIONS.iter().all(|(format, _)| *format > Format::FIRST));
        assert!(Format::OLDEST_READ <= Format::NEWEST);
    }

    #[test]
    fn only_short_printable_names_are_believed() {
        let build = Build::own("0.1.0-1f-2e");
        assert!(build.is_valid());
        let named = |name: &str| Build {
            name: name.to_owned(),
            ..build.clone()
        };
        assert!(!named("a b").is_valid());
        assert!(!named(&"x".repeat(81)).is_valid());
        let reads = Reads {
            oldest: Format(3),
            newest: Format(2),
        };
        assert!(!Build { reads, ..build }.is_valid());
    }
}
