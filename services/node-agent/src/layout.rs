//! The paths of all files on disk.
//!
//! ```text
//! <data>/nodes/<node>/lock
//! <data>/nodes/<node>/home        unique id of this folder
//! <data>/nodes/<node>/snapshots/  folded state
//! <data>/nodes/<node>/secret, marks/   container records, unreadable to jobs
//! <data>/nodes/<node>/supervisor/     socket, lock and log
//! <data>/nodes/<node>/members/<tenant>/<name>/<incarnation>/
//!     members.json            (DORMOUSE_MEMBERS)
//!     jupyter_server_config.json   (JUPYTER_CONFIG_PATH)
//! <data>/nodes/<node>/gpu/<tenant>/<name>/<incarnation>/<rank>/
//!     libdormouse_gpu.so tokens    library and socket of a GPU share
//! <data>/nodes/<node>/code/<tenant>/<digest>/    unpacked folders of jobs
//! <data>/nodes/<node>/python/<tenant>/<digest>/  environments of packages
//! <data>/nodes/<node>/containers/<tenant>/<name>/<incarnation>/<rank>/
//!     code/                   copy of the job's folder (DORMOUSE_WORKDIR)
//!     stdout.log stderr.log
//!     progress.jsonl          (DORMOUSE_PROGRESS)
//!     ack.json                answers (DORMOUSE_ACK)
//!     orders results drain    of a task set
//!     tasks/<task>            a task's output
//! <checkpoints>/<tenant>/<name>/<incarnation>/
//!     checkpoint.json         written last, and atomically, by the job
//! <checkpoints>/<tenant>/<name>/<incarnation>.<number>/   sealed checkpoints
//! <checkpoints>/<tenant>/<name>/<incarnation>-<digest>/   local copies from a store
//! <checkpoints>/<tenant>/<name>/work/    files of a notebook's users
//! ```

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use dormouse_messages::{ContainerId, Incarnation, JobId, NodeId, Python, Rank};
use dormouse_sandbox::folder::Below;

const INCARNATION_DEPTH: u32 = 3;

/// The directories of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    node: PathBuf,
    checkpoints: PathBuf,
}

const WORK: &str = "work";

/// The members' file, in its own folder.
pub const MEMBERS: &str = "members.json";

/// The socket for a GPU share, in its own folder.
pub const TOKENS: &str = "tokens";

/// The progress file of a container.
pub const PROGRESS: &str = "progress.jsonl";

/// Folder of tasks' output in a container's directory.
pub const TASKS: &str = "tasks";

/// The output file of a container.
pub const STDOUT: &str = "stdout.log";
/// The error file of a container.
pub const STDERR: &str = "stderr.log";

/// The output files of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logs {
    pub stdout: PathBuf,
    pub stderr: PathBuf,
}

impl Layout {
    /// Creates the layout of `node` with data and checkpoint roots.
    #[must_use]
    pub fn new(data: &Path, checkpoints: &Path, node: &NodeId) -> Self {
        Self {
            node: data.join("nodes").join(node.as_str()),
            checkpoints: checkpoints.to_owned(),
        }
    }

    /// Returns the node's own directory.
    #[must_use]
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// Returns the folder of the node's supervisor.
    #[must_use]
    pub fn supervisor(&self) -> PathBuf {
        let folder = self.node.join("supervisor");
        std::path::absolute(&folder).unwrap_or(folder)
    }

    /// Returns the folder of unpacked code.
    #[must_use]
    pub fn code(&self) -> PathBuf {
        self.node.join("code")
    }

    /// Returns the folder of one unpacked archive.
    #[must_use]
    pub fn unpacked(&self, tenant: &str, sha256: &str) -> PathBuf {
        self.code().join(tenant).join(sha256)
    }

    /// Returns the folder of Python environments.
    #[must_use]
    pub fn environments(&self) -> PathBuf {
        self.node.join("python")
    }

    /// Returns the folder of one environment.
    #[must_use]
    pub fn environment(&self, tenant: &str, python: &Python) -> PathBuf {
        self.environments()
            .join(tenant)
            .join(environment_name(python))
    }

    /// Returns the parent of all container directories.
    #[must_use]
    pub fn containers(&self) -> PathBuf {
        self.node.join("containers")
    }

    /// Returns a container's directory.
    #[must_use]
    pub fn container(&self, container: &ContainerId) -> PathBuf {
        self.containers().join(container.to_string())
    }

    /// Returns the folder of an incarnation's members' file.
    #[must_use]
    pub fn members(&self, job: &JobId, incarnation: Incarnation) -> Below {
        Below::new(self.node.join("members"), format!("{job}/{incarnation}"))
    }

    /// Lists the incarnations with a members' file. Blocking.
    #[must_use]
    pub fn existing_members(&self) -> Vec<(JobId, Incarnation)> {
        let ways = folders_at(&self.node.join("members"), INCARNATION_DEPTH);
        let ways = ways.unwrap_or_default().into_iter();
        let parse = |way: String| {
            let (job, incarnation) = way.rsplit_once('/')?;
            Some((job.parse().ok()?, Incarnation(incarnation.parse().ok()?)))
        };
        ways.filter_map(parse).collect()
    }

    /// Lists an incarnation's ranks with a directory, sorted. Blocking.
    #[must_use]
    pub fn ranks(&self, job: &JobId, incarnation: Incarnation) -> Vec<Rank> {
        let folder = self.containers().join(job.as_str());
        let ways = folders_at(&folder.join(incarnation.to_string()), 1).unwrap_or_default();
        let ranks = ways.iter().filter_map(|way| way.parse().ok().map(Rank));
        let mut ranks: Vec<_> = ranks.collect();
        ranks.sort_unstable();
        ranks
    }

