//! Draws a timeline, or the speed of a job, as SVG; plotters' SVG backend needs no font.

use std::fmt::Debug;
use std::ops::Range;

use dormouse_messages::{JobId, Timestamp};
use dormouse_projections::queries::SpeedRow;
use dormouse_projections::timelines::Timeline;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, ValueFormatter};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::axis::{Values, corners, dashes, span_s, time_label, times, unit};
use super::humanize::{date, number};

const SIZE: (u32, u32) = (1200, 560);
const COLUMNS: u32 = 400;
const DASH: u32 = 5;
const LEGEND: u32 = 250;
/// The most labels of an axis without round ticks.
const LABELS: usize = 11;

/// The palette of Okabe and Ito ("Color universal design", 2008); without yellow, which vanishes on white.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

/// The error of a failed drawing.
#[derive(Debug, thiserror::Error)]
#[error("the picture cannot be drawn: {0}")]
pub struct SvgError(String);

fn failed(error: impl Debug) -> SvgError {
    SvgError(format!("{error:?}"))
}

/// Returns the SVG document of a timeline.
///
/// # Errors
/// If plotters cannot lay out the chart.
pub fn timeline(timeline: &Timeline) -> Result<String, SvgError> {
    let mut document = String::new();
    {
        let root = SVGBackend::with_string(&mut document, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
        plot(timeline, &left)?;
        legend(timeline, &right)?;
        root.present().map_err(failed)?;
    }
    Ok(document)
}

/// Returns the SVG document of a job's speed by its number of containers: the curve, and a dot at each measured
/// number.
///
/// # Errors
/// If plotters cannot lay out the chart.
pub fn speed(job: &JobId, speed: &SpeedRow) -> Result<String, SvgError> {
    let mut document = String::new();
    {
        let root = SVGBackend::with_string(&mut document, SIZE).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        let all = speed.curve.iter();
        let most = all.flat_map(|at| [Some(at.fitted), at.measured]);
        let most = most.flatten().fold(1.0, f64::max);
        let last = speed.curve.last().map_or(1, |at| at.containers);
        let label = |value: &f64| number(*value);
        let axis = |name: &str, most: f64| Axis {
            scale: RangedCoordf64::from(0.0..most),
            name: name.to_owned(),
            labels: LABELS,
            label: &label,
        };
        let x = axis("containers", f64::from(last) * 1.02);
        let y = axis("speed, in speeds of one container", most * 1.05);
        let title = format!("{job}: {}", super::speed::summary(speed));
        let mut chart = chart(&root, &title, x, y)?;
        let fitted = speed.curve.iter();
        let fitted = fitted.map(|at| (f64::from(at.containers), at.fitted));
        let line = ShapeStyle::from(COLOURS[0]).stroke_width(3);
        chart
            .draw_series(LineSeries::new(fitted, line))
            .map_err(failed)?;
        let measured = speed.curve.iter().filter_map(|at| {
            let point = (f64::from(at.containers), at.measured?);
            Some(Circle::new(point, 6, COLOURS[3].filled()))
        });
        chart.draw_series(measured).map_err(failed)?;
        root.present().map_err(failed)?;
    }
    Ok(document)
}

/// Plotters' own ticks are not at round times.
struct Ticked {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Ticked {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let part = (value - self.range.start) / (self.range.end - self.range.start);
        let pixels = f64::from(limit.1 - limit.0) * part;
        limit.0 + pixels.round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// An axis of a chart.
struct Axis<'a, S> {
    scale: S,
    name: String,
    /// The most labels.
    labels: usize,
    label: &'a dyn Fn(&f64) -> String,
}

/// Draws title, axes and grid.
fn chart<'a, 'b, X, Y>(
    area: &'a Area<'b>,
    title: &str,
    x: Axis<'_, X>,
    y: Axis<'_, Y>,
) -> Result<ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, Y>>, SvgError>
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 24))
        .margin(16)
        .x_label_area_size(56)
        .y_label_area_size(72)
        .build_cartesian_2d(x.scale, y.scale)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .x_desc(x.name)
        .y_desc(y.name)
        .x_labels(x.labels)
        .y_labels(y.labels)
        .x_label_formatter(x.label)
        .y_label_formatter(y.label)
        .max_light_lines(0)
        .bold_line_style(RGBColor(225, 225, 225))
        .axis_style(RGBColor(90, 90, 90))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .draw()
        .map_err(failed)?;
    Ok(chart)
}

fn plot(timeline: &Timeline, area: &Area<'_>) -> Result<(), SvgError> {
    let values = Values::of(timeline, 6);
    let span_s = span_s(timeline);
    let ticks = times(timeline, 8);
    let seconds = |time: &Timestamp| time.seconds_since(timeline.from);
    let title = if timeline.title.is_empty() {
        &timeline.metric
    } else {
        &timeline.title
    };
    let time = |x: &f64| {
        let ms = std::time::Duration::from_secs_f64(x.max(0.0)).as_millis();
        time_label(
            timeline.from.plus_ms(u64::try_from(ms).unwrap_or(0)),
            span_s,
        )
    };
    let x = Axis {
        scale: Ticked {
            range: 0.0..span_s,
            ticks: ticks.iter().map(seconds).collect(),
        },
        name: format!("{} to {}", date(timeline.from), date(timeline.to)),
        labels: ticks.len().max(1),
        label: &time,
    };
    let value = |y: &f64| values.label(*y);
    let y = Axis {
        scale: Ticked {
            range: values.least..values.greatest,
            ticks: values.ticks.clone(),
        },
        name: unit(timeline).to_owned(),
        labels: values.ticks.len(),
        label: &value,
    };
    let mut chart = chart(area, title, x, y)?;
    for (index, series) in timeline.series.iter().enumerate().rev() {
        let stroke = if index == 0 { 3 } else { 2 };
        let line = ShapeStyle::from(COLOURS[index % COLOURS.len()]).stroke_width(stroke);
        let drawn = LineSeries::new(corners(series, timeline), line);
        chart.draw_series(drawn).map_err(failed)?;
    }
    let near = (values.greatest - values.least) * 0.004;
    for (index, points) in dashes(timeline, COLUMNS, DASH, near) {
        let line = ShapeStyle::from(COLOURS[index % COLOURS.len()]).stroke_width(3);
        chart
            .draw_series(LineSeries::new(points, line))
            .map_err(failed)?;
    }
    Ok(())
}

fn legend(timeline: &Timeline, area: &Area<'_>) -> Result<(), SvgError> {
    let left = Pos::new(HPos::Left, VPos::Center);
    let name_style = ("sans-serif", 15).into_font().color(&BLACK).pos(left);
    let figure_style = ("sans-serif", 13)
        .into_font()
        .color(&RGBColor(90, 90, 90))
        .pos(left);
    let mut y = 64;
    for (index, series) in timeline.series.iter().enumerate() {
        let line = ShapeStyle::from(COLOURS[index % COLOURS.len()]).stroke_width(4);
        area.draw(&PathElement::new([(8, y), (34, y)], line))
            .map_err(failed)?;
        let name = Text::new(series.name.clone(), (42, y), name_style.clone());
        area.draw(&name).map_err(failed)?;
        let figures = &series.summary;
        let text = if series.points.is_empty() {
            "nothing yet".to_owned()
        } else {
            format!(
                "mean {}, max {}, last {}",
                number(figures.mean),
                number(figures.max),
                number(figures.last)
            )
        };
        area.draw(&Text::new(text, (42, y + 19), figure_style.clone()))
            .map_err(failed)?;
        y += 50;
    }
    Ok(())
}
