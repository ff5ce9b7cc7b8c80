//! Tests with a slow or failing engine: a fake behind a Unix socket with one container.

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use dormouse_messages::events::NodeFault;
use dormouse_messages::grants::{Granted, Network};
use dormouse_messages::job::{EnvValue, Mount};
use dormouse_sandbox::folder::Below;

use super::starting::refused;
use super::*;
use crate::container::{Container, Ended, Evict, Note, Readiness, Start, Stop, What};
use crate::container_record::ContainerRecord;
use crate::layout::JobFolder;
use crate::watch::{Watch, Watched};

#[derive(Debug, Default)]
struct Seen {
    runs: bool,
    answered: bool,
    fails: u32,
    removals: u32,
    killed_as_it_started: bool,
    tells: VecDeque<(bool, String)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Never,
    WhenItEnds,
}

#[derive(Clone)]
struct Engine {
    seen: Arc<Mutex<Seen>>,
    answers: Answers,
}

const LONG: Duration = Duration::from_secs(30);

impl Engine {
    fn start(socket: &std::path::Path, answers: Answers, fails: u32) -> Self {
        let listener = UnixListener::bind(socket).expect("bound");
        let seen = Seen {
            fails,
            ..Seen::default()
        };
        let engine = Self {
            seen: Arc::new(Mutex::new(seen)),
            answers,
        };
        let serving = engine.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let engine = serving.clone();
                tokio::spawn(async move { engine.serve(stream).await });
            }
        });
        engine
    }

    fn seen<T>(&self, with: impl FnOnce(&mut Seen) -> T) -> T {
        with(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }

    async fn serve(&self, mut stream: UnixStream) {
        let mut request = Vec::new();
        let mut piece = [0; 4096];
        let head_end = loop {
            let read = stream.read(&mut piece).await.unwrap_or(0);
            if read == 0 {
                return;
            }
            request.extend_from_slice(&piece[..read]);
            if let Some(end) = request.windows(4).position(|it| it == b"\r\n\r\n") {
                break end;
            }
        };
        let head = String::from_utf8_lossy(&request[..head_end]).into_owned();
        let (status, body) = self.answer(&head).await;
        let reply = format!(
            "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        let _ = stream.write_all(reply.as_bytes()).await;
        let _ = tokio::time::timeout(Duration::from_millis(50), stream.read(&mut piece)).await;
    }

    async fn answer(&self, head: &str) -> (u16, String) {
        let line = head.lines().next().unwrap_or_default();
        let path = line.split(' ').nth(1).unwrap_or_default();
        let path = path.split('?').next().unwrap_or_default();
        let asked = path.rsplit('/').next().unwrap_or_default();
        let none = || r#"{"message":"no such container"}"#.to_owned();
        match (line.split(' ').next().unwrap_or_default(), asked) {
            ("POST", "create") => (201, r#"{"Id":"x","Warnings":[]}"#.to_owned()),
            ("POST", "start") => self.starts().await,
            ("POST", "kill") => self.seen(|seen| {
                if std::mem::take(&mut seen.runs) {
                    seen.killed_as_it_started = !seen.answered;
                    (204, String::new())
                } else {
                    (409, r#"{"message":"it does not run"}"#.to_owned())
                }
            }),
            ("DELETE", _) => self.seen(|seen| {
                seen.removals += 1;
                if seen.removals <= seen.fails {
                    return (500, r#"{"message":"the engine is busy"}"#.to_owned());
                }
                seen.runs = false;
                (204, String::new())
            }),
            ("GET", "logs") => self.seen(|seen| {
                let (is_followed, text) = seen.tells.pop_front().expect("a question less");
                assert_eq!(line.contains("follow=true"), is_followed, "{text:?}");
                match text.as_str() {
                    "FAILS" => (500, r#"{"message":"unexpected EOF"}"#.to_owned()),
                    _ => (200, text),
                }
            }),
            _ => (404, none()),
        }
    }

    async fn starts(&self) -> (u16, String) {
        self.seen(|seen| seen.runs = true);
        let ended = async {
            while self.answers == Answers::Never || self.seen(|seen| seen.runs) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let _ = tokio::time::timeout(LONG, ended).await;
        self.seen(|seen| seen.answered = true);
        (204, String::new())
    }
}

fn node(
    folder: &std::path::Path,
    patience_s: u64,
) -> (AgentConfig, ContainerRecords, DockerRuntime) {
    let name = "n0".parse().expect("a name");
    let config = AgentConfig::local(name, Default::default(), folder.to_owned());
    let marks = ContainerRecords::open(&config.layout()).expect("opened");
    let socket = folder.join("engine");
    let docker = Docker::connect_with_unix(
        socket.to_str().expect("text"),
        patience_s,
        bollard::API_DEFAULT_VERSION,
    );
    let (exits, _) = mpsc::unbounded_channel();
    let inner = Inner {
        docker: docker.expect("a client"),
        config: config.clone(),
        layout: config.layout(),
        marks: marks.clone(),
        exits,
        pauses: Pauses::default(),
        preparing: Preparing::default(),
    };
    let inner = Arc::new(inner);
    (config, marks, DockerRuntime { inner })
}

fn plan(config: &AgentConfig) -> ContainerPlan {
    let container: ContainerId = "ads/lr/1/0".parse().expect("an id");
    let folder = JobFolder::new(container.job.clone(), Sequence(1));
    ContainerPlan {
        request: Sequence(7),
        admitted: Sequence(1),
        argv: vec!["/bin/true".to_owned()],
        env: BTreeMap::new(),
        image: None,
        mounts: Vec::new(),
        user: None,
        port: 21_000,
        network: Network::Host,
        node_address: None,
        granted: Granted::default(),
        demand: Default::default(),
        gpu_part: None,
        gpus: Vec::new(),
        directory: config.layout().container(&container),
        checkpoint: config.layout().checkpoint(&folder, container.incarnation),
        resume: None,
        stored: None,
        members: None,
        work: None,
        code: None,
        python: None,
        container,
    }
}

/// The start's answer is lost. "Cannot start" would allow a second start, so the container must be gone
/// first.
#[tokio::test]
async fn what_runs_though_its_start_failed_is_gone_before_that_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(&folder.path().join("engine"), Answers::Never, 2);
    let (config, _, runtime) = node(folder.path(), 1);
    let started = runtime.start(plan(&config)).await;
    let (runs, removals) = engine.seen(|seen| (seen.runs, seen.removals));
    assert_eq!((runs, removals), (false, 3), "{started:?}");
    let Err(RuntimeError::Start(refused)) = started else {
        panic!("{started:?}")
    };
    assert_eq!(refused.fault, Some(NodeFault::Engine));
}

fn lines(lines: &[&str]) -> String {
    let line = |(second, line): (usize, &&str)| {
        let text = format!("2026-01-01T00:00:{second:02}.000000000Z {line}\n");
        let length = u8::try_from(text.len()).expect("a short line");
        format!("\u{1}\0\0\0\0\0\0{}{text}", char::from(length))
    };
    lines.iter().enumerate().map(line).collect()
}

#[tokio::test]
async fn what_an_engine_does_not_tell_at_once_is_asked_for_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(&folder.path().join("engine"), Answers::Never, 0);
    engine.seen(|seen| {
        seen.tells = [
            (true, lines(&["a"])),
            (true, "FAILS".to_owned()),
            (true, lines(&["a", "b", "c"])),
            (false, "FAILS".to_owned()),
            (false, lines(&["a", "b", "c", "d"])),
        ]
        .into();
    });
    let (config, marks, runtime) = node(folder.path(), 60);
    let plan = plan(&config);
    std::fs::create_dir_all(&plan.directory).expect("made");
    let copying = Copying {
        directory: config.layout().container_below(&plan.container),
        marks,
        container: plan.container.clone(),
        request: plan.request,
    };
    let (told, ended) = oneshot::channel();
    let docker = runtime.inner.docker.clone();
    let copied = tokio::spawn(output::copy(docker, "x".to_owned(), copying, false, ended));
    while engine.seen(|seen| seen.tells.len() > 2) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    told.send(()).expect("it is being copied");
    copied.await.expect("it ends");
    let text = std::fs::read_to_string(plan.directory.join(layout::STDOUT)).expect("copied");
    assert_eq!(text, "a\nb\nc\nd\n");
    assert!(engine.seen(|seen| seen.tells.is_empty()));
}

struct Told(mpsc::UnboundedSender<What>);

impl Actor for Told {
    type Context = Context<Self>;
}

impl Handler<Note> for Told {
    type Result = ();

    fn handle(&mut self, note: Note, _: &mut Context<Self>) {
        let _ = self.0.send(note.what);
    }
}

/// The engine's answer may come after the lease ends.
#[actix::test]
async fn a_container_that_is_taken_away_while_it_starts_is_ended_before_its_start_is_told() {
    is_ended_as_it_starts(|container| {
        container.do_send(Evict {
            reason: "the lease could not be renewed".to_owned(),
            grace: Duration::ZERO,
        });
    })
    .await;
}

#[actix::test]
async fn a_container_that_is_stopped_while_it_starts_is_ended_soon() {
    is_ended_as_it_starts(|container| {
        container.do_send(Stop {
            grace: Duration::from_secs(3600),
        });
    })
    .await;
}

async fn is_ended_as_it_starts(end: impl FnOnce(&Addr<Container>)) {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(&folder.path().join("engine"), Answers::WhenItEnds, 0);
    let (config, marks, runtime) = node(folder.path(), 60);
    let plan = plan(&config);
    let (told, mut notes) = mpsc::unbounded_channel();
    let container = Container::new(
        (
            marks,
            ContainerRecord::new(plan.container.clone(), plan.request),
        ),
        Arc::new(runtime),
        Told(told).start().recipient(),
        Below::new(folder.path().to_owned(), "container"),
        false,
        (None, Readiness::default()),
        None,
    );
    let container = container.start();
    container.do_send(Start {
        plan,
        resume: None,
        before: Vec::new(),
    });
    while !engine.seen(|seen| seen.runs) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    end(&container);
    let first = tokio::time::timeout(2 * LONG, notes.recv()).await;
    assert!(matches!(first, Ok(Some(What::Running(_)))), "{first:?}");
    let killed = engine.seen(|seen| seen.killed_as_it_started);
    assert!(killed, "it ran until its start was told");
}

#[actix::test]
async fn a_container_that_has_ended_before_its_start_is_told_is_told_as_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let engine = Engine::start(&folder.path().join("engine"), Answers::WhenItEnds, 0);
    let (config, marks, runtime) = node(folder.path(), 60);
    let runtime = Arc::new(runtime);
    let plan = plan(&config);
    let id = plan.container.clone();
    let watch = Watch::new(
        config
            .layout()
            .checkpoint_below(&plan.folder(), id.incarnation),
        config.layout().container_below(&id),
    );
    let (told, mut notes) = mpsc::unbounded_channel();
    let container = Container::new(
        (marks, ContainerRecord::new(id.clone(), plan.request)),
        Arc::clone(&runtime) as _,
        Told(told).start().recipient(),
        config.layout().container_below(&id),
        false,
        (Some(Watched::Coordinator(watch)), Readiness::default()),
        None,
    );
    let container = container.start();
    container.do_send(Start {
        plan,
        resume: None,
        before: Vec::new(),
    });
    while !engine.seen(|seen| seen.runs) {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    container.do_send(Ended(Exit::default()));
    runtime.kill(&id).await.expect("killed");
    let first = tokio::time::timeout(LONG, notes.recv()).await;
    assert!(matches!(first, Ok(Some(What::Running(_)))), "{first:?}");
    let second = tokio::time::timeout(LONG, notes.recv()).await;
    assert!(matches!(second, Ok(Some(What::Ended(_)))), "{second:?}");
}

#[test]
fn what_an_engine_repeats_of_a_jobs_document_is_not_the_nodes_fault() {
    let name = "n0".parse().expect("a name");
    let config = AgentConfig::local(name, Default::default(), "/tmp/none".into());
    let error = |message: &str| bollard::errors::Error::DockerResponseServerError {
        status_code: 500,
        message: message.to_owned(),
    };
    let full = error("write /var/lib/docker/tmp: no space left on device");
    let plan = plan(&config);
    assert_eq!(refused(&plan, &full).fault, Some(NodeFault::Disk));
    let word = "no space left".to_owned();
    let spoken = [
        ContainerPlan {
            argv: vec![word.clone()],
            ..plan.clone()
        },
        ContainerPlan {
            image: Some(word.clone()),
            ..plan.clone()
        },
        ContainerPlan {
            env: [(word.clone(), EnvValue::Plain(String::new()))].into(),
            ..plan.clone()
        },
        ContainerPlan {
            mounts: vec![Mount {
                source: word,
                target: "/x".to_owned(),
                read_only: true,
            }],
            ..plan.clone()
        },
    ];
    for plan in spoken {
        let repeated = error("exec: \"no space left\": executable file not found");
        assert_eq!(refused(&plan, &repeated).fault, None, "{plan:?}");
    }
    let unknown = error("invalid mount config: bind source path does not exist");
    assert_eq!(refused(&plan, &unknown).fault, None);
}
