//! Tables of simulations.

use comfy_table::Cell;
use dormouse_replay::simulate::compare::Difference;

use super::answer::{Answer, AnswerRun};
use crate::render::{Style, right};

/// Renders the runs.
pub fn runs(answer: &Answer<'_>, style: &Style) -> String {
    let mut table = style.table(&[
        "SCENARIO",
        "POLICY",
        "JOBS",
        "UTILIZATION",
        "LOSS",
        "LARGEST",
        "JCT",
        "P90",
        "WAIT",
        "MAKESPAN",
        "ADJUSTED",
        "MOST",
    ]);
    for AnswerRun {
        scenario,
        variant,
        figures,
    } in &answer.runs
    {
        let ended = match figures.jobs - figures.completed {
            0 => figures.jobs.to_string(),
            others => format!("{} ({others} not completed)", figures.jobs),
        };
        let numbers = [
            ended,
            format!("{:.3}", figures.utilization),
            format!("{:.3}", figures.loss),
            format!("{:.2}", figures.largest_loss),
            duration(figures.jct_s.mean),
            duration(figures.jct_s.p90),
            duration(figures.waiting_s.mean),
            duration(figures.makespan_s),
            figures.adjustments.to_string(),
            figures.most_adjusted.to_string(),
        ];
        let names =
            [*scenario, variant].map(|name| Cell::new(if name.is_empty() { "-" } else { name }));
        table.add_row(names.into_iter().chain(numbers.into_iter().map(right)));
    }
    style.write(table)
}

/// Renders the differences of the runs.
pub fn comparison(answer: &Answer<'_>, style: &Style) -> String {
    let metrics = ["UTILIZATION", "LOSS", "JCT", "WAIT", "MAKESPAN", "ADJUSTED"];
    let against = answer.comparison.first().map_or("", |first| first.against);
    let first = if against.is_empty() {
        "the first".to_owned()
    } else {
        against.to_owned()
    };
    let header = format!("AGAINST {first}");
    let columns: Vec<&str> = std::iter::once(header.as_str()).chain(metrics).collect();
    let mut table = style.table(&columns);
    for comparison in &answer.comparison {
        let cells = comparison
            .differences
            .iter()
            .map(|one| right(difference(one)));
        table.add_row(std::iter::once(Cell::new(comparison.variant)).chain(cells));
    }
    style.write(table)
}

/// The mean, its 95 % interval, and the scenarios with an improvement.
fn difference(one: &Difference) -> String {
    if one.scenarios == 0 {
        return "-".to_owned();
    }
    let interval = one
        .plus_minus
        .map_or(String::new(), |half| format!(" ± {:.1}", half * 100.0));
    let count = match one.scenarios {
        1 => String::new(),
        scenarios => format!(" ({}/{scenarios})", one.better),
    };
    format!("{:+.1}{interval} %{count}", one.mean * 100.0)
}

/// Renders each tenant's figures.
pub fn tenants(answer: &Answer<'_>, style: &Style) -> String {
    let mut table = style.table(&[
        "SCENARIO",
        "POLICY",
        "TENANT",
        "JOBS",
        "WAIT",
        "P90",
        "JCT",
        "CONTAINER-H",
    ]);
    for AnswerRun {
        scenario,
        variant,
        figures,
    } in &answer.runs
    {
        for (tenant, figures) in &figures.tenants {
            let names = [scenario, variant, tenant.as_str()];
            let numbers = [
                figures.jobs.to_string(),
                duration(figures.waiting_s.mean),
                duration(figures.waiting_s.p90),
                duration(figures.jct_s.mean),
                format!("{:.1}", figures.container_h),
            ];
            let names = names.map(|name| Cell::new(if name.is_empty() { "-" } else { name }));
            table.add_row(names.into_iter().chain(numbers.into_iter().map(right)));
        }
    }
    style.write(table)
}

/// Formats `43s`, `12.5m`, `3.4h`, `2.1d`.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1}s"),
        s if s < 7_200.0 => format!("{:.1}m", s / 60.0),
        s if s < 172_800.0 => format!("{:.2}h", s / 3_600.0),
        s => format!("{:.1}d", s / 86_400.0),
    }
}
