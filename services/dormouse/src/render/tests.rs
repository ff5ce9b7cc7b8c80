//! Tests the texts of answers.

use dormouse_messages::Timestamp;
use dormouse_projections::queries::{
    ClusterAnswer, JobDetail, JobsAnswer, LedgerAnswer, NodeDetail, NodesAnswer, TenantsAnswer,
};
use dormouse_projections::steps::Steps;
use dormouse_projections::timelines::{Series, Timeline};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::humanize::{age, bytes, number};
use super::*;

fn read<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an answer")
}

const TIME: &str = "2026-11-21T10:00:00Z";

fn row(job: &str, phase: &str, reason: &str) -> Value {
    json!({
        "job": job, "kind": "training", "executor": "torch", "phase": phase, "reason": reason,
        "weight": 1, "containers": {"min": 1, "max": 8, "now": 3, "target": 5},
        "share": 0.375, "fair_share": 0.5, "epoch": 2, "incarnation": 1,
        "submitted_at": TIME, "admitted_at": TIME, "released_at": TIME,
        "first_started_at": TIME, "phase_since": TIME, "ended_at": null,
        "age_s": 192.0, "submitted_ago_s": 192.0, "jct_s": null, "waiting_s": 4.2, "resizes": 1, "restarts": 0,
        "attempts": 0, "resize_lost_s": 5.0, "recovery_lost_s": 0.0, "container_s": 576.0,
        "step": 120, "steps_total": 500, "progress_at": "2026-11-21T10:03:00Z",
        "metrics": {"accuracy": 0.8125, "loss": 0.31}, "nodes": {"n0": 2, "n1": 1},
    })
}

fn some_jobs() -> JobsAnswer {
    let long = "needs 8 cpu of one node; the most that is free on one node is 4 cpu (n3)";
    read(json!({"more": 0, "jobs": [
        row("ads/lr", "checkpointing", "resizing 3 → 5: saving"),
        row("vision/resnet", "waiting", long),
    ]}))
}

#[test]
fn the_list_of_jobs() {
    let text = jobs(&some_jobs(), &Style::default());
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "JOB            PHASE          CONTAINERS  SHARE  PROGRESS       AGE    DURATION  REASON"
    );
    assert_eq!(
        lines[1],
        "ads/lr         checkpointing  3→5 of 1–8  0.375  120/500 (24%)  3m12s     3m07s  resizing 3 → 5: saving"
    );
    assert_eq!(lines.len(), 3, "without a terminal nothing wraps");
    assert_eq!(jobs(&JobsAnswer::default(), &Style::default()), "no jobs");
}

#[test]
fn the_wide_list_has_more_columns() {
    let wide = Style {
        wide: true,
        ..Style::default()
    };
    let text = jobs(&some_jobs(), &wide);
    for word in [
        "EXECUTOR",
        "PLACE",
        "torch",
        "LOST",
        "n0 (2), n1 (1)",
        "accuracy 0.8125",
        "REASON",
    ] {
        assert!(text.contains(word), "{word} in\n{text}");
    }
}

#[test]
fn the_wide_list_names_priority_classes() {
    let mut urgent = row("ads/now", "running", "runs");
    urgent["priority_class"] = json!({"name": "urgent", "value": 100, "preempts": true});
    let answer: JobsAnswer = read(json!({"more": 0, "jobs": [urgent]}));
    let wide = Style {
        wide: true,
        ..Style::default()
    };
    let text = jobs(&answer, &wide);
    assert!(text.contains("CLASS") && text.contains("urgent"), "{text}");
}

#[test]
fn a_job_is_one_line_on_every_screen() {
    let on = |columns| {
        let columns = Some(columns);
        let narrow = Style {
            columns,
            ..Style::default()
        };
        let text = jobs(&some_jobs(), &narrow);
        assert_eq!(text.lines().count(), 3, "{text}");
        text
    };
    for columns in [100_u16, 80, 60] {
        let text = on(columns);
        let fits = |line: &str| line.chars().count() <= usize::from(columns);
        assert!(text.lines().all(fits), "{text}");
        assert!(
            text.contains("checkpointing") && text.contains("…"),
            "{text}"
        );
    }
    assert!(on(100).contains("120/500 (24%)") && !on(100).contains("SHARE"));
    assert!(on(80).contains("AGE") && !on(80).contains("PROGRESS"));
    assert!(!on(60).contains("AGE"));
}

