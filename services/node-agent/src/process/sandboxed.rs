//! The folders of a contained job: gives them to the tenant's user, and lists the parts of the node in its
//! sandbox.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dormouse_agent_core::NotStarted;
use dormouse_messages::ContainerId;
use dormouse_messages::grants::Network as Granted;
use dormouse_sandbox::folder::{Below, User};
use dormouse_sandbox::isolation::{BindMount, HostView, Network, SandboxSpec};

use crate::config::AgentConfig;
use crate::container_plan::ContainerPlan;
use crate::disk_error::of_jobs_folder;
use crate::layout::{Layout, STDERR, STDOUT};
use crate::network;

/// Folder of temporary files in a container's directory.
pub const TMP: &str = "tmp";

/// Paths of the temporary files in the sandbox.
pub const TMP_TARGETS: [&str; 2] = ["/tmp", "/var/tmp"];

/// Variables that a contained job inherits from the agent.
pub const INHERITED: [&str; 3] = ["LANG", "LC_ALL", "TZ"];

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns every sandbox's view of the node. `None` if jobs are not contained.
#[must_use]
pub fn view(config: &AgentConfig) -> Option<HostView> {
    config.contain.as_ref()?;
    let shown = config.path.iter().chain(&config.working_dir);
    let mounts = config
        .mounts
        .iter()
        .map(|mount| PathBuf::from(&mount.source));
    let mut shown: Vec<_> = shown.map(|path| absolute(path)).chain(mounts).collect();
    shown.retain(|path| path != Path::new("/"));
    let hidden = [&config.data_dir, &config.checkpoint_dir];
    Some(HostView {
        shown,
        hidden: hidden.map(|path| absolute(path)).into(),
    })
}

/// Gives a container's folders to the user. Blocking.
pub fn give(layout: &Layout, plan: &ContainerPlan, user: User) -> Result<(), NotStarted> {
    let ContainerId {
        job, incarnation, ..
    } = &plan.container;
    let own = layout.container_below(&plan.container);
    let give = || -> std::io::Result<()> {
        own.join(TMP).make()?.give(user)?;
        let folder = own.open()?;
        for name in [STDOUT, STDERR] {
            folder.give_file(name, user)?;
        }
        folder.give(user)
    };
    let what = "cannot be given to its tenant's user:";
    give().map_err(|error| of_jobs_folder(what, &own, &error))?;
    let checkpoint = layout.checkpoint_below(&plan.folder(), *incarnation);
    let given = checkpoint.open().and_then(|folder| folder.give(user));
    given.map_err(|error| of_jobs_folder(what, &checkpoint, &error))?;
    if plan.work.is_none() {
        return Ok(());
    }
    let work = layout.work(job);
    let given = work.make().and_then(|folder| folder.give(user));
    given.map_err(|error| of_jobs_folder(what, &work, &error))
}

fn shown(below: &Below, target: &Path, read_only: bool) -> BindMount {
    let (root, way) = below.parts();
    BindMount {
        source: Below::new(absolute(root), way),
        target: target.to_owned(),
        read_only,
    }
}

/// Returns a container's sandbox.
#[must_use]
pub fn sandbox(
    layout: &Layout,
    plan: &ContainerPlan,
    user: User,
    processes: Option<u64>,
) -> SandboxSpec {
    let ContainerId {
        job, incarnation, ..
    } = &plan.container;
    let directory = layout.container_below(&plan.container);
    let checkpoint = layout.checkpoint_below(&plan.folder(), *incarnation);
    let mut own = vec![shown(&checkpoint, &plan.checkpoint, false)];
    let tmp = directory.join(TMP);
    let temporary = TMP_TARGETS.map(|target| shown(&tmp, Path::new(target), false));
    let resume = plan.resume.as_deref();
    let resume = resume.and_then(|path| Some((layout.named_checkpoint(path)?, path)));
    own.extend(resume.map(|(below, path)| shown(&below, path, true)));
    if let Some(folder) = &plan.members {
        own.push(shown(&layout.members(job, *incarnation), folder, true));
    }
    if let Some(folder) = &plan.work {
        own.push(shown(&layout.work(job), folder, false));
    }
    let read_only = |below: Below, target: &Path| shown(&below, target, true);
    if let Some(part) = &plan.gpu_part {
        own.push(read_only(Below::new(part.folder.clone(), ""), &part.folder));
    }
    if let Some(python) = &plan.python {
        let below = Below::new(layout.environments(), job.tenant());
        own.push(read_only(below.join(python.name()), &python.folder));
    }
    // Sources are resolved: later links are not followed.
    let mounts = plan.mounts.iter().map(|mount| BindMount {
        source: Below::new("/".into(), mount.source.trim_start_matches('/')),
        target: PathBuf::from(&mount.target),
        read_only: mount.read_only,
    });
    SandboxSpec {
        uid: user.uid,
        gid: user.gid,
        temporary: temporary.into(),
        directory: shown(&directory, &plan.directory, false),
        own,
        mounts: mounts.collect(),
        gpu_uuids: plan.gpus.clone(),
        network: match plan.network {
            Granted::None => Network::None,
            Granted::Published => {
                let ports = network::ports(plan.port);
                Network::OwnPorts(ports.start, ports.end - ports.start)
            }
            Granted::Host => Network::Host,
        },
        processes,
    }
}

/// Returns a package installer's sandbox, which writes only to the tenant's folder.
#[must_use]
pub fn of_installer(own: &Below, user: User, files: Vec<PathBuf>) -> SandboxSpec {
    let at = |place: &Below, read_only: bool| shown(place, &absolute(&place.path()), read_only);
    let files = files.into_iter();
    let files = files.map(|file| at(&Below::new(file, ""), true));
    SandboxSpec {
        uid: user.uid,
        gid: user.gid,
        temporary: Vec::new(),
        directory: at(own, false),
        own: files.collect(),
        mounts: Vec::new(),
        gpu_uuids: Vec::new(),
        network: Network::Host,
        processes: None,
    }
}

/// Sets default variables. The job's own win.
pub fn add_to(env: &mut BTreeMap<String, String>, plan: &ContainerPlan) {
    let tenant = plan.container.job.tenant();
    let home = plan.directory.display().to_string();
    let told = [
        ("HOME", home.as_str()),
        ("USER", tenant),
        ("LOGNAME", tenant),
        ("TMPDIR", "/tmp"),
    ];
    env.extend(told.map(|(name, value)| (name.to_owned(), value.to_owned())));
}
