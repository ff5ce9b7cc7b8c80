//! The page in a browser (`flows`, `services`, driven by `browser`), and its server's refusals (`doors`).

mod browser;
mod doors;
mod flows;
mod services;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::common::{free_port, poll, root};
use browser::{Browser, http};

struct Served {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
    log: PathBuf,
}

impl Served {
    fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let log = folder.path().join("log.parquet");
        simulate(&log);
        Self::of(folder, log, &[])
    }

    fn of(folder: tempfile::TempDir, log: PathBuf, more: &[&str]) -> Self {
        let port = free_port();
        let child = dormouse()
            .args([
                "serve",
                "web",
                "--page",
                &format!("127.0.0.1:{port}"),
                "--log",
            ])
            .arg(&log)
            .args(more)
            .spawn()
            .expect("it starts");
        let served = Self {
            child,
            port,
            _folder: folder,
            log,
        };
        poll("the page answers", Duration::from_secs(60), || {
            std::net::TcpStream::connect(("127.0.0.1", port)).ok()
        });
        poll("the log is read", Duration::from_secs(60), || {
            let head = served.get("/api/head").1;
            let head: Value = serde_json::from_str(&head).ok()?;
            (head["read"] == true).then_some(())
        });
        served
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask("GET", path, &[], "");
        (status, body)
    }

    fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path);
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).expect("JSON")
    }

    fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (u16, String, String) {
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        if !headers.iter().any(|(name, _)| *name == "host") {
            head.push_str(&format!("host: 127.0.0.1:{}\r\n", self.port));
        }
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        http(self.port, &head, body)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn simulate(log: &Path) {
    let simulated = dormouse()
        .args(["simulate", "deploy/scenarios/dorm-seed1.json", "--log"])
        .arg(log)
        .output()
        .expect("it ends");
    assert!(simulated.status.success(), "{simulated:?}");
}

fn dormouse() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command
        .current_dir(root())
        .env_remove("DORMOUSE_OUTPUT")
        .env_remove("DORMOUSE_SERVER")
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Without a browser and axe, the test is skipped or fails.
fn tools() -> Option<(Browser, String)> {
    let axe = std::env::var_os("DORMOUSE_AXE").map(PathBuf::from);
    let tools =
        std::env::var_os("DORMOUSE_TOOLS").map_or_else(|| root().join(".tools"), PathBuf::from);
    let axe = axe.unwrap_or_else(|| tools.join("axe/axe.min.js"));
    let found = Browser::start().zip(std::fs::read_to_string(axe).ok());
    if found.is_none() {
        let text = "SKIPPED: no browser, or no axe-core; run scripts/install.sh browser";
        let no_skip = std::env::var("DORMOUSE_NO_SKIP").as_deref() == Ok("1");
        assert!(!no_skip, "{text}");
        eprintln!("{text}");
    }
    found
}
