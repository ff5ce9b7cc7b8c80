//! The request body that creates a container. Pure, except for a look at the node's system folders.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, DeviceRequest, HostConfig, Mount, MountType, PortBinding, PortMap,
    ResourcesUlimits,
};

use nix::sys::resource::{Resource as Limited, getrlimit};

use dormouse_messages::Resource;
use dormouse_messages::grants::Network;
use dormouse_sandbox::isolation;

use super::output;
use crate::config::AgentConfig;
use crate::container_plan::{ContainerPlan, PythonPlan};
use crate::network::ports;
use crate::process::sandboxed;

/// Label: the cluster's name.
pub const CLUSTER: &str = "dormouse.cluster";
/// Label: the node's name.
pub const NODE: &str = "dormouse.node";
/// Label: `tenant/name/incarnation/rank`.
pub const CONTAINER: &str = "dormouse.container";
/// Label: the job, `tenant/name`.
pub const JOB: &str = "dormouse.job";
/// Label: the partition's incarnation.
pub const INCARNATION: &str = "dormouse.incarnation";
/// Label: the start request's sequence.
pub const REQUEST: &str = "dormouse.request";

/// The image of a job without an image: empty, with the node's programs.
pub const EMPTY_IMAGE: &str = "dormouse/empty";

const SYSTEM: [&str; 5] = ["/usr", "/lib", "/lib64", "/bin", "/etc/alternatives"];

const PERIOD_US: u64 = 100_000;

/// Returns the create request.
pub fn create(config: &AgentConfig, plan: &ContainerPlan, env: &[String]) -> ContainerCreateBody {
    let container = &plan.container;
    let labels = [
        (CLUSTER, config.cluster.clone()),
        (NODE, config.node.to_string()),
        (CONTAINER, container.to_string()),
        (JOB, container.job.to_string()),
        (INCARNATION, container.incarnation.to_string()),
        (REQUEST, plan.request.to_string()),
    ];
    let labels = labels.map(|(name, value)| (name.to_owned(), value));
    let code = plan.code.as_ref().map(|code| &code.folder);
    let working_dir = code.or(config.working_dir.as_ref());
    let working_dir = working_dir.unwrap_or(&plan.directory);
    let image = plan.image.as_deref().unwrap_or(EMPTY_IMAGE);
    ContainerCreateBody {
        image: Some(image.to_owned()),
        // The job's command line replaces the image's entrypoint.
        entrypoint: Some(vec![plan.argv[0].clone()]),
        cmd: Some(plan.argv[1..].to_vec()),
        env: Some(with_path(config, plan, env)),
        labels: Some(labels.into()),
        exposed_ports: exposed(plan),
        user: plan.user.map(|user| format!("{}:{}", user.uid, user.gid)),
        working_dir: Some(working_dir.display().to_string()),
        host_config: Some(host_config(config, plan, image == EMPTY_IMAGE)),
        ..ContainerCreateBody::default()
    }
}

fn with_path(config: &AgentConfig, plan: &ContainerPlan, env: &[String]) -> Vec<String> {
    let mut env = env.to_vec();
    let packages = plan.python.as_ref().map(PythonPlan::bin);
    let folders: Vec<_> = packages.iter().chain(&config.path).collect();
    if !folders.is_empty() && !env.iter().any(|entry| entry.starts_with("PATH=")) {
        let folders = folders
            .into_iter()
            .map(|folder| folder.display().to_string());
        let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned();
        let path: Vec<_> = folders.chain([system]).collect();
        env.push(format!("PATH={}", path.join(":")));
    }
    env
}

fn host_config(config: &AgentConfig, plan: &ContainerPlan, is_empty_image: bool) -> HostConfig {
    let signed = |amount: u64| i64::try_from(amount).unwrap_or(i64::MAX);
    let memory_bytes = plan.demand.get(&Resource::Memory);
    let memory = (memory_bytes > 0).then(|| signed(memory_bytes));
    let cpu_milli = plan.demand.get(&Resource::Cpu);
    // `--cpus` refuses more than the machine has.
    let quota_us = (cpu_milli > 0).then(|| signed((cpu_milli * PERIOD_US / 1000).max(1000)));
    let gpus = (!plan.gpus.is_empty()).then(|| {
        vec![DeviceRequest {
            driver: Some("nvidia".to_owned()),
            device_ids: Some(plan.gpus.clone()),
            capabilities: Some(vec![vec!["gpu".to_owned()]]),
            ..DeviceRequest::default()
        }]
    });
    let contain = plan.user.and(config.contain.as_ref());
    HostConfig {
        init: Some(true),
        network_mode: Some(network_mode(plan.network).to_owned()),
        port_bindings: bindings(plan),
        cap_drop: contain.map(|_| vec!["ALL".to_owned()]),
        security_opt: contain.map(|_| vec!["no-new-privileges:true".to_owned()]),
        pids_limit: contain.map(|contain| signed(contain.processes)),
        ulimits: contain.map(|_| vec![no_core(), open_files()]),
        log_config: Some(output::log_config(config.keep.log_bounds)),
        ipc_mode: contain.map(|_| "private".to_owned()),
        memory,
        memory_swap: memory,
        cpu_period: quota_us.map(|_| signed(PERIOD_US)),
        cpu_quota: quota_us,
        device_requests: gpus,
        mounts: Some(mounts(config, plan, is_empty_image)),
        ..HostConfig::default()
    }
}

