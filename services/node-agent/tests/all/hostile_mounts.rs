//! Tests of mounts that try to lead root out of the sandbox: links, pipes, devices, covering targets,
//! changing folders. A start may fail as the job's failure; the node stays intact.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use dormouse_agent_core::Exit;
use dormouse_messages::grants::{Granted, Grants, GrantsRule, Network};
use dormouse_messages::job::Mount;
use dormouse_messages::{ContainerId, Sequence};
use dormouse_node_agent::AgentConfig;
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::container_plan::ContainerPlan;
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::layout::JobFolder;
use dormouse_node_agent::process::ProcessRuntime;
use dormouse_node_agent::runtime::{ContainerDriver, RuntimeError};
use dormouse_sandbox::folder::User;
use tokio::sync::mpsc;

const MALLORY: User = User {
    uid: 200_021,
    gid: 200_021,
};

/// Longer than any start that does not hang.
const PATIENCE: Duration = Duration::from_secs(20);

const SECRET: &str = "root's own\n";

pub struct Node {
    folder: tempfile::TempDir,
    config: AgentConfig,
    runtime: ProcessRuntime,
    exited: mpsc::UnboundedReceiver<(ContainerId, Exit)>,
    starts: u32,
}

#[derive(Debug)]
pub enum Outcome {
    Printed(String),
    Refused(String),
    OfNode(String),
}

impl Outcome {
    pub fn text(&self) -> &str {
        let (Self::Printed(text) | Self::Refused(text) | Self::OfNode(text)) = self;
        text
    }

    #[track_caller]
    fn is_refused_for(&self, why: &str) {
        assert!(
            matches!(self, Self::Refused(text) if text.contains(why)),
            "{self:?} is no refusal for {why:?}"
        );
    }

    #[track_caller]
    fn tells_no_secret(&self) {
        assert!(!self.text().contains(SECRET.trim()), "{self:?}");
        assert!(!matches!(self, Self::OfNode(_)), "{self:?}");
    }
}

impl Node {
    /// `None` without root.
    async fn new() -> Option<Self> {
        Self::with(|_, _| {}).await
    }

