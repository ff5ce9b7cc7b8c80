//! The product as a person meets it: a local cluster in a process of its own, jobs submitted from
//! the command line, the whole process killed again and again while jobs are resized.
//!
//! The seed is printed; DORMOUSE_SMOKE_SEED repeats a run, DORMOUSE_SMOKE_KILLS sets the number
//! of kills.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use dormouse_replay::{Audit, LogReader, Verifier};
use serde_json::Value;

/// Long enough for a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(120);

struct Cluster {
    data: tempfile::TempDir,
    up: Option<Child>,
}

impl Cluster {
    fn start() -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let mut cluster = Self { data, up: None };
        cluster.up();
        cluster
    }

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../..")
            .canonicalize()
            .expect("the workspace")
    }

    fn dormouse(&self) -> Command {
        let root = Self::root();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
        command
            .current_dir(&root)
            .env("DORMOUSE_DATA", self.data.path())
            .env("RUST_LOG", "warn");
        if std::env::var_os("DORMOUSE_NATS_SERVER").is_none() {
            command.env("DORMOUSE_NATS_SERVER", root.join(".tools/bin/nats-server"));
        }
        command
    }

    fn up(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.data.path().join("up.log"))
            .expect("opens");
        let mut command = self.dormouse();
        command.args(["up", "--nodes", "2", "--capacity", "cpu=4,memory=8Gi"]);
        self.up = Some(command.stderr(Stdio::from(log)).spawn().expect("starts"));
        let deadline = Instant::now() + PATIENCE;
        while !self.run(&["nodes"]).status.success() {
            assert!(
                Instant::now() < deadline,
                "the cluster did not start: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.data.path().join("up.log")).unwrap_or_default()
    }

    /// Kills the process that runs every service and agent; containers run on.
    fn kill(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = up.kill();
            let _ = up.wait();
        }
    }

    /// Stops it as ^C does.
    fn stop(&mut self) {
        if let Some(mut up) = self.up.take() {
            let _ = Command::new("kill").arg(up.id().to_string()).status();
            let _ = up.wait();
        }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.dormouse()
            .args(arguments)
            .args(["-o", "json"])
            .output()
            .expect("runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.run(arguments);
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|_| {
            panic!(
                "{arguments:?}: {text} {}",
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    fn submit(&self, name: &str, steps: u32, max: u32, extra: &str) -> Output {
        let file = self.data.path().join(format!("{name}.yaml"));
        let steps = format!("\"{steps}\"");
        let document = format!(
            "name: {name}\ntenant: t\ncommand:\n  start: [python3, deploy/examples/count.py, --steps, {steps}, --step-ms, \"100\"]\n  resume: [python3, deploy/examples/count.py, --steps, {steps}, --step-ms, \"100\", --resume]\ndemand: {{cpu: 1, memory: 1Gi}}\ncontainers: {{min: 1, max: {max}}}\ncheckpoint: {{mode: exit, grace_s: 20}}\nretries: 50\n{extra}"
        );
        std::fs::write(&file, document).expect("writes");
        self.run(&["submit", &file.display().to_string()])
    }

    /// The jobs that have not ended, once at most `wanted` are left.
    fn wait_until_open(&self, wanted: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let jobs = self.json(&["jobs"]);
            let rows = jobs["jobs"].as_array().cloned().unwrap_or_default();
            let open = rows.iter().filter(|row| row["ended_at"].is_null()).count();
            if open <= wanted {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{open} jobs do not end: {jobs:#}\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Every fact audited, every decision made again, from the exported log.
    fn check(&self) {
        let file = self.data.path().join("log.jsonl");
        let exported = self
            .dormouse()
            .args(["log", "export", "-o"])
            .arg(&file)
            .status();
        assert!(exported.expect("runs").success());
        let (mut audit, mut verifier) = (Audit::default(), Verifier::default());
        for recorded in LogReader::open(&file).expect("opens") {
            let recorded = Arc::new(recorded.expect("decodes"));
            audit.read(&recorded);
            verifier.read(&recorded);
        }
        assert_eq!(audit.violations(), [], "the log: {}", keep(&file));
        assert!(verifier.report().decisions > 0);
        assert!(
            verifier.report().findings.is_empty(),
            "{:#?} the log: {}",
            verifier.report().findings,
            keep(&file)
        );
    }
}

/// A failing log outlives the test's folder.
fn keep(file: &Path) -> String {
    let kept = std::env::temp_dir().join(format!("dormouse-smoke-{}.jsonl", std::process::id()));
    let _ = std::fs::copy(file, &kept);
    kept.display().to_string()
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop();
    }
}

#[test]
fn a_first_session() {
    let cluster = Cluster::start();
    let submitted = cluster.submit("count", 40, 4, "");
    assert_eq!(submitted.status.code(), Some(0), "{submitted:?}");
    assert_eq!(
        cluster.run(&["job", "wait", "t/count"]).status.code(),
        Some(0)
    );

    let again = cluster.submit("count", 40, 4, "");
    assert_eq!(again.status.code(), Some(1));
    let error: Value = serde_json::from_slice(&again.stderr).expect("an error in JSON");
    assert_eq!(error["error"]["code"], "name_in_use");
    let unknown = cluster.submit("other", 40, 4, "colour: red\n");
    let error: Value = serde_json::from_slice(&unknown.stderr).expect("an error in JSON");
    assert_eq!(error["error"]["code"], "unknown_field");
    assert!(
        error["error"]["message"]
            .as_str()
            .is_some_and(|text| text.contains("colour"))
    );

    cluster.submit("long", 100_000, 2, "");
    assert!(cluster.run(&["job", "cancel", "t/long"]).status.success());
    assert_eq!(
        cluster.run(&["job", "wait", "t/long"]).status.code(),
        Some(4)
    );
    assert_eq!(
        cluster.run(&["job", "show", "t/none"]).status.code(),
        Some(1)
    );
    for command in [
        &["cluster"][..],
        &["timeline", "utilization"],
        &["job", "show", "t/count"],
        &["node", "show", "n0"],
        &["replay", "verify"],
    ] {
        assert!(cluster.run(command).status.success(), "{command:?}");
    }
    cluster.check();
}

#[test]
fn a_running_job_is_resized_by_checkpoint_and_resume() {
    let cluster = Cluster::start();
    cluster.submit("first", 400, 8, "");
    std::thread::sleep(Duration::from_secs(1));
    cluster.submit("second", 60, 8, "");
    cluster.wait_until_open(0);
    let first = cluster.json(&["job", "show", "t/first"]);
    assert!(
        first["resizes"]
            .as_u64()
            .is_some_and(|resizes| resizes >= 1),
        "{first:#}"
    );
    cluster.check();
}

#[test]
fn a_cluster_that_was_stopped_and_started_again_goes_on() {
    let mut cluster = Cluster::start();
    cluster.submit("before", 20, 4, "");
    cluster.wait_until_open(0);
    cluster.submit("across", 150, 4, "");
    cluster.stop();
    cluster.up();
    // Every service went on from its own snapshot: a new job is allocated and runs.
    let submitted = cluster.submit("after", 20, 4, "");
    assert_eq!(
        submitted.status.code(),
        Some(0),
        "{submitted:?} {}",
        cluster.log()
    );
    cluster.wait_until_open(0);
    cluster.check();
}

#[test]
fn nothing_is_lost_when_everything_is_killed_again_and_again() {
    let from_env = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let seed = from_env("DORMOUSE_SMOKE_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    let kills = from_env("DORMOUSE_SMOKE_KILLS").unwrap_or(12);
    println!("DORMOUSE_SMOKE_SEED={seed}");
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = |below: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % below
    };
    let mut cluster = Cluster::start();
    for kill in 0..kills {
        cluster.submit(
            &format!("job-{kill}"),
            40 + u32::try_from(next(80)).expect("small"),
            6,
            "",
        );
        std::thread::sleep(Duration::from_millis(next(900)));
        cluster.kill();
        std::thread::sleep(Duration::from_millis(next(300)));
        cluster.up();
    }
    cluster.wait_until_open(0);
    cluster.check();
    let jobs = cluster.json(&["jobs"]);
    let rows = jobs["jobs"].as_array().cloned().unwrap_or_default();
    assert!(
        rows.iter().all(|row| row["phase"] == "completed"),
        "seed {seed}: {jobs:#}"
    );
}
