//! What a container runtime does for the agent: plain processes, or Docker.

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
    /// Its number.
    pub uid: u32,
    /// Its group's.
    pub gid: u32,
}

/// A container's part of its GPUs, and its way to the scheduler of their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuPart {
    /// Guaranteed, in thousandths of each device's time.
    pub request_milli: u32,
    /// At most, in thousandths.
    pub limit_milli: u32,
    /// Of each device's memory.
    pub memory_bytes: Option<u64>,
    /// The folder of library and socket, which it only reads.
    pub folder: PathBuf,
}

/// All that a runtime needs to start a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerPlan {
    /// The container.
    pub container: ContainerId,
    /// The start request: a container of another request under the same name is another log's.
    pub request: Sequence,
    /// The command line.
    pub argv: Vec<String>,
    /// The environment; secrets are read when it starts.
    pub env: BTreeMap<String, EnvValue>,
    /// Docker: the image.
    pub image: Option<String>,
    /// Docker: folders of the node.
    pub mounts: Vec<Mount>,
    /// Whom it runs as; absent: as the agent does, or the image says.
    pub user: Option<User>,
    /// The first of its own ports.
    pub port: u16,
    /// How it reaches the network.
    pub network: Network,
    /// Docker: the node's address, where its programs listen on it and its network is its own.
    pub node_address: Option<NodeAddress>,
    /// What its tenant is granted: whom it runs as, which secrets it may read.
    pub granted: Granted,
    /// Its limits.
    pub demand: Amounts,
    /// The GPUs that it may use, by UUID.
    pub gpus: Vec<String>,
    /// Its part of these, where the node holds programs to parts.
    pub gpu_part: Option<GpuPart>,
    /// Its own directory.
    pub directory: PathBuf,
    /// Where it saves.
    pub checkpoint: PathBuf,
    /// What it resumes from.
    pub resume: Option<PathBuf>,
    /// What the log names that by, where it is to be had from a store first.
    pub stored: Option<String>,
    /// The folder of the file that says who takes part, where containers come and go: it may read
    /// there.
    pub members: Option<PathBuf>,
    /// Where a notebook keeps its files.
    pub work: Option<PathBuf>,
    /// The code that goes with its job.
    pub code: Option<CodePlan>,
    /// The environment of its job's packages.
    pub python: Option<PythonPlan>,
}

/// Why a container could not start, where the kernel says so of a path of the agent's own, in which
/// no job writes: some of it only this node says.
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

/// The same of a folder that jobs write in. A job may have shut it, or filled its own share of the
/// disk: that is the node's fault only where the agent is shut out of the root of all such folders.
#[must_use]
pub fn of_jobs_folder(what: &str, folder: &Below, error: &std::io::Error) -> NotStarted {
    let not_started = of_disk(what, &folder.path(), error);
    let may_be_the_jobs = match error.kind() {
        ErrorKind::QuotaExceeded => true,
        ErrorKind::PermissionDenied => folder.may_write_to_root(),
        _ => false,
    };
    match may_be_the_jobs {
        true => not_started.why.into(),
        false => not_started,
    }
}

/// A container that a runtime found at the agent's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The container.
    pub container: ContainerId,
    /// The start request that it was started for.
    pub request: Sequence,
    /// Its first process, or how it ended.
    pub status: Result<u32, Exit>,
}

/// What a runtime could not do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuntimeError {
    /// Start a container; the text says what to do.
    #[error(transparent)]
    Start(#[from] NotStarted),
    /// Signal a container.
    #[error("signalling {container}: {why}")]
    Signal {
        /// The container.
        container: ContainerId,
        /// Why.
        why: String,
    },
    /// List what there is.
    #[error("listing the containers of this node: {0}")]
    List(String),
    /// Reach the node's keeper.
    #[error("the node's keeper cannot be reached: {0}")]
    Keeper(String),
    /// Reach the container engine.
    #[error("the container engine cannot be reached: {0}; is dockerd running?")]
    Engine(String),
}

/// A program that is run in a container for somebody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// No other program on the node has had it.
    pub number: u64,
    /// Its terminal; absent: pipes.
    pub terminal: Option<Terminal>,
}

/// Ends of containers, from a runtime to the agent.
pub type Exits = mpsc::UnboundedSender<(ContainerId, Exit)>;

/// Runs containers. Every container that was started or found running is reported once, when it
/// ends, on the channel that the runtime was made with.
pub trait ContainerRuntime: Send + Sync + 'static {
    /// `process` or `docker`.
    fn name(&self) -> &'static str;

    /// Has what goes with a container's job on this node, before it starts. It may take minutes, and
    /// is given up where the container is to end.
    fn provide<'a>(&'a self, plan: &'a ContainerPlan) -> BoxFuture<'a, Result<(), RuntimeError>> {
        let _ = plan;
        async { Ok(()) }.boxed()
    }

    /// Creates and starts a container; its first process. Never twice: where it already exists
    /// for this request, that one is adopted.
    fn start(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<u32, RuntimeError>>;

    /// The number of a container's first process, as the agent sees it, while it runs.
    fn first_process<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Option<u32>>;

    /// Signals its processes.
    fn signal<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Signals those of its processes that handle the signal: the others it would end.
    fn notify<'a>(
        &'a self,
        container: &'a ContainerId,
        signal: Signal,
    ) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Kills all its processes.
    fn kill<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Result<(), RuntimeError>>;

    /// Runs a command beside a container, with its environment; `Err` says why it failed.
    fn beside(&self, plan: ContainerPlan) -> BoxFuture<'_, Result<(), String>>;

    /// Runs a program in a container that runs, for somebody who is attached to it: as the
    /// container's user, inside its sandbox and limits, with the plan's environment.
    fn exec(&self, plan: ContainerPlan, exec: Exec) -> BoxFuture<'_, Result<Attached, String>>;

    /// Everything that runs, or has ended and was not forgotten; begins to watch what runs.
    fn list(&self) -> BoxFuture<'_, Result<Vec<Found>, RuntimeError>>;

    /// The exit is on the log: frees what is held of the container that was started for
    /// `request`, except its logs. The name is free at once; the future does the rest.
    fn forget(&self, container: &ContainerId, request: Sequence) -> BoxFuture<'static, ()>;

    /// Where a container that runs may write on the node's disk, but for the folders of its plan.
    fn writes_elsewhere<'a>(&'a self, container: &'a ContainerId) -> BoxFuture<'a, Vec<PathBuf>>;

    /// The agent leaves, and the containers run on: what was put off is done now.
    fn leave(&self) -> BoxFuture<'_, ()> {
        futures::future::ready(()).boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// What the kernel says of a path, and what of the node it blames: in a folder of the agent's own,
    /// and in one that jobs write in.
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
        // What no kernel says: a link, a pipe in the place of a file.
        let refused = std::io::Error::new(ErrorKind::InvalidData, "it is a link");
        assert_eq!(of_jobs_folder("cannot", &folder, &refused).fault, None);
        // The agent is shut out of all folders: no job did that.
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
