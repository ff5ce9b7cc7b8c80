//! Reads and writes the log as a file: JSON lines, or Parquet (`.parquet`).
//!
//! - `columns`: the columns of a Parquet file.
//! - `decoding`: decodes a Parquet file on several threads.

mod columns;
mod decoding;
mod error;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use dormouse_messages::Recorded;

pub use columns::{Flagged, Row, RowWriter};
pub use decoding::Decoding;
pub use error::LogFileError;

use crate::output::OutputFile;

const SLICE: &str = "{\"slice\":";

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "parquet")
}

enum Sink {
    Lines(OutputFile),
    Parquet(Box<RowWriter<OutputFile>>),
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
    pub fn new(file: OutputFile, log: &str) -> Result<Self, LogFileError> {
        let path = file.path().to_owned();
        let sink = if is_parquet(&path) {
            let rows = RowWriter::new(file, log);
            let rows = rows.map_err(|error| LogFileError::file(&path, io::Error::other(error)))?;
            Sink::Parquet(Box::new(rows))
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
    pub fn create(path: &Path, log: &str) -> Result<Self, LogFileError> {
        Self::new(OutputFile::create(path, &[], false)?, log)
    }

    /// Writes the next event.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, recorded: &Recorded) -> Result<(), LogFileError> {
        let written = match &mut self.sink {
            Sink::Lines(lines) => {
                let line = recorded.to_json(&self.log);
                let line = line.map_err(|error| LogFileError::Event {
                    path: self.path.clone(),
                    number: recorded.sequence.0,
                    error: error.to_string(),
                })?;
                writeln!(lines, "{line}")
            }
            Sink::Parquet(rows) => rows.event(recorded).map_err(io::Error::other),
        };
        written.map_err(|error| LogFileError::file(&self.path, error))
    }

    /// Completes the file.
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(self) -> Result<(), LogFileError> {
        let file = match self.sink {
            Sink::Lines(file) => file,
            Sink::Parquet(rows) => rows
                .finish()
                .map_err(|error| LogFileError::file(&self.path, io::Error::other(error)))?,
        };
        Ok(file.finish()?)
    }
}

enum Source {
    Lines(Box<dyn BufRead>),
    Parquet(Decoding),
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
    pub fn open(path: &Path) -> Result<Self, LogFileError> {
        let open = || File::open(path).map_err(|error| LogFileError::file(path, error));
        let mut log = String::new();
        let source = if is_parquet(path) {
            let decoding = Decoding::start(path, open()?)?;
            decoding.log().clone_into(&mut log);
            Source::Parquet(decoding)
        } else if path.as_os_str() == "-" {
            Source::Lines(Box::new(BufReader::new(io::stdin())))
        } else {
            Source::Lines(Box::new(BufReader::new(open()?)))
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
    pub fn look<E: From<LogFileError>>(
        mut self,
        mut each: impl FnMut(&Recorded) -> Result<(), E>,
    ) -> Result<(), E> {
        if let Source::Parquet(decoding) = self.source {
            return decoding.look(|row| match row {
                Row::Event(recorded) => each(recorded),
                Row::Flagged(_) => Ok(()),
            });
        }
        self.try_for_each(|recorded| each(&recorded?))
    }

    fn wrong(&self, error: impl ToString) -> LogFileError {
        LogFileError::Event {
            path: self.path.clone(),
            number: self.number,
            error: error.to_string(),
        }
    }

    fn read_line(&mut self) -> Result<Option<Recorded>, LogFileError> {
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
                    if let Some(newer) = recorded.newer_format() {
                        return Err(newer.into());
                    }
                    self.log = log;
                    return Ok(Some(recorded));
                }
                Err(error) => return Err(self.wrong(error)),
            }
        }
    }
}

impl Iterator for LogReader {
    type Item = Result<Recorded, LogFileError>;

    fn next(&mut self) -> Option<Self::Item> {
        let Source::Parquet(decoding) = &mut self.source else {
            return self.read_line().transpose();
        };
        decoding.find_map(|row| match row {
            Ok(Row::Event(recorded)) => Some(Ok(recorded)),
            Ok(Row::Flagged(_)) => None,
            Err(error) => Some(Err(error)),
        })
    }
}
