//! `log …`, `replay …`, `timeline`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dormouse_messages::JobId;

use super::jobs::job_id;

/// Where history is read.
#[derive(Debug, Clone, Args)]
pub struct LogFileArg {
    /// A log file instead of the cluster's log.
    #[arg(long = "log", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// `log …`.
#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Print events as they happen
    #[command(
        after_help = "Examples:\n  dormouse log tail\n  dormouse log tail --from 1 -o json | jq .type"
    )]
    Tail {
        /// Start at this sequence instead of now.
        #[arg(long)]
        from: Option<u64>,
    },
    /// Write the log to a file: JSON lines, or a compact archive if it ends in .dmlog
    #[command(
        after_help = "Examples:\n  dormouse log export -o log.jsonl\n  dormouse log export -o log.dmlog --to 4712\n  dormouse log export | jq .type\n  dormouse log export --log log.dmlog -o log.jsonl     # an archive as JSON lines\n\n-o names the file here; without it the events go to the standard output."
    )]
    Export {
        /// From this sequence.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Up to this sequence.
        #[arg(long)]
        to: Option<u64>,
        /// Where it is read.
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Put an exported log onto the empty log of a broker
    #[command(
        after_help = "Examples:\n  dormouse log import log.jsonl --server nats://127.0.0.1:4333"
    )]
    Import {
        /// The file.
        file: PathBuf,
    },
}

/// `replay …`.
#[derive(Debug, Subcommand)]
pub enum ReplayCommand {
    /// The jobs and nodes as they were after an event
    #[command(
        after_help = "Examples:\n  dormouse replay state --at 4712\n  dormouse replay state --log log.jsonl --at 100 -o json"
    )]
    State {
        /// After this sequence; default: the last.
        #[arg(long)]
        at: Option<u64>,
        /// Where it is read.
        #[command(flatten)]
        log: LogFileArg,
    },
    /// Make every decision again from its basis and compare
    #[command(
        after_help = "Examples:\n  dormouse replay verify\n  dormouse replay verify --log log.jsonl"
    )]
    Verify {
        /// Where it is read.
        #[command(flatten)]
        log: LogFileArg,
    },
}

/// `timeline`.
#[derive(Debug, Clone, Args)]
pub struct TimelineArgs {
    /// The metric.
    pub metric: String,
    /// Only this job's.
    #[arg(long, value_parser = job_id)]
    pub job: Option<JobId>,
    /// Draw into this file instead.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Where it is read.
    #[command(flatten)]
    pub log: LogFileArg,
}
