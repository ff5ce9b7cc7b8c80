//! Where everything lies on disk.
//!
//! ```text
//! <data>/nodes/<node>/lock
//! <data>/nodes/<node>/home        tells this folder from every other
//! <data>/nodes/<node>/snapshots/  what the agent has folded
//! <data>/nodes/<node>/secret, marks/   what it notes of its containers, unreadable to jobs
//! <data>/nodes/<node>/keeper/     the keeper's socket, lock and log
//! <data>/nodes/<node>/members/<tenant>/<name>/<incarnation>/
//!     members.json            who takes part, where containers come and go (DORMOUSE_MEMBERS)
//!     jupyter_server_config.json   of a notebook (JUPYTER_CONFIG_PATH)
//! <data>/nodes/<node>/gpu/<tenant>/<name>/<incarnation>/<rank>/
//!     libdormouse_gpu.so tokens    of a container with a part of a GPU: what holds it, and whom that asks
//! <data>/nodes/<node>/code/<tenant>/<digest>/    the folders that go with jobs, unpacked
//! <data>/nodes/<node>/python/<tenant>/<digest>/  environments of the packages that do
//! <data>/nodes/<node>/containers/<tenant>/<name>/<incarnation>/<rank>/
//!     code/                   its copy of the folder that goes with the job (DORMOUSE_WORKDIR)
//!     stdout.log stderr.log   what it printed
//!     progress.jsonl          what it reports (DORMOUSE_PROGRESS)
//!     ack.json                what it says of who takes part (DORMOUSE_ACK)
//!     orders results drain    a task set's: what to run, what has ended, leave
//!     tasks/<task>            what a task printed
//! <checkpoints>/<tenant>/<name>/<incarnation>/
//!     checkpoint.json         written last, and atomically, by the job
//! <checkpoints>/<tenant>/<name>/<incarnation>.<number>/   each complete one, sealed
//! <checkpoints>/<tenant>/<name>/<incarnation>-<digest>/   one of a store's, kept on this node
//! <checkpoints>/<tenant>/<name>/work/    what a notebook's users have saved
//! ```

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use dormouse_messages::{ContainerId, Incarnation, JobId, NodeId, Python, Rank};

use crate::folder::Below;
use crate::python;
use crate::rotate;
use crate::store;
use crate::tasks::TASKS;

/// `<tenant>/<name>/<incarnation>/<rank>`.
const CONTAINER_DEPTH: u32 = 4;

/// The directories of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    node: PathBuf,
    checkpoints: PathBuf,
}

/// What a notebook's users have saved, among its checkpoints.
const WORK: &str = "work";

/// The members' file, in a folder of its own.
pub const MEMBERS: &str = "members.json";

/// The socket of a container's part of a GPU, in a folder of its own.
pub const TOKENS: &str = "tokens";

/// The progress file, in a container's directory.
pub const PROGRESS: &str = "progress.jsonl";

/// What a container prints, in its directory.
pub const STDOUT: &str = "stdout.log";
/// What it prints as errors.
pub const STDERR: &str = "stderr.log";

/// What a container printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    /// Standard output.
    pub stdout: PathBuf,
    /// Standard error.
    pub stderr: PathBuf,
}

impl Layout {
    /// The layout of `node` under `data`, checkpoints under `checkpoints`.
    #[must_use]
    pub fn new(data: &Path, checkpoints: &Path, node: &NodeId) -> Self {
        Self {
            node: data.join("nodes").join(node.as_str()),
            checkpoints: checkpoints.to_owned(),
        }
    }

    /// The node's own directory.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// What was unpacked of the code of jobs.
    #[must_use]
    pub fn code(&self) -> PathBuf {
        self.node.join("code")
    }

    /// One packed folder of it, unpacked.
    #[must_use]
    pub fn unpacked(&self, tenant: &str, sha256: &str) -> PathBuf {
        self.code().join(tenant).join(sha256)
    }

    /// The environments of jobs' Python packages.
    #[must_use]
    pub fn environments(&self) -> PathBuf {
        self.node.join("python")
    }

    /// One of them.
    #[must_use]
    pub fn environment(&self, tenant: &str, python: &Python) -> PathBuf {
        self.environments().join(tenant).join(python::key(python))
    }

    /// The parent of all container directories.
    #[must_use]
    pub fn containers(&self) -> PathBuf {
        self.node.join("containers")
    }

    /// A container's directory.
    #[must_use]
    pub fn container(&self, container: &ContainerId) -> PathBuf {
        self.containers().join(container.to_string())
    }

