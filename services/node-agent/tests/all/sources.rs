//! Checks that paths writable by jobs are opened through the sandbox's `folder.rs` only.

use std::fs;
use std::path::Path;

/// Calls that follow links and block on pipes.
const BY_NAME: [&str; 10] = [
    "fs::read(",
    "fs::read_to_string(",
    "fs::write(",
    "fs::metadata(",
    "fs::create_dir_all(",
    "File::open(",
    "File::create(",
    "File::options(",
    "OpenOptions::",
    ".exists()",
];

/// Allowed paths, none writable by jobs.
const MAY: [(&str, &str); 21] = [
    (
        "../sandbox/src/folder.rs",
        "the way itself: roots that the operator named",
    ),
    ("src/container_record.rs", "/dev/urandom"),
    ("src/lib.rs", "the agent's lock"),
    ("src/connect.rs", "the agent's home"),
    ("../sandbox/src/procfs.rs", "/proc"),
    ("../sandbox/src/supervisor.rs", "the supervisor's folder"),
    ("src/supervisor.rs", "the supervisor's log"),
    ("../sandbox/src/cgroups.rs", "/sys/fs/cgroup"),
    ("../sandbox/src/init/launch.rs", "/proc"),
    (
        "../sandbox/src/supervisor/serve.rs",
        "/proc, and whether its folder is there",
    ),
    (
        "../sandbox/src/isolation/root.rs",
        "folders of the node and of the operator, and a root that no job has seen yet",
    ),
    (
        "src/agent/gpus.rs",
        "the agent's own folder of a container's part of a GPU, which no job may write to",
    ),
    (
        "src/cache/mod.rs",
        "the kernel's name of this boot, and the agent's own folders, which no job may write to",
    ),
    (
        "src/cache/prune.rs",
        "the agent's own folders of unpacked code and packages, which no job may write to",
    ),
    (
        "src/code/mod.rs",
        "the agent's own folders of unpacked code, which no job may write to",
    ),
    (
        "src/python.rs",
        "whether the Python of an environment is there: no content",
    ),
    ("src/listening.rs", "/proc"),
    ("src/docker/body.rs", "which system folders there are"),
    (
        "../sandbox/src/isolation/devices.rs",
        "/proc, where the driver tells of its GPUs",
    ),
    (
        "src/process/start.rs",
        "whether programs and mounts are there: no content",
    ),
    (
        "src/usage/unlinked.rs",
        "/proc, and which disks the tenants' folders lie on: no content",
    ),
];

/// Returns the offending lines outside tests.
fn looks(source: &str) -> Vec<&str> {
    let tested = source.split("#[cfg(test)]").next().unwrap_or(source);
    let by_name = |line: &&str| BY_NAME.iter().any(|it| line.contains(it));
    tested.lines().filter(by_name).collect()
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("read").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            found.push(path.display().to_string());
        }
    }
}

#[test]
fn job_files_are_looked_at_in_one_way_only() {
    let mut files = Vec::new();
    for folder in ["src", "../sandbox/src", "../dormouse/src/commands/job"] {
        sources(Path::new(folder), &mut files);
    }
    assert!(files.len() > 20);
    for file in files {
        let source = fs::read_to_string(&file).expect("read");
        let may = MAY.iter().any(|(may, _)| *may == file);
        let looks = looks(&source);
        assert!(
            may || looks.is_empty(),
            "{file} looks at a path by its name; use folder.rs: {looks:#?}"
        );
        assert!(!may || !looks.is_empty(), "{file} needs no exception");
    }
}

#[test]
fn a_look_by_name_is_found() {
    let source = "let text = std::fs::read_to_string(path);\n#[cfg(test)]\nfs::write(a, b);";
    assert_eq!(looks(source).len(), 1);
}
