//! Arguments of `log …`, `replay …` and `timeline`.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use dormouse_replay::history::bisect::Predicate;
use dormouse_replay::scenario::settings::Setting;

use super::job_name::NamedJob;
use super::point::{At, LogFileArg, PointArgs};

/// Subcommands of `log`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print events as they happen
    #[command(
        after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type\n  dormouse log tail --from 10m               # what has happened in the last ten minutes, and goes on\n  dormouse log tail --from 1 --who olga      # what she did; ads/alice where several tenants have an alice"
    )]
    Tail {
        /// Start at this sequence, at this time, or this long ago (10m, 2h), instead of now.
        #[arg(long, value_name = "SEQUENCE|TIME")]
        from: Option<At>,
        /// Only actions of this user, as authenticated by the broker: NAME, or TENANT/NAME.
        #[arg(long, value_name = "NAME")]
        who: Option<String>,
    },
    /// Write the log to a file: JSON lines, or a compact archive if it ends in .dmlog
    #[command(
        after_help = "Examples:\n  dormouse log export -o log.jsonl\n  dormouse log export -o log.dmlog --to 4712\n  dormouse log export | jq .type\n  dormouse log export --log log.dmlog -o log.jsonl     # an archive as JSON lines\n\n-o names the file here; without it the events go to the standard output."
    )]
    Export {
        /// First sequence.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Last sequence.
        #[arg(long)]
        to: Option<u64>,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Write a part of the log that can be read alone: the states before the range, and the events of the
    /// range
    #[command(
        after_help = "Examples:\n  dormouse log slice 4000..4712 -o bug.jsonl\n  dormouse log slice 4000.. --log log.dmlog -o bug.jsonl\n  dormouse log slice 4000..4712 --anonymise -o bug.jsonl\n  dormouse replay verify --log bug.jsonl\n  dormouse explain ads/lr --log bug.jsonl\n\nThe states are those that the decisions in the slice were made from: each can be made again. They have versions; a build with others says which build to use."
    )]
    Slice {
        /// First and last sequence; either may be left out.
        #[arg(value_name = "FROM..TO")]
        range: SliceRange,
        /// Replace names, keeping their order; drop commands, environments, paths and program output.
        #[arg(long)]
        anonymise: bool,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Write the log as a trace for Perfetto (ui.perfetto.dev): nodes and jobs as tracks
    #[command(
        after_help = "Examples:\n  dormouse log trace -o cluster.pftrace\n  dormouse log trace --log log.dmlog --at 4712 -o cluster.pftrace"
    )]
    Trace {
        #[command(flatten)]
        point: PointArgs,
    },
    /// Import an exported log into the empty log of a broker
    #[command(
        after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333"
    )]
    Import {
        /// File to import.
        file: PathBuf,
    },
}

/// A range of sequences: `4000..4712`, `4000..`, `..4712`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceRange {
    pub from: u64,
    pub to: Option<u64>,
}

impl FromStr for SliceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a range such as 4000..4712");
        let (from, to) = text.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| match text {
            "" => Ok(None),
            text => text.parse().map(Some).map_err(|_| wrong()),
        };
        let range = Self {
            from: number(from)?.unwrap_or(1),
            to: number(to)?,
        };
        if range.to.is_some_and(|to| to < range.from) || range.from == 0 {
            Err(wrong())
        } else {
            Ok(range)
        }
    }
}

/// Subcommands of `replay`.
#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// Show the jobs and nodes after an event
    #[command(
        after_help = "Examples:\n  dormouse replay state --at 4712\n  dormouse replay state --at 2026-11-21T10:00:00Z\n  dormouse replay state --at 10:00:00               # today, in UTC\n  dormouse replay state --log log.jsonl --at 100 -o json"
    )]
    State {
        /// After this sequence, or at this time (RFC 3339, a time of the day of the log's last event in UTC,
        /// or 10m for ten minutes ago); default: the end.
        #[arg(long, value_name = "SEQUENCE|TIME")]
        at: Option<At>,
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Find the first decision on which another policy, this build, or another log differs
    #[command(
        after_help = "Examples:\n  dormouse replay diff --set policy.theta2=0.5 --log log.dmlog\n  dormouse replay diff --set policy.allocation=drf -o json\n  dormouse replay diff --log old.dmlog                      # this build against the one that decided\n  dormouse replay diff --log old.dmlog --against new.dmlog  # two logs, allocation by allocation\n  dormouse replay diff --set policy.theta2=0.5 --at 4712 --tenant ads\n\nPolicies are compared at the states that the log's decisions were made from; what would have followed is the question of `dormouse whatif`."
    )]
    Diff {
        /// Fields of the other policy: policy.FIELD=VALUE.
        #[arg(long = "set", value_name = "PATH=VALUE", conflicts_with = "against")]
        settings: Vec<Setting>,
        /// Another log, such as another build's log of the same inputs.
        #[arg(long, value_name = "FILE")]
        against: Option<PathBuf>,
        #[command(flatten)]
        point: PointArgs,
    },
    /// Find the first event after which a condition holds
    #[command(
        after_help = "Examples:\n  dormouse replay bisect ads/lr=running\n  dormouse replay bisect ads/lr.containers=4 --log log.dmlog\n  dormouse replay bisect 'utilization>0.9'\n  dormouse replay bisect 'fairness-loss>0.5' -o json\n  dormouse replay bisect broken --log log.dmlog     # an invariant of the services\n  dormouse replay bisect broken --some              # some place, looked for by halving\n\nMetrics: utilization, fairness-loss, waiting, running. What stays so (a job was seen, has ended) is looked for by halving; everything else after every event, so that the place is the first one also where a metric crosses its value again and again. Nothing is read behind the place."
    )]
    Bisect {
        /// JOB=PHASE, JOB=seen, JOB.containers=N, METRIC>VALUE, METRIC<VALUE or broken.
        predicate: Predicate,
        /// Check every 4,096th event and bisect: finds some change of the condition, not always the first.
        #[arg(long)]
        some: bool,
        #[command(flatten)]
        point: PointArgs,
    },
    /// Recompute every decision from its basis and compare
    #[command(
        after_help = "Examples:\n  dormouse replay verify\n  dormouse replay verify --log log.jsonl"
    )]
    Verify {
        #[command(flatten)]
        log: LogFileArg,
    },
}

/// Arguments of `timeline`.
#[derive(Debug, Clone, Args)]
pub struct TimelineArgs {
    /// Metric to draw.
    pub metric: String,
    /// Only this job.
    #[arg(long, value_name = "ID")]
    pub job: Option<NamedJob>,
    /// Start: sequence, time, or age (`2h`); default: the start of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub from: Option<At>,
    /// End: sequence, time, or age; default: now, or the end of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub to: Option<At>,
    /// Draw into this file instead.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    #[command(flatten)]
    pub log: LogFileArg,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_a_range_of_sequences() {
        let range = |text: &str| text.parse::<SliceRange>();
        let of = |from, to| Ok(SliceRange { from, to });
        assert_eq!(range("40..47"), of(40, Some(47)));
        assert_eq!(
            (range("40.."), range("..47")),
            (of(40, None), of(1, Some(47)))
        );
        for wrong in ["40", "47..40", "0..4", "a..b"] {
            let error = range(wrong).expect_err(wrong);
            assert!(error.contains("40"), "{error}");
        }
    }
}
