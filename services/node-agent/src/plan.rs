//! Derives a container's plan from the folded log. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;

use dormouse_messages::events::Gpu;
use dormouse_messages::grants::{Granted, Network, RunAs};
use dormouse_messages::job::{CheckpointMode, EnvValue, Executor, JobSpec};
use dormouse_messages::{ContainerId, Rank, Resource};
use dormouse_sandbox::folder::User;

use crate::code::CODE;
use crate::config::{AgentConfig, GPU_LIBRARY};
use crate::container::Asked;
use crate::container_plan::{CodePlan, ContainerPlan, GpuPart, NodeAddress, PythonPlan};
use crate::executor::{self, InPlace, Member, Setting};
use crate::jupyter;
use crate::layout::{JobFolder, Layout, MEMBERS, TOKENS, is_stored};
use crate::members::{self, ACK};
use crate::network;
use crate::probe::Probe;
use crate::state::{AgentState, Here, Partition, Place, Readiness, Start};

/// Returns a container's start plan.
///
/// # Errors
/// The reason why the container cannot start, for a person.
pub fn plan(
    config: &AgentConfig,
    state: &AgentState,
    container: &ContainerId,
) -> Result<ContainerPlan, String> {
    let (job, partition) = state
        .partition(container)
        .ok_or("its placement is not on the log")?;
    let spec = job.spec();
    let spec = spec.ok_or("the job's specification is not on the log")?;
    let spec = &spec.of_rank(container.rank);
    let start = partition.phase.start();
    let start = start.ok_or("its start is not requested")?;
    let here = partition.here.get(&container.rank);
    let request = here.and_then(|here| here.request);
    let request = request.ok_or("its start is not requested")?;
    let place = partition.gang.get(&container.rank);
    let place = place.ok_or("its rank is not in the placement")?;
    save_signal(spec)?;
    resize_signal(spec)?;
    let granted = state.grants.of(container.job.tenant());
    // Grants may have been withdrawn since submission.
    granted.check(spec).map_err(|denied| denied.reason)?;
    let layout = config.layout();
    let directory = absolute(layout.container(container));
    let folder = JobFolder::new(container.job.clone(), job.admitted);
    let checkpoint = absolute(layout.checkpoint(&folder, container.incarnation));
    let shown = shown(&layout, partition, container);
    let (resume, stored) = resumed(&layout, &folder, start);
    let gang = gang(config, state, partition, container.rank)?;
    let (network, node_address) =
        reach(config, spec, &granted, &gang, &directory, shown.is_some())?;
    let launch = executor::launch(&Setting {
        spec,
        container,
        gang: &gang,
        network_ready: node_address.as_ref().map(|it| it.ready.clone()),
        resumed_from: resume.as_deref(),
        directory: directory.clone(),
        checkpoint: checkpoint.clone(),
        in_place: shown
            .as_ref()
            .map(|folder| in_place(folder, &directory, here)),
    })?;
    let gpus: Vec<String> = real(&place.gpus).cloned().collect();
    let gpu_part = gpu_part(config, spec, container, &gpus);
    let mut env = gpu_variables(spec, place);
    env.extend(launch.env);
    let code = code(spec, &directory, &mut env);
    let python = packages(&layout, container, spec, &mut env);
    hold_to(gpu_part.as_ref(), &mut env);
    Ok(ContainerPlan {
        container: container.clone(),
        request,
        admitted: job.admitted,
        argv: launch.argv,
        env,
        image: spec.image.clone(),
        mounts: spec.mounts.clone(),
        user: user(config, state, &granted, container.job.tenant())?,
        port: place.port,
        network,
        node_address,
        granted,
        demand: spec.demand.clone(),
        gpus,
        gpu_part,
        directory,
        checkpoint,
        resume,
        stored,
        members: shown,
        code,
        python,
        work: jupyter::is_notebook(spec).then(|| absolute(layout.work(&container.job).path())),
    })
}

fn reach(
    config: &AgentConfig,
    spec: &JobSpec,
    granted: &Granted,
    gang: &[Member],
    directory: &Path,
    in_place: bool,
) -> Result<(Network, Option<NodeAddress>), String> {
    network::check_none(config, spec.network)?;
    let network = spec.network.unwrap_or_else(|| granted.most_network());
    network::check_own_ports(config, spec.executor, network, in_place)?;
    let address = network::node_address(config, spec.executor, network, gang, directory)?;
    Ok((network, address))
}

fn resumed(layout: &Layout, job: &JobFolder, start: &Start) -> (Option<PathBuf>, Option<String>) {
    let uri = start.resumed_from.as_deref();
    let folder = uri.map(|uri| layout.resumed(job, uri));
    (folder, uri.filter(|uri| is_stored(uri)).map(str::to_owned))
}

