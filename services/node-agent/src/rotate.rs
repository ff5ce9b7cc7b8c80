//! Bounds containers' output by rotation. Programs append, so a file is copied to `<name>.1` and truncated.
//! Output between the two, some microseconds, may be lost. `<name>.starts` maps files to offsets in the whole
//! output, and `<name>.times` maps times to offsets, so that readers continue after a rotation or start at a
//! time. Blocking.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use dormouse_messages::Timestamp;
use dormouse_sandbox::folder::{Below, Folder};

use crate::layout::{STDERR, STDOUT};

/// The limit on each of a container's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogBounds {
    pub bytes: u64,
    /// Number of files including the current one, at least 1.
    pub files: u32,
}

impl Default for LogBounds {
    /// 128 MiB per stream: an hour of a verbose trainer.
    fn default() -> Self {
        Self {
            bytes: 64 << 20,
            files: 2,
        }
    }
}

const TIMES_BYTES: u64 = 128 << 10;

/// One of a stream's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub name: String,
    pub start: u64,
    pub bytes: u64,
}

impl Piece {
    /// Returns the offset after its last byte.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes)
    }
}

/// Records a container's output position at `now`, and rotates files that are too long.
///
/// # Errors
/// Disk errors.
pub fn rotate(directory: &Below, bounds: LogBounds, now: Timestamp) -> io::Result<()> {
    let folder = directory.open()?;
    for name in [STDOUT, STDERR] {
        let Ok(entry) = folder.entry(name) else {
            continue;
        };
        if !entry.is_regular {
            continue;
        }
        let noted = folder.entry(&times(name)).map_or(0, |it| it.modified_ns);
        if entry.bytes > 0 && entry.modified_ns > noted {
            note(&folder, name, now)?;
        }
        if entry.bytes > bounds.bytes {
            cut(&folder, name, bounds)?;
        }
    }
    Ok(())
}

/// Removes the output under a name, because the container prints all of it again.
///
/// # Errors
/// Disk errors.
pub fn forget(folder: &Folder, name: &str) -> io::Result<()> {
    for part in parts(folder, name) {
        folder.remove(&part)?;
    }
    let _ = folder.remove(&starts(name));
    let _ = folder.remove(&times(name));
    Ok(())
}

fn starts(name: &str) -> String {
    format!("{name}.starts")
}

fn times(name: &str) -> String {
    format!("{name}.times")
}

fn noted_starts(folder: &Folder, name: &str) -> Vec<u64> {
    let text = folder.read_text(&starts(name), TIMES_BYTES);
    let text = text.unwrap_or_default();
    text.split_whitespace()
        .map_while(|start| start.parse().ok())
        .collect()
}

/// Lists a stream's files, oldest first, with their offsets.
#[must_use]
pub fn pieces(folder: &Folder, name: &str) -> Vec<Piece> {
    let noted = noted_starts(folder, name);
    let names = parts(folder, name);
    let files = names.len();
    let mut pieces: Vec<Piece> = Vec::with_capacity(files);
    for (index, name) in names.into_iter().enumerate() {
        let bytes = folder.entry(&name).map_or(0, |entry| entry.bytes);
        let follows = pieces.last().map_or(0, Piece::end);
        let start = noted.get(files - 1 - index).copied().unwrap_or(follows);
        pieces.push(Piece { name, start, bytes });
    }
    pieces
}

fn note(folder: &Folder, name: &str, now: Timestamp) -> io::Result<()> {
    let end = pieces(folder, name).last().map_or(0, Piece::end);
    let index = times(name);
    if folder.entry(&index).is_ok_and(|it| it.bytes > TIMES_BYTES) {
        let text = folder
            .read_text(&index, 2 * TIMES_BYTES)
            .unwrap_or_default();
        let kept: Vec<&str> = text.lines().step_by(2).collect();
        folder.write(&index, format!("{}\n", kept.join("\n")).as_bytes())?;
    }
    let line = format!("{} {end}\n", now.as_micros());
    folder.append(&index)?.write_all(line.as_bytes())
}

