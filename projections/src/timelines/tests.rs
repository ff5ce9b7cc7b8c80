//! Drawings of the use of shared GPUs.

use dormouse_messages::Fold as _;
use dormouse_messages::events::{ContainerGpuUsed, GpuUse, StopReason};

use super::*;
use crate::ReadModel;
use dormouse_state::history::{History, at, job, node};

/// Ten seconds with this use of a device.
fn used(id: &str, rank: u32, milli: u64) -> ContainerGpuUsed {
    let device = GpuUse {
        uuid: "GPU-0".to_owned(),
        busy_us: milli * 10_000,
        charged_us: milli * 10_000,
        launches: 1,
        waits: 0,
        waited_us: 0,
        memory_bytes: 0,
        refused: 0,
        driver_bytes: None,
        beyond_bytes: 0,
    };
    ContainerGpuUsed {
        container: format!("{id}/1/{rank}").parse().expect("a container"),
        node: node("n0"),
        window_ms: 10_000,
        devices: vec![device],
    }
}

fn drawn(history: &History, only: Option<&str>) -> Timeline {
    let model = history.fold::<ReadModel>();
    let only = only.map(job);
    let window = Window::default();
    model
        .timelines
        .timeline(Metric::GpuUse, only.as_ref(), window, 8)
}

#[test]
fn shares_of_gpus_are_drawn_where_they_were_used() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2).run("ads/whole", 1);
    history.seconds = 100;
    history.push(used("ads/lr", 0, 300));
    history.push(used("ads/lr", 1, 200));
    history.seconds = 110;
    history.push(used("ads/lr", 0, 0));
    let line = drawn(&history, None);
    assert_eq!(line.series.len(), 1, "a job without a part is not drawn");
    assert_eq!(line.series[0].name, "ads/lr");
    // Drawn points stay.
    let points = [(at(91), 0.3), (at(92), 0.5), (at(101), 0.2)];
    assert_eq!(line.series[0].points, points);
    history.seconds = 120;
    history.stopped(1, "ads/lr", 1, StopReason::Adjusted);
    let line = drawn(&history, Some("ads/lr"));
    assert_eq!(line.series[0].points.last(), Some(&(at(121), 0.0)));
    assert_eq!(
        (line.unit.as_str(), line.metric.as_str()),
        ("fraction", "gpu-use")
    );
    assert!(drawn(&history, Some("ads/whole")).series.is_empty());
}

#[test]
fn an_ended_container_uses_nothing_and_tails_go_on() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2);
    history
        .push(used("ads/lr", 0, 250))
        .push(used("ads/lr", 1, 500));
    history.container_exited("ads/lr", 1, 1, "n0", Some(0));
    let mut tails = history.fold::<ReadModel>().moment();
    assert_eq!(drawn(&history, None).series[0].summary.last, 0.25);
    history.push(used("ads/lr", 0, 750));
    tails.evolve(&history.log[history.log.len() - 1]);
    let line = tails
        .timelines
        .timeline(Metric::GpuUse, None, Window::default(), 8);
    assert_eq!(
        line.series[0].summary,
        drawn(&history, None).series[0].summary
    );
}

/// The name of an ended job is free again after some time.
#[test]
fn a_later_job_of_a_name_has_lines_of_its_own() {
    let mut history = History::default();
    history.join("n0", 1).run("ads/lr", 2).complete("ads/lr");
    let model = history.fold::<ReadModel>();
    assert!(model.timelines.job(&job("ads/lr")).is_some());
    assert_eq!(model.jobs.ended().count(), 1);
    history.seconds += 31 * 86_400;
    history.submit("ads/lr");
    let model = history.fold::<ReadModel>();
    assert!(model.timelines.job(&job("ads/lr")).is_none());
    assert_eq!(model.jobs.ended().count(), 0);
    let shown = model.jobs.get(&job("ads/lr")).expect("shown");
    assert_eq!(shown.incarnations.len(), 0);
    assert_eq!(
        shown.admitted_sequence,
        history.log.last().expect("just pushed").sequence
    );
}
