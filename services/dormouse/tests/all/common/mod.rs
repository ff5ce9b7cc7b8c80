//! A cluster of real processes in a folder of its own, and the command line. Dropping the cluster kills every
//! process whose arguments or environment name the folder. A failed test keeps the folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dormouse_messages::{Event, Recorded};
use dormouse_replay::{Audit, LogReader, Verifier};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Enough for a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub struct Said {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Said {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    #[track_caller]
    pub fn error(&self) -> Value {
        let line = self.err.lines().last().unwrap_or_default();
        let value: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        value["error"].clone()
    }

    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }
}

pub struct Cluster {
    folder: Option<TempDir>,
    dir: PathBuf,
    url: Option<String>,
    binary: PathBuf,
    environment: BTreeMap<String, String>,
    children: BTreeMap<String, Child>,
    number: AtomicU64,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("dormouse-test-")
            .tempdir()
            .expect("a folder");
        Self {
            dir: folder.path().canonicalize().expect("it is there"),
            folder: Some(folder),
            url: None,
            binary: PathBuf::from(env!("CARGO_BIN_EXE_dormouse")),
            environment: BTreeMap::new(),
            children: BTreeMap::new(),
            number: AtomicU64::new(0),
        }
    }

    pub fn up(nodes: usize, capacity: &str) -> Self {
        let mut cluster = Self::new();
        cluster.start_up(nodes, capacity);
        cluster
    }

    pub fn start_up(&mut self, nodes: usize, capacity: &str) {
        let nodes_text = nodes.to_string();
        let args = ["up", "--nodes", &nodes_text, "--capacity", capacity];
        self.start("up", &args, &self.dir.clone());
        self.wait_for_nodes(nodes);
    }

    #[track_caller]
    pub fn wait_for_nodes(&self, nodes: usize) {
        poll("the nodes", PATIENCE, || {
            let said = self.run(&["nodes"]);
            let listed = said.code == 0 && said.json()["nodes"].as_array()?.len() >= nodes;
            listed.then_some(())
        });
    }

    pub fn broker() -> Self {
        let mut cluster = Self::new();
        let port = free_port();
        let config = format!(
            "listen: \"127.0.0.1:{port}\"\nmax_payload: 8388608\nmax_pending: 256MB\njetstream {{ store_dir: {:?} }}\n",
            cluster.dir.join("jetstream"),
        );
        std::fs::write(cluster.dir.join("nats-server.conf"), config).expect("writes");
        cluster.url = Some(format!("nats://127.0.0.1:{port}"));
        cluster.start_broker();
        cluster
    }

    pub fn start_broker(&mut self) {
        let config = self.dir.join("nats-server.conf");
        self.start_broker_of("nats-server", &config, &[]);
    }

    pub fn start_broker_of(&mut self, name: &str, config: &Path, environment: &[(String, String)]) {
        let mut command = Command::new(nats_server());
        command
            .arg("-c")
            .arg(config)
            .arg("--log")
            .arg(self.dir.join(format!("{name}.log")))
            .envs(environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let child = command.spawn().expect("nats-server starts");
        self.children.insert(name.to_owned(), child);
    }

    pub fn set_url(&mut self, url: String) {
        self.url = Some(url);
    }

    pub fn set_binary(&mut self, binary: &Path) {
        binary.clone_into(&mut self.binary);
    }

    pub fn env(&mut self, name: &str, value: &str) {
        self.environment.insert(name.to_owned(), value.to_owned());
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| {
            let url = std::fs::read_to_string(self.dir.join("broker/url")).expect("a broker runs");
            url.trim().to_owned()
        })
    }

    fn command(&self, data: &Path) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .current_dir(root())
            .env("DORMOUSE_NATS_SERVER", nats_server())
            .env_remove("DORMOUSE_PREFIX")
            .env_remove("DORMOUSE_OUTPUT")
            .env_remove("DORMOUSE_CONFIG")
            .env_remove("DORMOUSE_SERVER")
            .envs(&self.environment)
            .arg("--data")
            .arg(data)
            .stdin(Stdio::null());
        if let Some(url) = &self.url {
            command.arg("--server").arg(url);
        }
        command
    }

    pub fn start(&mut self, name: &str, args: &[&str], data: &Path) {
        let output = File::options()
            .create(true)
            .append(true)
            .open(self.dir.join(format!("{name}.log")))
            .expect("opens");
        let child = self
            .command(data)
            .args(args)
            .stdout(output.try_clone().expect("clones"))
            .stderr(output)
            .spawn()
            .expect("dormouse starts");
        self.children.insert(name.to_owned(), child);
    }

    pub fn pid(&self, name: &str) -> Option<u32> {
        self.children.get(name).map(Child::id)
    }

    pub fn kill(&mut self, name: &str) {
        if let Some(mut child) = self.children.remove(name) {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    pub fn kill_below(&self, name: &str) {
        for pid in processes(&self.dir.join(name), None) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }

    pub fn ended(&mut self, name: &str) -> Option<std::process::ExitStatus> {
        let status = self.children.get_mut(name)?.try_wait().expect("waits")?;
        self.children.remove(name);
        Some(status)
    }

    pub fn signal(&self, name: &str, signal: Signal) {
        let pid = self.pid(name).expect("it runs");
        kill(Pid::from_raw(i32::try_from(pid).expect("a pid")), signal).expect("it runs");
    }

    #[track_caller]
    pub fn stop(&mut self, name: &str) {
        self.signal(name, Signal::SIGTERM);
        let mut child = self.children.remove(name).expect("it runs");
        let status = poll("the end", PATIENCE, || child.try_wait().expect("waits"));
        assert!(status.success(), "{name}: {status}");
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, &["-o", "json"])
    }

    #[track_caller]
    pub fn run_with(&self, args: &[&str], output: &[&str]) -> Said {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let path = |kind: &str| self.dir.join(format!("command-{number}.{kind}"));
        let mut child = self
            .command(&self.dir)
            .args(args)
            .args(output)
            .stdout(File::create(path("out")).expect("creates"))
            .stderr(File::create(path("err")).expect("creates"))
            .spawn()
            .expect("dormouse starts");
        let deadline = Instant::now() + 2 * PATIENCE;
        let code = loop {
            if let Some(status) = child.try_wait().expect("waits") {
                break status.code().unwrap_or(-1);
            }
            if Instant::now() > deadline {
                let _ = child.kill();
                let _ = child.wait();
                panic!("dormouse {args:?} does not end");
            }
            sleep(Duration::from_millis(10));
        };
        let read = |kind| {
            let text = std::fs::read(path(kind)).expect("reads");
            let _ = std::fs::remove_file(path(kind));
            String::from_utf8_lossy(&text).into_owned()
        };
        Said {
            code,
            out: read("out"),
            err: read("err"),
        }
    }

    #[track_caller]
    pub fn submit(&self, document: &Value) -> Said {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let path = self.dir.join(format!("job-{number}.json"));
        std::fs::write(&path, document.to_string()).expect("writes");
        self.run(&["submit", path.to_str().expect("UTF-8")])
    }

    pub fn try_log(&self) -> Option<Vec<Arc<Recorded>>> {
        let path = self.log_file();
        let output = ["--file", path.to_str().expect("UTF-8"), "--overwrite"];
        let said = self.run_with(&["log", "export"], &output);
        if said.code != 0 {
            return None;
        }
        let reader = LogReader::open(&path).expect("opens");
        Some(reader.map(|it| Arc::new(it.expect("reads"))).collect())
    }

    #[track_caller]
    pub fn log(&self) -> Vec<Arc<Recorded>> {
        poll("the log", PATIENCE, || self.try_log())
    }

    pub fn log_file(&self) -> PathBuf {
        self.dir.join("exported.jsonl")
    }

    #[track_caller]
    pub fn wait_event<T>(&self, what: &str, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        poll(what, 2 * PATIENCE, || {
            let log = self.try_log()?;
            log.iter().filter_map(|it| it.event()).find_map(&mut wanted)
        })
    }

    #[track_caller]
    pub fn wait_completed(&self, job: &str) {
        self.wait_event(&format!("the end of {job}"), |event| match event {
            Event::JobCompleted(event) if event.job.to_string() == job => Some(()),
            Event::JobFailed(event) if event.job.to_string() == job => {
                panic!("{job} failed: {}", event.reason)
            }
            _ => None,
        });
    }

    #[track_caller]
    pub fn check(&self) -> Vec<Arc<Recorded>> {
        let log = self.log();
        let (mut audit, mut verifier) = (Audit::default(), Verifier::default());
        for recorded in &log {
            audit.read(recorded);
            verifier.read(recorded);
        }
        assert_eq!(audit.violations(), [], "{}", self.log_file().display());
        let report = verifier.finish();
        assert!(report.decisions > 0, "{report:?}");
        assert_eq!(report.findings, [], "{}", self.log_file().display());
        log
    }

    pub fn programs_below(&self, name: &str) -> Vec<i32> {
        processes(&self.dir.join(name), Some("count.py"))
    }

    pub fn programs(&self) -> Vec<i32> {
        processes(&self.dir, Some("count.py"))
    }

    #[track_caller]
    pub fn wait_no_programs(&self) {
        poll("no program is left", PATIENCE, || {
            self.programs().is_empty().then_some(())
        });
    }
}