/// Returns the engine's network mode.
fn network_mode(network: Network) -> &'static str {
    match network {
        Network::None => "none",
        Network::Published => "bridge",
        Network::Host => "host",
    }
}

fn published(plan: &ContainerPlan) -> Vec<u16> {
    match plan.network {
        Network::Published => ports(plan.port).collect(),
        Network::None | Network::Host => Vec::new(),
    }
}

fn tcp(port: u16) -> String {
    format!("{port}/tcp")
}

/// Returns the exposed ports.
fn exposed(plan: &ContainerPlan) -> Option<Vec<String>> {
    let ports: Vec<String> = published(plan).into_iter().map(tcp).collect();
    (!ports.is_empty()).then_some(ports)
}

/// Publishes each port under its number on all addresses of the node.
fn bindings(plan: &ContainerPlan) -> Option<PortMap> {
    let binding = |port: u16| {
        let at = PortBinding {
            host_ip: Some("0.0.0.0".to_owned()),
            host_port: Some(port.to_string()),
        };
        (tcp(port), Some(vec![at]))
    };
    let bindings: HashMap<_, _> = published(plan).into_iter().map(binding).collect();
    (!bindings.is_empty()).then_some(bindings)
}

/// A core file is as large as the memory.
fn no_core() -> ResourcesUlimits {
    ResourcesUlimits {
        name: Some("core".to_owned()),
        soft: Some(0),
        hard: Some(0),
    }
}

/// The agent's own limit, because an engine may grant no more.
fn open_files() -> ResourcesUlimits {
    let (_, most) = getrlimit(Limited::RLIMIT_NOFILE).unwrap_or((0, isolation::FILES_LIMIT));
    let limit = i64::try_from(most.min(isolation::FILES_LIMIT)).ok();
    ResourcesUlimits {
        name: Some("nofile".to_owned()),
        soft: limit,
        hard: limit,
    }
}

fn mounts(config: &AgentConfig, plan: &ContainerPlan, is_empty_image: bool) -> Vec<Mount> {
    let mut mounts = Vec::new();
    let mut add = |source: &str, target: &str, read_only: bool| {
        // The job's own mounts win.
        if mounts
            .iter()
            .all(|mount: &Mount| mount.target.as_deref() != Some(target))
        {
            mounts.push(Mount {
                source: Some(source.to_owned()),
                target: Some(target.to_owned()),
                typ: Some(MountType::BIND),
                read_only: Some(read_only),
                ..Mount::default()
            });
        }
    };
    for mount in plan.mounts.iter().chain(&config.mounts) {
        add(&mount.source, &mount.target, mount.read_only);
    }
    for folder in [&plan.directory, &plan.checkpoint]
        .into_iter()
        .chain(&plan.work)
    {
        let folder = folder.display().to_string();
        add(&folder, &folder, false);
    }
    for target in sandboxed::TMP_TARGETS
        .iter()
        .filter(|_| plan.user.is_some())
    {
        let tmp = plan.directory.join(sandboxed::TMP);
        add(&tmp.display().to_string(), target, false);
    }
    let part = plan.gpu_part.as_ref().map(|part| &part.folder);
    let packages = plan.python.as_ref().map(|python| &python.folder);
    let read = plan.resume.iter().chain(&plan.members);
    for folder in read.chain(part).chain(packages) {
        let folder = folder.display().to_string();
        add(&folder, &folder, true);
    }
    if is_empty_image {
        for folder in shown_of_system() {
            add(folder, folder, true);
        }
    }
    mounts
}

/// Reports whether the empty image shows a path of the node.
pub fn shows(config: &AgentConfig, path: &Path) -> bool {
    let mut mounts = config.mounts.iter();
    shown_of_system().any(|folder| path.starts_with(folder))
        || mounts.any(|mount| path.starts_with(&mount.source))
}

fn shown_of_system() -> impl Iterator<Item = &'static str> {
    let exists = |folder: &&str| Path::new(folder).exists();
    SYSTEM.into_iter().filter(exists)
}

/// Returns read-only mounts of the node's programs.
pub fn system() -> Vec<Mount> {
    let shown = shown_of_system().map(|folder| Mount {
        source: Some(folder.to_owned()),
        target: Some(folder.to_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(true),
        ..Mount::default()
    });
    shown.collect()
}
