//! A program in a container as somebody who is attached to it has it, whatever runs it: what it
//! reads, what it prints, how it ends.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use nix::sys::signal::Signal;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::keeper::words::{Attachment, ExecExit};
use crate::logs::Stream;
use crate::runtime::User;

/// What is read of a program at once.
const PIECE: usize = 16 << 10;

/// Pieces that wait for whoever is attached.
const PIECES: usize = 4;

/// What ends the input of a terminal: Ctrl-D.
const END_OF_INPUT: &[u8] = &[4];

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// A terminal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    /// Its size.
    pub size: Size,
    /// Which one it is, as in the variable `TERM`.
    #[serde(default)]
    pub kind: Option<String>,
}

/// What is done to a program that runs.
pub trait Control: Send + Sync {
    /// Signals it and its process group.
    fn signal(&self, signal: Signal);
    /// Its terminal has another size.
    fn resize(&self, size: Size);
}

/// What a program reads.
pub enum Input {
    /// A pipe.
    Pipe(pipe::Sender),
    /// A terminal.
    Terminal(pipe::Sender),
    /// A connection to a container engine.
    Engine(Pin<Box<dyn AsyncWrite + Send>>, bool),
    /// Nothing any more.
    Closed,
}

impl Input {
    /// Writes as much as is taken now, once anything is. What nobody reads any more counts as taken.
    pub async fn write(&mut self, bytes: &[u8]) -> usize {
        let written = match self {
            Self::Pipe(end) | Self::Terminal(end) => end.write(bytes).await,
            Self::Engine(engine, _) => match engine.write(bytes).await {
                Ok(written) => engine.flush().await.map(|()| written),
                Err(error) => Err(error),
            },
            Self::Closed => Ok(bytes.len()),
        };
        written.unwrap_or_else(|_| {
            *self = Self::Closed;
            bytes.len()
        })
    }

    /// Nothing more comes.
    pub async fn close(&mut self) {
        let has_terminal = matches!(self, Self::Terminal(_) | Self::Engine(_, true));
        if has_terminal {
            self.write(END_OF_INPUT).await;
        } else if let Self::Engine(engine, _) = self {
            let _ = engine.shutdown().await;
        }
        if !has_terminal {
            *self = Self::Closed;
        }
    }
}

/// A program that somebody is attached to.
pub struct Attached {
    /// What it reads.
    pub input: Input,
    /// What it prints; ends when nobody can print there any more.
    pub output: mpsc::Receiver<(Stream, Bytes)>,
    /// How it ends.
    pub ended: BoxFuture<'static, ExecExit>,
    /// What can be done to it.
    pub control: Arc<dyn Control>,
}

/// The ends of pipes or of a terminal that stay here, and those that are the program's.
pub struct Ends {
    /// What it reads.
    pub input: Input,
    /// What it prints.
    pub output: mpsc::Receiver<(Stream, Bytes)>,
    /// Its terminal.
    pub terminal: Option<OwnedFd>,
    /// The program's, and what they are.
    pub theirs: (Attachment, Vec<OwnedFd>),
}

/// Makes them, for a program of `user`: it may open them once more by their names.
///
/// # Errors
/// What the kernel refuses.
pub fn ends(terminal: Option<&Terminal>, user: Option<User>) -> io::Result<Ends> {
    let ends = match terminal {
        Some(terminal) => at_terminal(terminal)?,
        None => at_pipes()?,
    };
    if let Some(User { uid, gid }) = user {
        let (uid, gid) = (
            rustix::fs::Uid::from_raw(uid),
            rustix::fs::Gid::from_raw(gid),
        );
        for descriptor in &ends.theirs.1 {
            rustix::fs::fchown(descriptor, Some(uid), Some(gid))?;
        }
    }
    Ok(ends)
}

/// Until its end: an error is one, too, of a terminal that nobody has open any more.
async fn copy(mut reader: pipe::Receiver, stream: Stream, send: mpsc::Sender<(Stream, Bytes)>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        let piece = Bytes::copy_from_slice(&piece[..count]);
        if send.send((stream, piece)).await.is_err() {
            return;
        }
    }
}

fn at_pipes() -> io::Result<Ends> {
    let (their_input, input) = io::pipe()?;
    let (output, their_output) = io::pipe()?;
    let (errors, their_errors) = io::pipe()?;
    let (send, receive) = mpsc::channel(PIECES);
    for (reader, stream) in [(output, Stream::Stdout), (errors, Stream::Stderr)] {
        let reader = pipe::Receiver::from_owned_fd(reader.into())?;
        tokio::spawn(copy(reader, stream, send.clone()));
    }
    Ok(Ends {
        input: Input::Pipe(pipe::Sender::from_owned_fd(input.into())?),
        output: receive,
        terminal: None,
        theirs: (
            Attachment::Pipes,
            vec![their_input.into(), their_output.into(), their_errors.into()],
        ),
    })
}

fn at_terminal(terminal: &Terminal) -> io::Result<Ends> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let own = openpt(flags)?;
    unlockpt(&own)?;
    let theirs = ioctl_tiocgptpeer(&own, flags)?;
    resize(&own, terminal.size)?;
    rustix::io::ioctl_fionbio(&own, true)?;
    // Read and written as a pipe is: by readiness.
    let reader = pipe::Receiver::from_owned_fd_unchecked(own.try_clone()?)?;
    let writer = pipe::Sender::from_owned_fd_unchecked(own.try_clone()?)?;
    let (send, receive) = mpsc::channel(PIECES);
    tokio::spawn(copy(reader, Stream::Stdout, send));
    Ok(Ends {
        input: Input::Terminal(writer),
        output: receive,
        terminal: Some(own),
        theirs: (Attachment::Terminal, vec![theirs]),
    })
}

/// Says how large a terminal is.
///
/// # Errors
/// What the kernel refuses.
pub fn resize(terminal: &OwnedFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}
