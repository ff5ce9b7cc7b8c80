//! From the folded log to a container's plan. Pure.

use std::path::PathBuf;

use nix::sys::signal::Signal;

use dormouse_messages::job::{CheckpointMode, JobSpec};
use dormouse_messages::{ContainerId, NodeId};

use crate::config::AgentConfig;
use crate::executor::{self, Member, Setting};
use crate::layout;
use crate::runtime::ContainerPlan;
use crate::state::{AgentState, Partition};

/// Everything that is needed to start a container.
///
/// # Errors
/// Why it cannot be started, for a person.
pub fn plan(
    config: &AgentConfig,
    state: &AgentState,
    container: &ContainerId,
) -> Result<ContainerPlan, String> {
    let (job, partition) = state
        .partition(container)
        .ok_or("its placement is not on the log")?;
    let spec = job
        .spec
        .as_ref()
        .ok_or("the job's specification is not on the log")?;
    let start = partition
        .phase
        .start()
        .ok_or("its start is not requested")?;
    let place = partition
        .gang
        .get(&container.rank)
        .ok_or("its rank is not in the placement")?;
    save_signal(spec)?;
    let layout = config.layout();
    let directory = absolute(layout.container(container));
    let checkpoint = absolute(layout.checkpoint(&container.job, container.incarnation));
    let resumed_from = start.resumed_from.as_deref();
    let launch = executor::launch(&Setting {
        spec,
        container,
        gang: &members(config, state, partition)?,
        resumed_from,
        directory: directory.clone(),
        checkpoint: checkpoint.clone(),
    })?;
    Ok(ContainerPlan {
        container: container.clone(),
        request: start.sequence,
        argv: launch.argv,
        env: launch.env,
        image: spec.image.clone(),
        mounts: spec.mounts.clone(),
        demand: spec.demand.clone(),
        gpus: place.gpus.clone(),
        directory,
        checkpoint,
        resume: resumed_from.map(|uri| PathBuf::from(layout::path_of(uri))),
    })
}

/// A program does not run in the agent's working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn members(
    config: &AgentConfig,
    state: &AgentState,
    partition: &Partition,
) -> Result<Vec<Member>, String> {
    let known = |node: &NodeId| match node {
        own if *own == config.node => Some(&config.address),
        other => state.addresses.get(other),
    };
    let address = |node: &NodeId| match known(node).map(String::as_str) {
        None => Err(format!("node {node} of its gang has never joined")),
        Some("") => Ok("127.0.0.1".to_owned()),
        Some(address) => Ok(address.to_owned()),
    };
    partition
        .gang
        .iter()
        .map(|(rank, place)| {
            Ok(Member {
                rank: *rank,
                address: address(&place.node)?,
                port: place.port,
            })
        })
        .collect()
}

/// The signal that asks a job to save.
///
/// # Errors
/// When it is not a signal.
pub fn save_signal(spec: &JobSpec) -> Result<Signal, String> {
    if spec.checkpoint.mode == CheckpointMode::None {
        return Ok(Signal::SIGTERM);
    }
    let name = spec.checkpoint.signal.trim().to_ascii_uppercase();
    let full = if name.starts_with("SIG") {
        name
    } else {
        format!("SIG{name}")
    };
    full.parse().map_err(|_| {
        format!(
            "checkpoint.signal {:?} is not a signal such as SIGTERM or SIGUSR1; correct the job",
            spec.checkpoint.signal
        )
    })
}
