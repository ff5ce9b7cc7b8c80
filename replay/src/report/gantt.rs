//! Draws every job over time: thin while waiting, darker with more containers.

use crate::simulate::JobRecord;

use super::svg::{escape, label, number, ticks};

const WIDTH: f64 = 1040.0;
const LEFT: f64 = 150.0;
/// Beyond this, the jobs with the most container-hours are shown.
const MOST_ROWS: usize = 150;

pub fn svg(jobs: &[JobRecord], end_h: f64) -> String {
    let shown = largest(jobs);
    let row = if shown.len() > 60 { 8.0 } else { 13.0 };
    let height = row * number(shown.len()) + 34.0;
    let x = |seconds: f64| LEFT + (WIDTH - LEFT - 10.0) * (seconds / 3600.0) / end_h.max(1e-9);
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height:.0}\" role=\"img\">");
    for value in ticks(end_h)
        .into_iter()
        .filter(|value| *value <= end_h * 1.001)
    {
        let (at, low) = (x(value * 3600.0), height - 26.0);
        svg.push_str(&format!(
            "<path class=\"axis\" d=\"M{at:.1} 0V{low:.1}\"/><text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{} h</text>",
            height - 10.0, label(value)
        ));
    }
    for (index, job) in shown.iter().enumerate() {
        row_of(&mut svg, job, (number(index) * row, row), x);
    }
    svg.push_str("</svg>");
    if shown.len() < jobs.len() {
        svg.push_str(&format!(
            "<p>The {} largest of {} jobs.</p>",
            shown.len(),
            jobs.len()
        ));
    }
    svg
}

fn largest(jobs: &[JobRecord]) -> Vec<&JobRecord> {
    let size = |job: &JobRecord| -> f64 {
        job.bars
            .iter()
            .map(|bar| (bar.to_s - bar.from_s) * f64::from(bar.containers))
            .sum()
    };
    let mut by_size: Vec<&JobRecord> = jobs.iter().collect();
    by_size.sort_by(|a, b| size(b).total_cmp(&size(a)));
    by_size.truncate(MOST_ROWS);
    by_size.sort_by(|a, b| a.submitted_s.total_cmp(&b.submitted_s));
    by_size
}

fn row_of(svg: &mut String, job: &JobRecord, (top, row): (f64, f64), x: impl Fn(f64) -> f64) {
    let name = escape(job.job.as_str());
    if row > 10.0 {
        svg.push_str(&format!("<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" style=\"font-size:10px\">{name}</text>", LEFT - 6.0, top + row - 3.0));
    }
    let most = job.bars.iter().map(|bar| bar.containers).max().unwrap_or(1);
    let (from, to, middle) = (x(job.submitted_s), x(job.ended_s), top + row / 2.0);
    svg.push_str(&format!("<path style=\"stroke:var(--dim)\" d=\"M{from:.1} {middle:.1}H{to:.1}\"><title>{name}</title></path>"));
    for bar in &job.bars {
        let (from, to) = (x(bar.from_s), x(bar.to_s));
        // From a third to opaque, so that one container is visible.
        let part = 0.35 + 0.65 * f64::from(bar.containers) / f64::from(most.max(1));
        svg.push_str(&format!(
            "<rect x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" style=\"fill:var(--c0);fill-opacity:{part:.2}\"><title>{name}: {} containers, {:.1} to {:.1} h</title></rect>",
            (to - from).max(0.5), row - 2.0, bar.containers, bar.from_s / 3600.0, bar.to_s / 3600.0
        ));
    }
}