/// Readers of a failure may not have the folder.
fn print_ends_of_logs(folder: &Path) {
    let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let logs = files.map(|file| file.path());
    for log in logs.filter(|path| path.extension().is_some_and(|it| it == "log")) {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        let from = text.lines().count().saturating_sub(8);
        eprintln!("the end of {}:", log.display());
        for line in text.lines().skip(from) {
            eprintln!("  {line}");
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let names: Vec<String> = self.children.keys().cloned().collect();
        for name in names {
            self.kill(&name);
        }
        // A killed supervisor leaves its broker, an agent its containers.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = processes(&self.dir, None);
            if left.is_empty() || Instant::now() > deadline {
                break;
            }
            for pid in left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            sleep(Duration::from_millis(20));
        }
        if std::thread::panicking()
            && let Some(folder) = self.folder.take()
        {
            print_ends_of_logs(folder.path());
            eprintln!("kept: {}", folder.keep().display());
        }
    }
}

#[track_caller]
pub fn poll<T>(what: &str, patience: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + patience;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "{what}: not within {patience:?}");
        sleep(POLL);
    }
}

pub fn count_job(name: &str, steps: u32, (min, max): (u32, u32), more: &[&str]) -> Value {
    let steps = steps.to_string();
    let mut start = vec!["python3", "deploy/examples/count.py"];
    start.extend(["--steps", &steps, "--step-ms", "100"]);
    start.extend(more);
    let resume: Vec<&str> = start.iter().copied().chain(["--resume"]).collect();
    json!({
        "name": name, "tenant": "ads", "command": {"start": start, "resume": resume},
        "demand": {"cpu": 1, "memory": "64Mi"}, "containers": {"min": min, "max": max},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 10}, "retries": 3,
        // These jobs run for seconds only and must be resized.
        "min_run_s": 0,
    })
}

