//! Tests of real training: saved, stopped, resumed with another size. Skipped without the trainers of
//! `scripts/install.sh trainers`; fails then if `DORMOUSE_NO_SKIP=1`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Event;
use dormouse_messages::grants::Network;
use dormouse_messages::job::{Executor, JobSpec, Mount};
use dormouse_node_agent::{AgentConfig, RuntimeKind};

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the repository")
}

fn python_with(module: &str) -> Option<PathBuf> {
    let python = std::env::var_os("DORMOUSE_PYTHON")
        .map_or_else(|| root().join(".tools/venv/bin/python3"), PathBuf::from);
    let imported = std::process::Command::new(&python)
        .args(["-c", &format!("import {module}")])
        .output();
    if imported
        .as_ref()
        .is_ok_and(|output| output.status.success())
    {
        return python.parent().map(Path::to_owned);
    }
    let python = python.display();
    skipped(&format!(
        "{python} cannot import {module}; run scripts/install.sh trainers"
    ));
    None
}

fn trainer(executor: Executor, program: &str) -> JobSpec {
    let command = |more: &[&str]| -> Vec<String> {
        let program = format!("deploy/examples/{program}");
        let start = ["python3", &program, "--steps", "120", "--step-ms", "100"];
        start.iter().chain(more).map(ToString::to_string).collect()
    };
    let mut spec = spec(&[]);
    spec.executor = executor;
    spec.command.start = command(&[]);
    spec.command.resume = command(&["--resume"]);
    spec.checkpoint.grace_s = 20;
    spec
}

fn config(folder: &Path, python: &Path) -> AgentConfig {
    let mut config = local(node(), Default::default(), folder.to_owned());
    config.path = vec![python.to_owned()];
    config.working_dir = Some(root());
    config
}

/// Stops running containers after a failed test.
struct EndOnDrop(FakeLog, PathBuf, Vec<u32>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for incarnation in &self.2 {
            for rank in 0..3 {
                if let Some(logs) = dormouse_node_agent::logs_path(&self.1, &id(*incarnation, rank))
                {
                    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
                    println!(
                        "{incarnation}/{rank}: {}\n{}",
                        read(logs.stdout),
                        read(logs.stderr)
                    );
                }
            }
            self.0.append(lost(1));
            self.0.append(stop(*incarnation));
        }
        std::thread::sleep(Duration::from_secs(4));
    }
}

/// Incarnations from `first` keep the ports of parallel tests apart.
fn resize(config: AgentConfig, spec: JobSpec, first: u32, before: u32, after: u32) {
    let second = first + 1;
    let log = FakeLog::default();
    let data = config.data_dir.clone();
    let agent = Running::start(&log, config, true);
    log.append(admitted(spec));
    log.append(placed(first, before));
    let began = Instant::now();
    log.append(start(first, None));
    // Leftovers of a failed test would hold the ports.
    let _end = EndOnDrop(log.clone(), data, vec![first, second]);
    log.wait("progress", |event| {
        matches!(event, Event::Progress(_)).then_some(())
    });
    println!("first progress after {:?}", began.elapsed());
    std::thread::sleep(Duration::from_secs(1));
    let asked = Instant::now();
    log.append(save(first));
    let saved = log.wait("saved", |event| match event {
        Event::CheckpointSaved(it) => Some((**it).clone()),
        _ => None,
    });
    log.append(stop(first));
    for rank in 0..before {
        let exit = log.wait_exited(&id(first, rank));
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    }
    println!(
        "step {} saved and all out after {:?}",
        saved.step,
        asked.elapsed()
    );
    assert!(saved.step > 0 && saved.step < 120);
    log.append(placed(second, after));
    log.append(start(second, Some(&saved.uri)));
    // Loading frameworks again takes time.
    log.wait("progress of the second incarnation", |event| match event {
        Event::Progress(it) if it.incarnation.0 == second => Some(()),
        _ => None,
    });
    for rank in 0..after {
        let exit = log.wait_exited(&id(second, rank));
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    }
    let last = log.wait("the last progress", |event| match event {
        Event::Progress(it) if it.incarnation.0 == second => Some((**it).clone()),
        _ => None,
    });
    assert_eq!((last.step, last.containers), (120, after));
    let first = log.events().into_iter().find_map(|event| match event {
        Event::Progress(it) if it.incarnation.0 == second => Some(it.step),
        _ => None,
    });
    assert!(first.expect("progress") > saved.step, "it did not resume");
    // The engine removes containers after their exits are on the log.
    std::thread::sleep(Duration::from_secs(1));
    agent.stop().expect("left in order");
}

