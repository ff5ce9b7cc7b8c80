//! Tests of jobs that plant pipes, links and endless files.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Event;
use dormouse_messages::job::{EnvValue, JobSpec, Mount, SecretFrom, SecretSource};
use dormouse_messages::{Python, Resource};
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::{AgentConfig, logs_path, open_log};

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn sh(script: &str) -> JobSpec {
    spec(&["/bin/sh", "-c", script])
}

/// Runs a job, then a second agent over the leftovers.
fn run(folder: &Path, script: &str) -> FakeLog {
    let log = FakeLog::default();
    let agent = Running::start(&log, config(folder), true);
    log.append(admitted(sh(script)));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_exited(&id(1, 0));
    agent.stop().expect("left in order");
    log
}

#[test]
fn a_pipe_as_checkpoint_holds_up_neither_the_agent_nor_its_successor() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = FakeLog::default();
    let agent = Running::start(&log, config(folder.path()), true);
    log.append(admitted(sh(
        "mkfifo $DORMOUSE_CHECKPOINT_DIR/checkpoint.json; trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done",
    )));
    log.append(placed(1, 1));
    log.append(start(1, None));
    wait_ready(folder.path(), &id(1, 0));
    log.append(save(1));
    let asked = Instant::now();
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(3));
    assert!(asked.elapsed() < Duration::from_secs(5));
    let why = log.wait("checkpoint.failed", |event| match event {
        Event::CheckpointFailed(event) => Some(event.reason.clone()),
        _ => None,
    });
    assert!(why.contains("regular file"), "{why}");
    agent.stop().expect("left in order");

    let agent = Running::start(&log, config(folder.path()), true);
    log.append(admitted(sh(
        "mkfifo $DORMOUSE_CHECKPOINT_DIR/checkpoint.json; sleep 0.5",
    )));
    log.append(placed(2, 1));
    log.append(start(2, None));
    log.wait_started(&id(2, 0));
    agent.stop().expect("left in order");
    std::thread::sleep(Duration::from_secs(1));
    let agent = Running::start(&log, config(folder.path()), true);
    assert_eq!(log.wait_exited(&id(2, 0)).exit_code, Some(0));
    agent.stop().expect("left in order");
}

#[test]
fn links_put_nothing_of_others_on_the_log() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = folder.path().join("secret");
    fs::write(&secret, "{\"step\": 666, \"steps_total\": 666}\n").expect("written");
    let log = run(
        folder.path(),
        &format!(
            "ln -s {0} $DORMOUSE_CHECKPOINT_DIR/checkpoint.json; ln -s {0} $DORMOUSE_PROGRESS; sleep 1.5",
            secret.display()
        ),
    );
    let leaked = |event: &Event| matches!(event, Event::CheckpointSaved(_) | Event::Progress(_));
    assert_eq!(log.count(leaked), 0);
}

#[test]
fn what_a_job_prints_is_read_only_from_a_regular_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = "cd $(dirname $DORMOUSE_PROGRESS); rm stdout.log stderr.log; mkfifo stdout.log; ln -s /etc/hostname stderr.log";
    run(folder.path(), script);
    let logs = logs_path(folder.path(), &id(1, 0)).expect("a place");
    let error = open_log(&logs.stdout).expect_err("a pipe").to_string();
    assert!(error.contains("regular file"), "{error}");
    let error = open_log(&logs.stderr).expect_err("a link").to_string();
    assert!(error.contains("link"), "{error}");
}

#[test]
fn a_link_in_place_of_the_next_incarnation_s_folder_is_not_entered() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = folder.path().join("checkpoints/other/job/1");
    fs::create_dir_all(&other).expect("made");
    fs::write(other.join("checkpoint.json"), "{\"step\":666}").expect("written");
    let log = run(
        folder.path(),
        &format!(
            "ln -s {} $(dirname $DORMOUSE_CHECKPOINT_DIR)/2",
            other.display()
        ),
    );
    let agent = Running::start(&log, config(folder.path()), true);
    log.append(placed(2, 1));
    log.append(start(2, None));
    let reason = log.wait_exited(&id(2, 0)).reason.expect("a reason");
    assert!(reason.contains("link"), "{reason}");
    assert_eq!(
        log.count(|event| matches!(event, Event::CheckpointSaved(_))),
        0
    );
    agent.stop().expect("left in order");
}

#[test]
fn marks_of_a_job_s_own_making_are_not_believed() {
    let folder = tempfile::tempdir().expect("a folder");
    let log = FakeLog::default();
    let agent = Running::start(&log, config(folder.path()), true);
    // Under every name that an agent has used.
    let forge = "d=$(dirname $DORMOUSE_PROGRESS); for mark in evicted told stop asked leaving request exit process; do \
        for up in . .. ../.. ../../.. ../../../../../marks; do echo x >$d/$up/$mark; done; done";
    log.append(admitted(sh(&format!(
        "{forge}; while [ ! -e $(dirname $DORMOUSE_PROGRESS)/end ]; do sleep 0.02; done; exit 1"
    ))));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    std::thread::sleep(Duration::from_millis(300));
    agent.stop().expect("left in order");
    let agent = Running::start(&log, config(folder.path()), true);
    assert_eq!(log.wait_joined(2).running, [id(1, 0)]);
    let end = folder.path().join("nodes/n0/containers/ads/lr/1/0/end");
    fs::write(end, "").expect("written");
    let exit = log.wait_exited(&id(1, 0));
    assert_eq!((exit.exit_code, exit.evicted), (Some(1), false));
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    agent.stop().expect("left in order");
}

