//! Tests of hostile jobs ([`attempts.sh`](attempts.sh)) on plain processes and Docker: one tenant attacks
//! another tenant's container and must reach nothing.

mod documents;
mod sandboxes;

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::*;
use dormouse_agent_core::Exit;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_messages::{ContainerId, Sequence};
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::container_plan::ContainerPlan;
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::docker::DockerRuntime;
use dormouse_node_agent::exec::attached::Attach;
use dormouse_node_agent::layout::JobFolder;
use dormouse_node_agent::process::ProcessRuntime;
use dormouse_node_agent::runtime::ContainerDriver;
use dormouse_node_agent::{AgentConfig, RuntimeKind};
use dormouse_sandbox::folder::User;
use dormouse_sandbox::procfs::stat;
use futures::FutureExt;
use futures::future::FusedFuture;
use tokio::sync::mpsc;

const ATTEMPTS: &str = include_str!("attempts.sh");

/// Above every process number in use.
const NOBODYS: u32 = 4_194_300;

const fn user(uid: u32) -> User {
    User { uid, gid: uid }
}

const fn mallory(kind: RuntimeKind) -> User {
    match kind {
        RuntimeKind::Process => user(200_001),
        RuntimeKind::Docker => user(200_101),
    }
}

const VICTIM: User = user(200_002);

const VICTIMS: &str = "echo own >own; echo own >$DORMOUSE_CHECKPOINT_DIR/own; echo own >/tmp/victim; \
    echo own >/dev/shm/victim; python3 -c 'import ctypes; libc = ctypes.CDLL(None); \
    libc.shmget(0x4d4f5553, 4096, 0o1666); libc.msgget(0x4d4f5553, 0o1666)'; touch ready; \
    while :; do sleep 1; done";

pub struct Attempt {
    pub name: &'static str,
    pub script: &'static str,
    may_be_killed: bool,
    /// Empty: everywhere.
    pub places: Vec<&'static str>,
}

impl Attempt {
    fn is_tried(&self, kind: RuntimeKind, network: Network) -> bool {
        let places: &[&str] = match (kind, network) {
            (RuntimeKind::Process, Network::Host) => &["plain"],
            (RuntimeKind::Process, _) => &["plain", "own-ports"],
            (RuntimeKind::Docker, Network::Host) => &["host"],
            (RuntimeKind::Docker, _) => &["published"],
        };
        self.places.is_empty() || self.places.iter().any(|it| places.contains(it))
    }
}

pub fn attempts() -> Vec<Attempt> {
    let sections = ATTEMPTS.split("\n#: ").skip(1);
    sections
        .map(|section| {
            let (head, script) = section.split_once('\n').expect("a script");
            let mut words = head.split(' ');
            let name = words.next().expect("a name");
            let (killed, places): (Vec<_>, Vec<_>) = words.partition(|word| *word == "!");
            Attempt {
                name,
                script,
                may_be_killed: !killed.is_empty(),
                places,
            }
        })
        .collect()
}

struct Node {
    folder: tempfile::TempDir,
    config: AgentConfig,
    runtime: Arc<dyn ContainerDriver>,
    exited: mpsc::UnboundedReceiver<(ContainerId, Exit)>,
    env: BTreeMap<String, EnvValue>,
    mounts: Vec<Mount>,
    victim: u32,
    supervisor: Option<u32>,
    network: Network,
    _listener: UnixListener,
    _loopback: TcpListener,
}

fn container(text: &str) -> ContainerId {
    text.parse().expect("valid")
}

