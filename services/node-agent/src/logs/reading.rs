//! Reads a piece of a stream by its offset in the whole output, across rotated files and during rotation.
//! Blocking.

use std::io::{self, Read, Seek, SeekFrom};

use bytes::Bytes;
use dormouse_messages::Timestamp;
use dormouse_runtime::NodeAnswer;
use dormouse_sandbox::folder::{Below, Folder};

use super::LogsQuery;
use crate::rotate::{Piece, pieces, reached};

/// Limit on bytes searched for the last lines.
const TAIL_BYTES: u64 = 16 << 20;
const BLOCK: u64 = 64 << 10;
const ATTEMPTS: usize = 3;

/// The position to start from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    Kept,
    /// This byte, or the first kept one after it.
    Byte(u64),
    Time(Timestamp),
    Lines(u32),
}

impl Begin {
    /// Returns the position that a request asks for.
    #[must_use]
    pub fn of(query: &LogsQuery) -> Self {
        match (query.offset, query.tail, query.since) {
            (Some(offset), _, _) => Self::Byte(offset),
            (None, Some(lines), _) => Self::Lines(lines),
            (None, None, Some(since)) => Self::Time(since),
            (None, None, None) => Self::Kept,
        }
    }
}

/// A piece of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chunk {
    /// Offset of the first byte, later than requested after a rotation.
    pub offset: u64,
    pub next: u64,
    pub bytes: Vec<u8>,
    pub is_last: bool,
}

/// Header with the first byte's offset.
pub const OFFSET: &str = "Dormouse-Offset";
/// Header with the next offset.
pub const NEXT: &str = "Dormouse-Next";
/// Header with `true` if nothing will follow.
pub const LAST: &str = "Dormouse-Last";

impl std::convert::From<Chunk> for NodeAnswer {
    fn from(chunk: Chunk) -> Self {
        Self {
            headers: vec![
                (OFFSET, chunk.offset.to_string()),
                (NEXT, chunk.next.to_string()),
                (LAST, chunk.is_last.to_string()),
            ],
            payload: Bytes::from(chunk.bytes),
        }
    }
}

impl Chunk {
    /// Reads a received piece.
    ///
    /// # Errors
    /// The name of a missing or wrong header.
    pub fn received(
        header: impl Fn(&str) -> Option<String>,
        payload: &[u8],
    ) -> Result<Self, String> {
        let number = |name: &str| {
            let value = header(name).and_then(|value| value.parse().ok());
            value.ok_or_else(|| format!("its header {name} is missing or wrong"))
        };
        Ok(Self {
            offset: number(OFFSET)?,
            next: number(NEXT)?,
            bytes: payload.to_vec(),
            is_last: header(LAST).as_deref() == Some("true"),
        })
    }
}

/// Returns the length of the whole output under a name.
#[must_use]
pub fn length(folder: &Below, name: &str) -> u64 {
    let folder = folder.open();
    folder.map_or(0, |folder| end(&pieces(&folder, name)))
}

fn end(pieces: &[Piece]) -> u64 {
    pieces.last().map_or(0, Piece::end)
}

/// Reads at most `limit` bytes, or none if there is no output yet.
///
/// # Errors
/// Disk errors, or a file that is not regular.
pub fn read(folder: &Below, name: &str, from: Begin, limit: u32) -> io::Result<Chunk> {
    let folder = match folder.open() {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(nothing(from)),
        Err(error) => return Err(error),
    };
    for _ in 0..ATTEMPTS {
        let before = pieces(&folder, name);
        let chunk = read_in(&folder, &before, from, limit, name)?;
        let after = pieces(&folder, name);
        let same = before.len() == after.len()
            && before.iter().zip(&after).all(|(a, b)| a.start == b.start);
        if same {
            return Ok(chunk);
        }
    }
    Err(io::Error::other("it is cut all the time; ask again"))
}

const fn nothing(from: Begin) -> Chunk {
    let place = match from {
        Begin::Byte(offset) => offset,
        Begin::Kept | Begin::Time(_) | Begin::Lines(_) => 0,
    };
    Chunk {
        offset: place,
        next: place,
        bytes: Vec::new(),
        is_last: false,
    }
}

fn read_in(
    folder: &Folder,
    pieces: &[Piece],
    from: Begin,
    limit: u32,
    name: &str,
) -> io::Result<Chunk> {
    let mut at = match from {
        Begin::Kept => 0,
        Begin::Byte(offset) => offset,
        Begin::Time(since) => reached(folder, name, since),
        Begin::Lines(lines) => lines_before(folder, pieces, lines)?,
    };
    let mut chunk = nothing(Begin::Byte(at));
    for piece in pieces.iter().filter(|piece| piece.bytes > 0) {
        let room = u64::from(limit) - chunk.bytes.len() as u64;
        if at >= piece.end() || room == 0 {
            continue;
        }
        if at < piece.start {
            if !chunk.bytes.is_empty() {
                break;
            }
            at = piece.start;
            chunk.offset = at;
        }
        let mut file = folder.file(&piece.name)?;
        file.seek(SeekFrom::Start(at - piece.start))?;
        at += file.take(room).read_to_end(&mut chunk.bytes)? as u64;
    }
    chunk.next = at;
    Ok(chunk)
}

fn lines_before(folder: &Folder, pieces: &[Piece], lines: u32) -> io::Result<u64> {
    let end = end(pieces);
    if lines == 0 {
        return Ok(end);
    }
    let (mut looked, mut found) = (0, 0);
    let mut place = end;
    for piece in pieces.iter().rev() {
        if piece.bytes == 0 {
            continue;
        }
        let mut file = folder.file(&piece.name)?;
        let mut to = piece.bytes;
        while to > 0 {
            let from = to.saturating_sub(BLOCK);
            file.seek(SeekFrom::Start(from))?;
            let mut block = Vec::new();
            (&mut file).take(to - from).read_to_end(&mut block)?;
            for (index, _) in block.iter().enumerate().rev().filter(|it| *it.1 == b'\n') {
                let after = piece.start + from + index as u64 + 1;
                // The newline at the end starts no line.
                found += u32::from(after != end);
                if found == lines {
                    return Ok(after);
                }
            }
            (to, looked) = (from, looked + block.len() as u64);
            place = piece.start + from;
            if looked >= TAIL_BYTES {
                return Ok(place);
            }
        }
    }
    Ok(place)
}
