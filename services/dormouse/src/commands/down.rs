//! `down`: stops the local cluster of a folder, as ^C in its terminal does.
//!
//! 1. Find the process that holds the broker's lock; files of a killed process are not trusted. A broker
//!    without a lock holder means that `up` was killed.
//! 2. Signal the process and wait for its end.

use std::time::Duration;

use clap::Args;
use dormouse_projections::queries::ClusterAnswer;
use dormouse_runtime::LocalBroker;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::common::query;
use crate::context::Context;
use crate::error::{Coded, DONE};
use crate::print;

/// Stop the local cluster of `up`, in order
#[derive(Debug, Clone, Copy, Args)]
#[command(
    after_help = "Examples:\n  dormouse down\n  dormouse down --data /srv/dormouse\n\nContainers run on, and the next `up` adopts them; `dormouse job cancel` ends jobs."
)]
pub struct DownArgs;

/// Services have 10 s, the broker 15 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// A silent cluster is stopped all the same.
const ANSWERS: Duration = Duration::from_secs(2);

const LOOK: Duration = Duration::from_millis(20);

/// Runs `down`.
///
/// # Errors
/// If the cluster cannot be stopped, or does not end.
pub async fn run(context: &Context) -> anyhow::Result<u8> {
    let (broker, data) = (context.broker_dir(), context.data.display());
    if !LocalBroker::runs_in(&broker) {
        if let Some(pid) = LocalBroker::left_in(&broker) {
            let message = format!(
                "no `dormouse up` runs in {data}, but its broker does (process {pid}), and containers may: it was killed. `dormouse up --data {data}` adopts them; `dormouse down --data {data}` stops it then"
            );
            return Err(Coded::new("unattended", message).into());
        }
        let answer = json!({"data": context.data, "stopped": false});
        print::value(context.output()?, &answer, |_, _| {
            format!("no cluster runs in {data}")
        })?;
        return Ok(DONE);
    }
    let Some(process) = LocalBroker::supervisor_in(&broker) else {
        let message = format!(
            "the cluster in {data} is run by another user, or in another container; stop it there"
        );
        return Err(Coded::new("not_permitted", message).into());
    };
    let runs = timeout(ANSWERS, containers(context)).await.ok().flatten();
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let asked = pid.map(|pid| kill_process(pid, Signal::TERM));
    if let Some(Err(error)) = asked {
        let message = format!("process {process}, which runs the cluster in {data}: {error}");
        return Err(Coded::new("not_permitted", message).into());
    }
    let until = Instant::now() + PATIENCE;
    while LocalBroker::supervisor_in(&broker) == Some(process) {
        if Instant::now() > until {
            let message = format!(
                "process {process}, which runs the cluster in {data}, has not ended within {} s; `kill -9 {process}` ends it, and the next `up` adopts what runs",
                PATIENCE.as_secs()
            );
            return Err(Coded::new("still_running", message).into());
        }
        sleep(LOOK).await;
    }
    let answer =
        json!({"data": context.data, "stopped": true, "process": process, "containers": runs});
    print::value(context.output()?, &answer, |_, _| {
        let next = format!("the next `dormouse up{}` adopts", context.data_flag());
        let runs = match runs {
            Some(0) => "no container ran".to_owned(),
            Some(1) => format!("1 container runs on with its supervisor, and {next} it"),
            Some(count) => {
                format!("{count} containers run on with their supervisors, and {next} them")
            }
            None => format!("its containers run on, and {next} them"),
        };
        format!(
            "stopped the cluster in {data}: its services, its agents and its broker (process {process}); {runs}"
        )
    })?;
    Ok(DONE)
}

async fn containers(context: &Context) -> Option<u64> {
    let log = context.local().connect().await.ok()?;
    let cluster: ClusterAnswer = query(&log, "cluster", Value::Null).await.ok()?;
    Some(cluster.containers)
}