/// The kernel chooses free ports from 32,768, and services have ports from 20,000.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU16 = AtomicU16::new(0);
    const PORTS: std::ops::Range<u16> = 10_000..20_000;
    let count = PORTS.end - PORTS.start;
    // Parallel test processes start at different ports.
    let begin = u16::try_from(std::process::id() * 100 % u32::from(count)).expect("small");
    loop {
        let number = GIVEN.fetch_add(1, Ordering::Relaxed);
        assert!(number < count, "no free port");
        let port = PORTS.start + (begin + number) % count;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub fn key_file(dir: &Path, name: &str) -> String {
    dir.join("keys").join(name).display().to_string()
}

pub fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().expect("the workspace")
}

pub fn nats_server() -> PathBuf {
    let given = std::env::var_os("DORMOUSE_NATS_SERVER").map(PathBuf::from);
    given.unwrap_or_else(|| root().join(".tools/bin/nats-server"))
}

/// Finds processes whose arguments, environment or output name `dir`.
fn processes(dir: &Path, program: Option<&str>) -> Vec<i32> {
    let contains = |text: &[u8], part: &[u8]| text.windows(part.len()).any(|it| it == part);
    let dir = dir.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").expect("Linux");
    let pids = entries.flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<i32>().ok()?;
        let arguments = std::fs::read(entry.path().join("cmdline")).ok()?;
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let output = std::fs::read_link(entry.path().join("fd/1")).unwrap_or_default();
        let output = output.as_os_str().as_encoded_bytes();
        let ours =
            contains(&arguments, dir) || contains(&environment, dir) || contains(output, dir);
        let wanted = program.is_none_or(|it| contains(&arguments, it.as_bytes()));
        (ours && wanted).then_some(pid)
    });
    pids.collect()
}
