//! Control groups of plain processes, version 1 or 2, one group per container.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread::available_parallelism;

use serde::{Deserialize, Serialize};

use crate::procfs;
use crate::protocol::Demand;

const PERIOD_US: u64 = 100_000;

/// The kernel's smallest quota.
const LEAST_QUOTA_US: u64 = 1_000;

const NESTED_LIMIT: usize = 10_000;

/// Bytes that may stay in a group, above the init's own memory.
const LEFT_BYTES: u64 = 4 << 20;

/// Bytes that the kernel charges in advance per processor.
const IN_ADVANCE_BYTES: u64 = 256 << 10;

static PROCESSORS: LazyLock<u64> =
    LazyLock::new(|| available_parallelism().map_or(1, |it| it.get() as u64));

const NAMED: &str = ".once-";

/// The control group hierarchy of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroups {
    V1 {
        memory: PathBuf,
        cpu: PathBuf,
        processes: Option<PathBuf>,
    },
    V2(PathBuf),
    Absent(String),
}

/// The control groups of one container, one per tree.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// The groups' folders, the memory tree's first.
    pub folders: Vec<PathBuf>,
    set: Limits,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Limits {
    memory_bytes: Option<u64>,
    quota_us: Option<u64>,
    processes: Option<u64>,
}

impl Cgroups {
    /// Detects the machine's support. `owner` separates the groups of two agents.
    #[must_use]
    pub fn detect(owner: &str) -> Self {
        Self::detect_in(Path::new("/sys/fs/cgroup"), owner)
    }

    fn detect_in(root: &Path, owner: &str) -> Self {
        let attempt = if root.join("cgroup.controllers").exists() {
            Self::v2(root, owner)
        } else if root.join("memory").is_dir() {
            Self::v1(root, owner)
        } else {
            return Self::Absent("no cgroup file system is mounted on /sys/fs/cgroup".to_owned());
        };
        attempt.unwrap_or_else(|error| {
            Self::Absent(format!("{} does not take limits ({error})", root.display()))
        })
    }

    fn v1(root: &Path, owner: &str) -> io::Result<Self> {
        let parent = |tree: &str| root.join(tree).join("dormouse").join(owner);
        let (memory, cpu) = (parent("memory"), parent("cpu"));
        for folder in [&memory, &cpu] {
            fs::create_dir_all(folder)?;
        }
        let _ = fs::write(memory.join("memory.use_hierarchy"), "1");
        let processes = parent("pids");
        let processes = fs::create_dir_all(&processes).is_ok().then_some(processes);
        Ok(Self::V1 {
            memory,
            cpu,
            processes,
        })
    }

    fn v2(root: &Path, owner: &str) -> io::Result<Self> {
        let top = root.join("dormouse");
        let parent = top.join(owner);
        fs::create_dir_all(&parent)?;
        for folder in [root, &top, &parent] {
            fs::write(folder.join("cgroup.subtree_control"), "+memory +cpu")?;
            let _ = fs::write(folder.join("cgroup.subtree_control"), "+pids");
        }
        Ok(Self::V2(parent))
    }

    fn parents(&self) -> Vec<&PathBuf> {
        match self {
            Self::V1 {
                memory,
                cpu,
                processes,
            } => [memory, cpu].into_iter().chain(processes).collect(),
            Self::V2(parent) => vec![parent],
            Self::Absent(_) => Vec::new(),
        }
    }

    /// Removes the parent groups unless containers remain.
    pub fn remove_if_empty(&self) {
        for parent in self.parents() {
            let _ = fs::remove_dir(parent);
        }
    }

    fn named(&self, name: &str) -> Group {
        let parents = self.parents().into_iter();
        Group {
            folders: parents.map(|parent| parent.join(name)).collect(),
            ..Group::default()
        }
    }

