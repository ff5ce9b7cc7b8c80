//! Another program in a container, independent of the driver: input, output, exit.

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

use dormouse_sandbox::folder::User;
use dormouse_sandbox::protocol::{Attachment, ExecExit};

use crate::logs::Stream;

const PIECE: usize = 16 << 10;

const PIECES: usize = 4;

/// Ends the input of a terminal: Ctrl-D.
const END_OF_INPUT: &[u8] = &[4];

/// The size of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub rows: u16,
    pub columns: u16,
}

/// A terminal with its type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    pub size: Size,
    #[serde(default)]
    pub kind: Option<String>,
}

/// The user to attach to another program in a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attach {
    /// Nobody is attached.
    Nobody,
    Pipes,
    Terminal(Terminal),
}

impl Attach {
    /// Returns the terminal.
    #[must_use]
    pub const fn terminal(&self) -> Option<&Terminal> {
        match self {
            Self::Terminal(terminal) => Some(terminal),
            Self::Nobody | Self::Pipes => None,
        }
    }
}

/// Control over a running program.
pub trait Control: Send + Sync {
    /// Signals the program's process group.
    fn signal(&self, signal: Signal);
    /// Sets the size of the program's terminal.
    fn resize(&self, size: Size);
}

/// The input of a program.
pub enum Input {
    Pipe(pipe::Sender),
    Terminal(pipe::Sender),
    /// An engine's connection. True with a terminal.
    Engine(Pin<Box<dyn AsyncWrite + Send>>, bool),
    Closed,
}

impl Input {
    /// Writes as many bytes as fit now, at least one. Bytes without a reader count as written.
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

    /// Ends the input.
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

/// A started program, with its user's ends.
pub struct Attached {
    pub input: Input,
    pub output: mpsc::Receiver<(Stream, Bytes)>,
    pub ended: BoxFuture<'static, ExecExit>,
    pub control: Arc<dyn Control>,
}

/// The ends of pipes or of a terminal.
pub struct Ends {
    pub input: Input,
    pub output: mpsc::Receiver<(Stream, Bytes)>,
    pub terminal: Option<OwnedFd>,
    /// The kind of the program's ends, and their descriptors.
    pub theirs: (Attachment, Vec<OwnedFd>),
}

/// Makes the ends. `user` may reopen the program's ends by name.
///
/// # Errors
/// Kernel errors.
pub fn ends(attach: &Attach, user: Option<User>) -> io::Result<Ends> {
    let ends = match attach {
        Attach::Nobody => nobodys(),
        Attach::Pipes => at_pipes()?,
        Attach::Terminal(terminal) => at_terminal(terminal)?,
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

/// A terminal that no process has open ends with an error.
async fn copy(mut reader: pipe::Receiver, stream: Stream, send: mpsc::Sender<(Stream, Bytes)>) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = reader.read(&mut piece).await {
        let piece = Bytes::copy_from_slice(&piece[..count]);
        if send.send((stream, piece)).await.is_err() {
            return;
        }
    }
}

fn nobodys() -> Ends {
    Ends {
        input: Input::Closed,
        output: mpsc::channel(PIECES).1,
        terminal: None,
        theirs: (Attachment::Files, Vec::new()),
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

/// Sets the size of a terminal.
///
/// # Errors
/// Kernel errors.
pub fn resize(terminal: &OwnedFd, size: Size) -> io::Result<()> {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    Ok(tcsetwinsize(terminal, size)?)
}