/// Their own documents or files prevent the start.
fn unstartable(folder: &Path) -> Vec<(&'static str, JobSpec)> {
    let path = |name: &str| folder.join(name).display().to_string();
    std::os::unix::fs::symlink(path("nothing"), path("dangling")).expect("linked");
    std::os::unix::fs::symlink(path("round"), path("round")).expect("linked");
    nix::unistd::mkfifo(Path::new(&path("pipe")), nix::sys::stat::Mode::S_IRWXU).expect("made");
    let mount = |name: &str, target: &str| JobSpec {
        mounts: vec![Mount {
            source: path(name),
            target: target.to_owned(),
            read_only: false,
        }],
        ..sh("true")
    };
    let with_env = |name: &str, value: EnvValue| {
        let mut spec = sh("true");
        spec.env.insert(name.to_owned(), value);
        spec
    };
    let secret = |file: String| {
        EnvValue::Secret(SecretFrom {
            from: SecretSource::File(file),
        })
    };
    let packages = |line: &str| JobSpec {
        python: Some(Python {
            requirements: vec![line.to_owned()],
            version: None,
        }),
        ..sh("true")
    };
    let with_memory = |bytes: u64| {
        let mut spec = sh("true");
        spec.demand.set(Resource::Memory, bytes);
        spec
    };
    vec![
        ("a missing mount", mount("nothing", &path("nothing"))),
        ("a dangling mount", mount("dangling", &path("dangling"))),
        ("a round mount", mount("round", &path("round"))),
        ("a missing program", spec(&["/no/such/program"])),
        ("a program in no PATH", spec(&["no-such-program"])),
        ("an empty command", spec(&[""])),
        ("a NUL in its command", spec(&["/bin/sh", "a\0b"])),
        ("a folder as its program", spec(&["/tmp"])),
        ("a missing secret", with_env("A", secret(path("nothing")))),
        ("a pipe as its secret", with_env("A", secret(path("pipe")))),
        ("a round secret", with_env("A", secret(path("round")))),
        (
            "an endless secret",
            with_env("A", secret("/dev/zero".to_owned())),
        ),
        ("no name", with_env("", EnvValue::Plain("a".to_owned()))),
        ("a NUL", with_env("A", EnvValue::Plain("a\0b".to_owned()))),
        ("a file as a package", packages("file:%2Fetc%2Fpasswd")),
        (
            "an unknown package",
            packages("no-such-package-of-nobodys==1"),
        ),
        ("too little memory", with_memory(4 << 10)),
        ("too little memory", with_memory(128 << 10)),
        ("too little memory", with_memory(512 << 10)),
        ("too little memory", with_memory(1 << 20)),
        ("too little memory", with_memory(2 << 20)),
        ("too little memory", with_memory(4 << 20)),
    ]
}

/// Three node faults would quarantine the node.
#[test]
fn what_a_jobs_document_says_is_never_the_nodes_fault() {
    let folder = tempfile::tempdir().expect("a folder");
    let table = unstartable(folder.path());
    for contain in [None, Contain::is_possible().then(Contain::default)] {
        let log = FakeLog::default();
        let data = tempfile::tempdir().expect("a folder");
        let is_contained = contain.is_some();
        let config = AgentConfig {
            contain,
            ..config(data.path())
        };
        let agent = Running::start(&log, config, true);
        for (incarnation, (what, spec)) in (1..).zip(&table) {
            log.append(admitted(spec.clone()));
            log.append(placed(incarnation, 1));
            log.append(start(incarnation, None));
            let exit = log.wait_exited(&id(incarnation, 0));
            println!("{what}, contained: {is_contained}: {exit:?}");
            assert!(!exit.evicted, "{what}: {exit:?}");
            // With limits, a program short of memory may also exit by itself.
            let has_reason = exit.reason.is_some() || exit.out_of_memory || exit.signal.is_some();
            assert!(
                has_reason || *what == "too little memory",
                "{what}: {exit:?}"
            );
        }
        let faults = log.count(|event| matches!(event, Event::NodeFaulted(_)));
        assert_eq!(faults, 0);
        agent.stop().expect("left in order");
    }
}

/// A pipe without a reader blocks the start.
#[test]
fn a_start_that_hangs_is_ended_by_a_stop() {
    if !Contain::is_possible() {
        return skipped("not root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let own = tempfile::tempdir().expect("a folder");
    for name in ["null", "zero", "stdout.log"] {
        let pipe = own.path().join(name);
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
    }
    let log = FakeLog::default();
    let config = AgentConfig {
        contain: Some(Contain::default()),
        ..config(folder.path())
    };
    let agent = Running::start(&log, config, true);
    let spec = JobSpec {
        mounts: vec![Mount {
            source: own.path().display().to_string(),
            target: "/dev".to_owned(),
            read_only: false,
        }],
        ..sh("true")
    };
    log.append(admitted(spec));
    log.append(placed(1, 1));
    log.append(start(1, None));
    std::thread::sleep(Duration::from_millis(500));
    let asked = Instant::now();
    log.append(stop(1));
    let exit = log.wait_exited(&id(1, 0));
    assert!(asked.elapsed() < Duration::from_secs(8), "{exit:?}");
    assert_eq!(log.count(|event| matches!(event, Event::NodeFaulted(_))), 0);
    agent.stop().expect("left in order");
}
