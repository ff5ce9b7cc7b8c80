//! Decodes an archive on several threads while another thread folds the events.
//!
//! 1. One thread deals the blocks to the decoding threads in turn.
//! 2. The reader takes the decoded events in order, a part of a block at a time.
//! 3. A borrowed part returns to its decoding thread, which frees its own memory faster than another
//!    thread can.
//!
//! Every channel is bounded: a slow reader holds the threads back, a dropped reader ends them. Damage
//! ends the archive.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{mem, thread, vec};

use dormouse_messages::Recorded;
use zstd::bulk::Decompressor;

use super::error::ArchiveError;
use super::packed::{BlockHead, decode_block};

/// Enough events to amortise a handover, and few enough that parts in flight stay in the caches.
const PART_EVENTS: usize = 512;

/// Holds a whole block of parts, so that no thread waits for its turn in the middle of a block.
const WAITING_PARTS: usize = 4;

const WAITING_BLOCKS: usize = 2;

/// Three threads decode faster than one thread folds.
const MOST_THREADS: usize = 3;

type Decoded = Result<Recorded, ArchiveError>;

struct Block {
    /// Number of the block's first event, counted from 1.
    first: u64,
    head: BlockHead,
    packed: Vec<u8>,
}

/// A block from the reading thread; an error is the last item.
type Unread = Result<Block, ArchiveError>;

struct Part {
    events: Vec<Decoded>,
    ends_block: bool,
}

/// Iterates over the decoded events in order.
pub struct Decoding {
    lanes: Vec<Lane>,
    turn: usize,
    part: vec::IntoIter<Decoded>,
}

struct Lane {
    decoded: Receiver<Part>,
    /// Unbounded, but no more parts return than were sent.
    read: Sender<Vec<Decoded>>,
}

impl Decoding {
    /// Starts the threads; `file` is positioned at the first block.
    pub fn start(path: &Path, file: BufReader<File>) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.saturating_sub(1).clamp(1, MOST_THREADS);
        let (mut blocks, mut lanes) = (Vec::new(), Vec::new());
        for _ in 0..threads {
            let (block, unread) = sync_channel(WAITING_BLOCKS);
            let (out, decoded) = sync_channel(WAITING_PARTS);
            let (read, back) = channel();
            let decoder = Decoder {
                path: path.to_owned(),
                out,
                back,
            };
            thread::spawn(move || decoder.run(&unread));
            blocks.push(block);
            lanes.push(Lane { decoded, read });
        }
        let path = path.to_owned();
        thread::spawn(move || read_blocks(&path, file, &blocks));
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
    fn next_part(&mut self) -> Option<(usize, Vec<Decoded>)> {
        let turn = self.turn;
        // The thread in turn ends only when no blocks are left.
        let part = self.lanes[turn].decoded.recv().ok()?;
        if part.ends_block {
            self.turn = (turn + 1) % self.lanes.len();
        }
        Some((turn, part.events))
    }

    pub fn look<E: From<ArchiveError>>(
        mut self,
        mut each: impl FnMut(&Recorded) -> Result<(), E>,
    ) -> Result<(), E> {
        for decoded in mem::take(&mut self.part) {
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
            // An ended thread takes nothing back; the part is dropped here.
            let _ = self.lanes[turn].read.send(part);
        }
        Ok(())
    }
}

fn read_blocks(path: &Path, mut file: BufReader<File>, blocks: &[SyncSender<Unread>]) {
    let mut first = 1;
    for sender in blocks.iter().cycle() {
        let block = match read_block(&mut file, first) {
            Ok(None) => return,
            Ok(Some(block)) => Ok(block),
            Err(error) => Err(wrong(path, first, error)),
        };
        let events = block.as_ref().ok().map(|block| block.head.events as u64);
        if sender.send(block).is_err() {
            return;
        }
        match events {
            Some(events) => first += events,
            None => return,
        }
    }
}

fn read_block(file: &mut BufReader<File>, first: u64) -> Result<Option<Block>, String> {
    let cut_off = |error| format!("the archive is cut off: {error}");
    let mut head = [0; BlockHead::BYTES];
    file.read_exact(&mut head).map_err(cut_off)?;
    let head = BlockHead::read(&head)?;
    if head.events == 0 {
        return Ok(None);
    }
    let mut packed = vec![0; head.packed];
    file.read_exact(&mut packed).map_err(cut_off)?;
    Ok(Some(Block {
        first,
        head,
        packed,
    }))
}

fn wrong(path: &Path, number: u64, error: String) -> ArchiveError {
    ArchiveError::Event {
        path: path.to_owned(),
        number,
        error,
    }
}

struct Decoder {
    path: PathBuf,
    out: SyncSender<Part>,
    back: Receiver<Vec<Decoded>>,
}

impl Decoder {
    fn run(self, blocks: &Receiver<Unread>) {
        let mut unpacker = Unpacker::default();
        for block in blocks {
            let decoded = match block {
                Ok(block) => self.decode(&block, &mut unpacker),
                Err(error) => self.send(vec![Err(error)], true),
            };
            if decoded.is_none() {
                return;
            }
        }
    }