    /// The folder of the members' file of one life.
    #[must_use]
    pub fn members(&self, job: &JobId, incarnation: Incarnation) -> Below {
        Below::new(self.node.join("members"), format!("{job}/{incarnation}"))
    }

    /// Every life that has a members' file. Blocking.
    #[must_use]
    pub fn existing_members(&self) -> Vec<(JobId, Incarnation)> {
        let ways = folders_at(&self.node.join("members"), CONTAINER_DEPTH - 1);
        let ways = ways.unwrap_or_default().into_iter();
        let life = |way: String| {
            let (job, incarnation) = way.rsplit_once('/')?;
            Some((job.parse().ok()?, Incarnation(incarnation.parse().ok()?)))
        };
        ways.filter_map(life).collect()
    }

    /// Every container that has a directory. Blocking.
    ///
    /// # Errors
    /// The disk's.
    pub fn existing_containers(&self) -> io::Result<Vec<ContainerId>> {
        let ways = folders_at(&self.containers(), CONTAINER_DEPTH)?;
        Ok(ways.iter().filter_map(|way| way.parse().ok()).collect())
    }

    /// The ranks of one life that have a directory, in order. Blocking.
    #[must_use]
    pub fn ranks(&self, job: &JobId, incarnation: Incarnation) -> Vec<Rank> {
        let life = self.containers().join(job.as_str());
        let ways = folders_at(&life.join(incarnation.to_string()), 1).unwrap_or_default();
        let ranks = ways.iter().filter_map(|way| way.parse().ok().map(Rank));
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable();
        ranks
    }

    /// The folder of a container's part of a GPU.
    #[must_use]
    pub fn gpu(&self, container: &ContainerId) -> PathBuf {
        self.node.join("gpu").join(container.to_string())
    }

    /// The same, to look into.
    #[must_use]
    pub fn container_below(&self, container: &ContainerId) -> Below {
        Below::new(self.containers(), container.to_string())
    }

    /// The checkpoint directory of one incarnation.
    #[must_use]
    pub fn checkpoint(&self, job: &JobId, incarnation: Incarnation) -> PathBuf {
        self.checkpoint_below(job, incarnation).path()
    }

    /// All checkpoints of a job, to look into.
    #[must_use]
    pub fn checkpoints_below(&self, job: &JobId) -> Below {
        Below::new(self.checkpoints.clone(), job.as_str())
    }

    /// Everything of a tenant: its containers' directories and environments here, and its
    /// checkpoints.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> [Below; 3] {
        let roots = [
            self.containers(),
            self.environments(),
            self.checkpoints.clone(),
        ];
        roots.map(|root| Below::new(root, tenant))
    }

    /// The folder of a checkpoint that the log names: what a job is given to resume from. Of one in
    /// a store, where this node keeps it.
    #[must_use]
    pub fn resumed(&self, job: &JobId, uri: &str) -> PathBuf {
        if !store::is_stored(uri) {
            return PathBuf::from(path_of(uri));
        }
        let name = uri.rsplit('/').next().unwrap_or_default();
        let path = self.checkpoints_below(job).join(name).path();
        std::path::absolute(&path).unwrap_or(path)
    }

    /// A checkpoint that the log names; `None` where that lies elsewhere.
    #[must_use]
    pub fn named_checkpoint(&self, path: &Path) -> Option<Below> {
        let root = std::path::absolute(&self.checkpoints).ok()?;
        let way = path.strip_prefix(&root).ok()?;
        Some(Below::new(root.clone(), way))
    }

    /// Removes the checkpoints here of jobs that are not `live` and were last saved at least `keep`
    /// ago, but not what notebooks' users have saved; of how many. Blocking.
    #[must_use]
    pub fn remove_checkpoints(&self, live: &BTreeSet<JobId>, keep: Duration) -> usize {
        let jobs = folders_at(&self.checkpoints, 2).unwrap_or_default();
        let jobs = jobs.iter().filter_map(|way| way.parse::<JobId>().ok());
        let mut removed = 0;
        for job in jobs.filter(|job| !live.contains(job)) {
            let below = self.checkpoints_below(&job);
            let Ok(entries) = below.open().and_then(|folder| folder.entries()) else {
                continue;
            };
            let is_old = |modified_ns: i64| {
                let since = u64::try_from(modified_ns).unwrap_or(0);
                let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
                at.elapsed().is_ok_and(|age| age >= keep)
            };
            let has_work = entries.iter().any(|(name, _)| name == WORK);
            if !has_work && entries.iter().all(|(_, entry)| is_old(entry.modified_ns)) {
                // It follows no link.
                removed += usize::from(std::fs::remove_dir_all(below.path()).is_ok());
            }
        }
        removed
    }

    /// Where a notebook keeps its files, whichever life it has and wherever it runs.
    #[must_use]
    pub fn work(&self, job: &JobId) -> Below {
        Below::new(self.checkpoints.clone(), format!("{job}/{WORK}"))
    }

    /// The same, to look into.
    #[must_use]
    pub fn checkpoint_below(&self, job: &JobId, incarnation: Incarnation) -> Below {
        Below::new(self.checkpoints.clone(), format!("{job}/{incarnation}"))
    }
}