#[test]
fn mpi_is_resized_from_2_to_3() {
    let Some(python) = python_with("mpi4py.MPI") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let spec = trainer(Executor::Mpi, "train_mpi.py");
    resize(config(folder.path(), &python), spec, 1, 2, 3);
}

#[test]
fn mxnet_is_resized_from_2_to_3() {
    let Some(python) = python_with("mxnet") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let spec = trainer(Executor::Mxnet, "train_mxnet.py");
    resize(config(folder.path(), &python), spec, 11, 2, 3);
}

#[test]
fn mpi_in_docker_is_resized_from_3_to_2() {
    let Some(python) = python_with("mpi4py.MPI") else {
        return;
    };
    let engine = std::process::Command::new("docker")
        .args(["image", "inspect", "dormouse/empty"])
        .output();
    if !engine.is_ok_and(|output| output.status.success()) {
        skipped("no Docker engine with the image dormouse/empty; run scripts/install.sh docker");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), &python);
    config.runtime = RuntimeKind::Docker;
    config.cluster = format!("test-mpi-{}", std::process::id());
    show_the_repository(&mut config);
    resize(config, trainer(Executor::Mpi, "train_mpi.py"), 21, 3, 2);
}

fn show_the_repository(config: &mut AgentConfig) {
    let root = root().display().to_string();
    config.mounts = vec![Mount {
        source: root.clone(),
        target: root,
        read_only: true,
    }];
}

/// With published ports only.
fn resize_with_published_ports(executor: Executor, program: &str, module: &str, first: u32) {
    let Some(python) = python_with(module) else {
        return;
    };
    let (true, Some(address)) = (crate::docker::engine(), crate::network::own_address()) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path(), &python);
    config.runtime = RuntimeKind::Docker;
    config.cluster = format!("test-{first}-{}", std::process::id());
    config.address = address;
    show_the_repository(&mut config);
    let mut spec = trainer(executor, program);
    spec.network = Some(Network::Published);
    resize(config, spec, first, 2, 3);
}

#[test]
fn mpi_with_published_ports_is_resized_from_2_to_3() {
    resize_with_published_ports(Executor::Mpi, "train_mpi.py", "mpi4py.MPI", 31);
}

#[test]
fn mxnet_with_published_ports_is_resized_from_2_to_3() {
    resize_with_published_ports(Executor::Mxnet, "train_mxnet.py", "mxnet", 41);
}

/// Connecting ranks would run a stranger's code.
fn fails_beside_a_stranger(executor: Executor, module: &str, incarnation: u32) {
    let Some(python) = python_with(module) else {
        return;
    };
    let port = 21_000 + 100 * u16::try_from(incarnation).expect("small");
    let stranger = std::net::TcpListener::bind(("0.0.0.0", port)).expect("bound");
    stranger.set_nonblocking(true).expect("set");
    let folder = tempfile::tempdir().expect("a folder");
    let log = FakeLog::default();
    let agent = Running::start(&log, config(folder.path(), &python), true);
    let mut spec = trainer(executor, "none.py");
    spec.command.start = ["touch", "ran"].map(str::to_owned).into();
    log.append(admitted(spec));
    log.append(placed(incarnation, 2));
    log.append(start(incarnation, None));
    let _end = EndOnDrop(log.clone(), folder.path().to_owned(), vec![incarnation]);
    let exit = log.wait_exited(&id(incarnation, 0));
    assert!(
        !matches!(exit.exit_code, Some(0)) && !exit.evicted,
        "{exit:?}"
    );
    let logs = dormouse_node_agent::logs_path(folder.path(), &id(incarnation, 0)).expect("logs");
    let said = std::fs::read_to_string(logs.stderr).expect("read");
    assert!(
        said.contains("whether another program holds the port"),
        "{said}"
    );
    // As the checkpointer does.
    let asked = Instant::now();
    log.append(stop(incarnation));
    log.wait_exited(&id(incarnation, 1));
    assert!(asked.elapsed() < Duration::from_secs(15));
    let connected = stranger.accept().map(|(_, address)| address);
    assert!(connected.is_err(), "{connected:?}");
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerReady(_))),
        0
    );
    let ran = folder
        .path()
        .join(format!("nodes/n0/containers/ads/lr/{incarnation}/1/ran"));
    assert!(!ran.exists());
    agent.stop().expect("left in order");
}

#[test]
fn an_mpi_gang_whose_port_a_stranger_holds_fails_and_connects_to_nobody() {
    fails_beside_a_stranger(Executor::Mpi, "mpi4py.MPI", 51);
}

#[test]
fn an_mxnet_gang_whose_port_a_stranger_holds_fails_and_connects_to_nobody() {
    fails_beside_a_stranger(Executor::Mxnet, "mxnet", 52);
}