impl Node {
    async fn new(kind: RuntimeKind, contain: Option<Contain>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        for name in ["operator/granted", "operator/read-only"] {
            fs::create_dir_all(path(name)).expect("made");
        }
        fs::write(path("operator/notes"), "everybody's on the node\n").expect("written");
        fs::write(path("operator/read-only/data"), "data\n").expect("written");
        for open in ["operator/granted", "operator/read-only", "operator", ""] {
            let open = fs::set_permissions(path(open), fs::Permissions::from_mode(0o777));
            open.expect("opened");
        }
        let mut config = local(node(), Default::default(), path("data"));
        config.runtime = kind;
        config.contain = contain;
        config.cluster = format!("walls-{}", std::process::id());
        let (exits, exited) = mpsc::unbounded_channel();
        let marks = ContainerRecords::open(&config.layout()).expect("opened");
        let mut supervisor = None;
        let runtime: Arc<dyn ContainerDriver> = match kind {
            RuntimeKind::Process => {
                let runtime = ProcessRuntime::connect(&config, marks, exits, true).await;
                let runtime = runtime.expect("a supervisor");
                supervisor = runtime.supervisor().identity().map(|it| it.pid);
                Arc::new(runtime)
            }
            RuntimeKind::Docker => {
                let runtime = DockerRuntime::connect(&config, marks, exits).await;
                Arc::new(runtime.expect("an engine"))
            }
        };
        let socket = folder.path().display().to_string();
        let address = SocketAddr::from_abstract_name(&socket).expect("a name");
        let loopback = TcpListener::bind("127.0.0.1:0").expect("bound");
        let at_loopback = loopback.local_addr().expect("bound").port().to_string();
        let shown = |name: &str, read_only| Mount {
            source: path(name).display().to_string(),
            target: path(name).display().to_string(),
            read_only,
        };
        let mut node = Self {
            mounts: vec![
                shown("operator/granted", false),
                shown("operator/read-only", true),
            ],
            folder,
            config,
            runtime,
            exited,
            env: BTreeMap::new(),
            victim: 0,
            supervisor,
            network: Network::Host,
            _listener: UnixListener::bind_addr(&address).expect("bound"),
            _loopback: loopback,
        };
        node.env
            .insert("LOOPBACK".to_owned(), EnvValue::Plain(at_loopback));
        node.env
            .insert("SOCKET".to_owned(), EnvValue::Plain(socket));
        node.start_victim().await;
        node
    }

