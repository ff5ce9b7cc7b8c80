//! Draws the waiting times: a group per tenant, a bar per run.

use std::collections::BTreeSet;

use super::section::{Run, colour};
use super::svg::{escape, label, number, ticks};

const WIDTH: f64 = 1040.0;
const LEFT: f64 = 110.0;
const RIGHT: f64 = 200.0;
const BAR: f64 = 14.0;

pub fn waiting(runs: &[Run<'_>]) -> String {
    let tenants: BTreeSet<&String> = runs
        .iter()
        .flat_map(|run| run.outcome.figures.tenants.keys())
        .collect();
    let minutes = |run: &Run<'_>, tenant: &String| {
        let figures = run.outcome.figures.tenants.get(tenant);
        figures.map_or(0.0, |figures| figures.waiting_s.mean / 60.0)
    };
    let all = tenants
        .iter()
        .flat_map(|tenant| runs.iter().map(|run| minutes(run, tenant)));
    let scale = ticks(all.fold(0.1, f64::max));
    let end = scale.last().copied().unwrap_or(1.0);
    let x = |value: f64| LEFT + (WIDTH - LEFT - RIGHT) * value / end;
    let group = BAR * number(runs.len()) + 12.0;
    let height = group * number(tenants.len()) + 30.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">");
    for value in scale {
        let (at, low) = (x(value), height - 26.0);
        svg.push_str(&format!(
            "<path class=\"axis\" d=\"M{at:.1} 0V{low:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            height - 10.0, label(value)
        ));
    }
    for (row, tenant) in tenants.iter().enumerate() {
        let top = group * number(row) + 4.0;
        let middle = top + BAR * number(runs.len()) / 2.0 + 4.0;
        svg.push_str(&format!(
            "<text class=\"name\" x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 8.0,
            escape(tenant)
        ));
        for (index, run) in runs.iter().enumerate() {
            let value = minutes(run, tenant);
            let (y, width) = (top + BAR * number(index), (x(value) - LEFT).max(1.0));
            svg.push_str(&format!(
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{:.1}\" style=\"fill:{}\"><title>{}: {value:.1} min</title></rect><text x=\"{:.1}\" y=\"{:.1}\">{} {}</text>",
                BAR - 2.0, colour(index), escape(&run.name), x(value) + 6.0, y + BAR - 4.0, label((value * 10.0).round() / 10.0), escape(&run.name)
            ));
        }
    }
    svg.push_str("</svg>");
    svg
}
