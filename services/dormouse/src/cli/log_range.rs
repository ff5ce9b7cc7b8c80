//! The log that a command reads, and points and ranges on it.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use dormouse_archive::{Archive, ArchiveError};
use dormouse_bucket::Place;
use dormouse_messages::{TenantId, Timestamp};

use super::duration::Span;

/// The log to read: a file, an archive, or the cluster's log.
#[derive(Debug, Clone, Default, Args)]
pub struct LogFileArg {
    /// Read a log file instead of the cluster's log.
    #[arg(id = "log", long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Read an archive instead of the cluster's log: a folder, or s3://BUCKET/PREFIX.
    #[arg(long, value_name = "PLACE", conflicts_with = "log")]
    pub archive: Option<Place>,
    #[command(flatten)]
    pub options: ArchiveOptionsArg,
}

/// The options of an archive's bucket.
#[derive(Debug, Clone, Default, Args)]
pub struct ArchiveOptionsArg {
    /// AWS_…=VALUE lines for the archive's bucket, readable by the owner only.
    #[arg(
        long,
        env = "DORMOUSE_ARCHIVE_OPTIONS",
        value_name = "FILE",
        hide_short_help = true
    )]
    pub archive_options: Option<PathBuf>,
}

impl LogFileArg {
    /// True if neither a file nor an archive is named.
    pub const fn is_cluster(&self) -> bool {
        self.file.is_none() && self.archive.is_none()
    }

    /// Opens the named archive.
    ///
    /// # Errors
    /// If the settings are invalid.
    pub fn archive(&self) -> Result<Option<Archive>, ArchiveError> {
        let options = self.options.archive_options.as_deref();
        let place = self.archive.as_ref();
        place.map(|place| Archive::open(place, options)).transpose()
    }

    /// Returns the paths that the command reads.
    pub fn read(&self) -> Vec<&Path> {
        self.file.as_deref().into_iter().collect()
    }
}

/// A file to write instead of the standard output.
#[derive(Debug, Clone, Args)]
pub struct OutputFileArg {
    /// Write into this file.
    #[arg(long, value_name = "FILE")]
    pub file: PathBuf,
}

/// A place on the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// After this event.
    Sequence(u64),
    Time(Timestamp),
    /// Microseconds into the day (UTC) of the log's last event.
    Clock(i64),
    /// Before now, or before a file's last event.
    Ago(Span),
}

impl FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(sequence) = text.parse() {
            return Ok(Self::Sequence(sequence));
        }
        if let Ok(ago) = text.parse() {
            return Ok(Self::Ago(ago));
        }
        // Tables print `2026-11-21 10:00:00Z`.
        let dated = text.replacen(' ', "T", 1);
        let whole = [
            dated.clone(),
            format!("{dated}Z"),
            format!("{dated}T00:00:00Z"),
        ];
        if let Some(time) = whole.iter().find_map(|text| text.parse().ok()) {
            return Ok(Self::Time(time));
        }
        let clock = text.trim_end_matches('Z');
        let seconds = if clock.matches(':').count() == 1 {
            ":00"
        } else {
            ""
        };
        let epoch: Result<Timestamp, _> = format!("1970-01-01T{clock}{seconds}Z").parse();
        epoch.map(|time| Self::Clock(time.as_micros())).map_err(|_| {
            format!("{text:?} is neither a sequence such as 4712 nor a time such as 2026-11-21T10:00:00Z, 10:00:00 or 10m ago, which is written 10m")
        })
    }
}

/// Parses a time, where a sequence means nothing.
///
/// # Errors
/// A message with the expected forms.
pub fn moment(text: &str) -> Result<At, String> {
    match text.parse()? {
        At::Sequence(number) => Err(format!(
            "{number} is no time; write an age such as {number}s, or a time such as 2026-11-21T10:00:00Z"
        )),
        at => Ok(at),
    }
}

/// A range of the log.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct RangeArgs {
    /// Start: a sequence, a time, or an age such as 2h; default: the start of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// End: a sequence, a time, or an age; default: the end of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
}

/// The tenant for whom a command answers.
#[derive(Debug, Clone, Default, Args)]
pub struct ViewArg {
    /// Answer with this tenant's view: its own names, and other tenants as amounts.
    #[arg(long = "as", value_name = "TENANT")]
    pub viewer: Option<TenantId>,
}

/// A log, a point on the log, and the tenant for whom a command answers.
#[derive(Debug, Clone, Args)]
pub struct PointArgs {
    /// After this sequence, or at this time: RFC 3339, a UTC time of the last event's day, or an age such as
    /// 10m; default: the end.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    #[command(flatten)]
    pub view: ViewArg,
    #[command(flatten)]
    pub log: LogFileArg,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_on_the_log_is_a_sequence_or_a_time() {
        let at = |text: &str| text.parse::<At>();
        assert_eq!(at("4712"), Ok(At::Sequence(4712)));
        let time = At::Time("2026-11-21T10:00:00Z".parse().expect("a time"));
        for text in [
            "2026-11-21T10:00:00Z",
            "2026-11-21 10:00:00Z",
            "2026-11-21 10:00:00",
        ] {
            assert_eq!(at(text), Ok(time), "{text}");
        }
        let day = At::Time("2026-11-21T00:00:00Z".parse().expect("a time"));
        assert_eq!(at("2026-11-21"), Ok(day));
        assert_eq!(at("00:01"), Ok(At::Clock(60_000_000)));
        assert_eq!(at("00:00:01.5Z"), Ok(At::Clock(1_500_000)));
        let ago = At::Ago(Span(Duration::from_secs(600)));
        assert_eq!((at("10m"), moment("10m")), (Ok(ago), Ok(ago)));
        assert!(at("yesterday").is_err() && moment("4712").is_err());
    }
}
