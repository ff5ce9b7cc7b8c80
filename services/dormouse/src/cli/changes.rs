//! What is changed on a fork of the log: the same words for `whatif` and `plan`.

use std::path::PathBuf;

use clap::Args;
use dormouse_messages::{JobId, NodeId, TenantId};
use dormouse_replay::history::changes::NewNode;
use dormouse_replay::scenario::settings::Setting;

use super::history::{At, LogFileArg};
use super::jobs::job_id;

/// Changes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Changes")]
pub struct ChangeArgs {
    /// Set policy.FIELD, tenant.NAME.weight|quota.RESOURCE|priority or job.ID.FIELD; several values,
    /// with commas, are tried one by one.
    #[arg(long = "set", value_name = "PATH=VALUE[,VALUE…]")]
    pub settings: Vec<Setting>,
    /// A node joins.
    #[arg(long = "add-node", value_name = "NAME:CAPACITY")]
    pub add_nodes: Vec<NewNode>,
    /// A node is lost.
    #[arg(long = "drop-node", value_name = "NAME")]
    pub drop_nodes: Vec<NodeId>,
    /// A node is drained.
    #[arg(long = "drain", value_name = "NAME")]
    pub drain_nodes: Vec<NodeId>,
    /// A job is not submitted; one that is there is cancelled.
    #[arg(long = "drop-job", value_name = "ID", value_parser = job_id)]
    pub drop_jobs: Vec<JobId>,
}

/// `plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// The job: a YAML or JSON file, or - for standard input. Without it, changes of the cluster.
    #[arg(value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// The job's name, in place of the document's.
    #[arg(long, requires = "job")]
    pub name: Option<String>,
    /// What is changed, where it is no job.
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Plan after this sequence, or as it was at this time; default: the end of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// The job's tenant; the answer is what that tenant may see.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    /// Where the log is read.
    #[command(flatten)]
    pub log: LogFileArg,
    /// Runs forward for the time at which the job starts.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
}

/// `whatif`.
#[derive(Debug, Clone, Args)]
pub struct WhatifArgs {
    /// What is changed.
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Jobs of a scenario are submitted too, their at_s counted from the fork.
    #[arg(long, value_name = "SCENARIO.json", help_heading = "Changes")]
    pub add_jobs: Option<PathBuf>,
    /// Fork after this sequence, or at this time; default: at the beginning of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Answer as this tenant may see it: its own names, and others' as amounts.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    /// Where the log is read.
    #[command(flatten)]
    pub log: LogFileArg,
    /// Runs with curves drawn from what the log leaves open, for the intervals.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
    /// Runs at the same time; default: as many as there are processors.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Write one page that compares the courses, with drawings.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}
