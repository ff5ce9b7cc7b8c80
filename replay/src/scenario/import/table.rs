//! Tables whose first line names the columns, in any order. Unknown columns are ignored.

use std::io::Read;

use csv::{ByteRecord, ReaderBuilder};
use dormouse_messages::sanitize;

use super::ImportError;

/// The names of the columns.
#[derive(Debug)]
pub struct Header {
    names: Vec<String>,
    /// Describes a table that has the columns.
    how: &'static str,
}

/// A column of the table.
#[derive(Debug, Clone)]
pub struct Column {
    index: usize,
    name: String,
}

impl Header {
    /// Finds the first column that exists under one of the names.
    pub fn find(&self, names: &[&str]) -> Option<Column> {
        let mut columns = names.iter().filter_map(|name| {
            let is_named = |column: &String| column.eq_ignore_ascii_case(name);
            self.names.iter().position(is_named)
        });
        columns.next().map(|index| Column {
            index,
            name: self.names[index].clone(),
        })
    }

    /// Finds a column like [`Header::find`].
    ///
    /// # Errors
    /// There is none.
    pub fn need(&self, names: &[&str]) -> Result<Column, ImportError> {
        self.find(names).ok_or_else(|| self.lacks(names))
    }

    /// Returns the error for missing columns.
    pub fn lacks(&self, names: &[&str]) -> ImportError {
        ImportError::Columns {
            missing: names.join(" or "),
            how: self.how,
        }
    }
}

/// A table, read row by row.
pub struct Table<R> {
    reader: csv::Reader<R>,
    header: Header,
    first: ByteRecord,
    record: ByteRecord,
}

impl<R: Read> Table<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// The table is empty or unreadable.
    pub fn open(input: R, delimiter: u8, how: &'static str) -> Result<Self, ImportError> {
        let mut reader = ReaderBuilder::new()
            .delimiter(delimiter)
            // Slurm does not quote; a name may contain a quotation mark.
            .quoting(delimiter == b',')
            .flexible(true)
            .from_reader(input);
        let first = reader.byte_headers()?.clone();
        let names = first.iter().map(|name| {
            let name = String::from_utf8_lossy(name);
            name.trim_start_matches('\u{feff}').trim().to_owned()
        });
        let names: Vec<String> = names.collect();
        if names.is_empty() {
            return Err(ImportError::Empty(how));
        }
        Ok(Self {
            reader,
            header: Header { names, how },
            first,
            record: ByteRecord::new(),
        })
    }

    /// Returns the header.
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Reads the next row, which may have the wrong number of fields. Skips repeated headers, so that
    /// several tables can follow each other.
    ///
    /// # Errors
    /// The input cannot be read.
    pub fn next(&mut self) -> Result<Option<Result<Row<'_>, ImportError>>, ImportError> {
        loop {
            if !self.reader.read_byte_record(&mut self.record)? {
                return Ok(None);
            }
            if self.record != self.first {
                break;
            }
        }
        let line = self.record.position().map_or(0, csv::Position::line);
        if self.record.len() != self.header.names.len() {
            return Ok(Some(Err(ImportError::Fields {
                line,
                found: self.record.len(),
                expected: self.header.names.len(),
            })));
        }
        Ok(Some(Ok(Row {
            record: &self.record,
            line,
        })))
    }
}

/// A row with as many fields as the header.
#[derive(Debug, Clone, Copy)]
pub struct Row<'a> {
    record: &'a ByteRecord,
    line: u64,
}

impl<'a> Row<'a> {
    /// Returns the number of the row's line.
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// Returns a field without surrounding spaces.
    ///
    /// # Errors
    /// The field is not UTF-8.
    pub fn text(&self, column: &Column) -> Result<&'a str, CellError> {
        let bytes = self.record.get(column.index).unwrap_or_default();
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.trim()),
            Err(_) => Err(column.error(&String::from_utf8_lossy(bytes), "is not UTF-8")),
        }
    }

    /// Returns a field of a column that may be missing; an empty field counts as missing.
    ///
    /// # Errors
    /// The field is not UTF-8.
    pub fn optional(&self, column: Option<&Column>) -> Result<Option<&'a str>, CellError> {
        let text = column.map(|column| self.text(column)).transpose()?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Parses a field.
    ///
    /// # Errors
    /// The field is not UTF-8, or `parse` does not accept it.
    pub fn parse<T>(
        &self,
        column: &Column,
        parse: impl FnOnce(&str) -> Result<T, &'static str>,
    ) -> Result<T, CellError> {
        let text = self.text(column)?;
        parse(text).map_err(|what| column.error(text, what))
    }
}

impl Column {
    /// Returns the error for a field of this column.
    pub fn error(&self, text: &str, what: &'static str) -> CellError {
        CellError {
            column: self.name.clone(),
            text: sanitize::shortened(text).into_owned(),
            what,
        }
    }
}

/// A field that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellError {
    pub column: String,
    pub text: String,
    /// States the mistake and the accepted form.
    pub what: &'static str,
}

impl CellError {
    /// Adds the line.
    pub fn on(self, line: u64) -> ImportError {
        ImportError::Cell {
            line,
            column: self.column,
            text: self.text,
            what: self.what,
        }
    }
}
