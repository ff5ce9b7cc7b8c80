//! Reads and writes the log as a file: JSON lines, or a compact archive (`.dmlog`).
//!
//! - `packed`: the archive format.
//! - `decoding`: decodes an archive on several threads.
//! - `version1`: reads archives of the first version.

mod decoding;
mod error;
mod packed;
mod version1;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use dormouse_messages::{CodecError, Recorded};

use decoding::Decoding;
use packed::{BlockHead, BlockWriter};
use version1::Records;

pub use error::ArchiveError;

use crate::output::OutputFile;

/// The first line of an archive; the log's identity is the second.
const MAGIC: &str = "dormouse-log-2\n";

const SLICE: &str = "{\"slice\":";

/// Packs events as blocks of an archive, which take less memory than decoded events.
///
/// # Errors
/// An event is larger than any that the broker accepts.
pub fn pack<'a>(events: impl IntoIterator<Item = &'a Recorded>) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    let mut blocks = BlockWriter::new(&mut packed)?;
    for recorded in events {
        blocks.write(recorded)?;
    }
    blocks.finish()?;
    Ok(packed)
}

/// Passes each packed event to `each` until `each` returns false.
///
/// # Errors
/// The events from [`pack`] are damaged.
pub fn unpack(mut packed: &[u8], mut each: impl FnMut(Recorded) -> bool) -> Result<(), String> {
    let cut_off = || "the block is cut off".to_owned();
    let mut wanted = true;
    while wanted {
        let (head, rest) = packed
            .split_first_chunk::<{ BlockHead::BYTES }>()
            .ok_or_else(cut_off)?;
        let head = BlockHead::read(head)?;
        if head.events == 0 {
            break;
        }
        let block = rest.get(..head.packed).ok_or_else(cut_off)?;
        packed = &rest[head.packed..];
        let block = zstd::bulk::decompress(block, head.unpacked).map_err(|it| it.to_string())?;
        packed::decode_block(&block, head.events, |recorded| {
            wanted = each(recorded);
            wanted
        })?;
    }
    Ok(())
}

fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "dmlog")
}

enum Sink {
    Lines(OutputFile),
    Archive(Box<BlockWriter<OutputFile>>),
}

/// Writes a log to a file in the form that the file's extension names.
pub struct LogWriter {
    path: PathBuf,
    log: String,
    sink: Sink,
}

impl LogWriter {
    /// Begins the log with the identity `log`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(mut file: OutputFile, log: &str) -> Result<Self, ArchiveError> {
        let path = file.path().to_owned();
        let failed = |error| ArchiveError::File {
            path: path.clone(),
            source: error,
        };
        let sink = if is_archive(&path) {
            writeln!(file, "{MAGIC}{log}").map_err(failed)?;
            Sink::Archive(Box::new(BlockWriter::new(file).map_err(failed)?))
        } else {
            Sink::Lines(file)
        };
        Ok(Self {
            log: log.to_owned(),
            sink,
            path,
        })
    }

    /// Begins a new file for the log with the identity `log`.
    ///
    /// # Errors
    /// The file exists, or cannot be written.
    pub fn create(path: &Path, log: &str) -> Result<Self, ArchiveError> {
        Self::new(OutputFile::create(path, &[], false)?, log)
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// The file cannot be written.
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
            Sink::Archive(blocks) => blocks.write(recorded),
        };
        written.map_err(|error| ArchiveError::File {
            path: self.path.clone(),
            source: error,
        })
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(self) -> Result<(), ArchiveError> {
        let file = match self.sink {
            Sink::Lines(file) => file,
            Sink::Archive(blocks) => blocks.finish().map_err(|error| ArchiveError::File {
                path: self.path,
                source: error,
            })?,
        };
        Ok(file.finish()?)
    }
}

enum Source {
    Lines(Box<dyn BufRead>),
    Archive(Decoding),
    Version1(Box<Records>),
}

/// Reads a log from a file, event by event.
pub struct LogReader {
    path: PathBuf,
    log: String,
    number: u64,
    line: String,
    head: Option<String>,
    source: Source,
}

impl LogReader {
    /// Opens the file; `-` is the standard input.
    ///
    /// # Errors
    /// The file cannot be read or is not a log.
    pub fn open(path: &Path) -> Result<Self, ArchiveError> {
        let failed = |error| ArchiveError::File {
            path: path.to_owned(),
            source: error,
        };
        let mut log = String::new();
        let source = if is_archive(path) {
            let file = File::open(path).map_err(failed)?;
            let mut file = BufReader::with_capacity(256 * 1024, file);
            if file
                .fill_buf()
                .map_err(failed)?
                .starts_with(MAGIC.as_bytes())
            {
                file.consume(MAGIC.len());
                file.read_line(&mut log).map_err(failed)?;
                log.truncate(log.trim_end().len());
                Source::Archive(Decoding::start(path, file))
            } else {
                let records;
                (log, records) = Records::open(file).map_err(failed)?;
                Source::Version1(Box::new(records))
            }
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
            head: None,
            source,
        })
    }

    /// Returns the log's identity, which is known after the first event.
    #[must_use]
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Returns the head of a slice ([`crate::history::slice`]) after the first event; `None` for a whole
    /// log.
    #[must_use]
    pub fn head(&self) -> Option<&str> {
        self.head.as_deref()
    }

    /// Passes every remaining event to `each` until `each` fails. Cheaper than iterating, since `each`
    /// only borrows.
    ///
    /// # Errors
    /// An event cannot be read, or `each` fails.
    pub fn look<E: From<ArchiveError>>(
        mut self,
        mut each: impl FnMut(&Recorded) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Source::Archive(decoding) = self.source {
            return decoding.look(each);
        }
        self.try_for_each(|recorded| each(&recorded?))
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
                Ok(_) if self.number == 1 && self.line.starts_with(SLICE) => {
                    self.head = Some(std::mem::take(&mut self.line));
                }
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
            Source::Version1(records) => {
                self.number += 1;
                let read = records.next();
                let read = read.map_err(|error| self.wrong(error)).transpose();
                if !matches!(read, Some(Ok(_))) {
                    // Nothing can follow a damaged event.
                    self.source = Source::Lines(Box::new(io::empty()));
                }
                read
            }
        }
    }
}
