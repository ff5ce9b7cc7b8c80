//! Decoding an archive on threads beside the one that folds it.
//!
//! 1. One thread unpacks the archive and cuts it into parts of whole records.
//! 2. The parts go round the decoding threads, one after the other.
//! 3. The reader takes the decoded parts in the same order, so the events come as they stand.
//! 4. What the reader has only looked at goes back to the thread that made it: it frees its own
//!    memory at a fraction of what another thread pays, and while that is still in its cache.
//!
//! Every channel is bounded: a slow reader holds the threads back, and one that is dropped ends
//! them.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{iter, thread, vec};

use dormouse_messages::{Envelope, Recorded, Sequence, Timestamp, Writer};

use super::ArchiveError;

/// The broker takes no larger message.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Length, sequence, time, writer.
const HEAD_BYTES: usize = 4 + 8 + 8 + 1;

/// A part: some hundred events, so that handing them over costs nothing, and few enough that
/// those under way need little memory.
const PART_BYTES: usize = 64 * 1024;

/// Parts that wait before and behind each decoding thread.
const WAITING: usize = 2;

/// Three threads decode faster than one folds.
const MOST_THREADS: usize = 3;

type Unpacked = BufReader<zstd::Decoder<'static, BufReader<File>>>;
type Decoded = Result<Recorded, ArchiveError>;

/// Whole records as they lie in the archive.
struct Part {
    /// The number of the first one, counted from 1.
    first: u64,
    bytes: Vec<u8>,
    /// Why the archive ends here, where it should not.
    broken: Option<String>,
}

/// The decoded events, in order.
pub struct Decoding {
    /// What comes of each decoding thread.
    lanes: Vec<Lane>,
    /// Whose turn it is.
    turn: usize,
    part: vec::IntoIter<Decoded>,
}

/// The reader's ends of one decoding thread's channels.
struct Lane {
    decoded: Receiver<Vec<Decoded>>,
    /// Parts that were looked at. Not bounded itself: no more come back than went out.
    read: Sender<Vec<Decoded>>,
}

impl Decoding {
    /// Starts the threads; `unpacked` stands at the first record.
    pub fn start(path: &Path, unpacked: Unpacked) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.saturating_sub(1).clamp(1, MOST_THREADS);
        let (mut parts, mut lanes) = (Vec::new(), Vec::new());
        let (emptied, empty) = channel();
        for _ in 0..threads {
            let (part, unread) = sync_channel(WAITING);
            let (out, decoded) = sync_channel(WAITING);
            let (read, back) = channel();
            let (path, emptied) = (path.to_owned(), emptied.clone());
            thread::spawn(move || decode_all(&path, &unread, &emptied, &out, &back));
            parts.push(part);
            lanes.push(Lane { decoded, read });
        }
        thread::spawn(move || cut(unpacked, &parts, &empty));
        Self {
            lanes,
            turn: 0,
            part: Vec::new().into_iter(),
        }
    }
}

impl Iterator for Decoding {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        loop {
            if let Some(event) = self.part.next() {
                return Some(event);
            }
            self.part = self.next_part()?.1.into_iter();
        }
    }
}

impl Decoding {
    /// The next part, and whose it is.
    fn next_part(&mut self) -> Option<(usize, Vec<Decoded>)> {
        let turn = self.turn;
        // The thread whose turn it is ends only when there are no more parts.
        let part = self.lanes[turn].decoded.recv().ok()?;
        self.turn = (turn + 1) % self.lanes.len();
        Some((turn, part))
    }