/// The folders so far below a root, by their ways. Blocking.
fn folders_at(root: &Path, depth: u32) -> io::Result<Vec<String>> {
    let mut level = vec![String::new()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for way in level {
            let folder = match Below::new(root.to_owned(), &way).open() {
                Ok(folder) => folder,
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let entries = folder.entries()?.into_iter();
            let folders = entries.filter(|(_, entry)| entry.is_folder);
            next.extend(folders.map(|(name, _)| match way.as_str() {
                "" => name,
                way => format!("{way}/{name}"),
            }));
        }
        level = next;
    }
    Ok(level)
}

/// The logs in a container's directory.
#[must_use]
pub fn logs_in(directory: &Path) -> Logs {
    Logs {
        stdout: directory.join(STDOUT),
        stderr: directory.join(STDERR),
    }
}

/// The progress file in a container's directory.
#[must_use]
pub fn progress_in(directory: &Path) -> PathBuf {
    directory.join(PROGRESS)
}

/// Where a container's output lies, on the machine of its node: on any node of `data_dir` that
/// has it. `None` where it never ran here.
#[must_use]
pub fn logs_path(data_dir: &Path, container: &ContainerId) -> Option<Logs> {
    directory_of(data_dir, container).map(|directory| logs_in(&directory))
}

/// Where a task's output lies, if it ran in this container.
#[must_use]
pub fn task_output(data_dir: &Path, container: &ContainerId, task: u32) -> Option<PathBuf> {
    directory_of(data_dir, container).map(|directory| task_output_in(&directory, task))
}

/// Opens a file of those that [`logs_path`] and [`task_output`] name. The job may have put there
/// what it likes: only a regular file is opened.
///
/// # Errors
/// The kernel's, or what is wrong with the file.
pub fn open_log(path: &Path) -> std::io::Result<std::fs::File> {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(name), Some(parent)) = (name, path.parent()) else {
        return Err(ErrorKind::NotFound.into());
    };
    // Below the node's folder, so that no folder on the way is a link either.
    let is_root = |folder: &&Path| folder.ends_with("containers");
    let root = parent.ancestors().find(is_root).unwrap_or(parent);
    let way = parent.strip_prefix(root).unwrap_or(Path::new(""));
    Below::new(root.to_owned(), way).open()?.file(name)
}

/// The files in which a stream that [`logs_path`] names lies, the oldest first: what has grown too
/// long is cut.
#[must_use]
pub fn log_parts(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Vec::new();
    };
    let parts = Below::new(parent.to_owned(), "").open();
    let parts = parts.map(|folder| rotate::parts(&folder, &name.to_string_lossy()));
    let parts = parts.unwrap_or_default().into_iter();
    parts.map(|part| parent.join(part)).collect()
}

/// Where a task prints to, in its container's directory.
#[must_use]
pub fn task_output_in(directory: &Path, task: u32) -> PathBuf {
    directory.join(TASKS).join(task.to_string())
}

fn directory_of(data_dir: &Path, container: &ContainerId) -> Option<PathBuf> {
    let nodes = std::fs::read_dir(data_dir.join("nodes")).ok()?;
    nodes
        .flatten()
        .map(|node| node.path().join("containers").join(container.to_string()))
        .find(|directory| directory.is_dir())
}

/// The URI of a directory.
#[must_use]
pub fn uri(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

/// The directory of a URI: what a job is given to resume from.
#[must_use]
pub fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

/// Whether an error is of this node's disk, and another node's may be well.
#[must_use]
pub fn is_of_the_disk(error: &io::Error) -> bool {
    use ErrorKind::{PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
    let full_or_closed = matches!(
        error.kind(),
        StorageFull | QuotaExceeded | PermissionDenied | ReadOnlyFilesystem
    );
    full_or_closed || error.raw_os_error() == Some(nix::libc::EIO)
}

/// What went wrong with a file, and what to do about it.
#[must_use]
pub fn disk(what: &str, path: &Path, error: &std::io::Error) -> String {
    let advice = match error.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "; free space on this node's disk",
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            "; let the node's agent write there"
        }
        _ => "",
    };
    format!("{what} {}: {error}{advice}", path.display())
}
