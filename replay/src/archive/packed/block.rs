//! Reads and writes events in blocks.

use std::io::{self, Write};

use dormouse_messages::{Body, Envelope, EventType, Recorded, Sequence, Timestamp, Writer};
use serde::Serialize;
use serde::de::value::Error;
use serde::de::{Deserialize, Error as _, IgnoredAny};
use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::cursor::Cursor;
use super::reader::ValueReader;
use super::writer::ValueWriter;
use super::{put, put_text, zigzag};

/// Fast to write, and smaller than level 1.
const LEVEL: i32 = 3;

/// Enough events to amortise the shared tables, and few enough that blocks in flight need little memory.
const MOST_EVENTS: u32 = 2048;

/// A block of longer events ends earlier.
const ENOUGH_BYTES: usize = 256 * 1024;

/// The broker accepts at most 8 MiB per message, and an event is smaller here.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The header of a block; lengths in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHead {
    pub packed: usize,
    pub unpacked: usize,
    pub events: usize,
}

impl BlockHead {
    pub const BYTES: usize = 3 * 4;

    /// Reads the header; a header with no events ends the archive.
    pub fn read(bytes: &[u8; Self::BYTES]) -> Result<Self, String> {
        let (numbers, _) = bytes.as_chunks::<4>();
        let number = |index: usize| u32::from_le_bytes(numbers[index]) as usize;
        let head = Self {
            packed: number(0),
            unpacked: number(1),
            events: number(2),
        };
        let sound = head.packed <= MOST_BYTES
            && head.unpacked <= MOST_BYTES
            && head.events <= head.unpacked;
        if sound {
            Ok(head)
        } else {
            Err("the archive is damaged".to_owned())
        }
    }

    fn write(self, sink: &mut impl Write) -> io::Result<()> {
        for number in [self.packed, self.unpacked, self.events] {
            let number = u32::try_from(number).map_err(io::Error::other)?;
            sink.write_all(&number.to_le_bytes())?;
        }
        Ok(())
    }
}

/// Compresses events into blocks and writes the file's end.
pub struct BlockWriter<W: Write> {
    sink: W,
    compressor: Compressor<'static>,
    types: Vec<String>,
    values: ValueWriter,
    events: u32,
    sequence: u64,
    stored_at: i64,
}

impl<W: Write> BlockWriter<W> {
    pub fn new(sink: W) -> io::Result<Self> {
        let mut compressor = Compressor::new(LEVEL)?;
        compressor.set_parameter(CParameter::ChecksumFlag(true))?;
        Ok(Self {
            sink,
            compressor,
            types: Vec::new(),
            values: ValueWriter::default(),
            events: 0,
            sequence: 0,
            stored_at: 0,
        })
    }