    pub async fn with(set: impl FnOnce(&mut AgentConfig, &Path)) -> Option<Self> {
        if !Contain::is_possible() {
            skipped("only root makes sandboxes");
            return None;
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("granted")).expect("made");
        fs::create_dir(path("secrets")).expect("made");
        fs::create_dir_all(path("data/nodes")).expect("made");
        fs::write(path("secrets/secret"), SECRET).expect("written");
        std::os::unix::fs::chown(path("granted"), Some(MALLORY.uid), Some(MALLORY.gid))
            .expect("given");
        for (name, mode) in [("", 0o755), ("secrets", 0o700), ("secrets/secret", 0o600)] {
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).expect("set");
        }
        let mut config = local(node(), Default::default(), path("data"));
        config.contain = Some(Contain::default());
        set(&mut config, folder.path());
        let (exits, exited) = mpsc::unbounded_channel();
        let marks = ContainerRecords::open(&config.layout()).expect("opened");
        let runtime = ProcessRuntime::connect(&config, marks, exits, true).await;
        Some(Self {
            folder,
            config,
            runtime: runtime.expect("a supervisor"),
            exited,
            starts: 0,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn granted(&self) -> Granted {
        Granted {
            tenant: "mal".to_owned(),
            rule: GrantsRule::Required,
            grants: Grants {
                mounts: vec![
                    self.path("granted")
                        .display()
                        .to_string()
                        .parse()
                        .expect("a folder"),
                ],
                ..Grants::default()
            },
        }
    }

    pub fn plan(&mut self, mounts: &[(&str, &str)], script: &str) -> ContainerPlan {
        self.starts += 1;
        let container: ContainerId = format!("mal/job/{}/0", self.starts).parse().expect("valid");
        let layout = self.config.layout();
        let absolute = |path: PathBuf| std::path::absolute(path).expect("a path");
        let folder = JobFolder::new(container.job.clone(), Sequence(1));
        let mounts = mounts.iter().map(|(source, target)| Mount {
            source: self.path(source).display().to_string(),
            target: (*target).to_owned(),
            read_only: false,
        });
        ContainerPlan {
            request: Sequence(1),
            admitted: Sequence(1),
            argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            env: Default::default(),
            image: None,
            mounts: mounts.collect(),
            user: Some(MALLORY),
            port: 21_000,
            network: Network::Published,
            node_address: None,
            granted: self.granted(),
            work: None,
            code: None,
            python: None,
            demand: "cpu=1,memory=256Mi".parse().expect("valid"),
            gpu_part: None,
            gpus: vec![],
            directory: absolute(layout.container(&container)),
            checkpoint: absolute(layout.checkpoint(&folder, container.incarnation)),
            resume: None,
            stored: None,
            members: None,
            container,
        }
    }

    /// Mounts: a name in the node's folder, and a target.
    async fn start(&mut self, mounts: &[(&str, &str)], script: &str) -> Outcome {
        let plan = self.plan(mounts, script);
        self.run(plan).await
    }

    pub async fn run(&mut self, plan: ContainerPlan) -> Outcome {
        let (id, directory) = (plan.container.clone(), plan.directory.clone());
        let started = tokio::time::timeout(PATIENCE, self.runtime.start(plan)).await;
        match started.expect("a start does not hang") {
            Ok(_) => {}
            Err(RuntimeError::Start(why)) if why.fault.is_some() => {
                return Outcome::OfNode(why.why);
            }
            Err(RuntimeError::Start(why)) => return Outcome::Refused(why.why),
            Err(error) => panic!("{error}"),
        }
        let exit = tokio::time::timeout(PATIENCE, self.exited.recv()).await;
        assert_eq!(exit.expect("it ends").expect("open").0, id);
        let said = ["stdout.log", "stderr.log"].map(|name| fs::read(directory.join(name)));
        self.runtime.remove(&id, Sequence(1)).await;
        let said = said.map(|it| String::from_utf8_lossy(&it.unwrap_or_default()).into_owned());
        Outcome::Printed(said.concat())
    }

    fn link(&self, name: &str, to: impl AsRef<Path>) {
        let at = self.path("granted").join(name);
        fs::create_dir_all(at.parent().expect("a folder")).expect("made");
        let _ = fs::remove_file(&at);
        symlink(to, at).expect("linked");
    }
}

const READ_ALL: &str = "cat; echo; for fd in 3 4 5 6 7 8 9; do cat <&$fd; done 2>/dev/null; true";

#[tokio::test]
async fn standard_input_is_no_file_that_a_mount_at_dev_names() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let host = "../".repeat(12) + &node.path("secrets/secret").display().to_string()[1..];
    let targets = [
        "/etc/shadow".to_owned(),
        "/proc/1/environ".to_owned(),
        "/proc/self/environ".to_owned(),
        format!("/proc/1/fd/3/{host}"),
        format!("/proc/1/fd/4/{host}"),
        format!("/proc/1/fd/5/{host}"),
        format!("/proc/1/root/{host}"),
        format!("/proc/1/cwd/{host}"),
    ];
    for target in &targets {
        node.link("null", target);
        let outcome = node.start(&[("granted", "/dev")], READ_ALL).await;
        outcome.tells_no_secret();
        let shadow = outcome.text().contains("root:") || outcome.text().contains("PATH=");
        assert!(!shadow, "{target}: {outcome:?}");
        outcome.is_refused_for("/dev");
    }
}

#[tokio::test]
async fn the_memory_of_the_first_process_is_not_read_through_dev() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    node.link("null", "/proc/1/mem");
    // A fixed-address program's first page, and usual mappings.
    let script = "python3 -c 'import os\nfor at in range(0, 1 << 47, 1 << 40):\n try:\n  if os.pread(0, 1, at): print(\"HARM\")\n except OSError: pass'";
    let outcome = node.start(&[("granted", "/dev")], script).await;
    assert!(!outcome.text().contains("HARM"), "{outcome:?}");
    outcome.is_refused_for("/dev");
}

#[tokio::test]
async fn a_pipe_in_the_place_of_null_holds_up_no_start() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let pipe = node.path("granted/null");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let outcome = node.start(&[("granted", "/dev")], "cat").await;
    outcome.is_refused_for("/dev");
}

#[tokio::test]
async fn root_changes_the_mode_of_nothing_that_a_mount_names() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let secrets = node.path("secrets");
    let mode = || fs::metadata(&secrets).expect("there").mode() & 0o7777;
    let target = secrets.display().to_string();
    for name in ["tmp", "var/tmp"] {
        // In the sandbox's and in the host's naming.
        node.link(name, &target);
    }
    for at in ["/var", "/"] {
        let outcome = node
            .start(&[("granted", at)], "ls /var/tmp/; cat /var/tmp/secret")
            .await;
        outcome.tells_no_secret();
        assert_eq!(mode(), 0o700, "a mount at {at} changed its mode");
    }
}

