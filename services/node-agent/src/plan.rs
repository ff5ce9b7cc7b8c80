//! From the folded log to a container's plan. Pure.

use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

use dormouse_messages::job::{CheckpointMode, Executor, JobSpec};
use dormouse_messages::{ContainerId, Rank};

use crate::config::AgentConfig;
use crate::container::Asked;
use crate::executor::{self, InPlace, Member, Setting};
use crate::layout::{self, MEMBERS};
use crate::members::{self, ACK};
use crate::probe::Probe;
use crate::runtime::ContainerPlan;
use crate::state::{AgentState, Here, Partition, Readiness};

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
    let here = partition.here.get(&container.rank);
    let request = here.and_then(|here| here.request);
    let request = request.ok_or("its start is not requested")?;
    let place = partition
        .gang
        .get(&container.rank)
        .ok_or("its rank is not in the placement")?;
    save_signal(spec)?;
    resize_signal(spec)?;
    let layout = config.layout();
    let directory = absolute(layout.container(container));
    let checkpoint = absolute(layout.checkpoint(&container.job, container.incarnation));
    let shown = partition.members.as_ref().map(|_| {
        let below = layout.members(&container.job, container.incarnation);
        absolute(below.path())
    });
    let resumed_from = start.resumed_from.as_deref();
    let launch = executor::launch(&Setting {
        spec,
        container,
        gang: &gang(config, state, partition, container.rank)?,
        resumed_from,
        directory: directory.clone(),
        checkpoint: checkpoint.clone(),
        in_place: shown.as_ref().map(|folder| InPlace {
            members: folder.join(MEMBERS),
            ack: directory.join(ACK),
            generation: here.map_or(0, |here| here.generation),
        }),
    })?;
    Ok(ContainerPlan {
        container: container.clone(),
        request,
        argv: launch.argv,
        env: launch.env,
        image: spec.image.clone(),
        mounts: spec.mounts.clone(),
        demand: spec.demand.clone(),
        gpus: place.gpus.clone(),
        directory,
        checkpoint,
        resume: resumed_from.map(|uri| PathBuf::from(layout::path_of(uri))),
        members: shown,
    })
}

/// A program does not run in the agent's working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// The whole gang; where containers come and go, those that take part once this one does.
fn gang(
    config: &AgentConfig,
    state: &AgentState,
    partition: &Partition,
    own: Rank,
) -> Result<Vec<Member>, String> {
    let takes_part = |rank: &Rank| {
        partition.members.as_ref().is_none_or(|it| {
            *rank == own || it.announced.members.contains(rank) || it.joining.contains(rank)
        })
    };
    let gang = partition.gang.iter();
    gang.filter(|(rank, _)| takes_part(rank))
        .map(|(rank, place)| {
            Ok(Member {
                rank: *rank,
                address: members::address(config, state, &place.node)?,
                port: place.port,
            })
        })
        .collect()
}

/// What a container is asked before it takes part; what the log knows already is not asked again.
#[must_use]
pub fn asked(config: &AgentConfig, state: &AgentState, container: &ContainerId) -> Asked {
    let Some((job, partition)) = state.partition(container) else {
        return Asked::Nothing;
    };
    let (here, place) = (
        partition.here.get(&container.rank),
        partition.gang.get(&container.rank),
    );
    let (Some(spec), Some(here), Some(place)) = (&job.spec, here, place) else {
        return Asked::Nothing;
    };
    if let Some(service) = &spec.service {
        let address = members::address(config, state, &config.node);
        let probe = Probe {
            address: address.unwrap_or_default(),
            port: place.port,
            path: service.ready.path.clone(),
            within: Duration::from_secs(u64::from(service.ready.timeout_s)),
        };
        return match here.readiness {
            Readiness::Unknown => Asked::Probe(probe),
            Readiness::Ready => Asked::ProbeAgain(probe),
            Readiness::Unready => Asked::Nothing,
        };
    }
    if partition.members.is_none() {
        return Asked::Nothing;
    }
    member_is_asked(spec, here)
}

fn member_is_asked(spec: &JobSpec, here: &Here) -> Asked {
    // Those that start together need nobody's word; torchrun finds the others by itself.
    match (here.generation, here.readiness) {
        (0, _) | (_, Readiness::Ready | Readiness::Unready) => Asked::Nothing,
        _ if spec.executor == Executor::Torch => Asked::AtOnce,
        (generation, Readiness::Unknown) => Asked::Answer(generation),
    }
}

/// The signal that tells members of a change, if there is one.
///
/// # Errors
/// When it is not a signal.
pub fn resize_signal(spec: &JobSpec) -> Result<Option<Signal>, String> {
    let name = spec.resize.signal.as_deref();
    name.map(|name| signal("resize.signal", name)).transpose()
}

/// The signal that warns a job of its end.
///
/// # Errors
/// When it is not a signal.
pub fn warning_signal(written: &str) -> Result<Signal, String> {
    signal("warning.signal", written)
}

/// The signal that asks a job to save.
///
/// # Errors
/// When it is not a signal.
pub fn save_signal(spec: &JobSpec) -> Result<Signal, String> {
    if spec.checkpoint.mode == CheckpointMode::None {
        return Ok(Signal::SIGTERM);
    }
    signal("checkpoint.signal", &spec.checkpoint.signal)
}

fn signal(field: &str, written: &str) -> Result<Signal, String> {
    let name = written.trim().to_ascii_uppercase();
    let full = if name.starts_with("SIG") {
        name
    } else {
        format!("SIG{name}")
    };
    full.parse().map_err(|_| {
        format!("{field} {written:?} is not a signal such as SIGTERM or SIGUSR1; correct the job")
    })
}
