//! `dormouse` without a command shows the cluster and its live jobs; `top` refreshes them.

use std::time::Duration;

use clap::Args;
use dormouse_projections::queries::{ClusterAnswer, JobsAnswer, JobsQuery};
use dormouse_runtime::Log;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::common::query;
use super::common::watched::repeat;
use crate::cli::filter::{WatchArg, between_looks};
use crate::context::Context;
use crate::render::{self, Style};

/// Show the cluster and its live jobs, refreshed every two seconds
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse top\n  dormouse top --every 10s\n  dormouse top -o json          # a line a change\n\nq or ^C ends it."
)]
pub struct TopArgs {
    /// Time between two refreshes.
    #[arg(long, default_value = "2s", value_name = "TIME", value_parser = between_looks)]
    pub every: Duration,
}

const JOBS: usize = 15;

#[derive(Debug, Serialize, Deserialize)]
struct Overview {
    cluster: ClusterAnswer,
    jobs: JobsAnswer,
}

impl Overview {
    async fn of(log: &Log) -> anyhow::Result<Self> {
        let request = JobsQuery {
            phase: Some("live".to_owned()),
            limit: JOBS,
            ..JobsQuery::default()
        };
        Ok(Self {
            cluster: query(log, "cluster", Value::Null).await?,
            jobs: query(log, "jobs", serde_json::to_value(&request)?).await?,
        })
    }

    fn render(&self, style: &Style) -> String {
        let (cluster, jobs) = (&self.cluster, &self.jobs);
        format!(
            "{}\n\n{}",
            render::cluster(cluster, style).trim_end(),
            render::jobs(jobs, style)
        )
    }
}

/// Prints the overview.
///
/// # Errors
/// If there is no cluster, or the query service does not answer.
pub async fn once(context: &Context) -> anyhow::Result<u8> {
    every(context, None).await
}

/// Runs `top`.
///
/// # Errors
/// If there is no cluster, or the query service does not answer.
pub async fn run(context: &Context, args: TopArgs) -> anyhow::Result<u8> {
    every(context, Some(args.every)).await
}

async fn every(context: &Context, every: Option<Duration>) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let watch = WatchArg { every };
    repeat(context, watch, || Overview::of(&log), Overview::render).await
}
