//! Tests of partitions resized in place, with real processes.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::*;
use dormouse_messages::events::{Acknowledged, ContainerReady, ResizeCause};
use dormouse_messages::job::{Executor, JobSpec};
use dormouse_messages::service::Ready;
use dormouse_messages::{ContainerId, Event};
use dormouse_node_agent::{AgentConfig, logs_path};

/// Acknowledges changes after a signal. `silent` never does, `stubborn` never leaves.
const MEMBER: &str = r#"
import json, os, signal, sys
mood = sys.argv[1]
signal.alarm(120)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])
signal.signal(signal.SIGHUP, lambda *_: None)
if mood == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
own, path, ack = int(os.environ["DORMOUSE_MEMBER"]), os.environ["DORMOUSE_MEMBERS"], os.environ["DORMOUSE_ACK"]
first = int(os.environ["DORMOUSE_GENERATION"])
def say(generation, state, step=None):
    if mood == "silent":
        return
    with open(ack + ".new", "w") as file:
        json.dump({"generation": generation, "state": state, "step": step}, file)
    os.rename(ack + ".new", ack)
last = -1
if first:
    say(first, "ready")
while True:
    with open(path) as file:
        text = file.read()
    members = json.loads(text)
    if members["generation"] > last:
        last = members["generation"]
        print(text, flush=True)
        if own in members["leaving"] and mood != "stubborn":
            say(last, "left", 100 + last)
            sys.exit(0)
        if own in [it["id"] for it in members["members"]]:
            say(last, "joined", 100 + last)
    signal.sigtimedwait([signal.SIGHUP], 60)
"#;

/// Serves 503 for half a second, then 200; `never` always 503; `dies` closes its port at SIGUSR1.
const REPLICA: &str = r#"
import http.server, os, signal, sys, threading, time
mood, began = sys.argv[1], time.monotonic()
signal.alarm(120)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ready = self.path == "/healthz" and mood != "never" and time.monotonic() - began > 0.5
        self.send_response(200 if ready else 503)
        self.end_headers()
    def log_message(self, *_):
        pass
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["DORMOUSE_PORT"])), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
signal.sigwait([signal.SIGUSR1])
server.shutdown()
server.server_close()
signal.pause()
"#;

fn config(folder: &Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("-V").output();
    let found = found.is_ok_and(|it| it.status.success());
    if !found {
        skipped("no python3");
    }
    found
}

fn member(mood: &str) -> JobSpec {
    let mut spec = elastic(&["python3", "-c", MEMBER, mood]);
    spec.resize.signal = Some("SIGHUP".to_owned());
    spec
}

fn replica(mood: &str, timeout_s: u32) -> JobSpec {
    let mut spec = service(&["python3", "-c", REPLICA, mood]);
    let ready = Ready {
        path: "/healthz".to_owned(),
        timeout_s,
    };
    spec.service.as_mut().expect("a service").ready = ready;
    spec
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.local_addr().expect("an address").port()
}

fn wait_answer(log: &FakeLog, rank: u32, generation: u32, state: Acknowledged) -> Option<u64> {
    log.wait(&format!("{state:?} of {rank}"), |event| match event {
        Event::MemberAcknowledged(it)
            if (it.container.rank.0, it.generation, it.state) == (rank, generation, state) =>
        {
            Some(it.step)
        }
        _ => None,
    })
}

fn wait_ready(log: &FakeLog, container: &ContainerId) -> ContainerReady {
    log.wait("container.ready", |event| match event {
        Event::ContainerReady(it) if it.container == *container => Some((**it).clone()),
        _ => None,
    })
}

fn wait_unready(log: &FakeLog, container: &ContainerId) -> String {
    log.wait("container.unready", |event| match event {
        Event::ContainerUnready(it) if it.container == *container => Some(it.reason.clone()),
        _ => None,
    })
}

fn seen(folder: &Path, container: &ContainerId) -> Vec<serde_json::Value> {
    let logs = logs_path(folder, container).expect("logs");
    let text = fs::read_to_string(logs.stdout).expect("read");
    let line = |line: &str| serde_json::from_str(line).expect("a document");
    text.lines().map(line).collect()
}

fn is_report_of_readiness(event: &Event) -> bool {
    matches!(event, Event::ContainerReady(_) | Event::ContainerUnready(_))
}

const ADJUSTED: ResizeCause = ResizeCause::Adjusted;
const JOINED: Acknowledged = Acknowledged::Joined;