    pub fn write(&mut self, recorded: &Recorded) -> io::Result<()> {
        self.append(recorded).map_err(io::Error::other)?;
        self.events += 1;
        if self.events == MOST_EVENTS || self.values.out.len() >= ENOUGH_BYTES {
            self.end_block()?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> io::Result<W> {
        if self.events > 0 {
            self.end_block()?;
        }
        let end = BlockHead {
            packed: 0,
            unpacked: 0,
            events: 0,
        };
        end.write(&mut self.sink)?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn append(&mut self, recorded: &Recorded) -> Result<(), Error> {
        let envelope = &recorded.envelope;
        let (type_name, event) = match &envelope.body {
            Body::Event(event) => (event.type_name(), Some(event)),
            Body::Unknown { type_name } => (type_name.as_str(), None),
        };
        let type_number = self.type_number(type_name);
        let writer = Writer::ALL.iter().position(|it| *it == recorded.writer);
        let (sequence, stored_at) = (recorded.sequence.0, recorded.stored_at.as_micros());
        let since = |before: i64, now: i64| zigzag(now.wrapping_sub(before));
        let out = &mut self.values.out;
        put(
            out,
            zigzag(sequence.wrapping_sub(self.sequence).cast_signed()),
        );
        put(out, since(self.stored_at, stored_at));
        put(out, writer.map_or(u64::MAX, |writer| writer as u64));
        put(out, type_number);
        put(out, since(stored_at, envelope.time.as_micros()));
        (self.sequence, self.stored_at) = (sequence, stored_at);
        self.values.from = stored_at;
        self.values.unique(&envelope.id);
        self.values.text(&envelope.source);
        self.values.text(&envelope.subject);
        envelope.traceparent.serialize(&mut self.values)?;
        event.serialize(&mut self.values)
    }

    fn type_number(&mut self, name: &str) -> u64 {
        let known = self.types.iter().position(|known| known == name);
        let number = known.unwrap_or_else(|| {
            self.types.push(name.to_owned());
            self.types.len() - 1
        });
        number as u64
    }

    fn end_block(&mut self) -> io::Result<()> {
        let mut block = Vec::with_capacity(2 * self.values.out.len());
        put(&mut block, self.types.len() as u64);
        for name in &self.types {
            put_text(&mut block, name);
        }
        self.values.put_tables(&mut block);
        block.extend_from_slice(&self.values.out);
        let packed = self.compressor.compress(&block)?;
        if block.len().max(packed.len()) > MOST_BYTES {
            return Err(io::Error::other("event too large"));
        }
        let head = BlockHead {
            packed: packed.len(),
            unpacked: block.len(),
            events: self.events as usize,
        };
        head.write(&mut self.sink)?;
        self.sink.write_all(&packed)?;
        self.types.clear();
        self.values.clear();
        (self.events, self.sequence, self.stored_at) = (0, 0, 0);
        Ok(())
    }
}

/// Passes each of the `events` of an unpacked block to `each` until `each` returns false.
///
/// # Errors
/// The event after the last one passed is damaged.
pub fn decode_block(
    block: &[u8],
    events: usize,
    mut each: impl FnMut(Recorded) -> bool,
) -> Result<(), String> {
    let mut cursor = Cursor::new(block);
    let tables = cursor.tables().map_err(|error| error.to_string())?;
    let mut reader = ValueReader::new(cursor, &tables);
    let (mut sequence, mut stored_at) = (0, 0);
    for _ in 0..events {
        let recorded = read(&mut reader, sequence, stored_at).map_err(|error| error.to_string())?;
        (sequence, stored_at) = (recorded.sequence.0, recorded.stored_at.as_micros());
        if !each(recorded) {
            return Ok(());
        }
    }
    if reader.cursor.is_at_end() {
        Ok(())
    } else {
        Err("the archive is damaged: events that are not counted follow".to_owned())
    }
}

fn read(
    reader: &mut ValueReader<'_, '_>,
    sequence: u64,
    stored_at: i64,
) -> Result<Recorded, Error> {
    let cursor = &mut reader.cursor;
    let sequence = sequence.wrapping_add_signed(cursor.signed()?);
    let stored_at = stored_at.wrapping_add(cursor.signed()?);
    let writer = usize::try_from(cursor.number()?).ok();
    let writer = writer.and_then(|writer| Writer::ALL.get(writer));
    let writer = writer.ok_or_else(|| Error::custom("its writer is unknown"))?;
    let type_number = usize::try_from(cursor.number()?).unwrap_or(usize::MAX);
    let time = stored_at.wrapping_add(cursor.signed()?);
    reader.from = stored_at;
    let (type_name, event_type) = *reader
        .tables
        .types
        .get(type_number)
        .ok_or_else(|| Error::custom("its type is unknown"))?;
    Ok(Recorded {
        sequence: Sequence(sequence),
        stored_at: Timestamp::from_micros(stored_at),
        writer: *writer,
        envelope: Envelope {
            id: reader.text()?,
            source: reader.text()?,
            subject: reader.text()?,
            time: Timestamp::from_micros(time),
            traceparent: reader.optional_text()?.map(str::to_owned),
            body: read_body(reader, type_name, event_type)?,
        },
    })
}

fn read_body(
    reader: &mut ValueReader<'_, '_>,
    type_name: &str,
    event_type: Option<EventType>,
) -> Result<Body, Error> {
    if let Some(event_type) = event_type {
        return event_type.deserialize(reader).map(Body::Event);
    }
    IgnoredAny::deserialize(reader)?;
    let type_name = type_name.to_owned();
    Ok(Body::Unknown { type_name })
}
