//! Tests against an S3 server (`scripts/install.sh s3`).

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Node, SAVER, URL, end, place, runtime, sh, until, wait_saved, wait_step};
use crate::common::*;
use dormouse_bucket::BucketSettings;
use dormouse_messages::Incarnation;
use dormouse_node_agent::logs_path;
use dormouse_node_agent::store::Store;
use tempfile::TempDir;

const SECRET: &str = "a-secret-that-is-nowhere-else";

struct Server {
    child: Child,
    port: u16,
    folder: TempDir,
}

fn program() -> Option<PathBuf> {
    let tools = std::env::var_os("DORMOUSE_TOOLS").map(PathBuf::from);
    let own = || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.tools"));
    let program = tools.unwrap_or_else(own).join("s3/bin/moto_server");
    program.is_file().then_some(program)
}

impl Server {
    fn start() -> Option<Self> {
        let Some(program) = program() else {
            skipped("no server that speaks S3; run scripts/install.sh s3");
            return None;
        };
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("bound").port();
        drop(free);
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("started");
        let folder = tempfile::tempdir().expect("a folder");
        let server = Self {
            child,
            port,
            folder,
        };
        until("the server answers", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        assert!(server.ask("PUT /checkpoints").starts_with("HTTP/1.1 200"));
        Some(server)
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("connected");
        let head = format!(
            "{request} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("asked");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        answer
    }

    fn settings(&self) -> BucketSettings {
        let path = self.folder.path().join("store.env");
        let text = format!(
            "AWS_ENDPOINT=http://127.0.0.1:{}\nAWS_ALLOW_HTTP=true\nAWS_REGION=us-east-1\nAWS_ACCESS_KEY_ID=dormouse\nAWS_SECRET_ACCESS_KEY={SECRET}\nAWS_SERVER_SIDE_ENCRYPTION=AES256\n",
            self.port
        );
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        BucketSettings {
            url: URL.to_owned(),
            options: Some(path),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Measures docs/benchmarks.md: `make bench-checkpoints`.
#[test]
#[ignore = "figures, not a test"]
fn figures_of_a_store() {
    let Some(server) = Server::start() else {
        return;
    };
    let runtime = runtime();
    let store = Store::open(&server.settings(), runtime.handle().clone());
    let store = store.expect("opened");
    for mib in [1_usize, 100] {
        let mut spent: Vec<[Duration; 3]> = (1..=5)
            .map(|incarnation| {
                let (first, second) = (Node::new(NODE), Node::new("n1"));
                let layout = first.config().layout();
                let below = layout.checkpoint_below(&job_folder(), Incarnation(incarnation));
                below.make().expect("made");
                let model: Vec<u8> = (0..mib << 20)
                    .map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3])
                    .collect();
                fs::write(below.path().join("model"), model).expect("written");
                let document = format!("{{\"step\":{incarnation}}}");
                fs::write(below.path().join("checkpoint.json"), document).expect("written");
                let begun = Instant::now();
                let path = below.path().join("model");
                fs::copy(&path, second.folder.path().join("copied")).expect("copied");
                let copied = begun.elapsed();
                let begun = Instant::now();
                let put = store.put(layout, job_folder(), Incarnation(incarnation), below);
                let uri = runtime.block_on(put.outcome()).expect("stored");
                let stored = begun.elapsed();
                let begun = Instant::now();
                let had = store.provide(second.config().layout(), job_folder(), uri);
                runtime.block_on(had.outcome()).expect("had");
                [copied, stored, begun.elapsed()]
            })
            .collect();
        let mut median = |which: usize| {
            spent.sort_by_key(|it| it[which]);
            spent[2][which]
        };
        println!(
            "{mib} MiB, medians of 5: copied {:?}, stored {:?}, had on another node {:?}",
            median(0),
            median(1),
            median(2)
        );
    }
}

#[test]
fn a_job_moves_to_a_node_that_shares_no_folder_and_goes_on_from_its_step() {
    let Some(server) = Server::start() else {
        return;
    };
    let (runtime, log) = (runtime(), FakeLog::default());
    let store = Store::open(&server.settings(), runtime.handle().clone());
    let store = store.expect("opened");
    let (first, second) = (Node::new(NODE), Node::new("n1"));
    let _first = Running::with_store(&log, first.config(), &store);
    let _second = Running::with_store(&log, second.config(), &store);
    let script = format!("env >&2\n{SAVER}");
    place(
        &log,
        &[
            joined_as("n1"),
            admitted(sh(&script)),
            placed(1, 1),
            start(1, None),
        ],
    );
    wait_step(&log, 1);
    log.append(save(1));
    let saved = wait_saved(&log, 42);
    assert!(
        saved.uri.starts_with(&format!("{URL}/ads/lr/")) && saved.uri.contains("/1-"),
        "{}",
        saved.uri
    );
    log.wait_exited(&id(1, 0));
    // Every rank reads the checkpoint elsewhere.
    place(
        &log,
        &[placed_on(2, &["n1", "n1"]), start(2, Some(&saved.uri))],
    );
    wait_step(&log, 43);
    assert!(!checkpoints(second.folder.path()).join("1").exists());
    let head = server.ask(&format!(
        "HEAD /checkpoints/{}/manifest.json",
        saved.uri.trim_start_matches("s3://checkpoints/")
    ));
    assert!(
        head.starts_with("HTTP/1.1 403"),
        "read without credentials: {head}"
    );
    for (node, container) in [(&first, id(1, 0)), (&second, id(2, 0))] {
        let logs = logs_path(node.folder.path(), &container).expect("printed");
        let printed = fs::read_to_string(logs.stderr).expect("read");
        assert!(printed.contains("DORMOUSE_JOB"), "{printed}");
        assert!(
            !printed.contains("AWS_") && !printed.contains(SECRET),
            "{printed}"
        );
    }
    assert!(!format!("{:?}", log.events()).contains(SECRET));
    end(&log, 2, 2);
}