    async fn start_victim(&mut self) {
        let id = container("victim/job/1/0");
        let mut plan = self.plan(id, VICTIMS, VICTIM);
        plan.mounts = vec![];
        plan.network = Network::Host;
        plan.env
            .insert("VICTIM".to_owned(), EnvValue::Plain("1".to_owned()));
        let (directory, checkpoint) = (plan.directory.clone(), plan.checkpoint.clone());
        self.victim = self.runtime.start(plan).await.expect("started");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !directory.join("ready").exists() {
            assert!(std::time::Instant::now() < until, "the victim is not ready");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let operator = self.folder.path().join("operator");
        let told = [
            ("VICTIM_PID", or_nobody(self.victim)),
            ("SUPERVISOR_PID", or_nobody(self.supervisor.unwrap_or(0))),
            ("VICTIM_DIR", directory.display().to_string()),
            ("VICTIM_CHECKPOINT", checkpoint.display().to_string()),
            (
                "NODE_DIR",
                self.config.layout().node().display().to_string(),
            ),
            ("OPERATOR", operator.display().to_string()),
            ("GRANTED", operator.join("granted").display().to_string()),
            (
                "GRANTED_RO",
                operator.join("read-only").display().to_string(),
            ),
        ];
        let told = told.map(|(name, value)| (name.to_owned(), EnvValue::Plain(value)));
        self.env.extend(told);
    }

    fn plan(&self, container: ContainerId, script: &str, user: User) -> ContainerPlan {
        let layout = self.config.layout();
        let absolute = |path: PathBuf| std::path::absolute(path).expect("a path");
        let folder = JobFolder::new(container.job.clone(), Sequence(1));
        let checkpoint = absolute(layout.checkpoint(&folder, container.incarnation));
        let mut env = self.env.clone();
        let folder = EnvValue::Plain(checkpoint.display().to_string());
        env.insert("DORMOUSE_CHECKPOINT_DIR".to_owned(), folder);
        let port = EnvValue::Plain(self.port(&container).to_string());
        env.insert("OWN_PORT".to_owned(), port);
        ContainerPlan {
            request: Sequence(1),
            admitted: Sequence(1),
            argv: ["/bin/sh", "-c", script].map(str::to_owned).into(),
            env,
            image: None,
            mounts: self.mounts.clone(),
            user: self.config.contain.as_ref().map(|_| user),
            port: self.port(&container),
            network: self.network,
            node_address: None,
            granted: Granted::default(),
            work: None,
            code: None,
            python: None,
            // A fork bomb meets the process limit before the memory limit.
            demand: "cpu=1,memory=256Mi".parse().expect("valid"),
            gpu_part: None,
            gpus: vec![],
            directory: absolute(layout.container(&container)),
            checkpoint,
            resume: None,
            stored: None,
            members: None,
            container,
        }
    }

    /// The engine removes ended containers late, which keep their ports.
    fn port(&self, container: &ContainerId) -> u16 {
        let turn = u16::try_from(container.incarnation.0 % 100).expect("small");
        21_000 + 8 * turn
    }

    async fn run(&mut self, number: usize, attempt: &Attempt) -> String {
        let id = container(&format!("mal/{}/{}/0", attempt.name, number + 1));
        let script = format!("{}\necho TRIED", attempt.script);
        let plan = self.plan(id.clone(), &script, mallory(self.config.runtime));
        let directory = plan.directory.clone();
        let started = self.runtime.start(plan).await;
        started.unwrap_or_else(|error| panic!("{}: {error}", attempt.name));
        let exit = tokio::time::timeout(Duration::from_secs(30), self.exited.recv()).await;
        let exit = exit.unwrap_or_else(|_| panic!("{} does not end", attempt.name));
        let (ended, exit) = exit.expect("open");
        assert_eq!(ended, id, "{}: another one has ended", attempt.name);
        let said = fs::read(directory.join("stdout.log")).unwrap_or_default();
        let mut said = String::from_utf8_lossy(&said).into_owned();
        if !said.contains("TRIED") {
            said.push_str(&format!("; {exit:?}"));
        }
        self.runtime.remove(&id, Sequence(1)).await;
        said
    }

    async fn exec(&mut self, number: usize, attempt: &Attempt) -> String {
        let id = container(&format!("mal/{}/{}/0", attempt.name, number + 1));
        let user = mallory(self.config.runtime);
        let mut plan = self.plan(id.clone(), "while :; do sleep 1; done", user);
        let started = self.runtime.start(plan.clone()).await;
        started.unwrap_or_else(|error| panic!("{}: {error}", attempt.name));
        let script = format!("{}\necho TRIED", attempt.script);
        plan.argv = ["/bin/sh", "-c", &script].map(str::to_owned).into();
        let mut attached = self
            .runtime
            .exec(plan, Attach::Pipes)
            .await
            .expect("started");
        let mut said = Vec::new();
        let patience = Duration::from_secs(30);
        let until = tokio::time::Instant::now() + patience;
        let mut ended = attached.ended.fuse();
        // Leftovers may hold the output open.
        let mut last = until;
        loop {
            tokio::select! {
                piece = attached.output.recv() => match piece {
                    Some((_, piece)) => said.extend_from_slice(&piece),
                    None if ended.is_terminated() => break,
                    None => {
                        let over = tokio::time::timeout_at(until, &mut ended).await;
                        assert!(over.is_ok(), "{} does not end", attempt.name);
                        break;
                    }
                },
                _ = &mut ended, if !ended.is_terminated() => {
                    last = tokio::time::Instant::now() + Duration::from_millis(200);
                }
                () = tokio::time::sleep_until(last) => {
                    assert!(last < until, "{} does not end", attempt.name);
                    break;
                }
            }
        }
        self.runtime.kill(&id).await.expect("killed");
        let exit = tokio::time::timeout(patience, self.exited.recv()).await;
        let (ended, _) = exit.expect("it ends").expect("open");
        assert_eq!(ended, id, "{}: another one has ended", attempt.name);
        self.runtime.remove(&id, Sequence(1)).await;
        String::from_utf8_lossy(&said).into_owned()
    }

    fn harm(&self) -> Vec<String> {
        let mut harm = Vec::new();
        let is_gone = |pid: u32| stat(pid).is_none_or(|stat| stat.zombie);
        if self.victim != 0 && is_gone(self.victim) {
            harm.push("the victim is dead".to_owned());
        }
        if self.supervisor.is_some_and(is_gone) {
            harm.push("the supervisor is dead".to_owned());
        }
        for (pid, line) in processes_of(mallory(self.config.runtime).uid) {
            harm.push(format!("it has left process {pid}: {line}"));
        }
        for path in [
            "/tmp/left-behind",
            "/dev/shm/left-behind",
            "/etc/forged",
            "/usr/bin/forged",
        ] {
            if Path::new(path).exists() {
                harm.push(format!("{path} is there"));
            }
        }
        let segments = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
        if segments.contains(&0x4c45_4654.to_string()) {
            harm.push("a segment is left".to_owned());
        }
        harm
    }
}

fn or_nobody(pid: u32) -> String {
    (if pid == 0 { NOBODYS } else { pid }).to_string()
}

fn processes_of(uid: u32) -> Vec<(u32, String)> {
    let processes = fs::read_dir("/proc").expect("read").flatten();
    let numbers = processes.filter_map(|it| it.file_name().to_str()?.parse::<u32>().ok());
    let of_user = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_zombie = status.contains("\nState:\tZ");
        !is_zombie && status.contains(&format!("\nUid:\t{uid}"))
    };
    let line = |pid: u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    numbers
        .filter(of_user)
        .map(|pid| (pid, line(pid)))
        .collect()
}

