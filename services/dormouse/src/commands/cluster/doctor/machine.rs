//! Checks this machine for the needs of `up` and agents.

use std::path::{Path, PathBuf};

use dormouse_node_agent::able;
use dormouse_node_agent::config::Contain;
use dormouse_runtime::BrokerConfig;

use super::report::Looks;
use crate::commands::version::version_of;
use crate::context::Context;
use crate::render::bytes;

/// Older brokers lack consumer resets and batches of one decision.
pub const LEAST_BROKER: (u32, u32) = (2, 14);

/// A broker opens a file per block of a stream, an agent several per container.
const FEW_FILES: u64 = 4_096;

/// Less space soon fills with checkpoints.
const LITTLE_ROOM_BYTES: u64 = 5 << 30;

/// With less space a broker soon stores nothing.
const NO_ROOM_BYTES: u64 = 8 << 20;

pub async fn look(context: &Context, looks: &mut Looks<'_>) {
    broker(looks);
    engine(looks).await;
    sandbox(looks);
    match able::control_groups() {
        Ok(version) => looks.ok("control groups", format!("{version}: processes are held to what they demand")),
        Err(why) => looks.warn(
            "control groups",
            why,
            "plain processes may use more than they demand; run the agent as root, with /sys/fs/cgroup mounted writable, or use --runtime docker",
        ),
    }
    programs(looks);
    files(looks);
    data(&context.data, looks);
}

fn broker(looks: &mut Looks) {
    let name = "nats-server";
    let advice = "`up` and `demo` run it: scripts/install.sh nats installs it, DORMOUSE_NATS_SERVER=FILE names one";
    let Some(path) = BrokerConfig::find_binary() else {
        return looks.warn(name, "none found", advice);
    };
    let at = path.display();
    match version_of(&path) {
        None => looks.fail(name, format!("{at} does not start"), advice),
        Some(version) if is_older(&version, LEAST_BROKER) => {
            let (major, minor) = LEAST_BROKER;
            looks.fail(
                name,
                format!("{version} ({at})"),
                format!("{major}.{minor} is the oldest that will do; {advice}"),
            );
        }
        Some(version) => looks.ok(name, format!("{version} ({at})")),
    }
}

/// True if `version` is older than `least`; false for text that is no version.
pub fn is_older(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version.trim_start_matches('v').split('.');
    let mut next = || parts.next()?.parse::<u32>().ok();
    match (next(), next()) {
        (Some(major), Some(minor)) => (major, minor) < least,
        _ => false,
    }
}

async fn engine(looks: &mut Looks<'_>) {
    match able::engine().await {
        Ok(()) => looks.ok("docker", "an engine answers"),
        Err(why) => looks.warn(
            "docker",
            why,
            "only `--runtime docker` needs it: start dockerd, or name an engine with DOCKER_HOST",
        ),
    }
}

fn sandbox(looks: &mut Looks) {
    if Contain::is_possible() {
        looks.ok(
            "sandbox",
            "this is root: `serve agent` runs jobs in a sandbox",
        )
    } else {
        looks.warn(
        "sandbox",
        "this is not root: jobs run as this user, without a sandbox around them",
        "for `up` by one person that is as it should be; run `serve agent` of a shared cluster as root",
    )
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path).map(|folder| folder.join(program));
    let mut there = all.filter(|it| it.is_file());
    there.next()
}

fn programs(looks: &mut Looks) {
    match on_path("uv") {
        Some(path) => looks.ok("uv", path.display().to_string()),
        None => looks.warn(
            "uv",
            "not on the PATH",
            "jobs with `python: {requirements: …}` need it on each node: scripts/install.sh trainers, or `pip install uv`",
        ),
    }
    match dormouse_node_agent::config::gpu_library() {
        Some(path) => looks.ok("gpu library", path.display().to_string()),
        None => looks.warn(
            "gpu library",
            "none beside this program",
            "parts of GPUs are told to programs, and nobody is held to them: build it with `cargo build -p dormouse-gpu-preload`",
        ),
    }
}

fn files(looks: &mut Looks) {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let line = limits.lines().find(|it| it.starts_with("Max open files"));
    let soft = line.and_then(|it| it.split_whitespace().nth(3));
    match soft.map(|it| (it, it.parse::<u64>())) {
        Some((_, Ok(files))) if files < FEW_FILES => looks.warn(
            "open files",
            format!("at most {files}"),
            format!(
                "a broker and many containers need more: ulimit -n {}",
                16 * FEW_FILES
            ),
        ),
        Some((files, _)) => looks.ok("open files", format!("at most {files}")),
        None => {}
    }
}

fn nearest(path: &Path) -> &Path {
    let mut above = path.ancestors();
    above.find(|it| it.is_dir()).unwrap_or(Path::new("."))
}

fn data(data: &Path, looks: &mut Looks) {
    let shown = data.display();
    let folder = nearest(data);
    if let Err(error) = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK) {
        return looks.fail(
            "data",
            format!("{shown} cannot be written: {error}"),
            "name another folder with --data",
        );
    }
    let Ok(room) = rustix::fs::statvfs(folder) else {
        return looks.ok("data", shown.to_string());
    };
    let (free, all) = (room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
    let found = format!("{shown}: {} of {} are free", bytes(free), bytes(all));
    let advice = "log and checkpoints go there: free some (`dormouse cluster prune`), or name another folder with --data";
    match free {
        ..NO_ROOM_BYTES => looks.fail("data", format!("the disk is full; {found}"), advice),
        NO_ROOM_BYTES..LITTLE_ROOM_BYTES => looks.warn("data", found, advice),
        LITTLE_ROOM_BYTES.. => looks.ok("data", found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_their_numbers() {
        assert!(is_older("2.9.20", (2, 14)));
        assert!(is_older("v2.10.4", (2, 14)));
        assert!(!is_older("2.14.0", (2, 14)));
        assert!(!is_older("3.0.0", (2, 14)));
        assert!(!is_older("dev", (2, 14)));
    }

    #[test]
    fn of_a_folder_that_is_not_there_yet_the_one_above_counts() {
        let above = tempfile::tempdir().expect("a folder");
        assert_eq!(nearest(&above.path().join("a/b")), above.path());
    }
}