/// Returns the offset at the last check before `since`, or 0 if unknown.
#[must_use]
pub fn reached(folder: &Folder, name: &str, since: Timestamp) -> u64 {
    let last = folder.entry(name).map_or(0, |entry| entry.modified_ns);
    if last / 1_000 <= since.as_micros() {
        return pieces(folder, name).last().map_or(0, Piece::end);
    }
    let text = folder.read_text(&times(name), 2 * TIMES_BYTES);
    let text = text.unwrap_or_default();
    let noted = text.lines().filter_map(|line| {
        let (at, end) = line.split_once(' ')?;
        let at: i64 = at.parse().ok()?;
        (at <= since.as_micros()).then(|| end.parse::<u64>().ok())?
    });
    noted.max().unwrap_or(0)
}

fn cut(folder: &Folder, name: &str, bounds: LogBounds) -> io::Result<()> {
    let began = pieces(folder, name);
    for number in (1..bounds.files.saturating_sub(1)).rev() {
        let _ = folder.rename(&older(name, number), &older(name, number + 1));
    }
    let mut file = folder.file(name)?;
    let start = began.last().map_or(0, |piece| piece.start);
    let length = file.metadata()?.len();
    let mut begins = vec![start + length];
    if bounds.files > 1 {
        let from = length.saturating_sub(bounds.bytes);
        file.seek(SeekFrom::Start(from))?;
        let kept = older(name, 1);
        let _ = folder.remove(&kept);
        let copied = io::copy(&mut file.take(bounds.bytes), &mut folder.create(&kept)?)?;
        begins = vec![start + from + copied, start + from];
        begins.extend(began.iter().rev().skip(1).map(|piece| piece.start));
        begins.truncate(bounds.files as usize);
    }
    folder.create(name)?;
    let begins: Vec<String> = begins.iter().map(u64::to_string).collect();
    folder.write(&starts(name), begins.join(" ").as_bytes())
}

fn older(name: &str, number: u32) -> String {
    format!("{name}.{number}")
}

/// Lists a stream's files, oldest first.
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

/// Lists the files of a rotated stream from [`crate::logs_path`], oldest first.
#[must_use]
pub fn log_parts(path: &Path) -> Vec<PathBuf> {
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Vec::new();
    };
    let folder = Below::new(parent.to_owned(), "").open();
    let parts = folder.map(|folder| parts(&folder, &name.to_string_lossy()));
    let parts = parts.unwrap_or_default().into_iter();
    parts.map(|part| parent.join(part)).collect()
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
            rotate(&directory, bounds, Timestamp::default()).expect("cut");
        }
        printing.write_all(b"last\n").expect("written");
        let begins: Vec<_> = pieces(&folder, STDOUT)
            .into_iter()
            .map(|piece| (piece.start, piece.end()))
            .collect();
        assert_eq!(begins, [(23, 33), (34, 44), (44, 49)]);
        let parts = parts(&folder, STDOUT);
        assert_eq!(parts, ["stdout.log.2", "stdout.log.1", "stdout.log"]);
        let text: Vec<_> = parts
            .iter()
            .map(|part| folder.read_text(part, 100).expect("read"))
            .collect();
        assert_eq!(text, ["hird....\n.", "ourth...\n.", "last\n"]);
    }

    #[test]
    fn a_time_is_a_byte_and_an_index_stays_small() {
        let at = tempfile::tempdir().expect("a folder");
        let directory = Below::new(at.path().to_owned(), "");
        let folder = directory.open().expect("opened");
        let mut printing = folder.append(STDOUT).expect("made");
        let second = |second: i64| Timestamp::from_micros(second * 1_000_000);
        for number in 0..10_000 {
            printing.write_all(b"0123456789").expect("written");
            note(&folder, STDOUT, second(number)).expect("noted");
        }
        let index = folder.entry(&times(STDOUT)).expect("there");
        assert!(index.bytes < 2 * TIMES_BYTES, "{}", index.bytes);
        assert_eq!(reached(&folder, STDOUT, second(9_999)), 100_000);
        let middle = reached(&folder, STDOUT, second(9_500));
        assert!((94_900..=95_010).contains(&middle), "{middle}");
        assert_eq!(reached(&folder, STDOUT, second(-1)), 0);
        let later = Timestamp::from_micros(i64::MAX);
        assert_eq!(reached(&folder, STDOUT, later), 100_000);
    }
}