fn contained() -> Contain {
    Contain {
        processes: 100,
        ..Contain::default()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Program,
    Exec,
}

/// Tests share tenants and count their processes.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn all(kind: RuntimeKind, by: By, network: Network) {
    let _turn = TURN.lock().await;
    let mut node = Node::new(kind, Some(contained())).await;
    node.network = network;
    let mut failures = Vec::new();
    for (number, attempt) in attempts().iter().enumerate() {
        if !attempt.is_tried(kind, network) {
            continue;
        }
        let said = match by {
            By::Program => node.run(number, attempt).await,
            By::Exec => node.exec(number, attempt).await,
        };
        // Ends the executed program too.
        let ends_itself = by == By::Exec && attempt.name == "signals-to-everybody";
        let may_be_killed = attempt.may_be_killed || ends_itself;
        if said.contains("HARM") || !(said.contains("TRIED") || may_be_killed) {
            failures.push(format!("{}: {said:?}", attempt.name));
        }
        let harm = node.harm();
        if !harm.is_empty() {
            failures.push(format!("{}: {}", attempt.name, harm.join("; ")));
        }
    }
    let victim = container("victim/job/1/0");
    node.runtime.kill(&victim).await.expect("killed");
    let ended = tokio::time::timeout(Duration::from_secs(10), node.exited.recv()).await;
    assert_eq!(ended.expect("it ends").expect("open").0, victim);
    node.runtime.remove(&victim, Sequence(1)).await;
    assert_eq!(failures, [""; 0], "{}", failures.join("\n"));
}

#[tokio::test]
async fn plain_processes_reach_nothing_of_others() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    all(RuntimeKind::Process, By::Program, Network::Host).await;
}

#[tokio::test]
async fn plain_processes_with_ports_of_their_own_reach_nothing_of_others() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    all(RuntimeKind::Process, By::Program, Network::Published).await;
}

#[tokio::test]
async fn programs_in_plain_processes_reach_nothing_of_others() {
    if !Contain::is_possible() {
        return skipped("only root makes sandboxes");
    }
    all(RuntimeKind::Process, By::Exec, Network::Host).await;
}

#[test]
fn programs_in_docker_containers_reach_nothing_of_others() {
    if !Contain::is_possible() || !crate::docker::engine() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(all(RuntimeKind::Docker, By::Exec, Network::Host));
}

#[test]
fn docker_containers_reach_nothing_of_others() {
    if !Contain::is_possible() || !crate::docker::engine() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(all(RuntimeKind::Docker, By::Program, Network::Host));
}

#[test]
fn docker_containers_with_published_ports_reach_nothing_of_others() {
    if !Contain::is_possible() || !crate::docker::engine() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let attempts = all(RuntimeKind::Docker, By::Program, Network::Published);
    runtime.block_on(attempts);
}

#[tokio::test]
async fn what_is_trusted_is_not_contained() {
    if !Contain::is_possible() {
        return skipped("without root there is little to reach");
    }
    let mut node = Node::new(RuntimeKind::Process, None).await;
    let harmful = [
        "shadow",
        "secret-of-the-agent",
        "socket-of-the-supervisor",
        "directory-of-another",
        "checkpoint-of-another",
        "temporary-files-of-another",
        "shared-memory-of-another",
        "folder-that-was-not-granted",
        "out-of-a-granted-folder",
        "processes-of-the-node",
        "home-of-root",
        "new-privileges",
        "set-user-programs",
        "queues-and-segments-of-another",
        "abstract-sockets",
    ];
    let attempts = attempts();
    assert!(attempts.len() >= 80, "{}", attempts.len());
    for (number, attempt) in attempts.iter().enumerate() {
        if harmful.contains(&attempt.name) {
            let said = node.run(number, attempt).await;
            assert!(said.contains("HARM"), "{}: {said:?}", attempt.name);
        }
    }
    let victim = container("victim/job/1/0");
    node.runtime.kill(&victim).await.expect("killed");
    let _ = node.exited.recv().await;
    node.runtime.remove(&victim, Sequence(1)).await;
    for path in ["/tmp/victim", "/dev/shm/victim"] {
        let _ = fs::remove_file(path);
    }
    let remove = "ipcrm -M 0x4d4f5553 -Q 0x4d4f5553";
    let _ = std::process::Command::new("sh")
        .args(["-c", remove])
        .status();
}