    /// Returns the folder of a container's GPU share.
    #[must_use]
    pub fn gpu(&self, container: &ContainerId) -> PathBuf {
        self.node.join("gpu").join(container.to_string())
    }

    /// Returns a container's directory for safe access.
    #[must_use]
    pub fn container_below(&self, container: &ContainerId) -> Below {
        Below::new(self.containers(), container.to_string())
    }

    /// Returns an incarnation's checkpoint directory.
    #[must_use]
    pub fn checkpoint(&self, job: &JobId, incarnation: Incarnation) -> PathBuf {
        self.checkpoint_below(job, incarnation).path()
    }

    /// Returns a job's checkpoint folder for safe access.
    #[must_use]
    pub fn checkpoints_below(&self, job: &JobId) -> Below {
        Below::new(self.checkpoints.clone(), job.as_str())
    }

    /// Returns a tenant's folders: containers, environments and checkpoints.
    #[must_use]
    pub fn of_tenant(&self, tenant: &str) -> [Below; 3] {
        let roots = [
            self.containers(),
            self.environments(),
            self.checkpoints.clone(),
        ];
        roots.map(|root| Below::new(root, tenant))
    }

    /// Returns the path to resume from, local even for a stored checkpoint.
    #[must_use]
    pub fn resumed(&self, job: &JobId, uri: &str) -> PathBuf {
        if !is_stored(uri) {
            return PathBuf::from(path_of(uri));
        }
        let name = uri.rsplit('/').next().unwrap_or_default();
        let path = self.checkpoints_below(job).join(name).path();
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Returns a checkpoint for safe access, or `None` outside of the root.
    #[must_use]
    pub fn named_checkpoint(&self, path: &Path) -> Option<Below> {
        let root = std::path::absolute(&self.checkpoints).ok()?;
        let way = path.strip_prefix(&root).ok()?;
        Some(Below::new(root.clone(), way))
    }

    /// Removes old checkpoints of jobs not `live`, but no notebooks' files. Returns the number of jobs.
    /// Blocking.
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
                removed += usize::from(std::fs::remove_dir_all(below.path()).is_ok());
            }
        }
        removed
    }

    /// Returns the folder of a notebook's files, common to its incarnations.
    #[must_use]
    pub fn work(&self, job: &JobId) -> Below {
        Below::new(self.checkpoints.clone(), format!("{job}/{WORK}"))
    }

    /// Returns an incarnation's checkpoint directory.
    #[must_use]
    pub fn checkpoint_below(&self, job: &JobId, incarnation: Incarnation) -> Below {
        Below::new(self.checkpoints.clone(), format!("{job}/{incarnation}"))
    }
}

/// Returns the name of an environment within its tenant.
#[must_use]
pub fn environment_name(python: &Python) -> String {
    let mut digest = Sha256::new();
    for word in python.version.iter().chain(&python.requirements) {
        digest.update(word);
        digest.update("\n");
    }
    let digest = digest.finalize();
    digest
        .iter()
        .take(16)
        .map(|it| format!("{it:02x}"))
        .collect()
}

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

/// Returns the output files in a container's directory.
#[must_use]
pub fn logs_in(directory: &Path) -> Logs {
    Logs {
        stdout: directory.join(STDOUT),
        stderr: directory.join(STDERR),
    }
}

/// Returns the progress file in a container's directory.
#[must_use]
pub fn progress_in(directory: &Path) -> PathBuf {
    directory.join(PROGRESS)
}

/// Finds a container's output under any node of `data_dir`.
#[must_use]
pub fn logs_path(data_dir: &Path, container: &ContainerId) -> Option<Logs> {
    directory_of(data_dir, container).map(|directory| logs_in(&directory))
}

/// Finds a task's output if the task's container ran here.
#[must_use]
pub fn task_output(data_dir: &Path, container: &ContainerId, task: u32) -> Option<PathBuf> {
    directory_of(data_dir, container).map(|directory| task_output_in(&directory, task))
}

/// Opens a file from [`logs_path`] or [`task_output`]. Accepts only a regular file, because jobs can write
/// there.
///
/// # Errors
/// Kernel errors, or another kind of file.
pub fn open_log(path: &Path) -> std::io::Result<std::fs::File> {
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(name), Some(parent)) = (name, path.parent()) else {
        return Err(ErrorKind::NotFound.into());
    };
    // No parent may be a link either.
    let is_root = |folder: &&Path| folder.ends_with("containers");
    let root = parent.ancestors().find(is_root).unwrap_or(parent);
    let way = parent.strip_prefix(root).unwrap_or(Path::new(""));
    Below::new(root.to_owned(), way).open()?.file(name)
}

/// Returns a task's output file in a container's directory.
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

/// Returns the URI of a directory.
#[must_use]
pub fn uri(directory: &Path) -> String {
    format!("file://{}", directory.display())
}

/// Returns the directory of a URI.
#[must_use]
pub fn path_of(uri: &str) -> &str {
    uri.strip_prefix("file://").unwrap_or(uri)
}

/// Reports whether a URI names a store and not a folder.
#[must_use]
pub fn is_stored(uri: &str) -> bool {
    uri.split_once("://")
        .is_some_and(|(scheme, _)| scheme != "file")
}