#[tokio::test]
async fn root_makes_nothing_in_a_folder_of_the_tenants() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let owners = |folder: &Path| {
        let entries = fs::read_dir(folder).expect("read").flatten();
        entries
            .filter(|entry| entry.metadata().expect("there").uid() == 0)
            .map(|entry| entry.path())
            .collect::<Vec<_>>()
    };
    let granted = node.path("granted");
    for mounts in [
        &[("granted", "/")][..],
        &[("granted", "/data"), ("granted", "/data/missing")][..],
        &[("granted", "/data/missing/deep"), ("granted", "/data")][..],
        &[("granted", "/var")][..],
        &[("granted", "/dev")][..],
    ] {
        let _ = node.start(mounts, "true").await;
        assert_eq!(owners(&granted), [""; 0].map(PathBuf::from), "{mounts:?}");
    }
}

#[tokio::test]
async fn root_writes_to_no_file_that_a_mount_at_proc_names() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let victim = node.path("secrets/secret");
    let host = "../".repeat(12) + &victim.display().to_string()[1..];
    for target in [victim.display().to_string(), format!("/proc/1/fd/3/{host}")] {
        node.link("self/oom_score_adj", &target);
        let outcome = node.start(&[("granted", "/proc")], "true").await;
        outcome.is_refused_for("/proc");
        assert_eq!(fs::read_to_string(&victim).expect("read"), SECRET);
    }
    // A root-writable file in a mounted folder.
    let other = node.path("granted/other");
    fs::write(&other, SECRET).expect("written");
    node.link("self/oom_score_adj", "/data/other");
    let mounts = [("granted", "/proc"), ("granted", "/data")];
    node.start(&mounts, "true").await.is_refused_for("/proc");
    assert_eq!(fs::read_to_string(&other).expect("read"), SECRET);
}

#[tokio::test]
async fn what_the_sandbox_needs_is_not_covered() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let text = |path: &Path| path.display().to_string();
    let mut targets = vec![
        "/".to_owned(),
        "/dev".to_owned(),
        "/dev/shm".to_owned(),
        "/dev/pts".to_owned(),
        "/proc/self".to_owned(),
        "/proc/sys/kernel".to_owned(),
        "/sys".to_owned(),
        "/sys/fs/cgroup".to_owned(),
        "/data/../dev".to_owned(),
        "//dev".to_owned(),
        "/./proc".to_owned(),
        "/dev/".to_owned(),
    ];
    let agents = node.path("data");
    targets.extend(agents.ancestors().map(text));
    targets.push(text(&agents.join("nodes/n0/containers/mal/job")));
    targets.push(text(&agents.join("elsewhere")));
    for target in targets {
        let outcome = node.start(&[("granted", &target)], "true").await;
        outcome.is_refused_for("cannot be mounted");
    }
    for which in [0, 1] {
        for below in ["", "/below"] {
            let mut plan = node.plan(&[("granted", "/data")], "true");
            let own = text([&plan.directory, &plan.checkpoint][which]);
            plan.mounts[0].target = own + below;
            node.run(plan).await.is_refused_for("cannot be mounted");
        }
    }
}

#[tokio::test]
async fn a_target_leads_through_no_link() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    node.link("out", "/etc");
    node.link("up", "..");
    node.link("null", "/dev");
    for target in ["/data/out", "/data/up", "/data/null", "/data/out/ssl"] {
        let mounts = [("granted", "/data"), ("granted", target)];
        node.start(&mounts, "true").await.is_refused_for("link");
    }
}

#[tokio::test]
async fn a_mount_that_is_missing_or_dangling_is_the_jobs_own_failure() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    node.link("dangling", "/no/such/folder");
    node.link("turning", "turning");
    for source in [
        "granted/dangling",
        "granted/turning",
        "granted/missing",
        "secrets",
        "granted/../secrets",
    ] {
        let outcome = node.start(&[(source, "/data")], "cat /data/secret").await;
        assert!(
            matches!(outcome, Outcome::Refused(_)),
            "{source}: {outcome:?}"
        );
    }
}

#[tokio::test]
async fn a_link_that_is_put_in_a_folders_place_while_it_is_mounted_leads_nowhere() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let (folder, link) = (node.path("granted/folder"), node.path("granted/link"));
    fs::create_dir(&folder).expect("made");
    symlink(node.path("secrets"), &link).expect("linked");
    fs::set_permissions(node.path("secrets"), fs::Permissions::from_mode(0o755)).expect("set");
    fs::set_permissions(
        node.path("secrets/secret"),
        fs::Permissions::from_mode(0o644),
    )
    .expect("set");
    let done = Arc::new(AtomicBool::new(false));
    let exchanging = {
        let done = Arc::clone(&done);
        std::thread::spawn(move || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            let here = rustix::fs::CWD;
            while !done.load(Ordering::Relaxed) {
                rustix::fs::renameat_with(here, &folder, here, &link, flags).expect("exchanged");
            }
        })
    };
    let mut outcomes = Vec::new();
    for _ in 0..40 {
        outcomes.push(
            node.start(&[("granted/folder", "/data")], "cat /data/secret")
                .await,
        );
    }
    done.store(true, Ordering::Relaxed);
    exchanging.join().expect("exchanged");
    let mounted = outcomes
        .iter()
        .filter(|it| matches!(it, Outcome::Printed(_)))
        .count();
    outcomes.iter().for_each(Outcome::tells_no_secret);
    println!("{mounted} of {} starts found the folder", outcomes.len());
}

