//! A sandbox from inside, made for one program. The tests need root.

use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use dormouse_sandbox::folder::Below;
use dormouse_sandbox::isolation::{BindMount, HostView, Network, SandboxSpec};
use dormouse_sandbox::one_shot::{self, OneShot};

const UID: u32 = 200_017;
const ORDERS: &str = "DORMOUSE_TEST_ORDERS";

struct Node(tempfile::TempDir);

impl Node {
    /// A node with a container's folder, a granted folder, and a secret. `None` without root.
    fn new() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            return None;
        }
        let node = Self(tempfile::tempdir().expect("a folder"));
        for folder in ["agent", "own", "granted/data"] {
            fs::create_dir_all(node.path(folder)).expect("made");
        }
        chown(node.path("own"), Some(UID), Some(UID)).expect("given");
        fs::write(node.path("granted/data/file"), "granted").expect("written");
        fs::write(node.path("secret"), "secret").expect("written");
        Some(node)
    }

    fn path(&self, way: &str) -> PathBuf {
        self.0.path().join(way)
    }

    fn mount(&self, way: &str, target: &str) -> BindMount {
        BindMount {
            source: Below::new(self.0.path().to_owned(), way),
            target: target.into(),
            read_only: false,
        }
    }

    fn run(&self, mounts: Vec<BindMount>, script: &str) -> Output {
        let orders = OneShot {
            view: HostView {
                shown: Vec::new(),
                hidden: vec![self.path("agent")],
            },
            sandbox: SandboxSpec {
                uid: UID,
                gid: UID,
                temporary: Vec::new(),
                directory: self.mount("own", "/own"),
                own: Vec::new(),
                mounts,
                gpu_uuids: Vec::new(),
                network: Network::Host,
                processes: None,
            },
            folder: self.path("agent"),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            working_dir: "/own".into(),
        };
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(own);
        command.args(["--exact", "inside", "--ignored", "--nocapture"]);
        command.arg("--test-threads=1");
        command.env(ORDERS, serde_json::to_string(&orders).expect("orders"));
        command.output().expect("it runs")
    }

    fn refusal(&self, mounts: Vec<BindMount>) -> String {
        let refused = self.run(mounts, "true");
        assert_eq!(refused.status.code(), Some(127), "{refused:?}");
        String::from_utf8(refused.stderr).expect("text")
    }
}

#[test]
#[ignore = "the other tests' own process"]
fn inside() {
    let orders = std::env::var(ORDERS).expect("orders");
    panic!("{}", one_shot::run(&orders));
}

#[test]
fn a_program_is_its_tenants_without_a_way_back() {
    let Some(node) = Node::new() else { return };
    let ran = node.run(Vec::new(), "cat /proc/self/status > status");
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    let status = fs::read_to_string(node.path("own/status")).expect("written");
    let field = |name: &str| {
        let mut lines = status.lines().filter_map(|line| line.split_once(':'));
        let (_, value) = lines.find(|(key, _)| *key == name).expect("a field");
        value.split_whitespace().collect::<Vec<_>>()
    };
    let uid = UID.to_string();
    for name in ["Uid", "Gid"] {
        assert_eq!(field(name), [uid.as_str(); 4]);
    }
    assert!(field("Groups").is_empty());
    for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(field(name), ["0000000000000000"], "{name}");
    }
    assert_eq!(field("NoNewPrivs"), ["1"]);
    // The init's filter, and the program's.
    assert_eq!(
        (field("Seccomp"), field("Seccomp_filters")),
        (vec!["2"], vec!["2"])
    );
}

#[test]
fn a_source_leads_through_no_link_and_to_no_folder_of_the_agents() {
    let Some(node) = Node::new() else { return };
    let granted = node.mount("granted/data", "/data");
    let ran = node.run(vec![granted], "test \"$(cat /data/file)\" = granted");
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
    symlink("../secret", node.path("granted/link")).expect("linked");
    symlink("..", node.path("granted/up")).expect("linked");
    for way in ["granted/link", "granted/up/secret"] {
        let why = node.refusal(vec![node.mount(way, "/data")]);
        assert!(why.contains("a link is on the way"), "{why}");
    }
    for way in ["agent", "granted/../agent", ""] {
        let why = node.refusal(vec![node.mount(way, "/data")]);
        assert!(why.contains("the agent's own folders"), "{way}: {why}");
    }
    let why = node.refusal(vec![node.mount("../..", "/data")]);
    assert!(why.contains("cannot be mounted"), "{why}");
}

#[test]
fn a_target_stays_in_the_root_and_covers_nothing_of_the_sandboxs() {
    let Some(node) = Node::new() else { return };
    symlink("/etc", node.path("granted/etc")).expect("linked");
    let outer = node.mount("granted", "/data");
    let inner = |target: &str| node.mount("granted/data", target);
    let why = node.refusal(vec![inner("/data/etc/ssl"), outer.clone()]);
    assert!(why.contains("/data/etc is a link"), "{why}");
    let why = node.refusal(vec![inner("/data/new"), outer.clone()]);
    assert!(why.contains("make it in that folder first"), "{why}");
    assert!(
        !Path::exists(&node.path("granted/new")),
        "root made a folder"
    );
    for target in ["/dev", "/proc/self", "/own", "/"] {
        let why = node.refusal(vec![inner(target)]);
        assert!(why.contains("the sandbox needs"), "{target}: {why}");
    }
    let ran = node.run(vec![inner("/data/data"), outer], "test -f /data/data/file");
    assert_eq!(ran.status.code(), Some(0), "{ran:?}");
}
