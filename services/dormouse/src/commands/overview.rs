//! `dormouse` without a command: the cluster, and the jobs that are not over.

use dormouse_projections::queries::{ClusterAnswer, JobsAnswer, JobsQuery};
use serde_json::{Value, json};

use super::query;
use crate::cli::Output;
use crate::context::Context;
use crate::error::DONE;
use crate::print;
use crate::render::{self, Style};

/// As many as a screen shows.
const JOBS: usize = 15;

/// Prints the state of things.
///
/// # Errors
/// When there is no cluster, or the query service does not answer.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let (log, output) = (context.connect().await?, context.output()?);
    let request = JobsQuery {
        phase: Some("live".to_owned()),
        limit: JOBS,
        ..JobsQuery::default()
    };
    let cluster: ClusterAnswer = query(&log, "cluster", Value::Null).await?;
    let jobs: JobsAnswer = query(&log, "jobs", serde_json::to_value(&request)?).await?;
    match output {
        Output::Json | Output::Yaml => {
            print::ours(output, &json!({"cluster": cluster, "jobs": jobs}), |_| {
                String::new()
            })?;
        }
        Output::Table | Output::Wide => {
            print::value(output, &cluster, |it, wide| {
                render::cluster(it, &Style::of_stdout(wide))
            })?;
            print::line("")?;
            print::value(output, &jobs, |it, wide| {
                render::jobs(it, &Style::of_stdout(wide))
            })?;
        }
    }
    Ok(DONE)
}
