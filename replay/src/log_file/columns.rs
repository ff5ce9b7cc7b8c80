//! The columns of a log in Parquet, and the rows that are written to and read from them.
//!
//! | column | type | content |
//! |---|---|---|
//! | `sequence` | int64 | place on the log |
//! | `time`, `stored_at` | timestamp in microseconds, UTC | the writer's clock; the broker's |
//! | `type`, `source`, `subject`, `id` | string | the CloudEvents attributes |
//! | `trace` | string or null | the `traceparent` |
//! | `data` | string or null | the event's data as JSON; null for a type that the writing build did not know |
//!
//! A message that is no event is a row of type [`FLAGGED`] with the reason in `data`.

use std::io::Write;
use std::sync::Arc;

use dormouse_messages::{Body, Envelope, EventType, Recorded, Sequence, Text, Timestamp, Writer};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::ColumnReaderImpl;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use serde::{Deserialize, Serialize};

const SCHEMA: &str = "message log {
    REQUIRED INT64 sequence;
    REQUIRED INT64 time (TIMESTAMP(MICROS, true));
    REQUIRED INT64 stored_at (TIMESTAMP(MICROS, true));
    REQUIRED BYTE_ARRAY type (STRING);
    REQUIRED BYTE_ARRAY source (STRING);
    REQUIRED BYTE_ARRAY subject (STRING);
    REQUIRED BYTE_ARRAY id (STRING);
    OPTIONAL BYTE_ARRAY trace (STRING);
    OPTIONAL BYTE_ARRAY data (STRING);
}";

/// The type of a row whose message is no event.
pub const FLAGGED: &str = "dormouse.flagged";

/// The metadata key of the log's identity.
pub const LOG_KEY: &str = "dormouse.log";

/// Rows of a row group; smaller groups compress worse.
const GROUP_ROWS: usize = 100_000;

/// Bounds a group's memory while it is written.
const GROUP_BYTES: usize = 64 << 20;

/// Higher levels cost more than they save.
const ZSTD_LEVEL: i32 = 9;

/// A row of a log file.
#[derive(Debug, Clone, PartialEq)]
pub enum Row {
    Event(Recorded),
    Flagged(Flagged),
}

/// A message of the log that is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flagged {
    pub sequence: Sequence,
    pub stored_at: Timestamp,
    /// The writer in the message's subject, if one is there.
    pub writer: Option<Writer>,
    pub why: String,
}

impl Row {
    /// Returns the place on the log.
    #[must_use]
    pub const fn sequence(&self) -> Sequence {
        match self {
            Self::Event(recorded) => recorded.sequence,
            Self::Flagged(flagged) => flagged.sequence,
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Why {
    why: String,
}

/// Texts of a column, end to end.
#[derive(Default)]
struct Texts {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// 1 for each value, 0 for each null.
    levels: Vec<i16>,
}

impl Texts {
    fn push(&mut self, text: Option<&str>) {
        self.levels.push(text.is_some().into());
        if let Some(text) = text {
            self.bytes.extend_from_slice(text.as_bytes());
            self.ends.push(self.bytes.len());
        }
    }

    fn take(&mut self) -> (Vec<ByteArray>, Vec<i16>) {
        let bytes = ByteArray::from(std::mem::take(&mut self.bytes));
        let mut begin = 0;
        let ends = std::mem::take(&mut self.ends).into_iter();
        let values = ends.map(|end| {
            let value = bytes.slice(begin, end - begin);
            begin = end;
            value
        });
        (values.collect(), std::mem::take(&mut self.levels))
    }
}

/// Writes rows as Parquet.
pub struct RowWriter<W: Write + Send> {
    file: SerializedFileWriter<W>,
    sequences: Vec<i64>,
    times: Vec<i64>,
    stored: Vec<i64>,
    types: Texts,
    sources: Texts,
    subjects: Texts,
    ids: Texts,
    traces: Texts,
    data: Texts,
}

impl<W: Write + Send> RowWriter<W> {
    /// Begins a file for the log with the identity `log`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn new(file: W, log: &str) -> Result<Self, ParquetError> {
        let schema = Arc::new(parse_message_type(SCHEMA)?);
        let column = |name: &str| ColumnPath::from(name);
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_created_by(concat!("dormouse ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new(
                LOG_KEY.to_owned(),
                log.to_owned(),
            )]));
        for name in ["sequence", "time", "stored_at"] {
            properties = properties
                .set_column_dictionary_enabled(column(name), false)
                .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
        }
        for name in ["id", "trace", "data"] {
            properties = properties.set_column_dictionary_enabled(column(name), false);
        }
        properties = properties
            .set_column_encoding(column("id"), Encoding::DELTA_BYTE_ARRAY)
            .set_column_statistics_enabled(column("data"), EnabledStatistics::None)
            .set_column_statistics_enabled(column("trace"), EnabledStatistics::None);
        Ok(Self {
            file: SerializedFileWriter::new(file, schema, Arc::new(properties.build()))?,
            sequences: Vec::new(),
            times: Vec::new(),
            stored: Vec::new(),
            types: Texts::default(),
            sources: Texts::default(),
            subjects: Texts::default(),
            ids: Texts::default(),
            traces: Texts::default(),
            data: Texts::default(),
        })
    }

