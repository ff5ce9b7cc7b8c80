//! Reads archives of the first version, `dormouse-log-1`; nothing writes them any more.
//!
//! One zstd stream of records: the length of an event's MessagePack as a little-endian `u32`, its
//! sequence as `u64`, the broker's time in microseconds as `i64`, the writer's number as one byte, then
//! the event.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use dormouse_messages::{Envelope, Recorded, Sequence, Timestamp, Writer};

const MAGIC: &str = "dormouse-log-1";

/// The broker accepts no larger message.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// The remaining records of an archive.
pub struct Records {
    unpacked: BufReader<zstd::Decoder<'static, BufReader<File>>>,
    event: Vec<u8>,
}

impl Records {
    /// Reads the head of an archive; returns the log's identity and the records.
    pub fn open(file: BufReader<File>) -> io::Result<(String, Self)> {
        let mut unpacked = BufReader::new(zstd::Decoder::with_buffer(file)?);
        let (mut magic, mut log) = (String::new(), String::new());
        unpacked.read_line(&mut magic)?;
        if magic.trim_end() != MAGIC {
            return Err(io::Error::other("it is not a dormouse log archive"));
        }
        unpacked.read_line(&mut log)?;
        log.truncate(log.trim_end().len());
        let event = Vec::new();
        Ok((log, Self { unpacked, event }))
    }

    pub fn next(&mut self) -> Result<Option<Recorded>, String> {
        let left = self.unpacked.fill_buf();
        if left.map_err(|error| error.to_string())?.is_empty() {
            return Ok(None);
        }
        let length = u32::from_le_bytes(self.read()?) as usize;
        let sequence = u64::from_le_bytes(self.read()?);
        let stored_at = i64::from_le_bytes(self.read()?);
        let [writer] = self.read()?;
        if length > MOST_BYTES {
            return Err(format!("an event of {length} bytes is damaged"));
        }
        self.event.resize(length, 0);
        let read = self.unpacked.read_exact(&mut self.event);
        read.map_err(cut_off)?;
        let writer = Writer::ALL.get(usize::from(writer));
        let envelope = Envelope::from_msgpack(&self.event);
        Ok(Some(Recorded {
            sequence: Sequence(sequence),
            stored_at: Timestamp::from_micros(stored_at),
            writer: *writer.ok_or("its writer is unknown")?,
            envelope: envelope.map_err(|error| error.to_string())?,
        }))
    }

    fn read<const BYTES: usize>(&mut self) -> Result<[u8; BYTES], String> {
        let mut bytes = [0; BYTES];
        let read = self.unpacked.read_exact(&mut bytes);
        read.map(|()| bytes).map_err(cut_off)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is for map_err")]
fn cut_off(error: io::Error) -> String {
    format!("the archive is cut off: {error}")
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::path::Path;

    use super::super::{LogReader, LogWriter};
    use super::*;

    fn sample() -> Recorded {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../messages/tests/fixtures");
        let line = std::fs::read_to_string(folder.join("dormouse.job.admitted.v1.json"));
        Recorded::from_json(&line.expect("reads"))
            .expect("decodes")
            .1
    }

    fn version1(events: &[Recorded]) -> Vec<u8> {
        let mut bytes = b"dormouse-log-1\nold\n".to_vec();
        for recorded in events {
            let event = recorded.envelope.to_msgpack().expect("encodes");
            let writer = Writer::ALL.iter().position(|it| *it == recorded.writer);
            let length = u32::try_from(event.len()).expect("short");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(&recorded.sequence.0.to_le_bytes());
            bytes.extend_from_slice(&recorded.stored_at.as_micros().to_le_bytes());
            bytes.push(u8::try_from(writer.expect("a writer")).expect("few"));
            bytes.extend_from_slice(&event);
        }
        bytes
    }

    fn save(path: &Path, bytes: &[u8]) {
        let packed = zstd::encode_all(bytes, 1).expect("packs");
        let mut file = File::create(path).expect("creates");
        file.write_all(&packed).expect("writes");
    }

    #[test]
    fn an_archive_of_the_first_version_is_read_and_written_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let (old, new) = (dir.path().join("old.dmlog"), dir.path().join("new.dmlog"));
        let events = vec![sample(); 3];
        save(&old, &version1(&events));
        let reader = LogReader::open(&old).expect("opens");
        let mut writer = LogWriter::create(&new, reader.log()).expect("creates");
        for recorded in reader {
            writer.write(&recorded.expect("decodes")).expect("writes");
        }
        writer.finish().expect("ends");
        let reader = LogReader::open(&new).expect("opens");
        assert_eq!(reader.log(), "old");
        let read: Vec<Recorded> = reader.map(|event| event.expect("decodes")).collect();
        assert_eq!(read, events);
    }

    #[test]
    fn one_that_is_cut_off_says_so_behind_the_last_whole_event() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("old.dmlog");
        let bytes = version1(&[sample(), sample()]);
        save(&path, &bytes[..bytes.len() - 1]);
        let mut reader = LogReader::open(&path).expect("opens");
        assert!(reader.next().is_some_and(|event| event.is_ok()));
        let error = reader.next().and_then(Result::err).expect("an error");
        let expected = "event 2: the archive is cut off";
        assert!(error.to_string().contains(expected), "{error}");
        assert!(reader.next().is_none());
        save(&path, b"dormouse-log-3\n");
        assert!(LogReader::open(&path).is_err());
        std::fs::write(&path, "no archive").expect("writes");
        assert!(LogReader::open(&path).is_err());
    }
}
