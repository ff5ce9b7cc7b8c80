//! A segment's file: written from the log, read back, its decisions made again, its states folded.

use std::fs::File;
use std::sync::Arc;

use dormouse_messages::{Event, Sequence, Timestamp};
use dormouse_replay::history::slice::EncodedState;
use dormouse_replay::log_file::{Decoding, Flagged, Row, RowWriter};
use dormouse_replay::{LogFileError, Verifier};
use dormouse_runtime::LogItem;
use tempfile::NamedTempFile;
use tokio::sync::mpsc;

use crate::error::ArchiveError;
use crate::folds::Folds;
use crate::manifest::Decisions;

/// Events after a segment that are searched for decisions with a basis inside of it: longer than any decision
/// takes.
pub const LOOKAHEAD: u64 = 20_000;

/// The range of a segment.
#[derive(Debug, Clone)]
pub struct Range {
    pub log: String,
    pub first: Sequence,
    pub last: Sequence,
}

/// A segment that was written, read back and checked.
pub struct Segment {
    pub bytes: Vec<u8>,
    pub events: u64,
    pub flagged: u64,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub asof: Sequence,
    pub asof_time: Timestamp,
    pub asof_stored_at: Timestamp,
    pub encoded: Vec<EncodedState>,
    /// The states after `asof`, for the next segment.
    pub folds: Folds,
    pub decisions: Decisions,
}

/// Makes the segment of `range` from the log's items, which begin after the event of `states` and end behind
/// the segment. Blocks.
///
/// # Errors
/// The log has a gap or is cut short, or the file cannot be written or does not read back as it was written.
pub fn make(
    range: &Range,
    folds: Folds,
    mut items: mpsc::Receiver<LogItem>,
) -> Result<Segment, ArchiveError> {
    let file = tempfile::Builder::new().suffix(".parquet").tempfile()?;
    let failed = |error| LogFileError::File {
        path: file.path().to_owned(),
        source: std::io::Error::other(error),
    };
    let mut rows = RowWriter::new(file.reopen()?, &range.log).map_err(failed)?;
    let mut overlap = Vec::new();
    let mut next = folds.sequence().next();
    let mut asof = range.last;
    while let Some(item) = items.blocking_recv() {
        let row = match item {
            LogItem::Event(recorded) => {
                if let Some(type_name) = recorded.too_new() {
                    return Err(ArchiveError::TooNew {
                        sequence: recorded.sequence,
                        type_name: type_name.to_owned(),
                    });
                }
                Row::Event(Arc::unwrap_or_clone(recorded))
            }
            LogItem::Flagged {
                sequence,
                stored_at,
                writer,
                why,
            } => Row::Flagged(Flagged {
                sequence,
                stored_at,
                writer,
                why,
            }),
            LogItem::CaughtUp(_) => break,
        };
        let sequence = row.sequence();
        if sequence != next {
            return Err(ArchiveError::Gap(next));
        }
        next = sequence.next();
        if sequence < range.first {
            overlap.push(row);
        } else if sequence <= range.last {
            let written = match &row {
                Row::Event(recorded) => rows.event(recorded),
                Row::Flagged(flagged) => rows.flagged(flagged),
            };
            written.map_err(failed)?;
        } else if let Row::Event(recorded) = &row {
            let basis = recorded.event().and_then(Event::basis);
            asof = asof.min(basis.map_or(asof, |basis| basis.asof));
        }
    }
    if next <= range.last {
        return Err(ArchiveError::CutShort(range.last));
    }
    rows.finish().map_err(failed)?.sync_all()?;
    // An earlier state than that of the segment before is never needed again.
    let asof = asof.max(folds.sequence());
    check(range, folds, overlap, asof, &file)
}

fn check(
    range: &Range,
    folds: Folds,
    overlap: Vec<Row>,
    asof: Sequence,
    file: &NamedTempFile,
) -> Result<Segment, ArchiveError> {
    let damaged = |why: String| LogFileError::Event {
        path: file.path().to_owned(),
        number: 0,
        error: why,
    };
    let mut verifier = Verifier::default();
    if folds.sequence().0 > 0 {
        verifier = verifier.starting_from(&folds.states);
    }
    let mut folding = Folding::new(folds, asof);
    let fold = |row: Row, verifier: &mut Verifier, folding: &mut Folding| {
        folding.read(&row);
        if let Row::Event(recorded) = row {
            verifier.read(&Arc::new(recorded));
        }
    };
    for row in overlap {
        fold(row, &mut verifier, &mut folding);
    }
    let (mut events, mut flagged) = (0, 0);
    let (mut next, mut began) = (range.first, None);
    for row in Decoding::start(file.path(), File::open(file.path())?)? {
        let row = row?;
        if row.sequence() != next {
            return Err(damaged(format!("event {next} did not read back")).into());
        }
        next = next.next();
        match &row {
            Row::Event(_) => events += 1,
            Row::Flagged(_) => flagged += 1,
        }
        fold(row, &mut verifier, &mut folding);
        began.get_or_insert(folding.now());
    }
    if next != range.last.next() {
        return Err(damaged(format!("event {next} did not read back")).into());
    }
    let report = verifier.finish();
    for finding in report.findings.iter().take(20) {
        tracing::error!(sequence = %finding.sequence, event = finding.type_name, build = finding.build, what = finding.what, "an archived decision did not come out again");
    }
    let ended = folding.now();
    let (_, folds) = folding.finish();
    Ok(Segment {
        bytes: std::fs::read(file.path())?,
        events,
        flagged,
        began: began.unwrap_or(ended),
        ended,
        asof,
        asof_time: folds.states.fork.now,
        asof_stored_at: folds.stored_at,
        encoded: folds.encode()?,
        folds,
        decisions: Decisions {
            verified: report.verified,
            findings: report.findings.len() as u64,
        },
    })
}

/// Folds rows, and keeps the states after one event.
pub struct Folding {
    folds: Folds,
    asof: Sequence,
    at_asof: Option<Folds>,
}

impl Folding {
    pub fn new(folds: Folds, asof: Sequence) -> Self {
        Self {
            folds,
            asof,
            at_asof: None,
        }
    }

    pub fn read(&mut self, row: &Row) {
        if row.sequence() > self.asof && self.at_asof.is_none() {
            self.at_asof = Some(self.folds.clone());
        }
        self.folds.read(row);
    }

    /// Returns the log's time of the newest event.
    pub fn now(&self) -> Timestamp {
        self.folds.states.fork.now
    }

    /// Returns the states at the end, and those after `asof`.
    pub fn finish(self) -> (Folds, Folds) {
        let mut at_asof = self.at_asof.unwrap_or_else(|| self.folds.clone());
        // A flagged message may be the last one folded.
        at_asof.states.fork.sequence = self.asof;
        (self.folds, at_asof)
    }
}