#[test]
fn members_join_leave_and_die_while_the_others_go_on() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(member("well")));
    log.append(placed(1, 2));
    log.append(start(1, None));
    let pid = log.wait_started(&id(1, 0));
    for rank in [0, 1] {
        assert_eq!(wait_answer(&log, rank, 0, JOINED), Some(100));
    }
    assert_eq!(log.count(is_report_of_readiness), 0, "they start together");

    log.append(placed_more(1, &[(2, NODE)]));
    log.append(resize(1, &[2], &[], &[0, 1], ADJUSTED));
    wait_answer(&log, 2, 1, Acknowledged::Ready);
    let ready = wait_ready(&log, &id(1, 2));
    println!("a newcomer is ready {} ms after its start", ready.after_ms);
    assert!(ready.after_ms < 10_000);
    assert_eq!(seen(folder.path(), &id(1, 0)).len(), 1, "nobody waits");
    let asked = log.append(resized(1, &[0, 1, 2], ADJUSTED));
    for rank in [0, 1, 2] {
        assert_eq!(wait_answer(&log, rank, 1, JOINED), Some(101));
    }
    println!(
        "three members have joined {:?} after",
        log.at(asked).elapsed()
    );

    let asked = log.append(resize(2, &[], &[1], &[0, 2], ADJUSTED));
    assert_eq!(wait_answer(&log, 1, 2, Acknowledged::Left), Some(102));
    assert_eq!(log.wait_exited(&id(1, 1)).exit_code, Some(0), "by itself");
    println!("a leaver is gone {:?} after", log.at(asked).elapsed());
    wait_answer(&log, 0, 2, JOINED);
    log.append(resized(2, &[0, 2], ADJUSTED));

    let victim = log.wait_started(&id(1, 2));
    let victim = nix::unistd::Pid::from_raw(i32::try_from(victim).expect("small"));
    nix::sys::signal::killpg(victim, nix::sys::signal::Signal::SIGKILL).expect("killed");
    log.wait_exited(&id(1, 2));
    log.append(resized(3, &[0], ResizeCause::Lost));
    wait_answer(&log, 0, 3, JOINED);
    assert_eq!(log.wait_started(&id(1, 0)), pid, "it runs on");
    log.append(stop(1));
    log.wait_exited(&id(1, 0));
    agent.stop().expect("left in order");

    let documents = seen(folder.path(), &id(1, 0));
    let causes: Vec<_> = documents.iter().map(|it| it["cause"].as_str()).collect();
    let expected = ["started", "adjusted", "adjusted", "lost"].map(Some);
    assert_eq!(causes, expected);
    let (grown, shrunk) = (&documents[1], &documents[2]);
    let last =
        serde_json::json!({"id": 2, "rank": 2, "address": "127.0.0.1", "port": 21_116, "slots": 1});
    assert_eq!(grown["members"][2], last);
    assert_eq!(shrunk["leaving"], serde_json::json!([1]));
    assert_eq!(shrunk["members"][1]["rank"], 1, "no gap");
    assert!(shrunk["deadline"].is_string());
    let first = &seen(folder.path(), &id(1, 2))[0];
    assert_eq!(first["generation"], 0, "a newcomer waits to be listed");
    assert!(!folder.path().join("nodes/n0/members/ads").exists());
}

#[test]
fn who_does_not_leave_is_stopped_and_a_silent_newcomer_counts_as_ready() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(member("silent")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    log.append(admitted(member("stubborn")));
    log.append(placed_more(1, &[(1, NODE)]));
    log.append(resize(1, &[1], &[], &[0], ADJUSTED));
    wait_ready(&log, &id(1, 1));
    log.append(admitted(member("silent")));
    log.append(placed_more(1, &[(2, NODE)]));
    log.append(resize(2, &[2], &[1], &[0], ADJUSTED));
    log.wait_started(&id(1, 2));
    let asked = Instant::now();
    log.append(leave(2, &[1]));
    let exit = log.wait_exited(&id(1, 1));
    assert_eq!((exit.signal, exit.evicted), (Some(9), false));
    assert!(asked.elapsed() >= Duration::from_secs(1), "its grace");
    let ready = wait_ready(&log, &id(1, 2));
    assert!((10_000..15_000).contains(&ready.after_ms), "{ready:?}");
    log.append(stop(1));
    for rank in [0, 2] {
        assert_eq!(log.wait_exited(&id(1, rank)).signal, Some(15));
    }
    let is_answer = |event: &Event| match event {
        Event::MemberAcknowledged(it) => it.container.rank.0 != 1,
        _ => false,
    };
    assert_eq!(log.count(is_answer), 0);
}

#[test]
fn a_successor_repeats_nothing_and_asks_on() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(member("well")));
    log.append(placed(1, 1));
    log.append(start(1, None));
    wait_answer(&log, 0, 0, JOINED);
    log.append(placed_more(1, &[(1, NODE)]));
    log.append(resize(1, &[1], &[], &[0], ADJUSTED));
    wait_ready(&log, &id(1, 1));
    agent.stop().expect("left in order");
    let old = folder.path().join("nodes/n0/members/ads/old/3");
    fs::create_dir_all(&old).expect("made");
    let agent = Running::start(&log, config(folder.path()), false);
    log.wait_joined(2);
    log.append(resized(1, &[0, 1], ADJUSTED));
    for rank in [0, 1] {
        wait_answer(&log, rank, 1, JOINED);
    }
    log.append(stop(1));
    for rank in [0, 1] {
        log.wait_exited(&id(1, rank));
    }
    agent.stop().expect("left in order");
    assert_eq!(log.count(is_report_of_readiness), 1);
    let is_answer = |event: &Event| matches!(event, Event::MemberAcknowledged(_));
    // Rank 0: 0 and 1; rank 1: ready, and 1.
    assert_eq!(log.count(is_answer), 4);
    assert!(!old.exists());
}