    /// Makes groups with a likely quota, because a later change may take more than a millisecond.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn create(&self, name: &str, cpu_milli: u64) -> io::Result<Group> {
        let mut group = self.named(&format!("{NAMED}{name}"));
        for folder in &group.folders {
            fs::create_dir_all(folder)?;
        }
        let demand = Demand {
            cpu_milli,
            ..Demand::default()
        };
        self.limit(&mut group, demand)?;
        Ok(group)
    }

    /// Kills and removes groups of an earlier supervisor without a record.
    pub fn remove_unused(&self) {
        let mut unused = Group::default();
        let parents = self.parents().into_iter();
        for entry in parents
            .filter_map(|it| fs::read_dir(it).ok())
            .flatten()
            .flatten()
        {
            if entry.file_name().to_string_lossy().starts_with(NAMED) {
                unused.folders.push(entry.path());
            }
        }
        // The process's job may start elsewhere.
        unused.kill();
        for folder in unused.folders {
            let group = Self::one(folder);
            for pid in group.members().unwrap_or_default() {
                procfs::kill_process(pid);
            }
            group.remove();
        }
    }

    /// Removes empty groups of other owners' dead supervisors, because groups slow down every quota.
    pub fn remove_abandoned(&self, is_supervisor: impl Fn(u32) -> bool) {
        for own in self.parents() {
            let Some(owners) = own.parent().and_then(|it| fs::read_dir(it).ok()) else {
                continue;
            };
            for owner in owners.flatten().map(|it| it.path()) {
                if owner != *own && remove_groups_of_the_gone(&owner, &is_supervisor) {
                    let _ = fs::remove_dir(owner);
                }
            }
        }
    }

    fn one(folder: PathBuf) -> Group {
        Group {
            folders: vec![folder],
            ..Group::default()
        }
    }

    /// Sets the changed limits of a group to a container's demand.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn limit(&self, group: &mut Group, demand: Demand) -> io::Result<()> {
        let some = |amount: u64| (amount > 0).then_some(amount);
        let quota_us = some(demand.cpu_milli * PERIOD_US / 1000);
        let limits = Limits {
            memory_bytes: some(demand.memory_bytes),
            quota_us: quota_us.map(|quota_us| quota_us.max(LEAST_QUOTA_US)),
            processes: demand.processes,
        };
        let before = std::mem::take(&mut group.set);
        match (self, &group.folders[..]) {
            (Self::V1 { .. }, [memory, cpu, ..]) => {
                if limits.memory_bytes != before.memory_bytes {
                    let limit = text(limits.memory_bytes, "-1");
                    let with_swap = memory.join("memory.memsw.limit_in_bytes");
                    // The limit with swap must never be the smaller one. Without swap accounting its file is
                    // absent.
                    let _ = fs::write(&with_swap, &limit);
                    fs::write(memory.join("memory.limit_in_bytes"), &limit)?;
                    let _ = fs::write(&with_swap, &limit);
                }
                if limits.quota_us != before.quota_us {
                    let quota_us = text(limits.quota_us, "-1");
                    fs::write(cpu.join("cpu.cfs_quota_us"), quota_us)?;
                }
            }
            (Self::V2(_), [folder]) => {
                if limits.memory_bytes != before.memory_bytes {
                    let limit = text(limits.memory_bytes, "max");
                    fs::write(folder.join("memory.max"), limit)?;
                    let swap = limits.memory_bytes.map_or("max", |_| "0");
                    let _ = fs::write(folder.join("memory.swap.max"), swap);
                }
                if limits.quota_us != before.quota_us {
                    let quota_us = text(limits.quota_us, "max");
                    fs::write(folder.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
                }
            }
            _ => {}
        }
        if limits.processes != before.processes
            && let Some(folder) = group.folders.last()
        {
            let _ = fs::write(folder.join("pids.max"), text(limits.processes, "max"));
        }
        group.set = limits;
        Ok(())
    }
}

fn text(limit: Option<u64>, none: &str) -> String {
    limit.map_or_else(|| none.to_owned(), |limit| limit.to_string())
}

fn remove_groups_of_the_gone(owner: &Path, is_supervisor: impl Fn(u32) -> bool) -> bool {
    let mut any = false;
    for entry in fs::read_dir(owner).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let supervisor = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAMED)?.split_once('-'))
            .and_then(|(pid, _)| u32::from_str_radix(pid, 16).ok());
        if supervisor.is_some_and(|pid| !is_supervisor(pid)) {
            any = true;
            Cgroups::one(entry.path()).remove();
        }
    }
    any
}

impl Group {
    /// Returns the pids of the first tree, nested groups included, or `None` without groups.
    #[must_use]
    pub fn members(&self) -> Option<Vec<u32>> {
        let first = self.folders.first()?;
        let mut members = Vec::new();
        for folder in nested(first) {
            let text = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
            members.extend(text.lines().filter_map(|pid| pid.parse::<u32>().ok()));
        }
        first.is_dir().then_some(members)
    }

    /// Kills all members atomically, in version 2 since Linux 5.14.
    pub fn kill(&self) {
        for folder in &self.folders {
            let _ = fs::write(folder.join("cgroup.kill"), "1");
        }
    }

