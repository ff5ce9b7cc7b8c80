//! Tests of `job exec`, isolation aside ([`crate::containment`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_messages::events::{ContainerExecEnded, ExecBy, TenantGranted};
use dormouse_messages::grants::{Exec, Grants};
use dormouse_messages::{ContainerId, Event};
use dormouse_node_agent::exec::attached::{Size, Terminal};
use dormouse_node_agent::exec::{
    EXEC, EXEC_READ, EXEC_WRITE, Execs, Piece, Read, Start, Started, Write,
};
use dormouse_node_agent::logs::Stream;
use dormouse_node_agent::{AgentConfig, RuntimeKind};
use dormouse_runtime::Asked;
use dormouse_sandbox::protocol::ExecExit;
use serde::Serialize;

use crate::common::*;

fn config(folder: &std::path::Path) -> AgentConfig {
    local(node(), Default::default(), folder.to_owned())
}

fn asked(name: &str, tenant: Option<&str>, query: &impl Serialize) -> Asked {
    Asked {
        after: None,
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        request: serde_json::to_vec(query).expect("encodes").into(),
    }
}

pub fn sh(container: &ContainerId, script: &str) -> Start {
    Start {
        container: container.clone(),
        command: ["/bin/sh", "-c", script].map(str::to_owned).into(),
        terminal: None,
    }
}

pub struct Person<'a> {
    execs: &'a Execs,
    tenant: Option<&'static str>,
    exec: u64,
    written: u64,
    read: u64,
}

impl<'a> Person<'a> {
    pub async fn start(
        execs: &'a Execs,
        tenant: Option<&'static str>,
        start: &Start,
    ) -> Result<Self, (String, String)> {
        let answer = execs.answer(&asked(EXEC, tenant, start)).await?;
        let started: Started = serde_json::from_slice(&answer.payload).expect("valid");
        Ok(Self {
            execs,
            tenant,
            exec: started.exec,
            written: 0,
            read: 0,
        })
    }

    async fn write(&mut self, write: Write, bytes: &[u8]) {
        let write = Write {
            exec: self.exec,
            offset: self.written,
            bytes: STANDARD.encode(bytes),
            ..write
        };
        let answered = self
            .execs
            .answer(&asked(EXEC_WRITE, self.tenant, &write))
            .await;
        answered.expect("written");
        self.written += bytes.len() as u64;
    }

    async fn piece(&mut self) -> Piece {
        let read = Read {
            exec: self.exec,
            offset: self.read,
            wait_ms: 3_000,
        };
        let read = asked(EXEC_READ, self.tenant, &read);
        let answer = self.execs.answer(&read).await.expect("read");
        let header = |name: &str| {
            let found = answer.headers.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| value.clone())
        };
        let piece = Piece::received(header, answer.payload.clone()).expect("whole");
        self.read = piece.next;
        piece
    }

    async fn until(&mut self, text: &str) -> String {
        let (mut said, until) = (String::new(), Instant::now() + Duration::from_secs(20));
        while !said.contains(text) {
            assert!(Instant::now() < until, "no {text:?} in {said:?}");
            let piece = self.piece().await;
            said.push_str(&String::from_utf8_lossy(&piece.bytes));
            assert!(piece.ended.is_none(), "it has ended: {said:?} {piece:?}");
        }
        said
    }

    /// Reads pending output.
    async fn until_quiet(&mut self, said: &mut String) -> Option<ExecExit> {
        loop {
            let piece = self.piece().await;
            said.push_str(&String::from_utf8_lossy(&piece.bytes));
            if piece.ended.is_some() || piece.bytes.is_empty() {
                return piece.ended;
            }
        }
    }

    pub async fn end(mut self) -> (String, String, ExecExit) {
        let (mut said, mut errors) = (String::new(), String::new());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < until, "it does not end: {said} {errors}");
            let piece = self.piece().await;
            let text = String::from_utf8_lossy(&piece.bytes).into_owned();
            match piece.stream {
                Stream::Stderr => errors.push_str(&text),
                _ => said.push_str(&text),
            }
            if let Some(exit) = piece.ended {
                return (said, errors, exit);
            }
        }
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

fn begin(log: &FakeLog, script: &str) -> ContainerId {
    let mut spec = spec(&["/bin/sh", "-c", script]);
    spec.env = BTreeMap::from([(
        "OWN".to_owned(),
        dormouse_messages::job::EnvValue::Plain("its own".to_owned()),
    )]);
    log.append(admitted(spec));
    log.append(placed(1, 1));
    log.append(start(1, None));
    log.wait_started(&id(1, 0));
    id(1, 0)
}