fn shown(layout: &Layout, partition: &Partition, container: &ContainerId) -> Option<PathBuf> {
    partition.members.as_ref()?;
    let below = layout.members(&container.job, container.incarnation);
    Some(absolute(below.path()))
}

fn in_place(folder: &Path, directory: &Path, here: Option<&Here>) -> InPlace {
    InPlace {
        members: folder.join(MEMBERS),
        ack: directory.join(ACK),
        generation: here.map_or(0, |here| here.generation),
    }
}

fn code(
    spec: &JobSpec,
    directory: &Path,
    env: &mut BTreeMap<String, EnvValue>,
) -> Option<CodePlan> {
    let packed = spec.workdir.clone()?;
    let folder = directory.join(CODE);
    let told = EnvValue::Plain(folder.display().to_string());
    env.insert("DORMOUSE_WORKDIR".to_owned(), told);
    Some(CodePlan { packed, folder })
}

fn packages(
    layout: &Layout,
    container: &ContainerId,
    spec: &JobSpec,
    env: &mut BTreeMap<String, EnvValue>,
) -> Option<PythonPlan> {
    let python = spec.python.clone()?;
    let folder = absolute(layout.environment(container.job.tenant(), &python));
    let told = EnvValue::Plain(folder.display().to_string());
    env.insert("VIRTUAL_ENV".to_owned(), told);
    Some(PythonPlan { python, folder })
}

/// Returns the user of a tenant's contained jobs: granted, or of the agent's range.
///
/// # Errors
/// If there is no user.
pub fn user(
    config: &AgentConfig,
    state: &AgentState,
    granted: &Granted,
    tenant: &str,
) -> Result<Option<User>, String> {
    let Some(contain) = &config.contain else {
        return Ok(None);
    };
    if let Some(ids @ RunAs { uid, gid }) = granted.grants.run_as {
        // Users in the range belong to tenants, with groups of equal numbers.
        if [uid, gid].iter().any(|id| contain.uids.contains(id)) {
            let (first, last) = (contain.uids.start(), contain.uids.end());
            return Err(format!(
                "its tenant is granted {ids}, which is among the users that agents give to tenants in turn (--uids {first}..{last}): another tenant may be the same; grant one outside of them (dormouse tenant grant {tenant} --run-as UID:GID)"
            ));
        }
        return Ok(Some(User { uid, gid }));
    }
    let order = state.tenants.get(tenant);
    let order = order.ok_or("its tenant's first job is not on the log")?;
    contain.user(*order).map(Some)
}

fn real(gpus: &[String]) -> impl Iterator<Item = &String> {
    gpus.iter().filter(|uuid| !Gpu::is_stand_in(uuid))
}

fn gpu_variables(spec: &JobSpec, place: &Place) -> BTreeMap<String, EnvValue> {
    let mut env = BTreeMap::new();
    let mut tell = |name: &str, value: String| {
        env.insert(name.to_owned(), EnvValue::Plain(value));
    };
    if !place.gpus.is_empty() {
        tell("DORMOUSE_GPUS", place.gpus.join(","));
    }
    let request = spec.demand.get(&Resource::Gpu);
    if (1..1000).contains(&request) {
        let limit = spec.gpu_limit_milli.unwrap_or(request);
        tell("DORMOUSE_GPU_REQUEST", Resource::Gpu.display(request));
        tell("DORMOUSE_GPU_LIMIT", Resource::Gpu.display(limit));
    }
    if let Some(memory) = spec.gpu_memory_bytes {
        tell("DORMOUSE_GPU_MEMORY", memory.to_string());
    }
    if real(&place.gpus).next().is_some() {
        let uuids: Vec<&str> = real(&place.gpus).map(String::as_str).collect();
        tell("NVIDIA_VISIBLE_DEVICES", uuids.join(","));
    }
    env
}

/// Returns a container's current GPU share with its devices.
#[must_use]
pub fn part(
    config: &AgentConfig,
    state: &AgentState,
    container: &ContainerId,
) -> Option<(Vec<String>, GpuPart)> {
    let (job, partition) = state.partition(container)?;
    let place = partition.gang.get(&container.rank)?;
    let gpus: Vec<String> = real(&place.gpus).cloned().collect();
    let spec = job.spec()?.of_rank(container.rank);
    let part = gpu_part(config, &spec, container, &gpus)?;
    Some((gpus, part))
}