#[test]
fn workers_are_counted_against_their_bounds() {
    let mut with_server = row("ads/ps", "running", "runs");
    with_server["containers"] = json!({"min": 1, "max": 4, "now": 4, "target": 4, "auxiliary": 1});
    let answer: JobsAnswer = read(json!({"more": 0, "jobs": [with_server]}));
    let text = jobs(&answer, &Style::default());
    assert!(text.contains("3 of 1–4, 1 auxiliary"), "{text}");
}

#[test]
fn a_job_that_has_ended_ages_and_its_duration_stays() {
    let mut over = row("ads/lr", "completed", "all containers succeeded");
    over["ended_at"] = json!("2026-11-21T10:03:12Z");
    over["submitted_ago_s"] = json!(7_500.0);
    let answer: JobsAnswer = read(json!({"more": 0, "jobs": [over]}));
    let text = jobs(&answer, &Style::default());
    assert!(text.contains("2h05m     3m07s  all containers"), "{text}");
}

#[test]
fn colour_only_where_it_is_wanted() {
    let colour = Style {
        colour: true,
        ..Style::default()
    };
    let escape = '\u{1b}';
    assert!(!jobs(&some_jobs(), &Style::default()).contains(escape));
    assert!(jobs(&some_jobs(), &colour).contains(escape));
    assert!(!timeline(&drawn(2), &Style::default()).contains(escape));
    assert!(timeline(&drawn(2), &colour).contains(escape));
}

#[test]
fn refused_submissions_are_a_list_of_their_own() {
    let answer: JobsAnswer = read(json!({"more": 2, "jobs": [], "refused": [{
        "at": TIME, "job": null, "tenant": "ads", "verb": "submit", "ingress_sequence": 7,
        "code": "unknown_field", "reason": "unknown field `gpus`",
    }]}));
    let text = jobs(&answer, &Style::default());
    assert!(
        text.contains("unknown field `gpus`") && text.contains("2 more"),
        "{text}"
    );
}

fn extend(value: &mut Value, more: Value) {
    let (Value::Object(fields), Value::Object(more)) = (value, more) else {
        panic!("objects");
    };
    fields.extend(more);
}

#[test]
fn the_page_of_a_job_tells_its_incarnations() {
    let mut value = row("ads/lr", "running", "running since 10:00:19Z; resized once");
    let more = json!({
        "demand": {"cpu_milli": 2000, "memory_bytes": 8u64 << 30},
        "checkpoint": {"at": "2026-11-21T10:02:00Z", "incarnation": 1, "uri": "file:///ckpt/1",
            "step": 100, "bytes": 1_572_864, "duration_ms": 900},
        "incarnations": [
            {"incarnation": 1, "epoch": 1, "containers": 3, "nodes": 1, "requested_at": TIME,
             "started_at": TIME, "stopped_at": TIME, "ran_s": 61.0, "stop_reason": "adjusted",
             "resumed_step": null},
            {"incarnation": 2, "epoch": 2, "containers": 5, "nodes": 2, "requested_at": TIME,
             "started_at": TIME, "stopped_at": null, "ran_s": 120.0, "stop_reason": null,
             "resumed_step": 100},
        ],
        "incarnations_dropped": 0,
        "containers_timeline": drawn(1),
        "spread": {"crossing": 0.5, "works_as": 1.5},
    });
    extend(&mut value, more);
    let detail: JobDetail = read(value);
    let page = job(&detail, &Style::default());
    for text in [
        "ads/lr  running  running since 10:00:19Z; resized once",
        "Containers  3→5 of 1–8 on n0 (2), n1 (1)",
        "Spread      on 2 nodes it counts as 1.5 containers on one: it loses 50 % there, by objective.crossing",
        "Checkpoint  step 100, 1.5 MiB in 0.9s, 1m12s ago: file:///ckpt/1",
        "Cost        0.16 container-hours; 1 resize took 5s",
        "1m01s  adjusted",
        "2m00s  running",
    ] {
        assert!(page.contains(text), "{text:?} in\n{page}");
    }
}