const ENDLESS: &str = "while :; do sleep 0.05; done";

fn exec_ended(log: &FakeLog, exec: u64) -> ContainerExecEnded {
    log.wait("container.exec_ended", |event| match event {
        Event::ContainerExecEnded(event) if event.exec == exec => Some((**event).clone()),
        _ => None,
    })
}

async fn streams(execs: &Execs, container: &ContainerId, log: &FakeLog) {
    let script = "echo $OWN $DORMOUSE_RANK; cat; echo bad >&2; exit 7";
    let mut person = Person::start(execs, Some("ads"), &sh(container, script))
        .await
        .expect("started");
    person.until("its own 0").await;
    let much = vec![b'x'; 60_000];
    for _ in 0..4 {
        person.write(Write::default(), &much).await;
    }
    let last = Write {
        is_last: true,
        ..Write::default()
    };
    person.write(last, b"end").await;
    let exec = person.exec;
    let (said, errors, exit) = person.end().await;
    assert_eq!((said.len(), &said[said.len() - 3..]), (240_003, "end"));
    assert_eq!((errors.as_str(), exit.code), ("bad\n", Some(7)));
    let ended = exec_ended(log, exec);
    assert_eq!((ended.exit_code, ended.reason), (Some(7), None));
    let started = log.wait("container.exec_started", |event| match event {
        Event::ContainerExecStarted(event) if event.exec == exec => Some((**event).clone()),
        _ => None,
    });
    assert_eq!(started.by, ExecBy::Tenant);
    assert_eq!(started.command, ["/bin/sh", "-c", script]);
    let mut person = Person::start(execs, None, &sh(container, "echo here; exec sleep 100"))
        .await
        .expect("started");
    person.until("here").await;
    let terminate = Write {
        signal: Some(15),
        ..Write::default()
    };
    person.write(terminate, b"").await;
    let (_, _, exit) = person.end().await;
    let by_signal = exit.signal == Some(15) || exit.code == Some(143);
    assert!(by_signal, "{exit:?}");
}

async fn terminal(execs: &Execs, container: &ContainerId) {
    let size = |rows, columns| Size { rows, columns };
    let script = "test -t 0 && test -t 1 && echo terminal $TERM; \
        while [ \"$(stty size)\" = '0 0' ]; do sleep 0.05; done; stty size; \
        trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done";
    let start = Start {
        terminal: Some(Terminal {
            size: size(30, 100),
            kind: Some("vt100".to_owned()),
        }),
        ..sh(container, script)
    };
    let mut person = Person::start(execs, Some("ads"), &start)
        .await
        .expect("started");
    let said = person.until("ready").await;
    assert!(said.contains("terminal vt100"), "{said:?}");
    assert!(said.contains("30 100"), "{said:?}");
    let resize = Write {
        resize: Some(size(31, 101)),
        ..Write::default()
    };
    person.write(resize, b"").await;
    let (said, _, exit) = person.end().await;
    assert!(said.contains("31 101"), "{said:?}");
    assert_eq!(exit.code, Some(5), "{said:?}");
    if ignores_interrupts() {
        eprintln!("this process was started with SIGINT ignored, and so is what it starts");
        return;
    }
    // The terminal turns ^C into a signal. A shell between vfork and exec may lose the signal (dash 0.5.12),
    // so the test repeats the key.
    let start = Start {
        terminal: start.terminal,
        ..sh(container, "echo ready; sleep 100; echo never")
    };
    let mut person = Person::start(execs, Some("ads"), &start)
        .await
        .expect("started");
    person.until("ready").await;
    let (mut said, until) = (String::new(), Instant::now() + Duration::from_secs(20));
    let exit = loop {
        person.write(Write::default(), &[3]).await;
        let ended = person.until_quiet(&mut said).await;
        assert!(Instant::now() < until, "it does not end: {said:?}");
        if let Some(exit) = ended {
            break exit;
        }
    };
    assert!(!said.contains("never"), "{said:?}");
    assert!(exit.signal == Some(2) || exit.code == Some(130), "{exit:?}");
}

fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("read");
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = u64::from_str_radix(ignored.expect("listed").trim(), 16);
    ignored.expect("a number") & 0b10 != 0
}