    /// Writes an event.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn event(&mut self, recorded: &Recorded) -> Result<(), ParquetError> {
        let envelope = &recorded.envelope;
        let (type_name, data) = match &envelope.body {
            Body::Event(event) => {
                let data = serde_json::to_string(event).map_err(external)?;
                (event.type_name(), Some(data))
            }
            Body::Unknown { type_name } => (type_name.as_str(), None),
        };
        self.push(recorded.sequence, envelope.time, recorded.stored_at);
        self.types.push(Some(type_name));
        self.sources.push(Some(&envelope.source));
        self.subjects.push(Some(&envelope.subject));
        self.ids.push(Some(&envelope.id));
        self.traces.push(envelope.traceparent.as_deref());
        self.data.push(data.as_deref());
        self.flush_if_full()
    }

    /// Writes a message that is no event.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn flagged(&mut self, flagged: &Flagged) -> Result<(), ParquetError> {
        let why = Why {
            why: flagged.why.clone(),
        };
        let data = serde_json::to_string(&why).map_err(external)?;
        self.push(flagged.sequence, flagged.stored_at, flagged.stored_at);
        self.types.push(Some(FLAGGED));
        let source = flagged.writer.map(|writer| format!("/dormouse/{writer}"));
        self.sources
            .push(Some(source.as_deref().unwrap_or_default()));
        self.subjects.push(Some(""));
        self.ids.push(Some(""));
        self.traces.push(None);
        self.data.push(Some(&data));
        self.flush_if_full()
    }

    fn push(&mut self, sequence: Sequence, time: Timestamp, stored_at: Timestamp) {
        self.sequences.push(sequence.0.cast_signed());
        self.times.push(time.as_micros());
        self.stored.push(stored_at.as_micros());
    }

    fn flush_if_full(&mut self) -> Result<(), ParquetError> {
        if self.sequences.len() >= GROUP_ROWS || self.data.bytes.len() >= GROUP_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ParquetError> {
        let mut group = self.file.next_row_group()?;
        for numbers in [&mut self.sequences, &mut self.times, &mut self.stored] {
            write_column::<Int64Type, W>(&mut group, numbers, None)?;
            numbers.clear();
        }
        let required = [
            &mut self.types,
            &mut self.sources,
            &mut self.subjects,
            &mut self.ids,
        ];
        for texts in required {
            let (values, _) = texts.take();
            write_column::<ByteArrayType, W>(&mut group, &values, None)?;
        }
        for texts in [&mut self.traces, &mut self.data] {
            let (values, levels) = texts.take();
            write_column::<ByteArrayType, W>(&mut group, &values, Some(&levels))?;
        }
        group.close()?;
        Ok(())
    }

    /// Completes the file and returns what it was written to.
    ///
    /// # Errors
    /// The rest cannot be written.
    pub fn finish(mut self) -> Result<W, ParquetError> {
        if !self.sequences.is_empty() {
            self.flush()?;
        }
        self.file.into_inner()
    }
}

fn external(error: serde_json::Error) -> ParquetError {
    ParquetError::External(Box::new(error))
}

