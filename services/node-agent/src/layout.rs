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
//! <checkpoints>/<tenant>/<name>/work/    files of a notebook's users, also of later notebooks of the name
//! <checkpoints>/<tenant>/<name>/<admitted>/    one job's, by the sequence of its `job.admitted`
//!     <incarnation>/
//!         checkpoint.json     written last, and atomically, by the job
//!     <incarnation>.<number>/     sealed checkpoints
//!     <incarnation>-<digest>/     local copies from a store
//! ```
//!
//! The name of an ended job becomes free again. Checkpoints of the jobs of one name lie apart; the folders of
//! containers are the newest job's, and those of the one before go aside ([`Layout::claim`]).

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

use dormouse_messages::{ContainerId, Incarnation, JobId, NodeId, Python, Rank, Sequence};
use dormouse_sandbox::folder::{Below, Entry};

const INCARNATION_DEPTH: u32 = 3;

/// The directories of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    node: PathBuf,
    checkpoints: PathBuf,
}

const WORK: &str = "work";

/// File that says whose containers a job's folder holds, by the job's admission.
pub const OWNER: &str = ".admitted";

const OWNER_BYTES: u64 = 32;

/// Claims under way.
static CLAIMS: Mutex<()> = Mutex::new(());

/// The folder of one job's checkpoints. A later job of the same name has another.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobFolder {
    pub job: JobId,
    /// The sequence of `job.admitted`.
    pub admitted: Sequence,
}

impl JobFolder {
    /// Returns the folder of the job that was admitted at `admitted`.
    #[must_use]
    pub const fn new(job: JobId, admitted: Sequence) -> Self {
        Self { job, admitted }
    }
}

