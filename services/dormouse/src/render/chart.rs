//! Draws a timeline in the terminal with ratatui, with a legend below so that nothing is covered.

use dormouse_projections::timelines::Timeline;
use ratatui::buffer::Buffer;
use ratatui::layout::{Alignment, Rect};
use ratatui::style::{Color, Style as CellStyle};
use ratatui::symbols::Marker;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Widget};

use super::axis::{Values, corners, dashes, span_s, time_label, unit};
use super::humanize::{date, number};
use super::style::Style;

const ROWS: u16 = 18;

const DASH: u32 = 3;

const COLOURS: [(Color, u8); 6] = [
    (Color::Cyan, 36),
    (Color::Yellow, 33),
    (Color::Magenta, 35),
    (Color::Green, 32),
    (Color::Red, 31),
    (Color::Blue, 34),
];

const MARKS: [char; 7] = ['•', '×', '+', 'o', '▪', '◦', '~'];

/// Draws a timeline.
#[must_use]
pub fn timeline(timeline: &Timeline, style: &Style) -> String {
    draw(timeline, style, ROWS)
}

pub(super) fn draw(timeline: &Timeline, style: &Style, rows: u16) -> String {
    let title = if timeline.title.is_empty() {
        &timeline.metric
    } else {
        &timeline.title
    };
    let title = style.bold(&format!("{title} ({})", unit(timeline)));
    if timeline
        .series
        .iter()
        .all(|series| series.points.is_empty())
    {
        return format!("{title}\n\n  nothing is on the log yet");
    }
    let span = format!("  {} to {}", date(timeline.from), date(timeline.to));
    let drawing = write(&chart(timeline, style, rows), style);
    format!("{title}{span}\n\n{drawing}\n\n{}", legend(timeline, style))
}

fn chart(timeline: &Timeline, style: &Style, rows: u16) -> Buffer {
    let columns = style.drawing_columns();
    let values = Values::of(timeline, u32::from(rows / 3).max(2));
    let span_s = span_s(timeline);
    let points: Vec<_> = timeline
        .series
        .iter()
        .map(|s| corners(s, timeline))
        .collect();
    let near = (values.greatest - values.least) / f64::from(rows.max(1)) / 2.0;
    let hidden = dashes(timeline, u32::from(columns), DASH, near);
    // The first series matters most; dashes show the lines below it.
    let whole = points.iter().enumerate().rev();
    let over = hidden.iter().map(|(index, points)| (*index, points));
    let datasets = whole.chain(over).map(|(index, points)| {
        Dataset::default()
            .marker(marker(index, timeline, style))
            .graph_type(GraphType::Line)
            .style(CellStyle::new().fg(COLOURS[index % COLOURS.len()].0))
            .data(points)
    });
    let labels = values.ticks.iter().map(|tick| values.label(*tick));
    let y = Axis::default()
        .bounds([values.least, values.greatest])
        .labels(labels.collect::<Vec<_>>())
        .labels_alignment(Alignment::Right);
    let count = (columns / 24).clamp(2, 6);
    let x_labels = (0..count).map(|index| {
        let after_s = span_s * f64::from(index) / f64::from(count - 1);
        let after = std::time::Duration::from_secs_f64(after_s).as_millis();
        let at = timeline.from.plus_ms(u64::try_from(after).unwrap_or(0));
        time_label(at, span_s)
    });
    let x = Axis::default()
        .bounds([0.0, span_s])
        .labels(x_labels.collect::<Vec<_>>());
    let area = Rect::new(0, 0, columns, rows);
    let mut buffer = Buffer::empty(area);
    Chart::new(datasets.collect())
        .x_axis(x)
        .y_axis(y)
        .legend_position(None)
        .render(area, &mut buffer);
    buffer
}

/// Without colour, only markers distinguish series.
fn marker(index: usize, timeline: &Timeline, style: &Style) -> Marker {
    if style.colour || timeline.series.len() == 1 {
        Marker::Braille
    } else {
        Marker::Custom(MARKS[index % MARKS.len()])
    }
}

fn write(buffer: &Buffer, style: &Style) -> String {
    let mut lines = Vec::new();
    for y in 0..buffer.area.height {
        let mut line = String::new();
        let mut painted = None;
        for x in 0..buffer.area.width {
            let Some(cell) = buffer.cell((x, y)) else {
                continue;
            };
            let known = COLOURS.iter().find(|(colour, _)| *colour == cell.fg);
            let code = known.map(|(_, code)| *code).filter(|_| style.colour);
            if code != painted {
                line.push_str(
                    &code.map_or("\u{1b}[0m".to_owned(), |code| format!("\u{1b}[{code}m")),
                );
                painted = code;
            }
            line.push_str(cell.symbol());
        }
        if painted.is_some() {
            line.push_str("\u{1b}[0m");
        }
        lines.push(line.trim_end().to_owned());
    }
    lines.join("\n")
}

fn legend(timeline: &Timeline, style: &Style) -> String {
    let widest = timeline
        .series
        .iter()
        .map(|series| series.name.chars().count())
        .max();
    let lines = timeline.series.iter().enumerate().map(|(index, series)| {
        let mark = if style.colour {
            format!("\u{1b}[{}m──\u{1b}[0m", COLOURS[index % COLOURS.len()].1)
        } else if timeline.series.len() == 1 {
            "──".to_owned()
        } else {
            format!("{0}{0}", MARKS[index % MARKS.len()])
        };
        let name = format!("{:<width$}", series.name, width = widest.unwrap_or(0));
        if series.points.is_empty() {
            return format!("  {mark} {name}  nothing yet");
        }
        let figures = &series.summary;
        format!(
            "  {mark} {name}  mean {}, least {}, greatest {}, last {}",
            number(figures.mean),
            number(figures.min),
            number(figures.max),
            number(figures.last)
        )
    });
    let more = (timeline.omitted > 0).then(|| {
        let omitted = timeline.omitted;
        let jobs = if omitted == 1 { "job" } else { "jobs" };
        format!("  and {omitted} more {jobs}; `--job ID` draws one of them")
    });
    lines.chain(more).collect::<Vec<_>>().join("\n")
}