/// Returns the GPU share to enforce, if any.
fn gpu_part(
    config: &AgentConfig,
    spec: &JobSpec,
    container: &ContainerId,
    gpus: &[String],
) -> Option<GpuPart> {
    config.gpu_library.as_ref()?;
    let request = u32::try_from(spec.demand.get(&Resource::Gpu)).ok()?;
    let limit = spec.gpu_limit_milli.map(u32::try_from);
    ((1..1000).contains(&request) && !gpus.is_empty()).then(|| GpuPart {
        request_milli: request,
        limit_milli: limit.and_then(Result::ok).unwrap_or(request).min(1000),
        memory_bytes: spec.gpu_memory_bytes,
        folder: absolute(config.layout().gpu(container)),
    })
}

fn hold_to(part: Option<&GpuPart>, env: &mut BTreeMap<String, EnvValue>) {
    let Some(part) = part else {
        return;
    };
    let path = |name: &str| part.folder.join(name).display().to_string();
    let mut preload = path(GPU_LIBRARY);
    if let Some(EnvValue::Plain(own)) = env.get("LD_PRELOAD") {
        preload = format!("{preload}:{own}");
    }
    env.insert("LD_PRELOAD".to_owned(), EnvValue::Plain(preload));
    let socket = EnvValue::Plain(path(TOKENS));
    env.insert("DORMOUSE_GPU_SOCKET".to_owned(), socket);
}

/// Programs do not run in the agent's working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

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

/// Returns the readiness question for a container, unless the log has the answer.
#[must_use]
pub fn asked(config: &AgentConfig, state: &AgentState, container: &ContainerId) -> Asked {
    let Some((job, partition)) = state.partition(container) else {
        return Asked::Nothing;
    };
    let (here, place) = (
        partition.here.get(&container.rank),
        partition.gang.get(&container.rank),
    );
    let (Some(spec), Some(here), Some(place)) = (job.spec(), here, place) else {
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
    if executor::waits_for_coordinator(spec) && container.rank == Rank(0) {
        return match here.readiness {
            Readiness::Unknown => Asked::Listens(place.port),
            Readiness::Ready | Readiness::Unready => Asked::Nothing,
        };
    }
    if partition.members.is_none() {
        return Asked::Nothing;
    }
    member_is_asked(spec, here)
}

fn member_is_asked(spec: &JobSpec, here: &Here) -> Asked {
    // torchrun finds its peers itself.
    match (here.generation, here.readiness) {
        (0, _) | (_, Readiness::Ready | Readiness::Unready) => Asked::Nothing,
        _ if spec.executor == Executor::Torch => Asked::AtOnce,
        (generation, Readiness::Unknown) => Asked::Answer(generation),
    }
}

/// Returns the signal for a change of members, if set.
///
/// # Errors
/// If the name is not a signal.
pub fn resize_signal(spec: &JobSpec) -> Result<Option<Signal>, String> {
    let name = spec.resize.signal.as_deref();
    name.map(|name| signal("resize.signal", name)).transpose()
}

/// Returns the signal that warns a job of its end.
///
/// # Errors
/// If the name is not a signal.
pub fn warning_signal(written: &str) -> Result<Signal, String> {
    signal("warning.signal", written)
}

/// Returns the signal that asks a job to save.
///
/// # Errors
/// If the name is not a signal.
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

#[cfg(test)]
mod tests {
    use dormouse_messages::grants::Grants;

    use super::*;
    use crate::config::Contain;

    #[test]
    fn a_granted_user_that_may_be_another_tenants_is_refused_with_what_to_do() {
        let node = "n0".parse().expect("valid");
        let mut config = AgentConfig::local(node, Default::default(), PathBuf::from("/data"));
        config.contain = Some(Contain {
            uids: 200_000..=200_099,
            ..Contain::default()
        });
        let mut state = AgentState::default();
        state.tenants.insert("ads".to_owned(), 5);
        let granted = |uid, gid| Granted {
            grants: Grants {
                run_as: Some(RunAs { uid, gid }),
                ..Grants::default()
            },
            ..Granted::default()
        };
        let user = |granted: &Granted| user(&config, &state, granted, "ads");
        for (uid, gid) in [(200_005, 10_001), (10_001, 200_099), (200_000, 200_000)] {
            let why = user(&granted(uid, gid)).expect_err("refused");
            assert!(
                why.contains("--uids") && why.contains("tenant grant ads --run-as"),
                "{why}"
            );
        }
        for id in [10_001, 199_999, 200_100] {
            let found = user(&granted(id, id)).expect("outside");
            assert_eq!(found, Some(User { uid: id, gid: id }));
        }
        let own = user(&Granted::default()).expect("its turn");
        assert_eq!(own.map(|user| user.uid), Some(200_005));
    }
}
