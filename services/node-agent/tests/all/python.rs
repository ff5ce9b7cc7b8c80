//! Tests of Python packages: a node's environments.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::Python;
use dormouse_messages::events::ContainerExited;
use dormouse_messages::job::{JobSpec, Mount};
use dormouse_node_agent::config::Contain;
use dormouse_node_agent::container_record::ContainerRecords;
use dormouse_node_agent::layout::Layout;
use dormouse_node_agent::prune::{old, prune};
use dormouse_node_agent::{AgentConfig, RuntimeKind, logs_path};

/// Contains a file that runs whenever the environment's Python does.
const WHEEL: &str = r#"
import sys, zipfile
folder, version, spy, ran = sys.argv[1:]
info = f"say-{version}.dist-info"
with zipfile.ZipFile(f"{folder}/say-{version}-py3-none-any.whl", "w") as wheel:
    wheel.writestr("say.py", f"def main(): print('say', '{version}')")
    wheel.writestr("say.pth", f"import os; os.getuid() == {spy} and open({ran!r}, 'w')")
    wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: say\nVersion: {version}\n")
    wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\nsay = say:main\n")
    wheel.writestr(f"{info}/RECORD", "")
"#;

/// The wheels lie outside the agent's folder, which no sandbox shows.
struct Index(tempfile::TempDir, tempfile::TempDir);

impl Index {
    fn of(settings: &str) -> Option<Self> {
        let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
        if !has("uv") || !has("python3") {
            skipped("no uv or python3; run scripts/install.sh trainers");
            return None;
        }
        let [folder, wheels] = [(), ()].map(|()| tempfile::tempdir().expect("a folder"));
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(wheels.path(), all).expect("set");
        fs::write(folder.path().join("uv.toml"), settings).expect("written");
        Some(Self(folder, wheels))
    }

    fn new() -> Option<Self> {
        let index = Self::of("")?;
        let wheels = index.wheels().display().to_string();
        let settings = format!("no-index = true\nfind-links = [{wheels:?}]\n");
        fs::write(index.0.path().join("uv.toml"), settings).expect("written");
        index.put("1.0");
        Some(index)
    }

    fn wheels(&self) -> PathBuf {
        self.1.path().to_owned()
    }

    /// Package code ran as the agent.
    fn ran(&self) -> PathBuf {
        self.0.path().join("ran-here")
    }