#[tokio::test]
async fn a_folder_that_holds_the_agents_own_is_not_mounted() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    for source in ["", "data", "data/nodes"] {
        let mut plan = node.plan(
            &[(source, "/data")],
            "ls /data/* /data/*/*/*; cat /data/data/nodes/*/secret",
        );
        // Without mount restrictions.
        plan.granted = Granted::default();
        node.run(plan).await.is_refused_for("agent");
    }
}

#[tokio::test]
async fn the_agents_folders_are_hidden_in_a_folder_that_every_job_sees() {
    let shown = |config: &mut AgentConfig, folder: &Path| {
        config.working_dir = Some(folder.to_owned());
    };
    let Some(mut node) = Node::with(shown).await else {
        return;
    };
    let folder = node.folder.path().display().to_string();
    let script =
        format!("cd {folder} && ls -d granted; ls data/nodes/*; ls data/nodes/n0/supervisor");
    let outcome = node.start(&[], &script).await;
    let Outcome::Printed(text) = &outcome else {
        panic!("{outcome:?}");
    };
    let names: Vec<_> = text.lines().collect();
    assert!(
        names.contains(&"granted") && names.contains(&"containers"),
        "{text}"
    );
    let agents = ["secret", "marks", "socket", "lock"];
    assert!(!names.iter().any(|name| agents.contains(name)), "{text}");
}

#[tokio::test]
async fn what_the_node_mounts_later_does_not_come_in() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    let later = node.path("granted/later");
    fs::create_dir(&later).expect("made");
    let script = "touch /data/ready; while [ ! -e /data/go ]; do sleep 0.02; done; ls /data/later";
    let plan = node.plan(&[("granted", "/data")], script);
    let ready = node.path("granted/ready");
    let (go, at) = (node.path("granted/go"), later.clone());
    let mounting = std::thread::spawn(move || {
        let until = std::time::Instant::now() + PATIENCE;
        while !ready.exists() && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "later"])
            .arg(&at)
            .status();
        assert!(mounted.expect("run").success());
        fs::write(at.join("HARM"), "").expect("written");
        fs::write(go, "").expect("written");
    });
    let outcome = node.run(plan).await;
    mounting.join().expect("mounted");
    let unmounted = std::process::Command::new("umount").arg(&later).status();
    assert!(unmounted.expect("run").success());
    assert!(
        matches!(&outcome, Outcome::Printed(text) if text.is_empty()),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn what_may_be_mounted_is_mounted_as_it_was_named() {
    let Some(mut node) = Node::new().await else {
        return;
    };
    fs::create_dir_all(node.path("granted/deep/below")).expect("made");
    let deep = node.path("granted/deep");
    std::os::unix::fs::chown(deep, Some(MALLORY.uid), Some(MALLORY.gid)).expect("given");
    fs::write(node.path("granted/file"), "a file\n").expect("written");
    node.link("latest", "deep");
    let mounts = [
        ("granted", "/data"),
        ("granted/deep", "/data/deep/below"),
        ("granted/latest", "/models/latest"),
        ("granted/file", "/srv/settings"),
        ("granted", "/tmp/inside"),
        ("granted/deep", "/var/lib/x"),
    ];
    let script = "cat /srv/settings /data/file /tmp/inside/file; ls -d /data/deep/below/below /models/latest/below /var/lib/x/below; touch /models/latest/x && echo writable";
    let outcome = node.start(&mounts, script).await;
    let text = "a file\na file\na file\n/data/deep/below/below\n/models/latest/below\n/var/lib/x/below\nwritable\n";
    assert!(
        matches!(&outcome, Outcome::Printed(said) if said == text),
        "{outcome:?}"
    );
    let mut plan = node.plan(
        &mounts[..1],
        "cat /data/file; touch /data/y 2>/dev/null && echo HARM",
    );
    plan.mounts[0].read_only = true;
    let outcome = node.run(plan).await;
    assert!(
        matches!(&outcome, Outcome::Printed(said) if said == "a file\n"),
        "{outcome:?}"
    );
}
