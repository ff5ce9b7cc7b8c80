//! Arguments of `whatif` and `plan`, which share the changes applied to a fork of the log.

use std::path::PathBuf;

use clap::Args;
use dormouse_messages::{JobId, NodeId, TenantId};
use dormouse_replay::history::changes::NewNode;
use dormouse_replay::scenario::settings::Setting;

use super::job_name::job_id;
use super::point::{At, LogFileArg};

/// Changes to a fork of the log.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Changes")]
pub struct ChangeArgs {
    /// Set policy.FIELD, tenant.NAME.weight|quota.RESOURCE|priority or job.ID.FIELD; values separated by
    /// commas are tried one by one.
    #[arg(long = "set", value_name = "PATH=VALUE[,VALUE…]")]
    pub settings: Vec<Setting>,
    /// Add a node.
    #[arg(long = "add-node", value_name = "NAME:CAPACITY")]
    pub add_nodes: Vec<NewNode>,
    /// Lose a node.
    #[arg(long = "drop-node", value_name = "NAME")]
    pub drop_nodes: Vec<NodeId>,
    /// Drain a node.
    #[arg(long = "drain", value_name = "NAME")]
    pub drain_nodes: Vec<NodeId>,
    /// Do not submit a job; cancel the job if it exists already.
    #[arg(long = "drop-job", value_name = "ID", value_parser = job_id)]
    pub drop_jobs: Vec<JobId>,
}

/// Arguments of `plan`.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Job: a YAML or JSON file, or - for standard input. Without a job, plan changes of the cluster.
    #[arg(value_name = "FILE")]
    pub job: Option<PathBuf>,
    /// Job name, in place of the document's.
    #[arg(long, requires = "job")]
    pub name: Option<String>,
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Plan after this sequence, or at this time; default: the end of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Tenant of the job; the answer shows only data visible to this tenant.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    #[command(flatten)]
    pub log: LogFileArg,
    /// Number of simulated runs that estimate the job's start time.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
}

/// Arguments of `whatif`.
#[derive(Debug, Clone, Args)]
pub struct WhatifArgs {
    #[command(flatten)]
    pub changes: ChangeArgs,
    /// Also submit the jobs of a scenario; at_s counts from the fork.
    #[arg(long, value_name = "SCENARIO.json", help_heading = "Changes")]
    pub add_jobs: Option<PathBuf>,
    /// Fork after this sequence, or at this time; default: the beginning of the log.
    #[arg(long, value_name = "SEQUENCE|TIME")]
    pub at: Option<At>,
    /// Answer with this tenant's view: its own names, and other tenants as amounts.
    #[arg(long, value_name = "TENANT")]
    pub tenant: Option<TenantId>,
    #[command(flatten)]
    pub log: LogFileArg,
    /// Number of runs with sampled curves, for the intervals.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub draws: u32,
    /// Parallel runs; default: the number of processors.
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// Write one page that compares the runs, with charts.
    #[arg(long, value_name = "FILE.html")]
    pub report: Option<PathBuf>,
}
