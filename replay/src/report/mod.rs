//! Renders simulations as one page: self-contained HTML with inline SVG, without scripts, in light and
//! dark.
//!
//! - `section`: runs and sections; `lines`, `svg`: figures 6 to 9 of the Dorm paper's evaluation; axes.
//! - `mixed`: services with clients; `bars`: waiting by tenant; `gantt`: jobs over time.

mod bars;
mod gantt;
mod lines;
mod mixed;
mod section;
mod svg;

use crate::simulate::compare::METRICS;
use crate::simulate::{Figures, JobRecord, Outcome};
use lines::{Chart, Line};
use section::section;
use svg::escape;

pub use section::Run;

const STYLE: &str = "
:root{--ink:#1d2126;--dim:#68717c;--paper:#fff;--line:#d9dde2;--c0:#0072b2;--c1:#d55e00;--c2:#009e73;--c3:#cc79a7;--c4:#e69f00;--c5:#56b4e9;--c6:#777}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--dim:#98a1ac;--paper:#15181c;--line:#343a42;--c0:#4aa3df;--c1:#f0803c;--c2:#2fc79a;--c3:#e39cc4;--c4:#f2b632;--c5:#8accf2;--c6:#aaa}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1080px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .3rem}p{color:var(--dim);margin:.2rem 0 .6rem}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}th,td{padding:.25rem .6rem;text-align:right;border-bottom:1px solid var(--line)}
th:first-child,td:first-child{text-align:left}svg{width:100%;height:auto;display:block}
text{fill:var(--dim);font:12px system-ui,sans-serif}.axis{stroke:var(--line);fill:none}.step{fill:none;stroke-width:1.6}.name{fill:var(--ink)}
";

/// Renders the page.
#[must_use]
pub fn page(title: &str, runs: &[Run<'_>]) -> String {
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>",
        escape(title)
    );
    page.push_str(&table(runs));
    let end_h = runs
        .iter()
        .map(|run| run.outcome.figures.makespan_s / 3600.0)
        .fold(0.0, f64::max);
    over_time(&mut page, runs, end_h);
    mixed::sections(&mut page, runs);
    against_the_first(&mut page, runs);
    section(
        &mut page,
        "Waiting by tenant",
        "Mean minutes from submission to the first containers",
        &bars::waiting(runs),
    );
    for run in runs {
        let what = "A row a job: thin while it waits, the darker the more containers it has";
        section(
            &mut page,
            &format!("Jobs: {}", run.name),
            what,
            &gantt::svg(&run.outcome.jobs, end_h),
        );
    }
    page.push_str("</body></html>\n");
    page
}

/// Figures 6 to 8.
fn over_time(page: &mut String, runs: &[Run<'_>], end_h: f64) {
    let hours = |points: &[(f64, f64)]| {
        points
            .iter()
            .map(|(at_s, value)| (at_s / 3600.0, *value))
            .collect()
    };
    let lines = |of: fn(&Outcome) -> &[(f64, f64)]| -> Vec<Line> {
        let line = |run: &Run<'_>| Line {
            name: run.name.clone(),
            points: hours(of(run.outcome)),
        };
        runs.iter().map(line).collect()
    };
    let drawings = [
        (
            "Utilization",
            "Sum over the resources of the fraction in use (as figure 6 of the Dorm paper)",
            lines(|o| &o.utilization),
        ),
        (
            "Fairness loss",
            "Σ |share − fair share| of the running jobs (as figure 7)",
            lines(|o| &o.loss),
        ),
        (
            "Adjustments",
            "Running jobs that were resized, in all (as figure 8)",
            lines(|o| &o.adjustments),
        ),
    ];
    for (name, what, lines) in drawings {
        let chart = Chart {
            x: "hours",
            end: end_h,
            steps: true,
            lines,
        };
        section(page, name, what, &chart.svg());
    }
}

/// Figure 9.
fn against_the_first(page: &mut String, runs: &[Run<'_>]) {
    if let Some((first, others)) = runs.split_first().filter(|(_, others)| !others.is_empty()) {
        let lines: Vec<Line> = others.iter().map(|run| speed_ups(first, run)).collect();
        let what = format!(
            "Completion time under {} over that of the run, jobs in order of it (as figure 9)",
            first.name
        );
        let chart = Chart {
            x: "% of the jobs",
            end: 100.0,
            steps: false,
            lines,
        };
        section(page, "Speed-up", &what, &chart.svg_from(1));
    }
}

fn table(runs: &[Run<'_>]) -> String {
    let names = ["utilization", "loss", "JCT", "wait", "makespan", "adjusted"];
    let header: String = names
        .iter()
        .map(|name| format!("<th>{name}</th>"))
        .collect();
    let first = runs.first().map(|run| &run.outcome.figures);
    let rows = runs.iter().enumerate().map(|(index, run)| {
        let figures = &run.outcome.figures;
        let cells = METRICS.iter().enumerate().map(|(column, (_, of, _))| {
            let value = of(figures);
            let base = first.map_or(0.0, of);
            let change = if index > 0 && base > 0.0 {
                format!(" ({:+.0} %)", (value / base - 1.0) * 100.0)
            } else {
                String::new()
            };
            format!("<td>{}{change}</td>", written(column, value))
        });
        format!(
            "<tr><td>{}</td><td>{}</td>{}</tr>",
            escape(&run.name),
            completed(figures),
            cells.collect::<String>()
        )
    });
    format!(
        "<table><tr><th>run</th><th>completed</th>{header}</tr>{}</table>",
        rows.collect::<String>()
    )
}

fn completed(figures: &Figures) -> String {
    format!(
        "{} of {}",
        figures.completed,
        figures.jobs + figures.refused
    )
}

fn written(column: usize, value: f64) -> String {
    match column {
        0 | 1 => format!("{value:.3}"),
        5 => format!("{value:.0}"),
        _ => format!("{:.1} min", value / 60.0),
    }
}

fn speed_ups(first: &Run<'_>, run: &Run<'_>) -> Line {
    let jct_s = |job: &JobRecord| job.ended_s - job.submitted_s;
    let of: std::collections::BTreeMap<_, _> = run
        .outcome
        .jobs
        .iter()
        .map(|job| (&job.job, jct_s(job)))
        .collect();
    let ratio = |job: &JobRecord| {
        let this = of.get(&job.job).copied().filter(|jct_s| *jct_s > 0.0)?;
        Some(jct_s(job) / this)
    };
    let mut ratios: Vec<f64> = first.outcome.jobs.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    let count = svg::number(ratios.len());
    let mean = ratios.iter().sum::<f64>() / count.max(1.0);
    let points = ratios
        .iter()
        .enumerate()
        .map(|(index, ratio)| (100.0 * svg::number(index + 1) / count, *ratio));
    Line {
        name: format!("{} (mean {mean:.2})", run.name),
        points: points.collect(),
    }
}
