//! What containers print, bounded: a file that has grown too long is cut.
//!
//! A program holds its output open, and may write at any moment; nobody can take the file from
//! under it. So what is there is copied to `<name>.1` (the older ones move up, the oldest goes),
//! and the file is emptied: it was opened to append, so the program goes on at its beginning. Of
//! what is printed between the copy and the cut, microseconds, lines may be lost. Between two
//! looks a file may exceed its bound by what a second's printing is.
//!
//! Blocking.

use std::io::{self, Read, Seek, SeekFrom};

use crate::folder::{Below, Folder};
use crate::layout::{STDERR, STDOUT};

/// How much a container may leave of what it prints, for each of its two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    /// The length of a file.
    pub bytes: u64,
    /// How many files, with the one that is written: at least 1.
    pub files: u32,
}

impl Default for LogBounds {
    /// 128 MiB a stream: an hour of a chatty trainer, and a node's disk holds hundreds.
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            files: 2,
        }
    }
}

/// Cuts what a container has printed, where it is too long.
///
/// # Errors
/// The disk's.
pub fn rotate(directory: &Below, bounds: LogBounds) -> io::Result<()> {
    let folder = directory.open()?;
    for name in [STDOUT, STDERR] {
        match folder.entry(name) {
            Ok(entry) if entry.is_regular && entry.bytes > bounds.bytes => {
                cut(&folder, name, bounds)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn cut(folder: &Folder, name: &str, bounds: LogBounds) -> io::Result<()> {
    for number in (1..bounds.files.saturating_sub(1)).rev() {
        let _ = folder.rename(&older(name, number), &older(name, number + 1));
    }
    let mut file = folder.file(name)?;
    if bounds.files > 1 {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bounds.bytes)))?;
        let kept = older(name, 1);
        let _ = folder.remove(&kept);
        io::copy(&mut file.take(bounds.bytes), &mut folder.create(&kept)?)?;
    }
    folder.create(name).map(drop)
}

/// The name of what was cut off `number` cuts ago.
fn older(name: &str, number: u32) -> String {
    format!("{name}.{number}")
}

/// The files in which a stream lies, the oldest first.
#[must_use]
pub fn parts(folder: &Folder, name: &str) -> Vec<String> {
    let names = folder.names().unwrap_or_default();
    let number = |part: &String| match part.strip_prefix(name)? {
        "" => Some(0),
        rest => rest.strip_prefix('.')?.parse::<u32>().ok(),
    };
    let mut parts: Vec<_> = names
        .into_iter()
        .filter_map(|part| Some((number(&part)?, part)))
        .collect();
    parts.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    parts.into_iter().map(|(_, part)| part).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_file_that_grows_is_cut_and_read_in_order() {
        let at = tempfile::tempdir().expect("a folder");
        let directory = Below::new(at.path().to_owned(), "");
        let folder = directory.open().expect("opened");
        let bounds = LogBounds {
            bytes: 10,
            files: 3,
        };
        let mut printing = folder.append(STDOUT).expect("made");
        for line in ["first....\n", "second...\n", "third....\n", "fourth...\n"] {
            printing.write_all(line.as_bytes()).expect("written");
            printing.write_all(b".").expect("written");
            rotate(&directory, bounds).expect("cut");
        }
        printing.write_all(b"last\n").expect("written");
        let parts = parts(&folder, STDOUT);
        assert_eq!(parts, ["stdout.log.2", "stdout.log.1", "stdout.log"]);
        let text: Vec<_> = parts
            .iter()
            .map(|part| folder.read_text(part, 100).expect("read"))
            .collect();
        assert_eq!(text, ["hird....\n.", "ourth...\n.", "last\n"]);
    }
}
