//! Renders the list of notebooks.

use comfy_table::{Cell, Row};
use dormouse_projections::notebooks::NotebookState;
use dormouse_projections::queries::{NotebookRow, NotebooksAnswer};

use super::style::Style;

const HEADER: [&str; 6] = [
    "NOTEBOOK",
    "STATE",
    "IDLE SINCE",
    "ENDS AT",
    "ADDRESS",
    "REASON",
];

/// Renders the list of notebooks.
#[must_use]
pub fn notebooks(answer: &NotebooksAnswer, style: &Style) -> String {
    if answer.notebooks.is_empty() {
        return "no notebooks".to_owned();
    }
    let mut table = style.table(&HEADER);
    for row in &answer.notebooks {
        table.add_row(line(row));
    }
    style.write(table)
}

fn line(row: &NotebookRow) -> Row {
    let state = match row.state {
        NotebookState::Stopped => "stopped",
        NotebookState::Starting => "starting",
        NotebookState::Ready => "ready",
        NotebookState::Busy => "busy",
        NotebookState::Idle => "idle",
        NotebookState::Unknown => "unknown",
    };
    let when =
        |at: Option<dormouse_messages::Timestamp>| at.map_or(String::new(), |at| at.to_string());
    Row::from(vec![
        Cell::new(row.job.as_str()),
        Cell::new(state),
        Cell::new(when(row.idle_since)),
        Cell::new(when(row.ends_at)),
        Cell::new(row.addresses.first().map_or("", String::as_str)),
        Cell::new(&row.reason),
    ])
}
