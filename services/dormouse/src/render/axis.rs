//! Chart axes: round values, round times, and their labels.

use dormouse_messages::Timestamp;
use dormouse_projections::timelines::{Series, Timeline};

const MINUTE: i64 = 60;
const HOUR: i64 = 3_600;
const DAY: i64 = 86_400;

const TIME_STEPS: [i64; 22] = [
    1,
    2,
    5,
    10,
    15,
    30,
    MINUTE,
    2 * MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    15 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    DAY,
    2 * DAY,
    7 * DAY,
    14 * DAY,
    28 * DAY,
];

/// A value axis in round steps, with a round maximum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Values {
    pub least: f64,
    pub greatest: f64,
    pub ticks: Vec<f64>,
    decimals: usize,
}

impl Values {
    pub fn of(timeline: &Timeline, ticks: u32) -> Self {
        let values = || {
            timeline
                .series
                .iter()
                .flat_map(|s| s.points.iter().map(|p| p.1))
        };
        let greatest = values().filter(|v| v.is_finite()).fold(0.0, f64::max);
        let least = values().filter(|v| v.is_finite()).fold(0.0, f64::min);
        let range = if greatest > least {
            greatest - least
        } else {
            1.0
        };
        let whole = matches!(timeline.unit.as_str(), "jobs" | "containers" | "replicas");
        let step = round_step(range / f64::from(ticks.max(1)), whole);
        let (first, last) = (
            (least / step).floor(),
            (least / step).floor().max((greatest / step).ceil()),
        );
        let last = if last > first { last } else { first + 1.0 };
        let mut ticks = Vec::new();
        let mut index = first;
        while index <= last + 0.5 {
            ticks.push(index * step);
            index += 1.0;
        }
        let decimals = if step >= 1.0 {
            0
        } else {
            (1..12).find(|d| is_whole(step, *d)).unwrap_or(12)
        };
        Self {
            least: first * step,
            greatest: last * step,
            ticks,
            decimals: usize::try_from(decimals).unwrap_or(0),
        }
    }

    pub fn label(&self, value: f64) -> String {
        format!("{value:.*}", self.decimals)
    }
}

fn is_whole(step: f64, decimals: i32) -> bool {
    let scaled = step * libm::pow(10.0, f64::from(decimals));
    (scaled - scaled.round()).abs() < 1e-6
}

/// The least of 1, 2, 2.5, 5, 10 · 10^k not below `rough`.
fn round_step(rough: f64, whole: bool) -> f64 {
    if whole && rough <= 1.0 {
        return 1.0;
    }
    let power = libm::pow(10.0, libm::log10(rough).floor());
    let choices: &[f64] = if whole && power < 10.0 {
        &[1.0, 2.0, 5.0, 10.0]
    } else {
        &[1.0, 2.0, 2.5, 5.0, 10.0]
    };
    let fits = choices
        .iter()
        .find(|choice| **choice * power >= rough * (1.0 - 1e-9));
    fits.copied().unwrap_or(10.0) * power
}

pub(super) fn span_s(timeline: &Timeline) -> f64 {
    timeline.to.seconds_since(timeline.from).max(1.0)
}

pub(super) fn times(timeline: &Timeline, count: u32) -> Vec<Timestamp> {
    let rough = span_s(timeline) / f64::from(count.max(1));
    let fits = TIME_STEPS
        .into_iter()
        .find(|step| i32::try_from(*step).is_ok_and(|s| f64::from(s) >= rough));
    let step_us = fits.unwrap_or(28 * DAY) * 1_000_000;
    let (from, to) = (timeline.from.as_micros(), timeline.to.as_micros());
    let mut at = from.div_euclid(step_us) * step_us;
    if at < from {
        at += step_us;
    }
    let mut times = Vec::new();
    while at <= to && times.len() < 500 {
        times.push(Timestamp::from_micros(at));
        at += step_us;
    }
    times
}

pub(super) fn time_label(time: Timestamp, span_s: f64) -> String {
    let text = time.to_string();
    let part = match span_s {
        s if s <= 600.0 => text.get(11..19),
        s if s <= 86_400.0 => text.get(11..16),
        s if s <= 60.0 * 86_400.0 => {
            let date = text.get(5..10).unwrap_or_default();
            let clock = text.get(11..16).unwrap_or_default();
            return format!("{date} {clock}");
        }
        _ => text.get(..10),
    };
    part.unwrap_or(&text).to_owned()
}

pub(super) fn corners(series: &Series, timeline: &Timeline) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::with_capacity(2 * series.points.len() + 1);
    for (at, value) in &series.points {
        let x = at.seconds_since(timeline.from).max(0.0);
        if let Some((_, held)) = corners.last().copied() {
            corners.push((x, held));
        }
        corners.push((x, *value));
    }
    if let Some((_, held)) = corners.last().copied() {
        corners.push((span_s(timeline), held));
    }
    corners
}

fn value_at(series: &Series, timeline: &Timeline, seconds: f64) -> Option<f64> {
    let after = series
        .points
        .partition_point(|(at, _)| at.seconds_since(timeline.from) <= seconds);
    let (_, value) = series.points.get(after.checked_sub(1)?)?;
    value.is_finite().then_some(*value)
}

pub(super) type Dash = (usize, Vec<(f64, f64)>);

/// Finds lines hidden below another, nearer than `near`; they alternate, with `dash` of the `columns` each.
pub(super) fn dashes(timeline: &Timeline, columns: u32, dash: u32, near: f64) -> Vec<Dash> {
    let span_s = span_s(timeline);
    let mut dashes: Vec<Dash> = Vec::new();
    let mut before: Vec<usize> = Vec::new();
    for column in 0..=columns {
        let x = span_s * f64::from(column) / f64::from(columns.max(1));
        let values: Vec<Option<f64>> = timeline
            .series
            .iter()
            .map(|series| value_at(series, timeline, x))
            .collect();
        let mut now = Vec::new();
        for (index, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let close = |other: &Option<f64>| other.is_some_and(|it| (it - value).abs() <= near);
            let group: Vec<usize> = (0..values.len()).filter(|i| close(&values[*i])).collect();
            let turn = (column / dash.max(1)) as usize % group.len().max(1);
            if group.first() == Some(&index) || group.get(turn) != Some(&index) {
                continue;
            }
            match dashes.iter_mut().rfind(|(series, _)| *series == index) {
                Some((_, points)) if before.contains(&index) => points.push((x, *value)),
                _ => dashes.push((index, vec![(x, *value)])),
            }
            now.push(index);
        }
        before = now;
    }
    dashes
}

pub(super) fn unit(timeline: &Timeline) -> &str {
    match (timeline.unit.as_str(), timeline.metric.as_str()) {
        ("fraction", "gpu-use") => "fraction of a GPU",
        ("fraction", "attainment") => "fraction of the requests",
        ("fraction", "balance") => "use / due",
        ("fraction", "forecast-error") => "fraction of the forecasts, error / wait",
        ("fraction", "utilization") => "fractions of the resources, summed",
        ("fraction", _) => "fraction of the cluster",
        (unit, _) => unit,
    }
}
