//! The log as a file: JSON lines for people and other languages, or a compact archive.
//!
//! The archive (any name that ends in `.dmlog`) is a zstd stream of records: the length of an
//! event's MessagePack as a little-endian `u32`, its sequence as `u64`, the broker's time in
//! microseconds as `i64`, the writer's number as one byte, then the event. It starts with the
//! magic `dormouse-log-1\n` and the log's identity on a line.

mod decoding;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use dormouse_messages::{CodecError, Recorded, Writer};

use decoding::Decoding;

const MAGIC: &str = "dormouse-log-1";
/// Fast to write, and a third smaller than level 1 on event logs.
const LEVEL: i32 = 3;

/// What is wrong with a log file.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// The file cannot be read or written.
    #[error("{path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An event in it is damaged.
    #[error("{path}, event {number}: {error}")]
    Event {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        number: u64,
        /// What is wrong.
        error: String,
    },
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "dmlog")
}

enum Sink {
    Lines(BufWriter<Box<dyn Write>>),
    Archive(zstd::Encoder<'static, BufWriter<File>>),
}

/// Writes a log to a file; its ending chooses the form. `-` is the standard output.
pub struct LogWriter {
    path: PathBuf,
    log: String,
    sink: Sink,
}

impl LogWriter {
    /// Creates the file for the log with the identity `log`.
    ///
    /// # Errors
    /// When it cannot be created.
    pub fn create(path: &Path, log: &str) -> Result<Self, ArchiveError> {
        let failed = |error| ArchiveError::File {
            path: path.to_owned(),
            source: error,
        };
        let sink = if is_archive(path) {
            let file = BufWriter::new(File::create(path).map_err(failed)?);
            let mut encoder = zstd::Encoder::new(file, LEVEL).map_err(failed)?;
            writeln!(encoder, "{MAGIC}\n{log}").map_err(failed)?;
            Sink::Archive(encoder)
        } else if path.as_os_str() == "-" {
            Sink::Lines(BufWriter::new(Box::new(io::stdout())))
        } else {
            let file = File::create(path).map_err(failed)?;
            Sink::Lines(BufWriter::new(Box::new(file)))
        };
        Ok(Self {
            path: path.to_owned(),
            log: log.to_owned(),
            sink,
        })
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&mut self, recorded: &Recorded) -> Result<(), ArchiveError> {
        let encode = |error: CodecError| ArchiveError::Event {
            path: self.path.clone(),
            number: recorded.sequence.0,
            error: error.to_string(),
        };
        let written = match &mut self.sink {
            Sink::Lines(lines) => {
                let line = recorded.to_json(&self.log).map_err(encode)?;
                writeln!(lines, "{line}")
            }
            Sink::Archive(encoder) => {
                let event = recorded.envelope.to_msgpack().map_err(encode)?;
                write_record(encoder, recorded, &event)
            }
        };
        written.map_err(|error| ArchiveError::File {
            path: self.path.clone(),
            source: error,
        })
    }

    /// Completes the file.
    ///
    /// # Errors
    /// When the rest cannot be written.
    pub fn finish(self) -> Result<(), ArchiveError> {
        let finished = match self.sink {
            Sink::Lines(mut lines) => lines.flush(),
            Sink::Archive(encoder) => encoder.finish().and_then(|mut file| file.flush()),
        };
        finished.map_err(|error| ArchiveError::File {
            path: self.path,
            source: error,
        })
    }
}

fn write_record(sink: &mut impl Write, recorded: &Recorded, event: &[u8]) -> io::Result<()> {
    let length = u32::try_from(event.len()).map_err(|_| io::Error::other("event too large"))?;
    let writer = Writer::ALL
        .iter()
        .position(|writer| *writer == recorded.writer);
    let writer = writer
        .and_then(|index| u8::try_from(index).ok())
        .unwrap_or(u8::MAX);
    sink.write_all(&length.to_le_bytes())?;
    sink.write_all(&recorded.sequence.0.to_le_bytes())?;
    sink.write_all(&recorded.stored_at.as_micros().to_le_bytes())?;
    sink.write_all(&[writer])?;
    sink.write_all(event)
}

enum Source {
    Lines(Box<dyn BufRead>),
    Archive(Decoding),
}

/// Reads a log from a file, event by event.
pub struct LogReader {
    path: PathBuf,
    log: String,
    number: u64,
    line: String,
    source: Source,
}

impl LogReader {
    /// Opens the file; `-` is the standard input.
    ///
    /// # Errors
    /// When it cannot be read or is not a log.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let failed = |error| ArchiveError::File {
            path: path.to_owned(),
            source: error,
        };
        let mut log = String::new();
        let source = if is_archive(path) {
            let file = File::open(path).map_err(failed)?;
            let decoder = zstd::Decoder::new(file).map_err(failed)?;
            // A large buffer: one copy out of the decoder for some hundred events.
            let mut decoder = BufReader::with_capacity(256 * 1024, decoder);
            let mut magic = String::new();
            decoder.read_line(&mut magic).map_err(failed)?;
            if magic.trim_end() != MAGIC {
                return Err(failed(io::Error::other("it is not a dormouse log archive")));
            }
            decoder.read_line(&mut log).map_err(failed)?;
            log.truncate(log.trim_end().len());
            Source::Archive(Decoding::start(path, decoder))
        } else if path.as_os_str() == "-" {
            Source::Lines(Box::new(BufReader::new(io::stdin())))
        } else {
            Source::Lines(Box::new(BufReader::new(File::open(path).map_err(failed)?)))
        };
        Ok(Self {
            path: path.to_owned(),
            log,
            number: 0,
            line: String::new(),
            source,
        })
    }

    /// The identity of the log, once an event was read.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Shows every event that is left to `each`, until it fails: a third less work than taking
    /// them one by one.
    ///
    /// # Errors
    /// When an event cannot be read, and those of `each`.
    pub fn look<E: From<ArchiveError>>(
        mut self,
        mut each: impl FnMut(&Recorded) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Source::Archive(decoding) = self.source {
            return decoding.look(each);
        }
        while let Some(recorded) = self.read_line()? {
            each(&recorded)?;
        }
        Ok(())
    }

    fn wrong(&self, error: impl ToString) -> ArchiveError {
        ArchiveError::Event {
            path: self.path.clone(),
            number: self.number,
            error: error.to_string(),
        }
    }

    fn read_line(&mut self) -> Result<Option<Recorded>, ArchiveError> {
        loop {
            self.line.clear();
            let Source::Lines(lines) = &mut self.source else {
                return Ok(None);
            };
            let read = lines.read_line(&mut self.line);
            self.number += 1;
            match read {
                Ok(0) => return Ok(None),
                Ok(_) if self.line.trim().is_empty() => {}
                Ok(_) => {
                    let (log, recorded) =
                        Recorded::from_json(&self.line).map_err(|e| self.wrong(e))?;
                    self.log = log;
                    return Ok(Some(recorded));
                }
                Err(error) => return Err(self.wrong(error)),
            }
        }
    }
}

impl Iterator for LogReader {
    type Item = Result<Recorded, ArchiveError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Lines(_) => self.read_line().transpose(),
            Source::Archive(decoding) => decoding.next(),
        }
    }
}