#[test]
fn torchs_newcomers_are_ready_at_once() {
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    let mut spec = elastic(&["/bin/sh", "-c", "while :; do sleep 0.05; done"]);
    spec.executor = Executor::Torch;
    // Without a handler the signal is not sent.
    spec.resize.signal = Some("SIGHUP".to_owned());
    log.append(admitted(spec));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.append(placed_more(1, &[(1, NODE)]));
    log.append(resize(1, &[1], &[], &[0], ADJUSTED));
    assert!(wait_ready(&log, &id(1, 1)).after_ms < 1_000);
    log.append(resized(1, &[0, 1], ADJUSTED));
    log.append(stop(1));
    for rank in [0, 1] {
        assert_eq!(log.wait_exited(&id(1, rank)).signal, Some(15));
    }
}

#[test]
fn a_replica_is_ready_when_it_answers_and_is_not_when_it_stops_to() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(replica("dies", 15)));
    log.append(placed_at(41, free_port()));
    log.append(start(41, None));
    let pid = log.wait_started(&id(41, 0));
    let ready = wait_ready(&log, &id(41, 0));
    println!("ready {} ms after its start", ready.after_ms);
    assert!(ready.after_ms >= 500, "{ready:?}");
    // A restarted agent polls on.
    agent.stop().expect("left in order");
    let _agent = Running::start(&log, config(folder.path()), false);
    log.wait_joined(2);
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("small"));
    nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGUSR1).expect("signalled");
    let why = wait_unready(&log, &id(41, 0));
    assert!(
        why.contains("3 probes in a row") && why.contains("refused"),
        "{why}"
    );
    log.append(stop(41));
    log.wait_exited(&id(41, 0));
    assert_eq!(log.count(is_report_of_readiness), 2);
}

#[test]
fn a_replica_that_is_not_ready_in_time_says_why() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let _agent = Running::start(&log, config(folder.path()), false);
    log.append(admitted(replica("never", 2)));
    log.append(placed_at(42, free_port()));
    log.append(start(42, None));
    let why = wait_unready(&log, &id(42, 0));
    assert!(
        why.contains("timeout_s, 2 s") && why.contains("GET /healthz"),
        "{why}"
    );
    log.append(admitted(replica("never", 60)));
    log.append(placed_at(43, free_port()));
    log.append(start(43, None));
    log.wait_started(&id(43, 0));
    log.append(stop(43));
    log.wait_exited(&id(43, 0));
    assert_eq!(log.count(is_report_of_readiness), 1);
}

#[test]
fn the_example_trains_the_same_whoever_takes_part() {
    if !has_python() {
        return;
    }
    let (folder, log) = (folder(), FakeLog::default());
    let mut config = config(folder.path());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    config.working_dir = Some(root.canonicalize().expect("the repository"));
    let agent = Running::start(&log, config, false);
    let program = "deploy/examples/elastic.py";
    let spec = elastic(&["python3", program, "--steps", "1000000", "--step-ms", "10"]);
    log.append(admitted(spec));
    log.append(placed(1, 2));
    log.append(start(1, None));
    for rank in [0, 1] {
        wait_answer(&log, rank, 0, JOINED);
    }
    log.append(placed_more(1, &[(2, NODE)]));
    log.append(resize(1, &[2], &[], &[0, 1], ADJUSTED));
    wait_ready(&log, &id(1, 2));
    let asked = log.append(resized(1, &[0, 1, 2], ADJUSTED));
    let step = wait_answer(&log, 2, 1, JOINED).expect("a step");
    println!(
        "three take part {:?} after, at step {step}",
        log.at(asked).elapsed()
    );
    let asked = log.append(resize(2, &[], &[1], &[0, 2], ADJUSTED));
    wait_answer(&log, 1, 2, Acknowledged::Left);
    assert_eq!(log.wait_exited(&id(1, 1)).exit_code, Some(0));
    println!("one has left {:?} after", log.at(asked).elapsed());
    log.append(resized(2, &[0, 2], ADJUSTED));
    let victim = log.wait_started(&id(1, 2));
    let victim = nix::unistd::Pid::from_raw(i32::try_from(victim).expect("small"));
    nix::sys::signal::killpg(victim, nix::sys::signal::Signal::SIGKILL).expect("killed");
    log.wait_exited(&id(1, 2));
    log.append(resized(3, &[0], ResizeCause::Lost));
    wait_answer(&log, 0, 3, JOINED);
    for generation in 4.. {
        log.append(resized(generation, &[0], ADJUSTED));
        if wait_answer(&log, 0, generation, JOINED) >= Some(800) {
            break;
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    log.append(stop(1));
    assert_eq!(log.wait_exited(&id(1, 0)).exit_code, Some(0));
    agent.stop().expect("left in order");
    let last = log.wait("the last progress", |event| match event {
        Event::Progress(it) => Some((**it).clone()),
        _ => None,
    });
    assert_eq!(last.containers, 1);
    // A single process's result.
    assert!((last.metrics["loss"] - 0.009_909).abs() < 1e-6, "{last:?}");
}