impl fmt::Display for JobFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.job, self.admitted)
    }
}

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

    /// Makes the folder of a job's containers. The folder of an earlier job of the name goes aside, so that
    /// nobody takes its output and results for the new job's; pruning removes it. Blocking.
    ///
    /// # Errors
    /// Disk errors.
    pub fn claim(&self, folder: &JobFolder) -> io::Result<()> {
        let _alone = CLAIMS.lock().unwrap_or_else(PoisonError::into_inner);
        let below = Below::new(self.containers(), folder.job.as_str());
        let made = below.make()?;
        let own = folder.admitted.to_string();
        match made.read_text(OWNER, OWNER_BYTES) {
            Ok(owner) if owner == own => return Ok(()),
            Ok(owner) => {
                let tenant = Below::new(self.containers(), folder.job.tenant());
                // No job's name has a dot.
                let aside = format!("{}.{}", folder.job.name(), owner.parse().unwrap_or(0_u64));
                let _ = fs::remove_dir_all(tenant.join(&aside).path());
                tenant.open()?.rename(folder.job.name(), &aside)?;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        below.make()?.write(OWNER, own.as_bytes())
    }

    /// Returns an incarnation's checkpoint directory.
    #[must_use]
    pub fn checkpoint(&self, folder: &JobFolder, incarnation: Incarnation) -> PathBuf {
        self.checkpoint_below(folder, incarnation).path()
    }

    /// Returns a job's checkpoint folder for safe access.
    #[must_use]
    pub fn checkpoints_below(&self, folder: &JobFolder) -> Below {
        Below::new(self.checkpoints.clone(), folder.to_string())
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
    pub fn resumed(&self, folder: &JobFolder, uri: &str) -> PathBuf {
        if !is_stored(uri) {
            return PathBuf::from(path_of(uri));
        }
        let name = uri.rsplit('/').next().unwrap_or_default();
        let path = self.checkpoints_below(folder).join(name).path();
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Returns a checkpoint for safe access, or `None` outside of the root.
    #[must_use]
    pub fn named_checkpoint(&self, path: &Path) -> Option<Below> {
        let root = std::path::absolute(&self.checkpoints).ok()?;
        let way = path.strip_prefix(&root).ok()?;
        Some(Below::new(root.clone(), way))
    }

    /// Removes old checkpoints of jobs not `live`, but no notebooks' files. Returns the number of folders.
    /// Blocking.
    #[must_use]
    pub fn remove_checkpoints(&self, live: &BTreeSet<JobFolder>, keep: Duration) -> usize {
        let names = folders_at(&self.checkpoints, 2).unwrap_or_default();
        let names = names.iter().filter_map(|way| way.parse::<JobId>().ok());
        let mut removed = 0;
        for job in names {
            let below = Below::new(self.checkpoints.clone(), job.as_str());
            let Ok(entries) = below.open().and_then(|folder| folder.entries()) else {
                continue;
            };
            let folders = entries.iter().filter(|(_, entry)| entry.is_folder);
            for (name, entry) in folders {
                let Ok(admitted) = name.parse().map(Sequence) else {
                    continue;
                };
                let is_live = live.contains(&JobFolder::new(job.clone(), admitted));
                let own = below.join(name);
                if !is_live && is_old(entry, keep) && is_old_within(&own, keep) {
                    removed += usize::from(fs::remove_dir_all(own.path()).is_ok());
                }
            }
            // A start may be about to make its folder in an empty one.
            let modified = fs::symlink_metadata(below.path()).and_then(|it| it.modified());
            let is_left = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= keep));
            if entries.is_empty() && is_left {
                let _ = fs::remove_dir(below.path());
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
    pub fn checkpoint_below(&self, folder: &JobFolder, incarnation: Incarnation) -> Below {
        self.checkpoints_below(folder).join(incarnation.to_string())
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

fn is_old(entry: &Entry, keep: Duration) -> bool {
    let since = u64::try_from(entry.modified_ns).unwrap_or(0);
    let at = SystemTime::UNIX_EPOCH + Duration::from_nanos(since);
    at.elapsed().is_ok_and(|age| age >= keep)
}

fn is_old_within(folder: &Below, keep: Duration) -> bool {
    let entries = folder.open().and_then(|folder| folder.entries());
    entries.is_ok_and(|entries| entries.iter().all(|(_, entry)| is_old(entry, keep)))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(folder: &Path) -> Layout {
        let node = "n0".parse().expect("valid");
        Layout::new(folder, &folder.join("checkpoints"), &node)
    }

    fn of(admitted: u64) -> JobFolder {
        JobFolder::new("ads/lr".parse().expect("valid"), Sequence(admitted))
    }

    #[test]
    fn a_later_job_of_a_name_finds_no_output_of_the_one_before() {
        let at = tempfile::tempdir().expect("a folder");
        let (layout, job) = (layout(at.path()), of(7).job);
        layout.claim(&of(7)).expect("made");
        for rank in 0..3 {
            let container = format!("ads/lr/1/{rank}").parse().expect("valid");
            let made = layout.container_below(&container).make().expect("made");
            made.write(STDOUT, b"first").expect("written");
        }
        layout.claim(&of(7)).expect("the same again");
        assert_eq!(layout.ranks(&job, Incarnation(1)).len(), 3);
        layout.claim(&of(90)).expect("made");
        assert_eq!(layout.ranks(&job, Incarnation(1)), []);
        let aside = layout.containers().join("ads/lr.7/1/2").join(STDOUT);
        assert_eq!(fs::read_to_string(aside).expect("read"), "first");
    }

    #[test]
    fn checkpoints_of_jobs_of_one_name_lie_apart_and_go_apart() {
        let at = tempfile::tempdir().expect("a folder");
        let layout = layout(at.path());
        let make = |job: &JobFolder| layout.checkpoint_below(job, Incarnation(1)).make();
        for job in [&of(7), &of(90)] {
            make(job).expect("made");
        }
        layout.work(&of(7).job).make().expect("made");
        let root = at.path().join("checkpoints/ads/lr");
        for way in ["7/1", "90/1", "work"] {
            assert!(root.join(way).is_dir(), "{way}");
        }
        let live = BTreeSet::from([of(90)]);
        assert_eq!(layout.remove_checkpoints(&live, Duration::from_secs(60)), 0);
        assert_eq!(layout.remove_checkpoints(&live, Duration::ZERO), 1);
        assert!(root.join("90/1").is_dir() && root.join("work").is_dir());
        assert!(!root.join("7").exists());
        assert_eq!(
            layout.remove_checkpoints(&BTreeSet::new(), Duration::ZERO),
            1
        );
        assert!(root.join("work").is_dir(), "a notebook's files stay");
    }
}
