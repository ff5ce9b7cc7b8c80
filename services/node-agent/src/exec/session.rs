//! One attached program across requests. A bounded amount of output is kept until it is read. Input is
//! written in order, each byte once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use nix::sys::signal::Signal;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use dormouse_messages::ContainerId;
use dormouse_messages::events::ExecBy;
use dormouse_sandbox::protocol::ExecExit;

use super::attached::{Attached, Control, Input};
use super::{Piece, Slot, Write};
use crate::logs::Stream;

const KEPT_BYTES: usize = 256 << 10;

const PIECE_BYTES: usize = 128 << 10;

/// Time until an unread program is ended. A reader asks every few seconds.
pub const UNHEARD: Duration = Duration::from_secs(20);

/// Time for leftover child processes to print.
const LAST_OUTPUT: Duration = Duration::from_millis(500);

const LOOK_EVERY: Duration = Duration::from_secs(1);

const NOBODY: &str = "nobody followed it any more";

#[derive(Default)]
struct Printed {
    start: u64,
    bytes: usize,
    pieces: VecDeque<(Stream, Bytes)>,
    ended: Option<ExecExit>,
    is_lost: bool,
}

/// A program with its buffered output.
pub struct Session {
    pub container: ContainerId,
    pub by: ExecBy,
    printed: Mutex<Printed>,
    asked_at: Mutex<Instant>,
    turn: watch::Sender<u64>,
    input: tokio::sync::Mutex<(u64, Input)>,
    control: Arc<dyn Control>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Printed {
    fn forget(&mut self, offset: u64) {
        while self.start < offset {
            let Some((_, piece)) = self.pieces.front_mut() else {
                return;
            };
            let behind = usize::try_from(offset - self.start).unwrap_or(usize::MAX);
            let count = behind.min(piece.len());
            let _ = piece.split_to(count);
            let is_empty = piece.is_empty();
            self.start += count as u64;
            self.bytes -= count;
            if is_empty {
                self.pieces.pop_front();
            }
        }
    }

    fn first(&self) -> Option<(Stream, Bytes)> {
        let (stream, first) = self.pieces.front()?;
        let same = self.pieces.iter().take_while(|(it, _)| it == stream);
        let mut bytes = BytesMut::with_capacity(first.len());
        for (_, piece) in same {
            if !bytes.is_empty() && bytes.len() + piece.len() > PIECE_BYTES {
                break;
            }
            bytes.extend_from_slice(piece);
        }
        Some((*stream, bytes.freeze()))
    }
}

impl Session {
    /// Begins a session. `report` gets the exit. The session ends without requests, and `forget` follows
    /// later.
    pub fn begin(
        (container, by): (ContainerId, ExecBy),
        attached: Attached,
        report: oneshot::Sender<ExecExit>,
        slot: Slot,
        forget: impl FnOnce() + Send + 'static,
    ) -> Arc<Self> {
        let session = Arc::new(Self {
            container,
            by,
            printed: Mutex::default(),
            asked_at: Mutex::new(Instant::now()),
            turn: watch::Sender::new(0),
            input: tokio::sync::Mutex::new((0, attached.input)),
            control: attached.control,
        });
        let own = Arc::clone(&session);
        let (output, ended) = (attached.output, attached.ended);
        tokio::spawn(async move {
            let exit = own.follow(output, ended).await;
            let _ = report.send(exit.clone());
            lock(&own.printed).ended = Some(exit);
            own.turned();
            drop(slot);
        });
        let own = Arc::clone(&session);
        tokio::spawn(async move {
            own.look().await;
            forget();
        });
        session
    }

    fn turned(&self) {
        self.turn.send_modify(|turn| *turn += 1);
    }

    async fn look(&self) {
        loop {
            sleep(LOOK_EVERY).await;
            if lock(&self.asked_at).elapsed() < UNHEARD {
                continue;
            }
            let has_ended = {
                let mut printed = lock(&self.printed);
                printed.is_lost = true;
                printed.ended.is_some()
            };
            if has_ended {
                return;
            }
            self.turned();
            self.control.signal(Signal::SIGKILL);
        }
    }

    async fn follow(
        &self,
        mut output: mpsc::Receiver<(Stream, Bytes)>,
        mut ended: futures::future::BoxFuture<'static, ExecExit>,
    ) -> ExecExit {
        let mut exit = None;
        let mut until = Instant::now();
        loop {
            tokio::select! {
                piece = output.recv() => match piece {
                    Some(piece) => self.keep(piece, exit.is_some()).await,
                    None => break,
                },
                how = &mut ended, if exit.is_none() => {
                    exit = Some(how);
                    until = Instant::now() + LAST_OUTPUT;
                }
                () = sleep_until(until), if exit.is_some() => break,
            }
        }
        let mut exit = match exit {
            Some(exit) => exit,
            None => ended.await,
        };
        if lock(&self.printed).is_lost && exit.code.is_none() {
            exit.why = Some(NOBODY.to_owned());
        }
        exit
    }

    async fn keep(&self, (stream, piece): (Stream, Bytes), has_ended: bool) {
        let mut turn = self.turn.subscribe();
        loop {
            turn.borrow_and_update();
            {
                let mut printed = lock(&self.printed);
                if printed.is_lost {
                    return;
                }
                if printed.bytes < KEPT_BYTES || has_ended {
                    printed.bytes += piece.len();
                    printed.pieces.push_back((stream, piece));
                    break;
                }
            }
            if turn.changed().await.is_err() {
                return;
            }
        }
        self.turned();
    }

    /// Returns output from `offset` on, or the exit, until `until`.
    pub async fn read(&self, offset: u64, until: Instant) -> Piece {
        let mut turn = self.turn.subscribe();
        loop {
            turn.borrow_and_update();
            *lock(&self.asked_at) = Instant::now();
            let (piece, has_room) = {
                let mut printed = lock(&self.printed);
                let before = printed.bytes;
                printed.forget(offset);
                let first = printed.first();
                let ended = first.is_none().then(|| printed.ended.clone()).flatten();
                let (stream, bytes) = first.unwrap_or((Stream::Stdout, Bytes::new()));
                let piece = Piece {
                    stream,
                    next: printed.start + bytes.len() as u64,
                    bytes,
                    ended,
                };
                (piece, printed.bytes < before)
            };
            if has_room {
                self.turned();
            }
            if !piece.bytes.is_empty() || piece.ended.is_some() {
                return piece;
            }
            if timeout_at(until, turn.changed()).await.is_err() {
                return piece;
            }
        }
    }

    /// Writes input until `until` and returns the total written.
    pub async fn write(&self, write: &Write, bytes: &[u8], until: Instant) -> u64 {
        *lock(&self.asked_at) = Instant::now();
        if let Some(size) = write.resize {
            self.control.resize(size);
        }
        let signal = write.signal.and_then(|it| Signal::try_from(it).ok());
        if let Some(signal) = signal {
            self.control.signal(signal);
        }
        let mut input = self.input.lock().await;
        let (given, input) = &mut *input;
        let Some(skip) = given.checked_sub(write.offset) else {
            return *given;
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let mut rest = bytes.get(skip..).unwrap_or_default();
        while !rest.is_empty() {
            let Ok(count) = timeout_at(until, input.write(rest)).await else {
                return *given;
            };
            *given += count as u64;
            rest = &rest[count.min(rest.len())..];
        }
        if write.is_last {
            let _ = timeout_at(until, input.close()).await;
        }
        *given
    }
}
