//! The interface of container runtimes: plain processes, or Docker.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use futures::FutureExt;
use futures::future::BoxFuture;
use nix::libc;
use nix::sys::signal::Signal;
use tokio::sync::mpsc;

pub use dormouse_agent_core::{Exit, NotStarted};
use dormouse_messages::events::NodeFault;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_messages::{Amounts, ContainerId, Sequence};

use crate::code::CodePlan;
use crate::exec::attached::{Attached, Terminal};
use crate::folder::Below;
use crate::layout;
use crate::network::NodeAddress;
use crate::python::PythonPlan;

/// A user of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    pub uid: u32,
    pub gid: u32,
}

/// A container's GPU share, and its folder for the scheduler of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPart {
    /// Guaranteed thousandths of each device's time.
    pub request_milli: u32,
    pub limit_milli: u32,
    pub memory_bytes: Option<u64>,
    pub folder: PathBuf,
}

/// All inputs of a container's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    pub container: ContainerId,
    /// A container of another request belongs to another log.
    pub request: Sequence,
    pub argv: Vec<String>,
    /// The environment. Secrets are read at the start.
    pub env: BTreeMap<String, EnvValue>,
    /// The image. Docker only.
    pub image: Option<String>,
    pub mounts: Vec<Mount>,
    /// The user. `None`: the agent's, or the image's.
    pub user: Option<User>,
    pub port: u16,
    pub network: Network,
    /// The node's address for a container's own network. Docker only.
    pub node_address: Option<NodeAddress>,
    pub granted: Granted,
    pub demand: Amounts,
    pub gpus: Vec<String>,
    pub gpu_part: Option<GpuPart>,
    pub directory: PathBuf,
    pub checkpoint: PathBuf,
    pub resume: Option<PathBuf>,
    /// The checkpoint's URI if a store holds it.
    pub stored: Option<String>,
    pub members: Option<PathBuf>,
    pub work: Option<PathBuf>,
    pub code: Option<CodePlan>,
    pub python: Option<PythonPlan>,
}

/// Explains a failed start by an error at the agent's own path.
#[must_use]
pub fn of_disk(what: &str, path: &Path, error: &std::io::Error) -> NotStarted {
    let of_node = match error.raw_os_error() {
        _ if layout::is_of_the_disk(error) => Some(NodeFault::Disk),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Some(NodeFault::Processes),
        _ => None,
    };
    NotStarted {
        why: layout::disk(what, path, error),
        fault: of_node,
    }
}

/// Explains a failed start by an error in a folder that jobs write to. An exceeded quota is the job's fault.
/// A denied access is too, unless the agent cannot write to the root of these folders.
#[must_use]
pub fn of_jobs_folder(what: &str, folder: &Below, error: &std::io::Error) -> NotStarted {
    let not_started = of_disk(what, &folder.path(), error);
    let may_be_the_jobs = match error.kind() {
        ErrorKind::QuotaExceeded => true,
        ErrorKind::PermissionDenied => folder.may_write_to_root(),
        _ => false,
    };
    if may_be_the_jobs {
        not_started.why.into()
    } else {
        not_started
    }
}

/// A container found at the agent's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub container: ContainerId,
    pub request: Sequence,
    /// The first process's pid, or the exit.
    pub status: Result<u32, Exit>,
}

/// A failure of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    #[error(transparent)]
    Start(#[from] NotStarted),
    #[error("signalling {container}: {why}")]
    Signal { container: ContainerId, why: String },
    #[error("listing the containers of this node: {0}")]
    List(String),
    #[error("the node's supervisor cannot be reached: {0}")]
    Supervisor(String),
    #[error("the container engine cannot be reached: {0}; is dockerd running?")]
    Engine(String),
}

/// A program to run for an attached user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    pub number: u64,
    pub terminal: Option<Terminal>,
}

/// Exits of containers, from a runtime to the agent.
pub type Exits = mpsc::UnboundedSender<(ContainerId, Exit)>;

