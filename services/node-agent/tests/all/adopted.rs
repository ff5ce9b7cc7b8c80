//! Tests that adopted containers, and new programs in them, stay contained.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use crate::docker;
use crate::exec::{Person, sh as in_shell};
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::{AgentConfig, RuntimeKind};

const MARKER: &str = "adopted-and-still-contained";

/// Other tests use other users.
const fn first(kind: RuntimeKind) -> u32 {
    match kind {
        RuntimeKind::Process => 220_000,
        RuntimeKind::Docker => 221_000,
    }
}

fn config(folder: &Path, kind: RuntimeKind) -> AgentConfig {
    let mut config = local(node(), Default::default(), folder.to_owned());
    config.runtime = kind;
    config.cluster = format!("adopted-{}", std::process::id());
    config.contain = Some(Contain {
        uids: first(kind)..=first(kind) + 9,
        ..Contain::default()
    });
    config
}

const CONTAINED: [&str; 10] = [
    "Uid",
    "Gid",
    "Groups",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
    "NoNewPrivs",
    "Seccomp",
];

const NAMESPACES: [&str; 4] = ["mnt", "pid", "ipc", "net"];

fn status(text: &str) -> BTreeMap<String, String> {
    let fields = text.lines().filter_map(|line| line.split_once(':'));
    let fields = fields.filter(|(name, _)| CONTAINED.contains(name));
    let words = |value: &str| value.split_whitespace().collect::<Vec<_>>().join(" ");
    fields
        .map(|(name, value)| (name.to_owned(), words(value)))
        .collect()
}

fn namespaces(pid: &str) -> BTreeMap<String, String> {
    let link = |name: &str| {
        let link = fs::read_link(format!("/proc/{pid}/ns/{name}")).expect("there");
        (name.to_owned(), link.display().to_string())
    };
    NAMESPACES.map(link).into()
}

/// Docker runs an init process first.
fn program(uid: u32) -> Option<String> {
    let of = |pid: &String| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_users = text.contains(&format!("\nUid:\t{uid}\t"));
        line.starts_with("/bin/sh") && line.contains(MARKER) && is_users
    };
    let names = fs::read_dir("/proc").expect("read").flatten();
    let names = names.filter_map(|it| it.file_name().into_string().ok());
    let mut pids = names.filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.find(of)
}

#[derive(Debug, PartialEq, Eq)]
struct Facts {
    pid: String,
    status: BTreeMap<String, String>,
    namespaces: BTreeMap<String, String>,
    mounts: String,
    root: Vec<String>,
}

fn facts(uid: u32) -> Facts {
    let pid = program(uid).expect("it runs");
    let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).expect("read");
    let root = fs::read_dir(format!("/proc/{pid}/root")).expect("read");
    let root = root
        .flatten()
        .filter_map(|it| it.file_name().into_string().ok());
    let mut root: Vec<_> = root.collect();
    root.sort();
    Facts {
        status: status(&read("status")),
        namespaces: namespaces(&pid),
        mounts: read("mountinfo"),
        root,
        pid,
    }
}

fn is_contained(status: &BTreeMap<String, String>, uid: u32) {
    for (name, value) in status {
        match name.as_str() {
            "Uid" | "Gid" => assert_eq!(*value, [uid.to_string().as_str(); 4].join(" ")),
            // Docker adds the user's own group.
            "Groups" => assert!(value.is_empty() || *value == uid.to_string(), "{value}"),
            "NoNewPrivs" => assert_eq!(value, "1"),
            "Seccomp" => {}
            _ => assert_eq!(value, "0000000000000000", "{name}"),
        }
    }
    assert_eq!(status.len(), CONTAINED.len());
}

async fn adopt(kind: RuntimeKind) {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let config = config(folder.path(), kind);
    let uid = first(kind);
    let agent = Running::start(&log, config.clone(), false);
    log.append(admitted(spec(&[
        "/bin/sh",
        "-c",
        &format!("echo own >/tmp/own; while :; do sleep 1; done # {MARKER}"),
    ])));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    let until = Instant::now() + Duration::from_secs(20);
    while program(uid).is_none() {
        assert!(Instant::now() < until, "it does not run");
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = facts(uid);
    is_contained(&before.status, uid);
    let own = namespaces("self");
    for name in ["mnt", "pid", "ipc"] {
        assert_ne!(before.namespaces[name], own[name], "{name}");
    }
    assert!(!before.root.contains(&"root".to_owned()) || kind == RuntimeKind::Docker);
    agent.stop().expect("left in order");
    assert_eq!(facts(uid), before, "nobody is there");

    let (agent, execs) = Running::with_execs(&log, config.clone());
    assert_eq!(log.wait_joined(2).running, [id(1, 0)]);
    assert_eq!(facts(uid), before, "adopted");
    let secret = config.layout().node().join("secret");
    let script = format!(
        "cat /proc/self/status; for it in mnt pid ipc net; do echo ns-$it: $(readlink /proc/self/ns/$it); done; \
         cat /tmp/own; cat /etc/shadow 2>/dev/null && echo HARM; [ -e {} ] && echo HARM; true",
        secret.display()
    );
    let person = Person::start(&execs, None, &in_shell(&id(1, 0), &script)).await;
    let (said, errors, _) = person.expect("started").end().await;
    let inside = status(&said);
    is_contained(&inside, uid);
    assert_eq!(inside, before.status, "{errors}");
    for (name, link) in &before.namespaces {
        assert!(
            said.contains(&format!("ns-{name}: {link}")),
            "{name}: {said}"
        );
    }
    assert!(said.contains("\nown\n"), "its own /tmp: {said}");
    assert!(!said.contains("HARM"), "{said}");
    assert_eq!(facts(uid), before, "with a program in it");
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    agent.stop().expect("left in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_process_that_is_adopted_is_contained_as_before() {
    if !Contain::is_possible() {
        return skipped("only root builds sandboxes");
    }
    adopt(RuntimeKind::Process).await;
}

#[test]
fn a_docker_container_that_is_adopted_is_contained_as_before() {
    if !Contain::is_possible() || !docker::engine() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(adopt(RuntimeKind::Docker));
}