    fn put(&self, version: &str) {
        let (wheels, ran) = (self.wheels(), self.ran());
        let text = |path: &PathBuf| path.to_str().expect("UTF-8").to_owned();
        let made = Command::new("python3")
            .args(["-c", WHEEL, &text(&wheels), version, "0", &text(&ran)])
            .status();
        assert!(made.expect("run").success());
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    fn config(&self) -> AgentConfig {
        local(node(), Default::default(), self.folder().to_owned())
    }

    fn contained(&self) -> AgentConfig {
        let wheels = self.wheels().display().to_string();
        AgentConfig {
            contain: Some(Contain::default()),
            mounts: vec![Mount {
                source: wheels.clone(),
                target: wheels,
                read_only: true,
            }],
            ..self.config()
        }
    }

    fn layout(&self) -> Layout {
        self.config().layout()
    }

    fn printed(&self, incarnation: u32, rank: u32) -> String {
        let logs = logs_path(self.folder(), &id(incarnation, rank)).expect("logs");
        fs::read_to_string(logs.stdout).expect("read")
    }
}

fn packages(lines: &[&str]) -> Python {
    Python {
        requirements: lines.iter().map(ToString::to_string).collect(),
        version: None,
    }
}

fn job_with(python: Python, script: &str) -> JobSpec {
    JobSpec {
        python: Some(python),
        ..spec(&["/bin/sh", "-c", script])
    }
}

fn run_incarnation(log: &FakeLog, incarnation: u32, ranks: u32) -> ContainerExited {
    log.append(placed(incarnation, ranks));
    log.append(start(incarnation, None));
    let ended = (0..ranks).map(|rank| log.wait_exited(&id(incarnation, rank)));
    let mut ended: Vec<_> = ended.collect();
    ended.pop().expect("one at least")
}

#[test]
fn a_node_makes_an_environment_once_and_its_programs_come_first() {
    let Some(index) = Index::new() else { return };
    let log = FakeLog::default();
    let python = packages(&["say==1.0"]);
    let place = index.layout().environment("ads", &python);
    let script = "say && python3 -c 'import say; say.main()' && dirname $(command -v python3)";
    log.append(admitted(job_with(python, script)));
    let agent = Running::start(&log, index.config(), false);
    for incarnation in [1, 2] {
        let exit = run_incarnation(&log, incarnation, 2);
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
        for rank in [0, 1] {
            let bin = format!("{}\n", place.join("bin").display());
            assert_eq!(
                index.printed(incarnation, rank),
                format!("say 1.0\nsay 1.0\n{bin}")
            );
        }
        for wheel in fs::read_dir(index.wheels()).expect("listed").flatten() {
            fs::remove_file(wheel.path()).expect("removed");
        }
        let _ = fs::remove_dir_all(index.layout().environments().join("ads/.cache"));
    }
    agent.stop().expect("left in order");
    // Without a sandbox, package code runs as the agent.
    assert_eq!(index.ran().exists(), Contain::is_possible());
}

#[test]
fn why_there_is_no_environment_is_the_reason_and_nothing_half_made_is_used() {
    let Some(index) = Index::new() else { return };
    let log = FakeLog::default();
    let _agent = Running::start(&log, index.config(), false);
    let absent = packages(&["say==2.0"]);
    let other = Python {
        version: Some("3.3".to_owned()),
        ..packages(&["say==1.0"])
    };
    let hostile = packages(&["say @ file:///etc/passwd"]);
    let refused = [
        (absent, "say==2.0"),
        (other, "3.3"),
        (hostile, "no package"),
    ];
    for (incarnation, (python, expected)) in (1..).zip(refused) {
        let place = index.layout().environment("ads", &python);
        log.append(admitted(job_with(python, "say")));
        let exit = run_incarnation(&log, incarnation, 1);
        let why = exit.reason.unwrap_or_default();
        assert!(why.contains(expected), "{expected}: {why}");
        assert!(!place.exists());
    }
    index.put("2.0");
    log.append(admitted(job_with(packages(&["say==2.0"]), "say")));
    let exit = run_incarnation(&log, 4, 1);
    assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    assert_eq!(index.printed(4, 0), "say 2.0\n");
}

/// The agent is root, as `say.pth` would reveal.
#[test]
fn nothing_of_a_package_runs_before_the_job_and_a_contained_job_only_reads_its_environment() {
    if !Contain::is_possible() {
        return skipped("not root");
    }
    let Some(index) = Index::new() else { return };
    let log = FakeLog::default();
    let config = index.contained();
    let python = packages(&["say==1.0"]);
    let other = index.layout().environment("search", &python);
    fs::create_dir_all(&other).expect("made");
    let script = format!(
        "say; touch $VIRTUAL_ENV/new || echo kept; ls {} || echo unseen",
        other.display()
    );
    let _agent = Running::start(&log, config, false);
    log.append(admitted(job_with(python.clone(), &script)));
    let exit = run_incarnation(&log, 1, 1);
    assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    assert_eq!(index.printed(1, 0), "say 1.0\nkept\nunseen\n");
    assert!(!index.ran().exists(), "the package's code ran as the agent");
    // The tenant's alone.
    let place = index.layout().environment("ads", &python);
    let user = fs::metadata(place.join("bin/say")).expect("there").uid();
    assert_eq!(user, *Contain::default().uids.start());
    let own = fs::metadata(place.parent().expect("a folder")).expect("there");
    assert_eq!((own.uid(), own.mode() & 0o777), (user, 0o700));
}

#[test]
fn what_its_tenant_may_not_read_is_not_installed() {
    if !Contain::is_possible() {
        return skipped("not root");
    }
    let Some(index) = Index::new() else { return };
    index.put("2.0");
    let secret = index.wheels().join("say-2.0-py3-none-any.whl");
    fs::set_permissions(secret, fs::Permissions::from_mode(0o600)).expect("set");
    // Another tenant's link in the agent's path.
    let python = packages(&["say==1.0"]);
    let place = index.layout().environment("ads", &python);
    let canary = index.folder().join("canary");
    fs::create_dir_all(&place).expect("made");
    std::os::unix::fs::symlink(&canary, place.join(".whole")).expect("linked");
    let log = FakeLog::default();
    let _agent = Running::start(&log, index.contained(), false);
    log.append(admitted(job_with(packages(&["say==2.0"]), "say")));
    let exit = run_incarnation(&log, 1, 1);
    let why = exit.reason.unwrap_or_default();
    assert!(why.contains("cannot be made") && !exit.evicted, "{why}");
    log.append(admitted(job_with(python, "say; env")));
    let exit = run_incarnation(&log, 2, 1);
    assert_eq!(exit.exit_code, Some(0), "{exit:?}");
    assert!(index.printed(2, 0).starts_with("say 1.0\n"));
    assert!(!canary.exists());
}

#[test]
fn a_docker_container_has_its_environment() {
    if !crate::docker::engine() {
        return;
    }
    let Some(index) = Index::new() else { return };
    let log = FakeLog::default();
    for (incarnation, contain) in [(1, None), (2, Some(Contain::default()))] {
        if contain.is_some() && !Contain::is_possible() {
            return skipped("not root");
        }
        let config = AgentConfig {
            runtime: RuntimeKind::Docker,
            cluster: format!("test-python-{}", std::process::id()),
            contain,
            ..index.contained()
        };
        let agent = Running::start(&log, config, false);
        let script = "say; touch $VIRTUAL_ENV/new || echo kept";
        log.append(admitted(job_with(packages(&["say==1.0"]), script)));
        let exit = run_incarnation(&log, incarnation, 1);
        agent.stop().expect("left in order");
        assert_eq!(exit.exit_code, Some(0), "{exit:?}");
        assert_eq!(index.printed(incarnation, 0), "say 1.0\nkept\n");
    }
}

#[test]
fn an_environment_that_is_in_use_is_not_old() {
    let Some(index) = Index::new() else { return };
    let log = FakeLog::default();
    let agent = Running::start(&log, index.config(), false);
    let python = packages(&["say==1.0"]);
    let place = index.layout().environment("ads", &python);
    log.append(admitted(job_with(python, "say; sleep 1000")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    let layout = index.layout();
    let marks = ContainerRecords::open(&layout).expect("opened");
    let is_old = || {
        let found = old(&layout, &marks, Duration::ZERO).expect("listed");
        found.iter().any(|it| it.path == place && it.bytes > 0)
    };
    assert!(!is_old());
    let _ = prune(&layout, &marks, Duration::ZERO);
    assert!(place.join("bin/say").exists());
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    let begun = Instant::now();
    while !is_old() {
        assert!(begun.elapsed() < Duration::from_secs(20), "its mark stays");
        std::thread::sleep(Duration::from_millis(20));
    }
    agent.stop().expect("left in order");
    assert!(prune(&layout, &marks, Duration::ZERO) >= 1);
    assert!(!place.exists());
}

#[test]
fn a_job_that_is_to_end_waits_for_no_index() {
    // Accepts connections, never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = silent.local_addr().expect("bound");
    let settings = format!("index-url = \"http://{address}/simple\"\n");
    let Some(index) = Index::of(&settings) else {
        return;
    };
    let log = FakeLog::default();
    let _agent = Running::start(&log, index.config(), false);
    log.append(admitted(job_with(packages(&["say==1.0"]), "say")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    let asked = silent.accept().expect("asked");
    let begun = Instant::now();
    log.append(stop(1));
    let exit = log.wait_exited(&id(1, 0));
    assert_ne!(exit.exit_code, Some(0), "{exit:?}");
    assert!(begun.elapsed() < Duration::from_secs(20));
    drop(asked);
}