fn all(config: AgentConfig) {
    let log = FakeLog::default();
    let (agent, execs) = Running::with_execs(&log, config);
    let container = begin(&log, ENDLESS);
    runtime().block_on(async {
        streams(&execs, &container, &log).await;
        terminal(&execs, &container).await;
        let mut none = sh(&container, "");
        none.command = vec!["no-such-program".to_owned()];
        match Person::start(&execs, None, &none).await {
            Err((code, _)) => assert_eq!(code, "not_started"),
            Ok(person) => {
                let (said, errors, exit) = person.end().await;
                let shown = format!("{said} {errors} {exit:?}");
                assert_ne!(exit.code, Some(0), "{shown}");
            }
        }
    });
    let person = runtime();
    person.block_on(async {
        let script = "trap '' TERM HUP; echo here; while :; do sleep 0.05; done";
        let mut person = Person::start(&execs, Some("ads"), &sh(&container, script))
            .await
            .expect("started");
        person.until("here").await;
        log.append(stop(1));
        let exec = person.exec;
        let (_, _, exit) = person.end().await;
        assert_ne!(exit.code, Some(0), "{exit:?}");
        exec_ended(&log, exec);
        log.wait_exited(&container);
        let refused = Person::start(&execs, Some("ads"), &sh(&container, "true")).await;
        assert_eq!(refused.err().expect("over").0, "not_running");
    });
    agent.stop().expect("left in order");
}

#[test]
fn plain_processes_have_programs_run_in_them() {
    let folder = tempfile::tempdir().expect("a folder");
    all(config(folder.path()));
}

#[test]
fn contained_processes_have_programs_run_in_them() {
    use dormouse_node_agent::config::Contain;
    if !Contain::is_possible() {
        return skipped("only root builds sandboxes");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path());
    config.contain = Some(Contain::default());
    all(config);
}

#[test]
fn docker_containers_have_programs_run_in_them() {
    if !crate::docker::engine() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut config = config(folder.path());
    config.runtime = RuntimeKind::Docker;
    config.cluster = format!("exec-{}", std::process::id());
    all(config);
}

#[test]
fn a_grant_forbids_it_to_tenants_and_leaves_it_to_the_operator() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let (agent, execs) = Running::with_execs(&log, config(folder.path()));
    let container = begin(&log, ENDLESS);
    let grants = |exec| {
        log.append(TenantGranted {
            tenant: "ads".parse().expect("valid"),
            grants: Grants {
                exec,
                ..Grants::default()
            },
        });
    };
    grants(Some(Exec::Forbidden));
    // The grant is folded in order.
    let refused = runtime().block_on(async {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            match Person::start(&execs, Some("ads"), &sh(&container, "true")).await {
                Err(refused) => return refused,
                Ok(person) => drop(person.end().await),
            }
            assert!(Instant::now() < until, "it is not refused");
        }
    });
    assert_eq!(refused.0, "exec_not_granted");
    assert!(
        refused
            .1
            .contains("dormouse tenant grant ads --exec allowed")
    );
    runtime().block_on(async {
        let operator = Person::start(&execs, None, &sh(&container, "exit 3")).await;
        assert_eq!(operator.expect("may").end().await.2.code, Some(3));
    });
    log.append(stop(1));
    log.wait_exited(&container);
    agent.stop().expect("left in order");
}

/// The next agent reports the missing end.
#[test]
fn one_whose_agent_ends_is_ended_and_that_stands_on_the_log() {
    let (folder, log) = (tempfile::tempdir().expect("a folder"), FakeLog::default());
    let (agent, execs) = Running::with_execs(&log, config(folder.path()));
    let container = begin(&log, ENDLESS);
    let runtime = runtime();
    let (exec, pid) = runtime.block_on(async {
        let script = "echo pid $$ here; exec sleep 1000";
        let mut person = Person::start(&execs, None, &sh(&container, script))
            .await
            .expect("started");
        let said = person.until("here").await;
        let pid: u32 = said
            .split_whitespace()
            .nth(1)
            .and_then(|pid| pid.parse().ok())
            .expect("a number");
        (person.exec, pid)
    });
    agent.stop().expect("left in order");
    let until = Instant::now() + Duration::from_secs(10);
    while dormouse_sandbox::procfs::stat(pid).is_some_and(|stat| !stat.zombie) {
        assert!(Instant::now() < until, "it runs on without anybody");
        std::thread::sleep(Duration::from_millis(5));
    }
    let agent = Running::start(&log, config(folder.path()), false);
    let ended = exec_ended(&log, exec);
    assert!(ended.reason.is_some_and(|why| why.contains("agent")));
    assert_eq!(
        log.count(|event| matches!(event, Event::ContainerExited(_))),
        0
    );
    log.append(stop(1));
    log.wait_exited(&container);
    agent.stop().expect("left in order");
}