/// A container runtime. Each container's end is reported once, on the runtime's channel.
pub trait ContainerRuntime: Send + Sync + 'static {
    /// Returns `process` or `docker`.
    fn name(&self) -> &'static str;

    /// Provides the job's files before the start. May take minutes, and may be cancelled.
    fn provide<'a>(&'a self, plan: &'a ContainerPlan) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let _ = plan;
        async { Ok(()) }.boxed()
    }

    /// Starts a container, or adopts it for this request. Returns its first process's pid.
    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>>;

    /// Returns the pid of a running container's first process, in the agent's pid namespace.
    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>>;

    /// Signals its processes.
    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Signals only processes with a handler, because the signal would end others.
    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Kills all its processes.
    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Runs a command in a container with its environment. `Err` explains a failure.
    fn beside(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<(), String>>;

    /// Runs a program for an attached user, with the container's user, sandbox, limits and environment.
    fn exec(&self, plan: ContainerPlan, exec: Exec) -> BoxFuture<'_, Result<Attached, String>>;

    /// Lists running containers, and ended ones not yet forgotten. Begins to watch the running ones.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>>;

    /// Frees the container of `request` except its logs. The name is free at once, and the future does the
    /// rest.
    fn forget(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()>;

    /// Lists folders that a running container may write to, besides its plan's.
    fn writes_elsewhere<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>>;

    /// Finishes postponed work. The containers run on.
    fn leave(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_jobs_own_folder_is_never_the_nodes_fault() {
        use NodeFault::{Disk, Processes};
        let table = [
            (libc::ENOSPC, Some(Disk), Some(Disk)),
            (libc::EIO, Some(Disk), Some(Disk)),
            (libc::EROFS, Some(Disk), Some(Disk)),
            (libc::EMFILE, Some(Processes), Some(Processes)),
            (libc::ENFILE, Some(Processes), Some(Processes)),
            (libc::ENOMEM, Some(Processes), Some(Processes)),
            (libc::EACCES, Some(Disk), None),
            (libc::EPERM, Some(Disk), None),
            (libc::EDQUOT, Some(Disk), None),
            (libc::ELOOP, None, None),
            (libc::ENOTDIR, None, None),
            (libc::EISDIR, None, None),
            (libc::ENOENT, None, None),
            (libc::EEXIST, None, None),
            (libc::ENOTEMPTY, None, None),
            (libc::ENXIO, None, None),
            (libc::ENAMETOOLONG, None, None),
            (libc::ETXTBSY, None, None),
            (libc::EMLINK, None, None),
            (libc::EFBIG, None, None),
        ];
        let root = tempfile::tempdir().expect("a folder");
        let folder = Below::new(root.path().to_owned(), "ads");
        for (errno, of_agent, of_job) in table {
            let error = std::io::Error::from_raw_os_error(errno);
            assert_eq!(
                of_disk("cannot", root.path(), &error).fault,
                of_agent,
                "{error}"
            );
            assert_eq!(
                of_jobs_folder("cannot", &folder, &error).fault,
                of_job,
                "{error}"
            );
        }
        let refused = std::io::Error::new(ErrorKind::InvalidData, "it is a link");
        assert_eq!(of_jobs_folder("cannot", &folder, &refused).fault, None);
        let shut = std::fs::Permissions::from_mode(0o500);
        std::fs::set_permissions(root.path(), shut).expect("set");
        let error = std::io::Error::from_raw_os_error(libc::EACCES);
        let is_root = nix::unistd::geteuid().is_root();
        let of_node = of_jobs_folder("cannot", &folder, &error).fault;
        assert_eq!(of_node, (!is_root).then_some(Disk));
        let gone = Below::new(root.path().join("gone"), "ads");
        assert_eq!(of_jobs_folder("cannot", &gone, &error).fault, Some(Disk));
    }
}
