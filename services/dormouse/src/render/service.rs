//! Renders a service on its job's page.

use comfy_table::{Cell, CellAlignment};
use dormouse_projections::queries::JobRow;
use dormouse_projections::services::health::{Health, Measured};

use super::humanize::age;
use super::style::Style;

type Line = (&'static str, Option<Measured>);

/// Returns the lines among the facts of the job.
pub fn facts(health: &Health, row: &JobRow) -> Vec<(&'static str, String)> {
    let mut facts = vec![("Service", health.words.clone())];
    let Some(at) = health.measured_at.filter(|_| row.ended_at.is_none()) else {
        return facts;
    };
    let gateways: Vec<&str> = health.gateways.iter().map(|it| it.as_str()).collect();
    let by = if gateways.is_empty() {
        "by no gateway now; the last word".to_owned()
    } else {
        format!("by {}; the last word", gateways.join(", "))
    };
    // The answer's own time, not the local clock.
    let ago_s = row.age_s - at.seconds_since(row.submitted_at);
    facts.push(("Measured", format!("{by} {} ago", age(ago_s))));
    facts
}

/// Renders the clients' figures, if any.
pub fn figures(health: &Health, style: &Style) -> Option<String> {
    if health.total.requests == 0 {
        return None;
    }
    let percentile = format!("P{}", health.percentile);
    let heads = [
        "",
        "REQUESTS",
        "PER S",
        &percentile,
        "IN TIME",
        "ERRORS",
        "SHED",
    ];
    let mut table = style.table(&heads);
    let lines: [Line; 3] = [
        ("last minute", health.last_minute),
        ("last 5 minutes", health.last_five_minutes),
        ("in all", Some(health.total)),
    ];
    for (name, it) in lines.into_iter().filter_map(|(name, it)| Some((name, it?))) {
        let right = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        table.add_row(vec![
            Cell::new(name),
            right(it.requests.to_string()),
            right(or_none(it.requests_per_s.map(|rate| format!("{rate:.1}")))),
            right(or_none(latency(&it))),
            right(or_none(it.attainment.map(in_time))),
            right(it.errors.to_string()),
            right(it.shed.to_string()),
        ]);
    }
    Some(format!(
        "{}\n{}\n",
        style.bold("Requests"),
        style.write(table)
    ))
}

/// The value is the bound of a bucket.
fn latency(measured: &Measured) -> Option<String> {
    let ms = measured.latency_ms?;
    let sign = if measured.latency_is_more { ">" } else { "≤" };
    let digits = usize::from(ms < 10.0);
    Some(format!("{sign} {ms:.digits$} ms"))
}

/// Rounds down: 99.999 % must not look like all.
fn in_time(part: f64) -> String {
    format!("{:.2} %", (part * 1e4 + 1e-6).floor() / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> Health {
        let minute = Measured {
            seconds: Some(60.0),
            requests_per_s: Some(10.04),
            requests: 602,
            answered: 600,
            errors: 3,
            shed: 2,
            attainment: Some(0.999_999),
            latency_ms: Some(152.588),
            latency_is_more: false,
        };
        Health {
            words: "10.0 requests/s".to_owned(),
            percentile: 99.9,
            last_minute: Some(minute),
            total: Measured {
                requests_per_s: None,
                attainment: None,
                latency_is_more: true,
                ..minute
            },
            ..Health::default()
        }
    }

    #[test]
    fn figures_are_a_line_for_each_time() {
        let text = figures(&health(), &Style::default()).expect("it has requests");
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["Requests"]);
        let heads = "REQUESTS PER S P99.9 IN TIME ERRORS SHED";
        assert_eq!(lines[1].join(" "), heads);
        let minute = "last minute 602 10.0 ≤ 153 ms 99.99 % 3 2";
        assert_eq!(lines[2].join(" "), minute);
        assert_eq!(lines[3].join(" "), "in all 602 - > 153 ms - 3 2");
        assert_eq!(lines.len(), 4, "nobody told anything of five minutes");
        assert_eq!(figures(&Health::default(), &Style::default()), None);
    }
}
