//! A nonblocking socket with one JSON message per line. A message may carry open descriptors.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Disconnect a peer whose send backlog exceeds this.
const UNREAD_BYTES: usize = 64 << 20;

/// Most messages are smaller, and an init's stack has space for it.
const CHUNK: usize = 8 * 1024;

const MOST: usize = 3;

/// One end of a framed socket.
#[derive(Debug)]
pub struct Lines {
    stream: UnixStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
    came: VecDeque<OwnedFd>,
    /// Descriptors to send, with the position of their first byte.
    going: VecDeque<(usize, Vec<OwnedFd>)>,
    is_open: bool,
}

/// Sends bytes with descriptors, and returns the number of bytes sent.
///
/// # Errors
/// Kernel errors.
pub fn send_with(socket: impl AsFd, bytes: &[u8], with: &[OwnedFd]) -> io::Result<usize> {
    let with: Vec<BorrowedFd<'_>> = with.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&with)) {
        return Err(io::Error::other("too many descriptors with one word"));
    }
    let bytes = [IoSlice::new(bytes)];
    Ok(sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL)?)
}

impl Lines {
    /// Wraps a connected socket.
    ///
    /// # Errors
    /// Kernel errors.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            read: Vec::new(),
            unsent: Vec::new(),
            came: VecDeque::new(),
            going: VecDeque::new(),
            is_open: true,
        })
    }

    /// Returns the events to poll for.
    #[must_use]
    pub const fn interest(&self) -> PollFlags {
        if self.unsent.is_empty() {
            PollFlags::POLLIN
        } else {
            PollFlags::POLLIN.union(PollFlags::POLLOUT)
        }
    }

    /// Returns false once the peer has gone.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Reports whether all messages are sent.
    #[must_use]
    pub fn has_said_all(&self) -> bool {
        self.unsent.is_empty()
    }

    /// Sends a message, now or later.
    pub fn say(&mut self, word: &impl Serialize) {
        match serde_json::to_vec(word) {
            Ok(text) => {
                self.unsent.extend(text);
                self.unsent.push(b'\n');
                self.flush();
            }
            Err(error) => eprintln!("a word cannot be written: {error}"),
        }
    }

    /// Sends a message with descriptors.
    pub fn say_with(&mut self, word: &impl Serialize, with: Vec<OwnedFd>) {
        if !with.is_empty() {
            self.going.push_back((self.unsent.len(), with));
        }
        self.say(word);
    }

    /// Takes `count` received descriptors, oldest first.
    #[must_use]
    pub fn take(&mut self, count: usize) -> Option<Vec<OwnedFd>> {
        (self.came.len() >= count).then(|| self.came.drain(..count).collect())
    }

    fn write(&mut self) -> io::Result<usize> {
        match self.going.front() {
            None => self.stream.write(&self.unsent),
            Some((0, with)) => {
                let end = self.going.get(1).map_or(self.unsent.len(), |next| next.0);
                let sent = send_with(&self.stream, &self.unsent[..end], with)?;
                self.going.pop_front();
                Ok(sent)
            }
            Some((place, _)) => self.stream.write(&self.unsent[..*place]),
        }
    }

    /// Sends waiting bytes.
    pub fn flush(&mut self) {
        while self.is_open && !self.unsent.is_empty() {
            match self.write() {
                Ok(0) => self.is_open = false,
                Ok(count) => {
                    self.unsent.drain(..count);
                    for (place, _) in &mut self.going {
                        *place -= count;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
        self.is_open &= self.unsent.len() <= UNREAD_BYTES;
    }

    fn receive(&mut self, chunk: &mut [u8]) -> io::Result<usize> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(chunk)];
        let received = recvmsg(
            &self.stream,
            &mut into,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )?;
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.came.extend(descriptors);
            }
        }
        Ok(received.bytes)
    }

    /// Returns the received messages.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.receive(&mut chunk) {
                Ok(0) => {
                    self.is_open = false;
                    break;
                }
                Ok(count) => self.read.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.is_open = false;
                    break;
                }
            }
        }
        let Some(end) = self.read.iter().rposition(|byte| *byte == b'\n') else {
            return Vec::new();
        };
        let rest = self.read.split_off(end + 1);
        let lines = std::mem::replace(&mut self.read, rest);
        let lines = lines
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty());
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}

impl AsFd for Lines {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_arrive_whole_however_they_are_cut() {
        let (own, other) = UnixStream::pair().expect("a pair");
        let (mut own, mut other) = (Lines::new(own).expect("made"), other);
        other.write_all(b"1\n2\nno word\n3").expect("written");
        assert_eq!(own.hear::<u32>(), [1, 2]);
        other.write_all(b"4\n").expect("written");
        assert_eq!(own.hear::<u32>(), [34]);
        drop(other);
        assert!(own.hear::<u32>().is_empty());
        assert!(!own.is_open());
    }

    #[test]
    fn descriptors_come_with_their_words_in_order() {
        let (own, other) = UnixStream::pair().expect("a pair");
        let (mut own, mut other) = (
            Lines::new(own).expect("made"),
            Lines::new(other).expect("made"),
        );
        let mut readers = Vec::new();
        for number in 0..40u32 {
            own.say(&"x".repeat(20_000));
            let (reader, writer) = io::pipe().expect("a pipe");
            readers.push(reader);
            own.say_with(&format!("{number}"), vec![OwnedFd::from(writer)]);
        }
        let mut next = 0u32;
        while next < 40 {
            for word in other.hear::<String>() {
                if word.len() > 2 {
                    continue;
                }
                assert_eq!(word, next.to_string());
                let mut with = other.take(1).expect("it came with its word");
                let mut writer = io::PipeWriter::from(with.remove(0));
                writer.write_all(word.as_bytes()).expect("written");
                next += 1;
            }
            own.flush();
        }
        assert!(other.take(1).is_none(), "none is left");
        for (number, mut reader) in (0..).zip(readers) {
            let mut said = String::new();
            io::Read::read_to_string(&mut reader, &mut said).expect("it is closed");
            assert_eq!(said, format!("{number}"));
        }
    }

    #[test]
    fn an_end_that_does_not_read_holds_nobody_up() {
        let (own, other) = UnixStream::pair().expect("a pair");
        let (mut own, mut other) = (
            Lines::new(own).expect("made"),
            Lines::new(other).expect("made"),
        );
        let word = "x".repeat(100_000);
        (0..100).for_each(|_| own.say(&word));
        assert!(own.is_open() && own.interest().contains(PollFlags::POLLOUT));
        let mut heard = 0;
        while heard < 100 {
            heard += other.hear::<String>().len();
            own.flush();
        }
        assert_eq!(own.interest(), PollFlags::POLLIN);
    }
}