    /// Shows every event that is left, until `each` fails.
    pub fn look<E: From<ArchiveError>>(
        mut self,
        mut each: impl FnMut(&Recorded) -> Result<(), E>,
    ) -> Result<(), E> {
        for decoded in std::mem::take(&mut self.part) {
            each(&decoded?)?;
        }
        while let Some((turn, mut part)) = self.next_part() {
            let wrong = part.iter().position(Result::is_err);
            for recorded in part[..wrong.unwrap_or(part.len())].iter().flatten() {
                each(recorded)?;
            }
            if let Some(wrong) = wrong
                && let Err(error) = part.swap_remove(wrong)
            {
                return Err(error.into());
            }
            // A thread that has ended takes nothing back: it is dropped here.
            let _ = self.lanes[turn].read.send(part);
        }
        Ok(())
    }
}

/// Cuts the archive into parts, until it ends or nobody wants them any more.
fn cut(mut unpacked: Unpacked, parts: &[SyncSender<Part>], empty: &Receiver<Vec<u8>>) {
    let mut first = 1;
    for part in parts.iter().cycle() {
        let mut bytes = empty.try_recv().unwrap_or_default();
        bytes.clear();
        bytes.reserve(2 * PART_BYTES);
        let (mut count, mut broken) = (0, None);
        while bytes.len() < PART_BYTES {
            match append_record(&mut unpacked, &mut bytes) {
                Ok(true) => count += 1,
                Ok(false) => break,
                Err(why) => {
                    broken = Some(why);
                    break;
                }
            }
        }
        let is_last = bytes.len() < PART_BYTES;
        let cut = Part {
            first,
            bytes,
            broken,
        };
        if part.send(cut).is_err() || is_last {
            return;
        }
        first += count;
    }
}

/// Appends the next whole record; whether there was one.
fn append_record(unpacked: &mut Unpacked, bytes: &mut Vec<u8>) -> Result<bool, String> {
    if unpacked
        .fill_buf()
        .map_err(|error| error.to_string())?
        .is_empty()
    {
        return Ok(false);
    }
    let start = bytes.len();
    let cut_off = |error: std::io::Error| format!("the archive is cut off: {error}");
    let mut head = [0u8; HEAD_BYTES];
    unpacked.read_exact(&mut head).map_err(cut_off)?;
    let length = length_of(&head);
    if length > MOST_BYTES {
        return Err(format!("an event of {length} bytes is damaged"));
    }
    bytes.extend_from_slice(&head);
    bytes.resize(start + HEAD_BYTES + length, 0);
    let read = unpacked.read_exact(&mut bytes[start + HEAD_BYTES..]);
    if read.is_err() {
        bytes.truncate(start);
    }
    read.map(|()| true).map_err(cut_off)
}

fn length_of(head: &[u8]) -> usize {
    let length = head.first_chunk().copied().unwrap_or_default();
    u32::from_le_bytes(length) as usize
}

fn decode_all(
    path: &Path,
    parts: &Receiver<Part>,
    emptied: &Sender<Vec<u8>>,
    out: &SyncSender<Vec<Decoded>>,
    back: &Receiver<Vec<Decoded>>,
) {
    for part in parts {
        let mut decoded = back.try_recv().unwrap_or_default();
        decoded.clear();
        back.try_iter().for_each(drop);
        decode_part(path, &part, &mut decoded);
        let _ = emptied.send(part.bytes);
        if out.send(decoded).is_err() {
            return;
        }
    }
}

fn decode_part(path: &Path, part: &Part, decoded: &mut Vec<Decoded>) {
    let wrong = |number: u64, error: String| ArchiveError::Event {
        path: PathBuf::from(path),
        number,
        error,
    };
    let mut rest = part.bytes.as_slice();
    let records = iter::from_fn(|| {
        let (record, later) = rest.split_at_checked(HEAD_BYTES + length_of(rest))?;
        rest = later;
        Some(record)
    });
    let numbered = (part.first..).zip(records);
    decoded.extend(
        numbered.map(|(number, record)| decode(record).map_err(|error| wrong(number, error))),
    );
    if let Some(why) = &part.broken {
        let number = part.first + decoded.len() as u64;
        decoded.push(Err(wrong(number, why.clone())));
    }
}