#[test]
fn the_devices_of_a_node() {
    let detail: NodeDetail = read(json!({
        "node": "n0", "state": "up", "reason": "", "capacity": {}, "used": {}, "containers": 0, "running": 0,
        "reserved": 0, "runtime": "process", "address": "10.0.0.1", "labels": {}, "joined_at": TIME,
        "agent_incarnation": 3, "placed": [],
        "gpus": [
            {"uuid": "GPU-1", "model": "NVIDIA H200", "memory_bytes": 140u64 << 30},
            {"uuid": "stand-in-0", "model": "", "memory_bytes": 0},
        ],
    }));
    let text = node(&detail, &Style::default());
    assert!(text.contains("\n  NVIDIA H200 140.0 GiB GPU-1"), "{text}");
    assert!(text.contains("\n  stand-in-0"), "{text}");
}

#[test]
fn nodes_with_what_they_hold() {
    let node_row = json!({
        "node": "n0", "state": "drained", "reason": "drained by the operator",
        "capacity": {"cpu_milli": 8000, "memory_bytes": 32u64 << 30},
        "used": {"cpu_milli": 2500}, "containers": 1, "running": 1, "reserved": 2,
        "runtime": "docker", "address": "10.0.0.1", "labels": {"zone": "a"}, "joined_at": TIME,
    });
    let answer: NodesAnswer = read(json!({"nodes": [&node_row]}));
    let text = nodes(&answer, &Style::default());
    assert!(text.contains("cpu 2500m/8, memory 0/32Gi"), "{text}");
    let mut value = node_row;
    value["agent_incarnation"] = json!(3);
    value["placed"] = json!([{"job": "ads/lr", "incarnation": 2, "rank": 0, "state": "running"}]);
    let detail: NodeDetail = read(value);
    let text = node(&detail, &Style::default());
    assert!(
        text.contains("docker at 10.0.0.1") && text.contains("ads/lr"),
        "{text}"
    );
}

#[test]
fn what_a_job_used_of_a_shared_gpu_and_what_the_driver_says_of_it() {
    let mut value = row("ads/lr", "running", "");
    let gpu = json!({
        "busy_us": 90_000_000, "charged_us": 95_000_000, "waited_us": 5_000_000, "refused": 2,
        "peak_bytes": 3u64 << 30, "last_milli": 250, "last_bytes": 2u64 << 30, "at": TIME,
    });
    let more = json!({
        "demand": {}, "checkpoint": null, "incarnations": [], "incarnations_dropped": 0,
        "containers_timeline": drawn(1), "gpu": gpu,
    });
    extend(&mut value, more);
    let page = |value: &Value| job(&read::<JobDetail>(value.clone()), &Style::default());
    let text = page(&value);
    let line = "25.0 % of a device and 2.0 GiB at last; 1m30s in all, 5s waited for; 2 allocations refused";
    assert!(text.contains(line), "{text}");
    value["gpu"]["last_driver_bytes"] = json!(5u64 << 30);
    value["gpu"]["last_beyond_bytes"] = json!(1u64 << 30);
    let text = page(&value);
    let more =
        "; 5.0 GiB by the driver, 1.0 GiB beyond its cap: its programs go around the library; 2";
    assert!(text.contains(more), "{text}");
}

#[test]
fn what_runs_on_a_shared_gpu_beside_its_parts() {
    let detail: NodeDetail = read(json!({
        "node": "n0", "state": "up", "reason": "", "capacity": {}, "used": {}, "containers": 1, "running": 1,
        "reserved": 0, "runtime": "process", "address": "10.0.0.1", "labels": {},
        "joined_at": TIME, "agent_incarnation": 3, "placed": [],
        "gpu_doubts": {"GPU-1": {
            "since": TIME,
            "strangers": [
                {"pid": 77, "program": "Xorg", "memory_bytes": 64u64 << 20},
                {"pid": 78},
            ],
            "beyond": [{"container": "ads/lr/1/0", "cap_bytes": 1u64 << 30,
                "counted_bytes": 0, "driver_bytes": 3u64 << 30}],
        }},
    }));
    let text = node(&detail, &Style::default());
    for line in [
        "GPU-1: process 77 (Xorg) with 64.0 MiB is under no part of it, since ",
        "GPU-1: process 78 (unknown) is under no part of it, since ",
        "GPU-1: ads/lr/1/0 has 3.0 GiB there, its cap is 1.0 GiB, since ",
    ] {
        assert!(text.contains(line), "{line:?} in\n{text}");
    }
}

