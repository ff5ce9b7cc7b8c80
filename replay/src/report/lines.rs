//! Draws lines over time or over jobs.

use super::section::colour;
use super::svg::{escape, label, number, ticks};

const WIDTH: f64 = 1040.0;
const HEIGHT: f64 = 270.0;
const LEFT: f64 = 46.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 30.0;
/// Two points per pixel.
const MOST_POINTS: usize = 1_600;

/// A named line of points.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// A drawing of lines.
pub struct Chart<'a> {
    pub x: &'a str,
    pub end: f64,
    /// True if a value holds until the next one.
    pub steps: bool,
    pub lines: Vec<Line>,
}

impl Chart<'_> {
    pub fn svg(&self) -> String {
        self.svg_from(0)
    }

    pub fn svg_from(&self, first: usize) -> String {
        let largest = self
            .lines
            .iter()
            .flat_map(|line| &line.points)
            .map(|point| point.1)
            .fold(0.0, f64::max);
        let (rows, columns) = (ticks(largest.max(1e-6)), ticks(self.end));
        let top = rows.last().copied().unwrap_or(1.0);
        let (end, step) = (self.end.max(1e-9), WIDTH - LEFT - RIGHT);
        let x = |value: f64| LEFT + step * value / end;
        let y = |value: f64| TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - value / top);
        let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">");
        for value in rows {
            let (at, label) = (y(value), label(value));
            svg.push_str(&format!(
                "<path class=\"axis\" d=\"M{LEFT} {at:.1}H{:.1}\"/><text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>",
                WIDTH - RIGHT, LEFT - 6.0, at + 4.0
            ));
        }
        for value in columns.into_iter().filter(|value| *value <= end * 1.001) {
            let label = label(value);
            svg.push_str(&format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
                x(value),
                HEIGHT - 14.0
            ));
        }
        svg.push_str(&format!(
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            WIDTH - RIGHT + 24.0,
            HEIGHT - 14.0,
            escape(self.x)
        ));
        for (index, line) in self.lines.iter().enumerate() {
            let colour = colour(first + index);
            let path = self.path(line, x, y);
            let at = TOP + 12.0 + 20.0 * number(index);
            svg.push_str(&format!(
                "<path class=\"step\" style=\"stroke:{colour}\" d=\"{path}\"/><path style=\"stroke:{colour};stroke-width:3\" d=\"M{:.1} {:.1}h16\"/><text class=\"name\" x=\"{:.1}\" y=\"{at:.1}\">{}</text>",
                WIDTH - RIGHT + 10.0, at - 4.0, WIDTH - RIGHT + 32.0, escape(&line.name)
            ));
        }
        svg.push_str("</svg>");
        svg
    }

    fn path(&self, line: &Line, x: impl Fn(f64) -> f64, y: impl Fn(f64) -> f64) -> String {
        let points = thin(&line.points);
        let mut path = String::new();
        for (index, (at, value)) in points.iter().enumerate() {
            let (at, value) = (x(*at), y(*value));
            path.push_str(&match (index, self.steps) {
                (0, _) => format!("M{at:.1} {value:.1}"),
                (_, true) => format!("H{at:.1}V{value:.1}"),
                (_, false) => format!("L{at:.1} {value:.1}"),
            });
        }
        if self.steps && !points.is_empty() {
            path.push_str(&format!("H{:.1}", x(self.end)));
        }
        path
    }
}

/// Keeps the largest and the last value of each piece, so that no peak is lost.
fn thin(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MOST_POINTS {
        return points.to_vec();
    }
    let pieces = points.chunks(points.len().div_ceil(MOST_POINTS / 2));
    let ends = pieces.flat_map(|piece| {
        let largest = piece.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let last = piece.last().copied();
        largest
            .into_iter()
            .chain(last.filter(|last| Some(*last) != largest))
    });
    ends.collect()
}
