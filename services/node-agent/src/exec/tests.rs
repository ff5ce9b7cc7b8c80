//! Tests of a session with a simulated program: output is complete and in order, input arrives once, and a
//! program without a reader ends.

use std::sync::atomic::{AtomicI32, Ordering};

use base64::Engine as _;
use futures::FutureExt;
use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::attached::{Control, Input};
use super::*;

#[derive(Default)]
struct Played(AtomicI32);

impl Control for Played {
    fn signal(&self, signal: Signal) {
        self.0.store(signal as i32, Ordering::SeqCst);
    }

    fn resize(&self, _: Size) {}
}

struct Play {
    execs: Execs,
    prints: mpsc::Sender<(Stream, Bytes)>,
    reads: pipe::Receiver,
    ends: oneshot::Sender<ExecExit>,
    reported: oneshot::Receiver<ExecExit>,
    signalled: Arc<Played>,
}

fn container() -> ContainerId {
    "ads/lr/1/0".parse().expect("valid")
}

fn asked(name: &str, tenant: Option<&str>, query: &impl Serialize) -> Asked {
    Asked {
        after: None,
        name: name.to_owned(),
        tenant: tenant.map(str::to_owned),
        request: serde_json::to_vec(query).expect("encodes").into(),
    }
}

fn start() -> Start {
    Start {
        container: container(),
        command: vec!["cat".to_owned()],
        terminal: None,
    }
}

const NUMBER: u64 = 7;

async fn ask(
    execs: &Execs,
    name: &str,
    tenant: Option<&str>,
    query: &impl Serialize,
) -> Result<NodeAnswer, Refused> {
    execs.answer(&asked(name, tenant, query)).await
}

async fn play() -> Play {
    let (agent, mut asks) = mpsc::channel(1);
    let execs = Execs::new("n0".parse().expect("valid"), agent);
    let starting = tokio::spawn({
        let execs = execs.clone();
        async move { ask(&execs, EXEC, Some("ads"), &start()).await }
    });
    let ask = asks.recv().await.expect("asked");
    assert_eq!(ask.by, ExecBy::Tenant);
    let (input, reads) = pipe::pipe().expect("a pipe");
    let (prints, output) = mpsc::channel(1);
    let (ends, ended) = oneshot::channel();
    let (report, reported) = oneshot::channel();
    let signalled = Arc::new(Played::default());
    let attached = Attached {
        input: Input::Pipe(input),
        output,
        ended: ended
            .map(|exit| exit.unwrap_or_else(|_| ExecExit::without("never said")))
            .boxed(),
        control: signalled.clone(),
    };
    let opened = Opened {
        number: NUMBER,
        attached,
        report,
    };
    assert!(ask.answer.send(Ok(opened)).is_ok());
    starting.await.expect("ends").expect("started");
    Play {
        execs,
        prints,
        reads,
        ends,
        reported,
        signalled,
    }
}

impl Play {
    async fn read(&self, offset: u64) -> Piece {
        let read = Read {
            exec: NUMBER,
            offset,
            wait_ms: 3_000,
        };
        let answer = ask(&self.execs, EXEC_READ, Some("ads"), &read);
        let answer = answer.await.expect("read");
        let header = |name: &str| {
            let found = answer.headers.iter().find(|(it, _)| *it == name);
            found.map(|(_, value)| value.clone())
        };
        Piece::received(header, answer.payload.clone()).expect("whole")
    }

    async fn write(&self, offset: u64, bytes: &[u8], is_last: bool) -> u64 {
        let write = Write {
            exec: NUMBER,
            offset,
            bytes: STANDARD.encode(bytes),
            is_last,
            ..Write::default()
        };
        let answer = ask(&self.execs, EXEC_WRITE, Some("ads"), &write);
        let answer = answer.await.expect("written");
        let written: Written = serde_json::from_slice(&answer.payload).expect("valid");
        written.next
    }
}

fn exited(code: i32) -> ExecExit {
    ExecExit {
        code: Some(code),
        ..ExecExit::default()
    }
}

#[tokio::test]
async fn what_it_printed_is_read_in_order_and_again_until_it_was_read() {
    let play = play().await;
    let print = |stream, text: &'static str| play.prints.send((stream, text.into()));
    print(Stream::Stdout, "one").await.expect("open");
    print(Stream::Stderr, "bad").await.expect("open");
    print(Stream::Stdout, "two").await.expect("open");
    let first = play.read(0).await;
    assert_eq!(
        (first.stream, &first.bytes[..]),
        (Stream::Stdout, &b"one"[..])
    );
    assert_eq!(
        play.read(0).await,
        first,
        "a lost answer is asked for again"
    );
    let second = play.read(first.next).await;
    assert_eq!(
        (second.stream, &second.bytes[..]),
        (Stream::Stderr, &b"bad"[..])
    );
    let rest = play.read(first.next + 1).await;
    assert_eq!(&rest.bytes[..], b"ad");
    let third = play.read(second.next).await;
    assert_eq!(&third.bytes[..], b"two");
    play.ends.send(exited(3)).expect("followed");
    drop(play.prints);
    assert_eq!(play.reported.await, Ok(exited(3)));
    let read = Read {
        exec: NUMBER,
        offset: third.next,
        wait_ms: 0,
    };
    let last = ask(&play.execs, EXEC_READ, Some("ads"), &read);
    let last = last.await.expect("read").headers;
    assert!(
        last.iter()
            .any(|(name, value)| *name == ENDED && value.contains('3'))
    );
}