fn write_column<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let mut column = group
        .next_column()?
        .ok_or_else(|| ParquetError::General("a column is missing".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    levels: Vec<i16>,
    next: usize,
}

impl<T: DataType> Column<T> {
    fn open(group: &dyn RowGroupReader, index: usize) -> Result<Self, ParquetError> {
        Ok(Self {
            reader: parquet::column::reader::get_typed_column_reader(
                group.get_column_reader(index)?,
            ),
            values: Vec::new(),
            levels: Vec::new(),
            next: 0,
        })
    }

    fn fill(&mut self, most: usize) -> Result<usize, ParquetError> {
        (self.values.clear(), self.levels.clear());
        self.next = 0;
        let levels = Some(&mut self.levels);
        let (rows, ..) = self
            .reader
            .read_records(most, levels, None, &mut self.values)?;
        Ok(rows)
    }

    fn take(&mut self) -> Result<&T::T, String> {
        self.next += 1;
        let value = self.values.get(self.next - 1);
        value.ok_or_else(|| "a value is missing".to_owned())
    }
}

impl Column<ByteArrayType> {
    fn text(&mut self) -> Result<&str, String> {
        let bytes = self.take()?.data();
        std::str::from_utf8(bytes).map_err(|error| error.to_string())
    }

    fn optional(&mut self, row: usize) -> Result<Option<&str>, String> {
        match self.levels.get(row) {
            Some(0) => Ok(None),
            _ => self.text().map(Some),
        }
    }
}

/// Reads the rows of a row group in batches.
pub struct GroupRows {
    sequences: Column<Int64Type>,
    times: Column<Int64Type>,
    stored: Column<Int64Type>,
    types: Column<ByteArrayType>,
    sources: Column<ByteArrayType>,
    subjects: Column<ByteArrayType>,
    ids: Column<ByteArrayType>,
    traces: Column<ByteArrayType>,
    data: Column<ByteArrayType>,
}

impl GroupRows {
    /// Begins at the group's first row.
    ///
    /// # Errors
    /// The group is damaged.
    pub fn open(group: &dyn RowGroupReader) -> Result<Self, ParquetError> {
        Ok(Self {
            sequences: Column::open(group, 0)?,
            times: Column::open(group, 1)?,
            stored: Column::open(group, 2)?,
            types: Column::open(group, 3)?,
            sources: Column::open(group, 4)?,
            subjects: Column::open(group, 5)?,
            ids: Column::open(group, 6)?,
            traces: Column::open(group, 7)?,
            data: Column::open(group, 8)?,
        })
    }

    /// Reads up to `most` rows and returns their number; 0 at the end.
    ///
    /// # Errors
    /// The group is damaged.
    pub fn fill(&mut self, most: usize) -> Result<usize, String> {
        let mut fill = || {
            let rows = self.sequences.fill(most)?;
            let numbers = [&mut self.times, &mut self.stored];
            let mut counts = Vec::with_capacity(8);
            for column in numbers {
                counts.push(column.fill(most)?);
            }
            let texts = [
                &mut self.types,
                &mut self.sources,
                &mut self.subjects,
                &mut self.ids,
                &mut self.traces,
                &mut self.data,
            ];
            for column in texts {
                counts.push(column.fill(most)?);
            }
            if counts.iter().any(|count| *count != rows) {
                return Err(ParquetError::General("a column is cut off".to_owned()));
            }
            Ok(rows)
        };
        fill().map_err(|error| error.to_string())
    }

    /// Decodes row `row` of the batch; rows are decoded in order.
    ///
    /// # Errors
    /// The row is no event.
    pub fn next(&mut self, row: usize) -> Result<Row, String> {
        let sequence = Sequence(self.sequences.take()?.cast_unsigned());
        let time = Timestamp::from_micros(*self.times.take()?);
        let stored_at = Timestamp::from_micros(*self.stored.take()?);
        let source: Text = self.sources.text()?.into();
        let subject: Text = self.subjects.text()?.into();
        let id: Text = self.ids.text()?.into();
        let traceparent = self.traces.optional(row)?.map(str::to_owned);
        let data = self.data.optional(row)?;
        let type_name = self.types.text()?;
        if type_name == FLAGGED {
            let why: Why = serde_json::from_str(data.unwrap_or_default())
                .map_err(|error| error.to_string())?;
            return Ok(Row::Flagged(Flagged {
                sequence,
                stored_at,
                writer: source
                    .strip_prefix("/dormouse/")
                    .and_then(|it| it.parse().ok()),
                why: why.why,
            }));
        }
        let body = match (data, EventType::of(type_name)) {
            (Some(data), Some(known)) => {
                let mut json = serde_json::Deserializer::from_str(data);
                let event = known.deserialize(&mut json);
                let event = event.and_then(|event| json.end().map(|()| event));
                Body::Event(event.map_err(|error| format!("{type_name}: {error}"))?)
            }
            (None, Some(_)) => return Err(format!("{type_name} has no data")),
            (_, None) => Body::Unknown {
                type_name: type_name.to_owned(),
            },
        };
        let envelope = Envelope {
            id,
            source,
            subject,
            time,
            traceparent,
            body,
        };
        let recorded = Recorded::exported(sequence, stored_at, envelope);
        recorded.map(Row::Event).map_err(|error| error.to_string())
    }
}
