//! Tables of services that share a cluster with training.

use comfy_table::Cell;
use dormouse_replay::simulate::mixed::{MixedFigures, TrainingFigures};

use super::answer::{Answer, AnswerRun};
use super::table::duration;
use crate::render::{Style, right};

fn runs<'a>(answer: &'a Answer<'_>) -> impl Iterator<Item = (&'a AnswerRun<'a>, &'a MixedFigures)> {
    let runs = answer.runs.iter();
    runs.filter_map(|run| Some((run, run.figures.mixed.as_ref()?)))
}

fn names(run: &AnswerRun<'_>) -> [Cell; 2] {
    [run.scenario, run.variant].map(|name| Cell::new(if name.is_empty() { "-" } else { name }))
}

fn percent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

/// Renders each service's response times, sampled every second, and replicas.
pub fn services(answer: &Answer<'_>, style: &Style) -> String {
    let mut table = style.table(&[
        "SCENARIO",
        "POLICY",
        "SERVICE",
        "OBJECTIVE",
        "IN TIME",
        "P50",
        "P90",
        "P99",
        "MOST",
        "> 128 ms",
        "> 512 ms",
        "> 1024 ms",
        "REPLICAS",
        "MOST",
    ]);
    for (run, mixed) in runs(answer) {
        for service in &mixed.services {
            let ms = |value: f64| format!("{value:.0} ms");
            let response = &service.response_ms;
            let [late, later, latest] = service.above.map(percent);
            let numbers = [
                service.objective_ms.map_or("-".to_owned(), ms),
                percent(service.in_time),
                ms(response.p50),
                ms(response.p90),
                ms(response.p99),
                match service.unanswered_s {
                    0 => ms(response.max),
                    seconds => format!("none for {seconds} s"),
                },
                late,
                later,
                latest,
                format!("{:.2}", service.replicas),
                service.most_replicas.to_string(),
            ];
            let names = names(run).into_iter().chain([Cell::new(&service.job)]);
            table.add_row(names.chain(numbers.into_iter().map(right)));
        }
    }
    style.write(table)
}

/// Renders training, and its gain over the last run.
pub fn training(answer: &Answer<'_>, style: &Style) -> String {
    let mut table = style.table(&[
        "SCENARIO",
        "POLICY",
        "TRAINING",
        "MAKESPAN",
        "WAIT",
        "WORK",
        "TOTAL",
        "LONGEST",
        "1 CONTAINER",
        "AT MOST 2",
    ]);
    let plain = runs(answer).last().map(|(_, mixed)| &mixed.training);
    let last = runs(answer).count().saturating_sub(1);
    for (index, (run, mixed)) in runs(answer).enumerate() {
        let training = &mixed.training;
        let against = plain.filter(|_| index < last);
        let timed = |of: fn(&TrainingFigures) -> f64| {
            let change = against.map(|plain| of(training) / of(plain) - 1.0);
            let change = change.filter(|change| change.is_finite());
            let change = change.map_or(String::new(), |it| format!(" ({:+.0} %)", it * 100.0));
            format!("{}{change}", duration(of(training)))
        };
        let [one, two] = training.few.map(percent);
        let numbers = [
            training.jobs.to_string(),
            timed(|it| it.makespan_s),
            timed(|it| it.waiting_s),
            timed(|it| it.working_s),
            timed(|it| it.total_s),
            duration(training.longest_s),
            one,
            two,
        ];
        table.add_row(names(run).into_iter().chain(numbers.into_iter().map(right)));
    }
    style.write(table)
}