#[tokio::test]
async fn what_it_reads_comes_once_and_ends() {
    let mut play = play().await;
    assert_eq!(play.write(0, b"abc", false).await, 3);
    assert_eq!(play.write(0, b"abc", false).await, 3);
    assert_eq!(play.write(2, b"cde", true).await, 5);
    let mut read = String::new();
    play.reads.read_to_string(&mut read).await.expect("read");
    assert_eq!(read, "abcde");
}

#[tokio::test]
async fn a_slow_reader_makes_it_wait() {
    let play = play().await;
    let prints = play.prints.clone();
    let (pieces, bytes) = (100u64, 16 << 10);
    let printing = tokio::spawn(async move {
        for _ in 0..pieces {
            let piece = Bytes::from(vec![b'x'; bytes]);
            prints.send((Stream::Stdout, piece)).await.expect("open");
        }
    });
    let first = play.read(0).await;
    assert!(!printing.is_finished() && first.bytes.len() <= 128 << 10);
    let mut offset = 0;
    while offset < pieces * bytes as u64 {
        offset = play.read(offset).await.next;
    }
    printing.await.expect("all was taken");
}

#[tokio::test(start_paused = true)]
async fn one_that_nobody_asks_about_is_ended() {
    let play = play().await;
    let asked_until = Instant::now() + 2 * UNHEARD;
    while Instant::now() < asked_until {
        play.read(0).await;
    }
    assert_eq!(play.signalled.0.load(Ordering::SeqCst), 0);
    tokio::time::sleep(UNHEARD + Duration::from_secs(2)).await;
    assert_eq!(
        play.signalled.0.load(Ordering::SeqCst),
        Signal::SIGKILL as i32
    );
    let killed = ExecExit {
        signal: Some(9),
        ..ExecExit::default()
    };
    play.ends.send(killed).expect("followed");
    drop(play.prints);
    let reported = play.reported.await.expect("reported");
    assert!(reported.why.is_some_and(|why| why.contains("nobody")));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let read = Read {
        exec: NUMBER,
        offset: 0,
        wait_ms: 0,
    };
    let gone = ask(&play.execs, EXEC_READ, Some("ads"), &read);
    assert_eq!(gone.await.expect_err("forgotten").0, "not_found");
}

#[tokio::test]
async fn another_tenant_has_nothing_of_it_nor_a_tenant_of_the_operators() {
    let play = play().await;
    let read = Read {
        exec: NUMBER,
        offset: 0,
        wait_ms: 0,
    };
    // Only the starter has access, not even operators.
    for other in [Some("search"), None] {
        for (name, query) in [
            (EXEC_READ, serde_json::to_value(&read)),
            (
                EXEC_WRITE,
                serde_json::to_value(Write {
                    exec: NUMBER,
                    signal: Some(9),
                    ..Write::default()
                }),
            ),
        ] {
            let query = query.expect("encodes");
            let refused = ask(&play.execs, name, other, &query).await;
            assert_eq!(refused.expect_err("another's").0, "not_found");
        }
    }
    assert_eq!(play.signalled.0.load(Ordering::SeqCst), 0);
    let refused = ask(&play.execs, EXEC, Some("search"), &start()).await;
    assert_eq!(refused.expect_err("another's").0, "not_found");
}

#[tokio::test]
async fn what_cannot_be_run_is_refused() {
    let (agent, _asks) = mpsc::channel(1);
    let execs = Execs::new("n0".parse().expect("valid"), agent);
    let refused = async |start: &Start| {
        let refused = ask(&execs, EXEC, Some("ads"), start).await;
        refused.expect_err("wrong").0
    };
    let mut wrong = start();
    wrong.command.clear();
    assert_eq!(refused(&wrong).await, "bad_request");
    wrong.command = vec!["x".repeat(COMMAND_BYTES + 1)];
    assert_eq!(refused(&wrong).await, "bad_request");
    wrong = start();
    wrong.terminal = Some(Terminal {
        size: Size {
            rows: 1,
            columns: 1,
        },
        kind: Some("../../x\n".to_owned()),
    });
    assert_eq!(refused(&wrong).await, "bad_request");
    let slots: Vec<_> = (0..MOST_OF_A_TENANT)
        .map(|_| execs.slot("ads").expect("free"))
        .collect();
    assert_eq!(refused(&start()).await, "busy");
    assert!(execs.slot("search").is_ok());
    drop(slots);
    assert!(execs.slot("ads").is_ok());
}