#[test]
fn the_cluster_and_the_ledger() {
    let text = cluster(&ClusterAnswer::default(), &Style::default());
    assert!(
        text.contains("Policy      dorm, θ1 0.1, θ2 0.1, queue fifo"),
        "{text}"
    );
    let answer: LedgerAnswer = read(json!({
        "jobs": [{"job": "ads/lr", "phase": "completed", "jct_s": 600.0, "waiting_s": 2.0,
            "container_s": 7200.0, "resizes": 2, "resize_lost_s": 12.0, "restarts": 0,
            "accuracy": 0.97, "loss": null}],
        "tenants": {"ads": {"jobs": 1, "completed": 1, "container_s": 7200.0,
            "mean_jct_s": 600.0, "resizes": 2, "resize_lost_s": 12.0}},
    }));
    let text = ledger(&answer, &Style::default());
    assert!(text.contains("10m00s") && text.contains("0.97"), "{text}");
}

fn at(second: u32) -> Timestamp {
    Timestamp::from_micros((1_795_255_200 + i64::from(second)) * 1_000_000)
}

fn drawn(series: u32) -> Timeline {
    let series = (0..series).map(|number| {
        let mut steps = Steps::default();
        for second in 0..60u32 {
            steps.push(at(second * 10), f64::from((second / 7 + number) % 5), 1000);
        }
        Series {
            name: format!("series {number}"),
            points: steps.points().to_vec(),
            summary: steps.summary(at(600)),
        }
    });
    Timeline {
        metric: "containers".to_owned(),
        unit: "containers".to_owned(),
        title: "Containers that run".to_owned(),
        from: at(0),
        to: at(600),
        series: series.collect(),
        omitted: 0,
    }
}

