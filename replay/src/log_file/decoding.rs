//! Decodes a Parquet file on several threads while another thread folds the events.
//!
//! 1. The decoding threads take the row groups in turn.
//! 2. The reader takes the decoded rows in order, a part of a group at a time.
//! 3. A borrowed part returns to its decoding thread, which frees its own memory faster than another
//!    thread can.
//!
//! Every channel is bounded: a slow reader holds the threads back, a dropped reader ends them. Damage
//! ends the file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::{io, mem, thread, vec};

use dormouse_messages::NewerFormat;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::columns::{GroupRows, LOG_KEY, Row};
use super::error::LogFileError;

/// Enough rows to amortise a handover, and few enough that parts in flight stay in the caches.
const PART_ROWS: usize = 512;

const WAITING_PARTS: usize = 4;

/// Three threads decode faster than one thread folds.
const MOST_THREADS: usize = 3;

type Decoded = Result<Row, LogFileError>;

struct Part {
    rows: Vec<Decoded>,
    ends_group: bool,
}

/// Iterates over the decoded rows in order.
pub struct Decoding {
    log: String,
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
    /// Starts the threads.
    ///
    /// # Errors
    /// The file is cut off or of another form.
    pub fn start(path: &Path, file: File) -> Result<Self, LogFileError> {
        let reader = SerializedFileReader::new(file);
        let reader = reader.map_err(|error| LogFileError::file(path, io::Error::other(error)))?;
        let reader = Arc::new(reader);
        let metadata = reader.metadata();
        let pairs = metadata.file_metadata().key_value_metadata();
        let log = pairs.and_then(|pairs| pairs.iter().find(|pair| pair.key == LOG_KEY));
        let log = log.and_then(|pair| pair.value.clone()).unwrap_or_default();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let threads = processors.saturating_sub(1).clamp(1, MOST_THREADS);
        let threads = threads.min(metadata.num_row_groups()).max(1);
        let mut lanes = Vec::new();
        for lane in 0..threads {
            let (out, decoded) = sync_channel(WAITING_PARTS);
            let (read, back) = channel();
            let decoder = Decoder {
                path: path.to_owned(),
                reader: Arc::clone(&reader),
                out,
                back,
            };
            thread::spawn(move || decoder.run(lane, threads));
            lanes.push(Lane { decoded, read });
        }
        Ok(Self {
            log,
            lanes,
            turn: 0,
            part: Vec::new().into_iter(),
        })
    }

    /// Returns the log's identity.
    pub fn log(&self) -> &str {
        &self.log
    }
}

impl Iterator for Decoding {
    type Item = Decoded;

    fn next(&mut self) -> Option<Decoded> {
        loop {
            if let Some(row) = self.part.next() {
                return Some(row);
            }
            self.part = self.next_part()?.1.into_iter();
        }
    }
}

impl Decoding {
    fn next_part(&mut self) -> Option<(usize, Vec<Decoded>)> {
        let turn = self.turn;
        // The thread in turn ends only when no groups are left.
        let part = self.lanes[turn].decoded.recv().ok()?;
        if part.ends_group {
            self.turn = (turn + 1) % self.lanes.len();
        }
        Some((turn, part.rows))
    }

