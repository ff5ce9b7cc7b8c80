//! Sends the standard input, terminal sizes and interrupts to a program.

use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dormouse_node_agent::exec::{EXEC_WRITE, Write, Written};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use super::program::Program;
use super::terminal;

const PIECE: usize = 32 << 10;

const PIECES: usize = 2;

const INTERRUPT: i32 = 2;
const KILL: i32 = 9;
const TERMINATE: i32 = 15;

const LAST_INTERRUPT: u32 = 3;

/// The thread is never joined: its read may block as long as the terminal exists.
fn standard() -> mpsc::Receiver<Vec<u8>> {
    let (send, receive) = mpsc::channel(PIECES);
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        while let Ok(count @ 1..) = std::io::stdin().read(&mut piece) {
            if send.blocking_send(piece[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receive
}

async fn next(signals: &mut Option<Signal>) {
    match signals {
        Some(signals) => drop(signals.recv().await),
        None => std::future::pending().await,
    }
}

/// Sends all input until the program takes no more.
pub async fn give(program: Program, has_terminal: bool) {
    let mut input = standard();
    let mut resized = has_terminal
        .then(|| signal(SignalKind::window_change()).ok())
        .flatten();
    let mut interrupted = signal(SignalKind::interrupt()).ok();
    let mut terminated = signal(SignalKind::terminate()).ok();
    let (mut offset, mut is_over, mut interrupts) = (0, false, 0);
    loop {
        let mut write = Write {
            exec: program.exec,
            offset,
            ..Write::default()
        };
        let mut bytes = Vec::new();
        tokio::select! {
            piece = input.recv(), if !is_over => match piece {
                Some(piece) => bytes = piece,
                None => (write.is_last, is_over) = (true, true),
            },
            () = next(&mut resized) => write.resize = Some(terminal::size()),
            () = next(&mut interrupted) => {
                interrupts += 1;
                let last = interrupts >= LAST_INTERRUPT;
                write.signal = Some(if last { KILL } else { INTERRUPT });
            }
            () = next(&mut terminated) => write.signal = Some(TERMINATE),
        }
        let end = offset + bytes.len() as u64;
        loop {
            let from = usize::try_from(end - offset).map_or(0, |left| bytes.len() - left);
            write.offset = offset;
            write.bytes = STANDARD.encode(&bytes[from..]);
            let Ok(answered) = program.ask(EXEC_WRITE, &write).await else {
                return;
            };
            match serde_json::from_slice::<Written>(&answered.payload) {
                Ok(written) => offset = written.next.clamp(offset, end),
                Err(_) => return,
            }
            if offset == end {
                break;
            }
        }
    }
}