    /// Moves this single-threaded process into the group. Version 1 moves only the thread, because moving a
    /// process blocks all forks and exits for milliseconds.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn enter(&self) -> io::Result<()> {
        self.folders.iter().try_for_each(|folder| {
            let alone = OpenOptions::new().write(true).open(folder.join("tasks"));
            match alone {
                Ok(mut thread) => thread.write_all(b"0"),
                Err(_) => fs::write(folder.join("cgroup.procs"), "0"),
            }
        })
    }

    /// Kills members in at most a hundred rounds.
    pub fn kill_members(&self) {
        self.kill();
        for _ in 0..100 {
            match self.members() {
                Some(members) if !members.is_empty() => {
                    members.into_iter().for_each(procfs::kill_process);
                }
                _ => return,
            }
        }
    }

    /// Reports an out-of-memory kill of a member.
    #[must_use]
    pub fn ran_out_of_memory(&self) -> bool {
        let Some(folder) = self.folders.first() else {
            return false;
        };
        ["memory.oom_control", "memory.events"]
            .iter()
            .filter_map(|file| fs::read_to_string(folder.join(file)).ok())
            .any(|text| oom_kills(&text) > 0)
    }

    /// Reports whether the group is reusable: no out-of-memory kill, nested groups, or much memory.
    #[must_use]
    pub fn is_like_new(&self) -> bool {
        let Some(first) = self.folders.first() else {
            return true;
        };
        let held = ["memory.usage_in_bytes", "memory.current"]
            .iter()
            .find_map(|file| fs::read_to_string(first.join(file)).ok())
            .and_then(|text| text.trim_end().parse::<u64>().ok());
        let most = LEFT_BYTES + *PROCESSORS * IN_ADVANCE_BYTES;
        held.is_some_and(|bytes| bytes <= most)
            && !self.ran_out_of_memory()
            && self.folders.iter().all(|folder| has_no_group_below(folder))
    }

    /// Removes the groups without members.
    pub fn remove(&self) {
        for folder in self.folders.iter().rev() {
            if fs::remove_dir(folder).is_ok() {
                continue;
            }
            for folder in nested(folder).into_iter().rev() {
                let _ = fs::remove_dir(folder);
            }
        }
    }
}

/// Without nested groups the link count is 2.
fn has_no_group_below(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|it| it.nlink() == 2)
}

fn nested(folder: &Path) -> Vec<PathBuf> {
    let mut found = vec![folder.to_owned()];
    let mut next = 0;
    while next < found.len() && next < NESTED_LIMIT {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.file_type().is_ok_and(|it| it.is_dir()));
        found.extend(folders.map(|entry| entry.path()));
        next += 1;
    }
    found
}

fn oom_kills(text: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.strip_prefix("oom_kill "))
        .filter_map(|count| count.trim().parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_count_kills() {
        assert_eq!(
            oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
            2
        );
        assert_eq!(
            oom_kills("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 0\n"),
            1
        );
        assert_eq!(oom_kills(""), 0);
    }

    #[test]
    fn version_2_writes_its_own_files() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").expect("written");
        let cgroups = Cgroups::detect_in(root.path(), "me");
        let mut group = cgroups.create("1", 1000).expect("made");
        let folder = group.folders[0].clone();
        let read = |file: &str| fs::read_to_string(folder.join(file)).expect("written");
        assert_eq!(read("cpu.max"), "100000 100000");
        let set = cgroups.limit(&mut group, Demand::default());
        set.expect("written");
        assert_eq!(read("cpu.max"), "max 100000");
        let demand = Demand {
            cpu_milli: 500,
            memory_bytes: 64 << 20,
            processes: Some(100),
        };
        cgroups.limit(&mut group, demand).expect("written");
        assert_eq!(read("memory.max"), (64 << 20).to_string());
        assert_eq!(read("cpu.max"), "50000 100000");
        assert_eq!(read("pids.max"), "100");
    }

    #[test]
    fn groups_of_supervisors_that_are_gone_are_removed() {
        let root = tempfile::tempdir().expect("a folder");
        fs::write(root.path().join("cgroup.controllers"), "cpu memory").expect("written");
        let cgroups = Cgroups::detect_in(root.path(), "me");
        let others = root.path().join("dormouse");
        for folder in [
            "gone/.once-7-0/made-by-a-job",
            "gone/.once-7-1",
            "both/.once-7-2",
            "both/.once-1f-0",
            "me/.once-7-3",
            "no-supervisor/named",
        ] {
            fs::create_dir_all(others.join(folder)).expect("made");
        }
        cgroups.remove_abandoned(|pid| pid == 0x1f);
        let is_there = |folder: &str| others.join(folder).exists();
        assert!(!is_there("gone") && !is_there("both/.once-7-2"));
        for stays in ["both/.once-1f-0", "me/.once-7-3", "no-supervisor/named"] {
            assert!(is_there(stays), "{stays}");
        }
    }

    #[test]
    fn a_machine_without_control_groups_says_so() {
        let root = tempfile::tempdir().expect("a folder");
        assert!(matches!(
            Cgroups::detect_in(root.path(), "me"),
            Cgroups::Absent(_)
        ));
    }
}