    /// Passes every remaining row to `each` until `each` fails.
    pub fn look<E: From<LogFileError>>(
        mut self,
        mut each: impl FnMut(&Row) -> Result<(), E>,
    ) -> Result<(), E> {
        for decoded in mem::take(&mut self.part) {
            each(&decoded?)?;
        }
        while let Some((turn, mut part)) = self.next_part() {
            let wrong = part.iter().position(Result::is_err);
            for row in part[..wrong.unwrap_or(part.len())].iter().flatten() {
                each(row)?;
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

struct Decoder {
    path: PathBuf,
    reader: Arc<SerializedFileReader<File>>,
    out: SyncSender<Part>,
    back: Receiver<Vec<Decoded>>,
}

impl Decoder {
    fn run(self, lane: usize, lanes: usize) {
        let groups = self.reader.metadata().row_groups().iter();
        let rows = groups.map(|group| u64::try_from(group.num_rows()).unwrap_or_default());
        let mut first = 1;
        for (group, rows) in rows.enumerate() {
            if group % lanes == lane && self.decode(group, first).is_none() {
                return;
            }
            first += rows;
        }
    }

    /// Decodes a row group, whose first row is row `first` of the file. Returns `None` when the reader is
    /// gone or the group is damaged.
    fn decode(&self, group: usize, first: u64) -> Option<()> {
        let mut number = first;
        let group = self.reader.get_row_group(group);
        let rows = group.and_then(|group| GroupRows::open(&*group));
        let mut rows = match rows {
            Ok(rows) => rows,
            Err(error) => return self.damaged(Vec::new(), number, &error.to_string()),
        };
        loop {
            let filled = match rows.fill(PART_ROWS) {
                Ok(0) => return self.send(Vec::new(), true),
                Ok(filled) => filled,
                Err(error) => return self.damaged(Vec::new(), number, &error),
            };
            let mut part = self.empty();
            for row in 0..filled {
                match rows.next(row) {
                    Ok(row) => {
                        if let Some(newer) = newer_format(&row) {
                            part.push(Err(newer.into()));
                            self.send(part, true)?;
                            return None;
                        }
                        part.push(Ok(row));
                    }
                    Err(error) => return self.damaged(part, number, &error),
                }
                number += 1;
            }
            self.send(part, false)?;
        }
    }

    fn damaged(&self, mut rows: Vec<Decoded>, number: u64, error: &str) -> Option<()> {
        rows.push(Err(LogFileError::Event {
            path: self.path.clone(),
            number,
            error: format!("the file is damaged: {error}"),
        }));
        self.send(rows, true)?;
        None
    }

    fn send(&self, rows: Vec<Decoded>, ends_group: bool) -> Option<()> {
        self.out.send(Part { rows, ends_group }).ok()
    }

    fn empty(&self) -> Vec<Decoded> {
        let mut rows = self.back.try_recv().unwrap_or_default();
        rows.clear();
        self.back.try_iter().for_each(drop);
        rows.reserve(PART_ROWS);
        rows
    }
}

fn newer_format(row: &Row) -> Option<NewerFormat> {
    match row {
        Row::Event(recorded) => recorded.newer_format(),
        Row::Flagged(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use dormouse_messages::events::NodeDrained;
    use dormouse_messages::{Envelope, Event, Recorded, Sequence, Timestamp, Writer};

    use super::super::{Flagged, LogReader, LogWriter, RowWriter};
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

    fn written(dir: &Path) -> (PathBuf, Vec<Recorded>) {
        let path = dir.join("log.parquet");
        let mut writer = LogWriter::create(&path, "test").expect("creates");
        let events: Vec<Recorded> = (1..=EVENTS).map(drained).collect();
        for recorded in &events {
            writer.write(recorded).expect("writes");
        }
        writer.finish().expect("finishes");
        (path, events)
    }

    #[test]
    fn events_come_in_their_order() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, events) = written(dir.path());
        let reader = LogReader::open(&path).expect("opens");
        assert_eq!(reader.log(), "test");
        let read: Vec<Recorded> = reader.map(|event| event.expect("decodes")).collect();
        assert_eq!(read, events);
        let mut looked = Vec::new();
        let reader = LogReader::open(&path).expect("opens");
        let each = |event: &Recorded| {
            looked.push(event.clone());
            Ok::<(), LogFileError>(())
        };
        reader.look(each).expect("decodes");
        assert_eq!(looked, events);
        let mut reader = LogReader::open(&path).expect("opens");
        assert_eq!(reader.next().and_then(Result::ok).as_ref(), events.first());
    }

    #[test]
    fn flagged_messages_keep_their_place() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log.parquet");
        let mut rows = RowWriter::new(File::create(&path).expect("creates"), "test").expect("rows");
        let flagged = |sequence, writer| Flagged {
            sequence: Sequence(sequence),
            stored_at: Timestamp::from_micros(7),
            writer,
            why: "\"no\" event".to_owned(),
        };
        rows.event(&drained(1)).expect("writes");
        rows.flagged(&flagged(2, None)).expect("writes");
        rows.flagged(&flagged(3, Some(Writer::Node)))
            .expect("writes");
        rows.finish().expect("finishes");
        let file = File::open(&path).expect("opens");
        let read = Decoding::start(&path, file).expect("opens");
        let read: Vec<Row> = read.map(|row| row.expect("decodes")).collect();
        let expected = [
            Row::Event(drained(1)),
            Row::Flagged(flagged(2, None)),
            Row::Flagged(flagged(3, Some(Writer::Node))),
        ];
        assert_eq!(read, expected);
    }

    #[test]
    fn a_file_that_is_cut_off_is_an_error() {
        let dir = tempfile::tempdir().expect("a folder");
        let (path, _) = written(dir.path());
        let whole = std::fs::read(&path).expect("reads");
        for missing in [1, 20, whole.len() / 2, whole.len()] {
            std::fs::write(&path, &whole[..whole.len() - missing]).expect("writes");
            assert!(LogReader::open(&path).is_err(), "{missing}");
        }
    }
}
