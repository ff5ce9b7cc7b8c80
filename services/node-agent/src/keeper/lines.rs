//! A socket that carries words, a line each, and never makes anybody wait.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nix::poll::PollFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Words that nobody takes: whoever lets this many bytes wait is gone.
const UNREAD_BYTES: usize = 64 << 20;

/// What is read at once.
const CHUNK: usize = 64 * 1024;

/// One end.
#[derive(Debug)]
pub struct Lines {
    stream: UnixStream,
    read: Vec<u8>,
    unsent: Vec<u8>,
    is_open: bool,
}

impl Lines {
    /// Of a connected socket.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            read: Vec::new(),
            unsent: Vec::new(),
            is_open: true,
        })
    }

    /// What the other end may be waited for.
    #[must_use]
    pub const fn interest(&self) -> PollFlags {
        match self.unsent.is_empty() {
            true => PollFlags::POLLIN,
            false => PollFlags::POLLIN.union(PollFlags::POLLOUT),
        }
    }

    /// Whether the other end is there, as far as is known.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.is_open
    }

    /// Says something; what the other end does not take now it is given later.
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

    /// Gives what waits.
    pub fn flush(&mut self) {
        while self.is_open && !self.unsent.is_empty() {
            match self.stream.write(&self.unsent) {
                Ok(0) => self.is_open = false,
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
        self.is_open &= self.unsent.len() <= UNREAD_BYTES;
    }

    /// What has been said; what is no word is left out.
    pub fn hear<T: DeserializeOwned>(&mut self) -> Vec<T> {
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.stream.read(&mut chunk) {
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
