//! Scenarios from the records of another cluster: the jobs that ran, their waits and their run times.
//!
//! 1. `table` reads a row at a time; [`sacct`], [`openb`] and [`philly`] turn a row into a [`PastJob`], or
//!    say why it is left out. `tres` and `moment` parse Slurm's amounts and times.
//! 2. `shape` divides a job's resources among equal containers.
//! 3. [`nodes`] reads the nodes, or infers equal ones from the peak usage.
//! 4. `build` makes the scenario, and [`report`] the counts, the recorded figures and the assumptions.
//!
//! Memory grows with the number of jobs, not with the size of the records.

mod build;
mod moment;
mod names;
pub mod nodes;
pub mod openb;
pub mod philly;
pub mod report;
pub mod sacct;
mod shape;
mod table;
mod tres;

use std::io::Read;

use dormouse_messages::Amounts;
use serde::{Deserialize, Serialize};

pub use build::{Import, import};
use nodes::Nodes;
pub use report::Report;
use table::{CellError, Header, Row, Table};

/// The form of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Sacct,
    Openb,
    Philly,
}

impl Format {
    /// Returns the format's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sacct => "sacct",
            Self::Openb => "openb",
            Self::Philly => "philly",
        }
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Sacct, Self::Openb, Self::Philly];
        let known = all.into_iter().find(|format| format.as_str() == text);
        known.ok_or_else(|| format!("{text:?} is not sacct, openb or philly"))
    }
}

/// The recorded name that becomes a job's tenant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Tenants {
    #[default]
    Account,
    User,
}

impl std::str::FromStr for Tenants {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "account" => Ok(Self::Account),
            "user" => Ok(Self::User),
            other => Err(format!("{other:?} is not account or user")),
        }
    }
}

/// The jobs that may be resized.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Elastic {
    /// Each job keeps the containers that it had.
    #[default]
    None,
    /// A job with several GPUs runs with one to all of them.
    Gpu,
}

impl std::str::FromStr for Elastic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "gpu" => Ok(Self::Gpu),
            other => Err(format!("{other:?} is not none or gpu")),
        }
    }
}

/// Options of an import.
#[derive(Debug, Clone)]
pub struct Options {
    pub format: Format,
    /// The scenario's name.
    pub name: String,
    pub tenants: Tenants,
    pub nodes: Nodes,
    pub elastic: Elastic,
    /// The speeds of 1, 2, … containers; empty: linear.
    pub speed: Vec<f64>,
    /// Count unreadable rows instead of stopping at the first.
    pub skip_bad: bool,
}

/// A job as it ran. Times are seconds from an origin that all jobs share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PastJob {
    pub id: String,
    pub tenant: String,
    pub submitted_s: i64,
    pub started_s: i64,
    pub run_s: u64,
    pub nodes: u32,
    /// Resources on all nodes.
    pub total: Amounts,
    /// GPU models that the job accepts; empty: any.
    pub gpu_models: Vec<String>,
    pub limit_s: Option<u64>,
    /// The job had not ended when the records were written.
    pub is_running: bool,
}

/// The reading of one row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record {
    Job(Box<PastJob>),
    /// A part of a job, which has its own row.
    Step,
    NeverStarted,
    WithoutResources,
}

/// The rows that did not become jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    pub steps: u64,
    pub never_started: u64,
    pub without_resources: u64,
    /// Jobs that the nodes could not hold even when empty.
    pub too_large: u64,
    pub unreadable: u64,
}

/// The reason for an import without a scenario.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error("it is empty; {0}")]
    Empty(&'static str),
    #[error("its first line has no column {missing}; {how}")]
    Columns { missing: String, how: &'static str },
    #[error("line {line}, column {column}: {text:?} {what}; --skip-bad leaves such rows out")]
    Cell {
        line: u64,
        column: String,
        text: String,
        what: &'static str,
    },
    #[error(
        "line {line} has {found} fields and the first line {expected}; leave columns of free text, such as JobName, out, or such rows with --skip-bad"
    )]
    Fields {
        line: u64,
        found: usize,
        expected: usize,
    },
    #[error("it cannot be read")]
    Csv(#[from] csv::Error),
    #[error("nodes, line {line}: {what}")]
    Nodes { line: usize, what: String },
    #[error(
        "none of its {rows} rows became a job: {} never started, {} fit on no nodes, {} have no resources, {} are steps, {} cannot be read",
        left_out.never_started, left_out.too_large, left_out.without_resources, left_out.steps, left_out.unreadable
    )]
    NoJobs { rows: u64, left_out: LeftOut },
}

/// The records of a cluster after reading.
#[derive(Debug, Default)]
pub(crate) struct Past {
    /// In the order of the rows.
    pub jobs: Vec<PastJob>,
    pub rows: u64,
    pub left_out: LeftOut,
    /// Sentences on the columns that were used.
    pub notes: Vec<&'static str>,
}

enum Reader {
    Sacct(sacct::Columns),
    Openb(openb::Columns),
    Philly(philly::Columns),
}

impl Reader {
    fn of(header: &Header, options: &Options) -> Result<Self, ImportError> {
        Ok(match options.format {
            Format::Sacct => Self::Sacct(sacct::Columns::of(header, options.tenants)?),
            Format::Openb => Self::Openb(openb::Columns::of(header)?),
            Format::Philly => Self::Philly(philly::Columns::of(header, options.tenants)?),
        })
    }

    fn read(&self, row: &Row<'_>) -> Result<Record, CellError> {
        match self {
            Self::Sacct(columns) => columns.read(row),
            Self::Openb(columns) => columns.read(row),
            Self::Philly(columns) => columns.read(row),
        }
    }

    fn notes(&self) -> &'static [&'static str] {
        match self {
            Self::Sacct(columns) => columns.notes(),
            Self::Openb(_) => &["A pod's quality of service (qos) is its tenant."],
            Self::Philly(_) => &[],
        }
    }
}

/// Reads all rows.
///
/// # Errors
/// Missing columns, and unreadable rows unless they are skipped.
pub(crate) fn read(input: impl Read, options: &Options) -> Result<Past, ImportError> {
    let (delimiter, how) = match options.format {
        Format::Sacct => (b'|', sacct::HOW),
        Format::Openb => (b',', openb::HOW),
        Format::Philly => (b',', philly::HOW),
    };
    let mut table = Table::open(input, delimiter, how)?;
    let reader = Reader::of(table.header(), options)?;
    let mut past = Past {
        notes: reader.notes().to_vec(),
        ..Past::default()
    };
    while let Some(row) = table.next()? {
        past.rows += 1;
        let read = row.and_then(|row| reader.read(&row).map_err(|error| error.on(row.line())));
        match read {
            Ok(Record::Job(job)) => past.jobs.push(*job),
            Ok(Record::Step) => past.left_out.steps += 1,
            Ok(Record::NeverStarted) => past.left_out.never_started += 1,
            Ok(Record::WithoutResources) => past.left_out.without_resources += 1,
            Err(_) if options.skip_bad => past.left_out.unreadable += 1,
            Err(error) => return Err(error),
        }
    }
    Ok(past)
}
