//! `dormouse` without a command shows the cluster and its live jobs; `top` refreshes them.

use dormouse_projections::queries::{ClusterAnswer, JobsAnswer, JobsQuery};
use dormouse_runtime::Log;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::query;
use super::watched::repeat;
use crate::cli::list::WatchArg;
use crate::context::Context;
use crate::render::{self, Style};

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
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    every(context, None).await
}

/// Refreshes the overview every `seconds`.
///
/// # Errors
/// If there is no cluster, or the query service does not answer.
pub async fn top(context: &Context, seconds: f64) -> anyhow::Result<u8> {
    every(context, Some(seconds)).await
}

async fn every(context: &Context, seconds: Option<f64>) -> anyhow::Result<u8> {
    let log = context.connect().await?;
    let watch = WatchArg { seconds };
    repeat(context, watch, || Overview::of(&log), Overview::render).await
}
