//! Text style: colour, width, tables.

use std::io::IsTerminal as _;

use comfy_table::{
    Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, Table, Width, presets,
};
use dormouse_projections::jobs::Phase;
use dormouse_projections::nodes::NodeState;
use dormouse_projections::queries::{IDLE, JobRow};

const DRAWING_COLUMNS: u16 = 100;
const LEAST_REASON: u16 = 24;

/// The style of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Style {
    pub wide: bool,
    pub colour: bool,
    pub columns: Option<u16>,
}

impl Style {
    /// Returns the style for the standard output. Colour needs a terminal and no `NO_COLOR` (no-color.org:
    /// any value but the empty one).
    #[must_use]
    pub fn of_stdout(wide: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let said = std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok());
        Self {
            wide,
            colour: terminal && !refused,
            columns: said.or_else(|| Table::new().width()).filter(|_| terminal),
        }
    }

    /// Returns the style for notes on stderr.
    #[must_use]
    pub fn plain() -> Self {
        Self {
            colour: false,
            ..Self::of_stdout(false)
        }
    }

    pub(super) fn drawing_columns(&self) -> u16 {
        self.columns.unwrap_or(DRAWING_COLUMNS).clamp(40, 240)
    }

    pub(crate) fn table(&self, header: &[&str]) -> Table {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_header(header)
            .force_no_tty();
        if self.colour {
            table.enforce_styling();
        }
        table
    }

    /// On a narrow screen only the last column wraps; if the others do not fit, each row becomes a block of
    /// lines.
    pub(crate) fn write(&self, mut table: Table) -> String {
        let last = table.column_count().saturating_sub(1);
        if let Some(columns) = self.columns {
            let others: u16 = table.column_max_content_widths().iter().take(last).sum();
            let gaps = u16::try_from(last * 2).unwrap_or(u16::MAX);
            let widest = table.column_max_content_widths().last().copied();
            let least = widest.unwrap_or(0).min(LEAST_REASON);
            if others.saturating_add(gaps).saturating_add(least) > columns {
                return blocks(&table, usize::from(columns));
            }
            let rest = columns.saturating_sub(others.saturating_add(gaps));
            if let Some(column) = table.column_mut(last) {
                let width = Width::Fixed(rest);
                column.set_constraint(ColumnConstraint::UpperBoundary(width));
            }
            table.set_content_arrangement(ContentArrangement::Dynamic);
            table.set_width(columns);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        if let Some(column) = table.column_mut(last) {
            column.set_padding((0, 0));
        }
        table.trim_fmt()
    }

    /// On a narrow screen, columns of `less` are dropped in order, and the last column is cut.
    pub(super) fn fitted(&self, header: &[&str], rows: Vec<Vec<Cell>>, less: &[&str]) -> String {
        let widths: Vec<usize> = (0..header.len())
            .map(|column| {
                let cells = rows.iter().filter_map(|row| row.get(column));
                let cells = cells.map(|cell| cell.content().chars().count());
                let name = header[column].chars().count();
                cells.chain([name]).max().unwrap_or(0)
            })
            .collect();
        let Some((last, others)) = widths.split_last() else {
            return String::new();
        };
        let columns = self.columns.map_or(usize::MAX, usize::from);
        let least = usize::from(LEAST_REASON).min(*last);
        let mut kept = vec![true; header.len()];
        let taken = |kept: &[bool]| {
            let kept = others.iter().zip(kept).filter(|(_, kept)| **kept);
            kept.map(|(width, _)| width + 2).sum::<usize>()
        };
        for name in less {
            if taken(&kept).saturating_add(least) <= columns {
                break;
            }
            if let Some(column) = header.iter().position(|it| it == name) {
                kept[column] = false;
            }
        }
        let room = columns.saturating_sub(taken(&kept));
        let fits = room >= least;
        let names = header.iter().zip(&kept).filter(|(_, kept)| **kept);
        let names: Vec<&str> = names.map(|(name, _)| *name).collect();
        let mut table = self.table(&names);
        for mut row in rows {
            if let Some(cell) = row.pop() {
                row.push(if fits { cut(cell, room) } else { cell });
            }
            let cells = row.into_iter().zip(&kept).filter(|(_, kept)| **kept);
            table.add_row(cells.map(|(cell, _)| cell).collect::<Vec<_>>());
        }
        self.write(table)
    }

    pub(super) fn paint(&self, text: &str, colour: Color) -> String {
        match colour_code(colour) {
            Some(code) if self.colour => format!("\u{1b}[{code}m{text}\u{1b}[0m"),
            _ => text.to_owned(),
        }
    }

    /// Formats a heading.
    pub fn bold(&self, text: &str) -> String {
        if self.colour {
            format!("\u{1b}[1m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

fn cut(cell: Cell, room: usize) -> Cell {
    let content = cell.content();
    if content.chars().count() <= room {
        return cell;
    }
    let most = room.saturating_sub(1);
    let text: String = content.chars().take(most).collect();
    Cell::new(format!("{}…", text.trim_end()))
}

fn blocks(table: &Table, columns: usize) -> String {
    let header = table.header().map(|row| row.cell_iter().map(Cell::content));
    let header: Vec<String> = header.into_iter().flatten().collect();
    let widest = header.iter().map(|name| name.chars().count()).max();
    let indent = widest.unwrap_or(0) + 2;
    let room = columns.saturating_sub(indent).max(8);
    let row = |row: &comfy_table::Row| {
        let cells = header.iter().zip(row.cell_iter());
        let lines = cells.flat_map(|(name, cell)| {
            let parts = wrapped(&cell.content(), room).into_iter().enumerate();
            let name = name.clone();
            parts.map(move |(index, part)| {
                let name = if index == 0 { name.as_str() } else { "" };
                format!("{name:<indent$}{part}")
            })
        });
        lines.collect::<Vec<_>>().join("\n")
    };
    let rows: Vec<String> = table.row_iter().map(row).collect();
    rows.join("\n\n")
}

fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let letters: Vec<char> = word.chars().collect();
        for (index, part) in letters.chunks(room).enumerate() {
            let part: String = part.iter().collect();
            match lines.last_mut() {
                Some(line) if line.is_empty() => *line = part,
                Some(line)
                    if index == 0 && line.chars().count() + 1 + part.chars().count() <= room =>
                {
                    line.push(' ');
                    line.push_str(&part);
                }
                _ => lines.push(part),
            }
        }
    }
    lines
}

fn colour_code(colour: Color) -> Option<u8> {
    Some(match colour {
        Color::Red => 31,
        Color::Green => 32,
        Color::Yellow => 33,
        Color::Cyan => 36,
        Color::DarkGrey => 90,
        _ => return None,
    })
}

pub(super) const fn phase_colour(phase: Phase) -> Color {
    match phase {
        Phase::Running => Color::Green,
        Phase::Placed | Phase::Starting | Phase::Checkpointing | Phase::Stopping => Color::Cyan,
        Phase::Queued | Phase::Waiting => Color::Yellow,
        Phase::Failed => Color::Red,
        Phase::Completed | Phase::Cancelled => Color::DarkGrey,
    }
}

pub(super) const fn node_colour(state: NodeState) -> Color {
    match state {
        NodeState::Up => Color::Green,
        NodeState::Drained | NodeState::Quarantined => Color::Yellow,
        NodeState::Lost => Color::Red,
    }
}

/// `idle` is a job that waits for requests.
pub(super) fn state_cell(row: &JobRow) -> Cell {
    if row.code == IDLE {
        Cell::new(IDLE)
    } else {
        phase_cell(row.phase)
    }
}

pub(super) fn phase_cell(phase: Phase) -> Cell {
    Cell::new(phase).fg(phase_colour(phase))
}

pub(crate) fn right(text: impl ToString) -> Cell {
    Cell::new(text.to_string()).set_alignment(CellAlignment::Right)
}