fn decode(record: &[u8]) -> Result<Recorded, String> {
    let (head, event) = record.split_at(HEAD_BYTES);
    let (_, head) = head.split_at(4);
    let (sequence, head) = head.split_at(8);
    let (stored_at, writer) = head.split_at(8);
    let eight = |bytes: &[u8]| bytes.first_chunk().copied().unwrap_or_default();
    let writer = writer
        .first()
        .and_then(|index| Writer::ALL.get(usize::from(*index)));
    Ok(Recorded {
        sequence: Sequence(u64::from_le_bytes(eight(sequence))),
        stored_at: Timestamp::from_micros(i64::from_le_bytes(eight(stored_at))),
        writer: *writer.ok_or("its writer is unknown")?,
        envelope: Envelope::from_msgpack(event).map_err(|error| error.to_string())?,
    })
}

#[cfg(test)]
mod tests {
    use dormouse_messages::Event;
    use dormouse_messages::events::NodeDrained;

    use super::super::{LogReader, LogWriter};
    use super::*;

    fn drained(number: u64) -> Recorded {
        let node = format!("n{number}").parse().expect("a name");
        let event = Event::from(NodeDrained { node });
        let at = Timestamp::from_micros(i64::try_from(number).expect("small"));
        Recorded {
            sequence: Sequence(number),
            stored_at: at,
            writer: Writer::Operator,
            envelope: Envelope::new(number.to_string(), Writer::Operator, at, None, event),
        }
    }

    /// Enough events for parts on every thread.
    fn archive(dir: &Path) -> (PathBuf, Vec<Recorded>) {
        let path = dir.join("log.dmlog");
        let mut writer = LogWriter::create(&path, "test").expect("creates");
        let events: Vec<Recorded> = (1..=5_000).map(drained).collect();
        for recorded in &events {
            writer.write(recorded).expect("writes");
        }
        writer.finish().expect("finishes");
        (path, events)
    }

    #[test]
    fn events_come_in_their_order() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, events) = archive(dir.path());
        let reader = LogReader::open(&path).expect("opens");
        assert_eq!(reader.log(), "test");
        let read: Vec<Recorded> = reader.map(|event| event.expect("decodes")).collect();
        assert_eq!(read, events);
        let mut looked = Vec::new();
        let reader = LogReader::open(&path).expect("opens");
        let each = |event: &Recorded| {
            looked.push(event.clone());
            Ok::<(), ArchiveError>(())
        };
        reader.look(each).expect("decodes");
        assert_eq!(looked, events);
        // One that is read no further holds nobody up.
        let mut reader = LogReader::open(&path).expect("opens");
        assert_eq!(reader.next().and_then(Result::ok).as_ref(), events.first());
    }

    #[test]
    fn what_is_cut_off_is_said_behind_the_last_whole_event() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, events) = archive(dir.path());
        let packed = std::fs::read(&path).expect("reads");
        let mut bytes = zstd::decode_all(packed.as_slice()).expect("unpacks");
        bytes.truncate(bytes.len() - 1);
        let packed = zstd::encode_all(bytes.as_slice(), 1).expect("packs");
        std::fs::write(&path, packed).expect("writes");
        let mut reader = LogReader::open(&path).expect("opens");
        let whole = reader.by_ref().take(events.len() - 1).filter(Result::is_ok);
        assert_eq!(whole.count(), events.len() - 1);
        let error = reader.next().and_then(Result::err).expect("an error");
        assert!(
            error
                .to_string()
                .contains("event 5000: the archive is cut off"),
            "{error}"
        );
        assert!(reader.next().is_none());
        let mut looked = 0;
        let each = |_: &Recorded| {
            looked += 1;
            Ok::<(), ArchiveError>(())
        };
        let error = LogReader::open(&path).expect("opens").look(each);
        assert!(error.is_err_and(|error| error.to_string().contains("event 5000")));
        assert_eq!(looked, events.len() - 1);
    }
}
