//! Renders a job's trace on one time axis.

use comfy_table::{Cell, Color};

use super::style::{Style, right};
use crate::commands::trace::{Span, Trace};

/// The JSON has all.
const OTHERS: usize = 10;

const AXIS: u64 = 32;

/// Renders the spans as a tree.
#[must_use]
pub fn trace(trace: &Trace, style: &Style) -> String {
    let end = trace.spans.iter().map(|span| span.start_us + span.took_us);
    let end = end.max().unwrap_or(0).max(1);
    let heading = format!(
        "{}  trace {}, {} spans in {}",
        trace.job,
        trace.trace_id,
        trace.spans.len(),
        duration(end)
    );
    let mut table = style.table(&["SPAN", "SERVICE", "SEQUENCE", "AT", "TOOK", ""]);
    for span in &trace.spans {
        let name = Cell::new(format!("{}{}", indent(span.depth), span.name));
        let name = match span.error {
            Some(_) if style.colour => name.fg(Color::Red),
            _ => name,
        };
        let sequence = span.sequence.map(|it| it.to_string()).unwrap_or_default();
        table.add_row(vec![
            name,
            Cell::new(span.service.trim_start_matches("dormouse-")),
            right(sequence),
            right(duration(span.start_us)),
            right(duration(span.took_us)),
            Cell::new(bar(span, end)),
        ]);
    }
    let mut parts = vec![style.bold(&heading), style.write(table)];
    let errors = trace.spans.iter().filter_map(|span| {
        let error = span.error.as_ref()?;
        Some(format!("{}: {error}", span.name))
    });
    parts.extend(Some(errors.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty()));
    if !trace.others.is_empty() {
        let others = trace.others.iter().take(OTHERS).map(|other| {
            format!(
                "  {}  from event {}, {}",
                other.trace_id, other.sequence, other.event
            )
        });
        let mut others = others.collect::<Vec<_>>().join("\n");
        if trace.others.len() > OTHERS {
            others.push_str(&format!("\n  and {} more", trace.others.len() - OTHERS));
        }
        parts.push(format!(
            "Its events belong to other traces too (--trace ID):\n{others}"
        ));
    }
    parts.join("\n\n")
}

fn indent(depth: usize) -> String {
    match depth {
        0 => String::new(),
        depth => format!("{}└ ", "  ".repeat((depth - 1).min(12))),
    }
}

fn bar(span: &Span, end_us: u64) -> String {
    let column = |us: u64| usize::try_from(us.saturating_mul(AXIS) / end_us).unwrap_or(0);
    let from = column(span.start_us).min(column(end_us) - 1);
    let to = column(span.start_us + span.took_us).max(from + 1);
    format!("{}{}", "·".repeat(from), "█".repeat(to - from))
}

fn duration(us: u64) -> String {
    let (ms, s) = (us / 1_000, us / 1_000_000);
    match us {
        0..10_000 => format!("{}.{:02}ms", ms, us % 1_000 / 10),
        10_000..1_000_000 => format!("{ms}ms"),
        1_000_000..60_000_000 => format!("{s}.{}s", us % 1_000_000 / 100_000),
        _ => format!("{}m{:02}s", s / 60, s % 60),
    }
}
