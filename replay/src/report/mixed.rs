//! Draws response times, replicas and training speed of mixed runs over time.

use crate::simulate::Point;
use crate::simulate::mixed::ServiceFigures;

use super::lines::{Chart, Line};
use super::section::{Run, section};
use super::svg::{escape, number};

pub fn sections(page: &mut String, runs: &[Run<'_>]) {
    if runs.iter().all(|run| run.outcome.mixed.is_none()) {
        return;
    }
    page.push_str(&table(runs));
    let drawings = [
        (
            "Response time",
            "Milliseconds, second by second; 0 where nobody was answered",
            of_services(runs, |service| &service.response_ms),
        ),
        (
            "Replicas",
            "Those that answered",
            of_services(runs, |service| &service.replicas),
        ),
        (
            "Speed of training",
            "In one container's work a second",
            speeds(runs),
        ),
    ];
    for (name, what, lines) in drawings {
        let ends = lines.iter().flat_map(|line| &line.points);
        let chart = Chart {
            x: "minutes",
            end: ends.map(|point| point.0).fold(0.0, f64::max),
            steps: true,
            lines,
        };
        section(page, name, what, &chart.svg());
    }
}

fn minutes(points: &[Point]) -> Vec<Point> {
    let minutes = points.iter().map(|(at_s, value)| (at_s / 60.0, *value));
    minutes.collect()
}

fn of_services(
    runs: &[Run<'_>],
    of: fn(&crate::simulate::mixed::ServiceCourse) -> &[Point],
) -> Vec<Line> {
    let mut lines = Vec::new();
    for run in runs {
        let services = run.outcome.mixed.iter().flat_map(|it| &it.services);
        let several = services.clone().count() > 1;
        lines.extend(services.map(|(job, service)| Line {
            name: if several {
                format!("{} {job}", run.name)
            } else {
                run.name.clone()
            },
            points: minutes(of(service)),
        }));
    }
    lines
}

fn speeds(runs: &[Run<'_>]) -> Vec<Line> {
    let mixed = runs
        .iter()
        .filter_map(|run| Some((run, run.outcome.mixed.as_ref()?)));
    let line = mixed.map(|(run, mixed)| Line {
        name: run.name.clone(),
        points: minutes(&mixed.speed),
    });
    line.collect()
}

fn table(runs: &[Run<'_>]) -> String {
    let names = [
        "objective",
        "in time",
        "p50",
        "p90",
        "p99",
        "most",
        "replicas",
        "training",
        "waits",
        "works",
        "in all",
    ];
    let header: String = names
        .iter()
        .map(|name| format!("<th>{name}</th>"))
        .collect();
    let mut rows = String::new();
    for run in runs {
        let Some(mixed) = &run.outcome.figures.mixed else {
            continue;
        };
        let training = &mixed.training;
        for service in &mixed.services {
            let min = |seconds: f64| format!("{:.1} min", seconds / 60.0);
            let times = [
                training.makespan_s,
                training.waiting_s,
                training.working_s,
                training.total_s,
            ];
            let cells = responses(service).into_iter().chain(times.map(min));
            let cells: String = cells.map(|cell| format!("<td>{cell}</td>")).collect();
            let name = format!("{} {}", run.name, service.job);
            rows.push_str(&format!("<tr><td>{}</td>{cells}</tr>", escape(&name)));
        }
    }
    format!("<h2>Services and training</h2><table><tr><th>service</th>{header}</tr>{rows}</table>")
}

fn responses(service: &ServiceFigures) -> [String; 7] {
    let ms = |value: f64| format!("{value:.0} ms");
    let response = &service.response_ms;
    [
        service.objective_ms.map_or("-".to_owned(), ms),
        format!("{:.1} %", service.in_time * 100.0),
        ms(response.p50),
        ms(response.p90),
        ms(response.p99),
        match service.unanswered_s {
            0 => ms(response.max),
            seconds => format!(
                "none for {} s",
                number(usize::try_from(seconds).unwrap_or(0))
            ),
        },
        format!("{:.2}", service.replicas),
    ]
}