    /// Decodes a block. Returns `None` when the reader is gone or the block is damaged.
    fn decode(&self, block: &Block, unpacker: &mut Unpacker) -> Option<()> {
        let mut number = block.first;
        let mut events = self.empty();
        let mut wanted = true;
        let decoded = unpacker.unpack(block).and_then(|unpacked| {
            decode_block(unpacked, block.head.events, |recorded| {
                events.push(Ok(recorded));
                number += 1;
                if events.len() == PART_EVENTS {
                    let full = mem::replace(&mut events, self.empty());
                    wanted = self.send(full, false).is_some();
                }
                wanted
            })
        });
        let is_sound = decoded.is_ok();
        if let Err(error) = decoded {
            events.push(Err(wrong(&self.path, number, error)));
        }
        self.send(events, true).filter(|()| is_sound && wanted)
    }

    fn send(&self, events: Vec<Decoded>, ends_block: bool) -> Option<()> {
        self.out.send(Part { events, ends_block }).ok()
    }

    fn empty(&self) -> Vec<Decoded> {
        let mut events = self.back.try_recv().unwrap_or_default();
        events.clear();
        self.back.try_iter().for_each(drop);
        events.reserve(PART_EVENTS);
        events
    }
}

#[derive(Default)]
struct Unpacker {
    zstd: Decompressor<'static>,
    unpacked: Vec<u8>,
}

impl Unpacker {
    fn unpack(&mut self, block: &Block) -> Result<&[u8], String> {
        let Self { zstd, unpacked } = self;
        unpacked.clear();
        unpacked.reserve(block.head.unpacked);
        match zstd.decompress_to_buffer(&block.packed, unpacked) {
            Ok(length) if length == block.head.unpacked => Ok(unpacked),
            Ok(_) => Err("the archive is damaged".to_owned()),
            Err(error) => Err(format!("the archive is damaged: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::NodeDrained;
    use dormouse_messages::{Envelope, Event, Sequence, Timestamp, Writer};

    use super::super::{LogReader, LogWriter};
    use super::*;

    const EVENTS: u64 = 5_000;

    fn drained(number: u64) -> Recorded {
        let node = format!("n{number}").parse().expect("a name");
        let event = Event::from(NodeDrained {
            node,
            reason: None,
            deadline_s: None,
        });
        let at = Timestamp::from_micros(i64::try_from(number).expect("small"));
        Recorded {
            sequence: Sequence(number),
            stored_at: at,
            writer: Writer::Operator,
            envelope: Envelope::new(number.to_string(), Writer::Operator, at, None, event),
        }
    }

    fn archive(dir: &Path) -> (PathBuf, Vec<Recorded>) {
        let path = dir.join("log.dmlog");
        let mut writer = LogWriter::create(&path, "test").expect("creates");
        let events: Vec<Recorded> = (1..=EVENTS).map(drained).collect();
        for recorded in &events {
            writer.write(recorded).expect("writes");
        }
        writer.finish().expect("finishes");
        (path, events)
    }

    fn read(path: &Path) -> (usize, Option<String>) {
        let mut looked = 0;
        let each = |_: &Recorded| {
            looked += 1;
            Ok::<(), ArchiveError>(())
        };
        let reader = LogReader::open(path).expect("opens");
        let error = reader.look(each).err().map(|error| error.to_string());
        let mut reader = LogReader::open(path).expect("opens");
        let whole = reader.by_ref().take(looked);
        assert_eq!(whole.filter(Result::is_ok).count(), looked);
        let behind = reader.next().and_then(Result::err);
        assert_eq!(behind.map(|error| error.to_string()), error);
        assert!(reader.next().is_none());
        (looked, error)
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
        let mut reader = LogReader::open(&path).expect("opens");
        assert_eq!(reader.next().and_then(Result::ok).as_ref(), events.first());
    }

    #[test]
    fn what_is_cut_off_is_said_behind_the_last_whole_block() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, events) = archive(dir.path());
        assert_eq!(read(&path), (events.len(), None));
        let whole = std::fs::read(&path).expect("reads");
        for (missing, readable) in [(1, 5_000), (BlockHead::BYTES, 5_000), (20, 4_096)] {
            std::fs::write(&path, &whole[..whole.len() - missing]).expect("writes");
            let (looked, error) = read(&path);
            let expected = format!("event {}: the archive is cut off", readable + 1);
            assert_eq!(looked, readable, "{missing}");
            assert!(
                error.is_some_and(|error| error.contains(&expected)),
                "{missing}"
            );
        }
    }

    #[test]
    fn a_damaged_block_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, _) = archive(dir.path());
        let whole = std::fs::read(&path).expect("reads");
        for place in [30, 100, whole.len() / 2, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[place] ^= 0x20;
            std::fs::write(&path, bytes).expect("writes");
            let (looked, error) = read(&path);
            assert!(error.is_some() && looked < 5_001, "{place}");
        }
    }
}