#[test]
fn a_drawing_has_axes_and_a_legend_and_keeps_to_the_screen() {
    let style = Style {
        columns: Some(72),
        ..Style::default()
    };
    let text = timeline(&drawn(3), &style);
    for part in [
        "Containers that run (containers)",
        "10:00:00",
        "10:10:00",
        "series 2",
        "mean",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let drawing = text.lines().filter(|line| line.contains('│'));
    assert!(drawing.clone().count() > 10 && drawing.clone().all(|l| l.chars().count() <= 72));
    assert!(
        drawing
            .clone()
            .any(|line| line.trim_start().starts_with("4│")),
        "{text}"
    );
}

#[test]
fn every_fraction_says_of_what() {
    for (metric, unit) in [
        ("gpu-use", "(fraction of a GPU)"),
        ("balance", "(use / due)"),
        (
            "forecast-error",
            "(fraction of the forecasts, error / wait)",
        ),
        ("utilization", "(fractions of the resources, summed)"),
        ("fairness-loss", "(fraction of the cluster)"),
    ] {
        let drawing = Timeline {
            metric: metric.to_owned(),
            unit: "fraction".to_owned(),
            ..drawn(1)
        };
        let text = timeline(&drawing, &Style::default());
        assert!(text.contains(unit), "{metric}: {text}");
    }
}

#[test]
fn an_svg_has_axes_a_title_and_a_legend() {
    let svg = timeline_svg(&drawn(2)).expect("a picture");
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    for part in [
        "Containers that run",
        "series 1",
        "10:04:00",
        "2026-11-21 10:10:00Z",
    ] {
        assert!(svg.contains(part), "{part}");
    }
}

fn equal() -> Timeline {
    let mut timeline = drawn(1);
    for name in ["series 1", "series 2"] {
        let mut other = timeline.series[0].clone();
        other.name = name.to_owned();
        timeline.series.push(other);
    }
    timeline
}

#[test]
fn equal_lines_take_turns() {
    let text = timeline(&equal(), &Style::default());
    let (drawing, _) = text.split_once("series 0").expect("a legend");
    for mark in ['•', '×', '+'] {
        assert!(drawing.contains(mark), "{mark} in\n{text}");
    }
    let colour = Style {
        colour: true,
        ..Style::default()
    };
    let text = timeline(&equal(), &colour);
    let (drawing, _) = text.split_once("series 0").expect("a legend");
    for code in ["\u{1b}[36m", "\u{1b}[33m", "\u{1b}[35m"] {
        assert!(drawing.contains(code), "{code:?} in\n{text}");
    }
    let (svg, apart) = (
        timeline_svg(&equal()).expect("a picture"),
        timeline_svg(&drawn(1)).expect("a picture"),
    );
    assert!(svg.matches("<polyline").count() > apart.matches("<polyline").count() + 10);
}

#[test]
fn a_table_too_wide_for_the_screen_is_written_in_blocks() {
    let narrow = Style {
        wide: true,
        columns: Some(60),
        ..Style::default()
    };
    let text = jobs(&some_jobs(), &narrow);
    assert!(
        text.lines().all(|line| line.chars().count() <= 60),
        "{text}"
    );
    for part in [
        "JOB                ads/lr",
        "INCARNATION        1",
        "REASON   ",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn nothing_drawn_is_no_panic() {
    let style = Style::default();
    let empty = Timeline::default();
    assert!(timeline(&empty, &style).contains("nothing is on the log yet"));
    assert!(timeline_svg(&empty).is_ok());
    let mut point = drawn(1);
    point.to = point.from;
    point.series[0].points.truncate(1);
    point.series[0].points[0].1 = f64::NAN;
    assert!(!timeline(&point, &style).is_empty());
    assert!(timeline_svg(&point).is_ok());
}

#[test]
fn words_for_figures() {
    let ages = [0.0, 0.44, 12.0, 192.0, 7_500.0, 356_400.0].map(age);
    assert_eq!(ages, ["0s", "0.4s", "12s", "3m12s", "2h05m", "4d03h"]);
    assert_eq!(
        [0, 1023, 1536, 3 << 30].map(bytes),
        ["0 B", "1023 B", "1.5 KiB", "3.0 GiB"]
    );
    let numbers = [0.0, 0.5, 1234.5678, 1e-6, -2.25].map(number);
    assert_eq!(numbers, ["0", "0.5", "1234.6", "1.00e-6", "-2.25"]);
}

#[test]
fn tenants_and_the_page_of_one() {
    let row = json!({
        "tenant": "ads", "configured": true, "weight": 3, "quota": {"cpu_milli": 3000},
        "max_job_weight": 4, "priority": 0, "entitled": 0.75, "share": 0.375,
        "demand_share": 0.125, "runs": {"cpu_milli": 3000}, "queued": {"cpu_milli": 1000},
        "released_jobs": 3, "queued_jobs": 1, "held_jobs": 1, "mean_wait_s": 12.0,
        "longest_wait_s": 60.0, "fairness_loss": 0.0,
        "reason": "t4: what ads runs needs cpu 3 of its quota of cpu 3; it waits until less is used",
    });
    let answer: TenantsAnswer = read(json!({
        "queue": "demand-drf", "tenants": [row], "unfairness_area": 3.5,
    }));
    let text = tenants(&answer, &Style::default());
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("TENANT  WEIGHT  SHARE"), "{text}");
    assert!(
        lines[1].contains("0.375") && lines[1].contains("quota of cpu 3"),
        "{text}"
    );
    assert!(text.ends_with("Queue: demand-drf; unfairness since the beginning: 3.5 share-seconds"));
    let mut detail = row;
    detail["queue"] = json!([{"position": 1, "job": "ads/t4", "priority": 2,
                              "needs": {"cpu_milli": 1000}, "waited_s": 7.0}]);
    let text = tenant(&read(detail), &Style::default());
    for part in [
        "entitled to 0.750",
        "a job's at most 4",
        "ads/t4",
        "1 wait for others",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}
