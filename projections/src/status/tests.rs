//! Views of tenants.

use std::path::Path;

use dormouse_messages::{Event, Recorded, Sequence, Timestamp, Writer};
use serde_json::{Value, json};

use super::*;

fn recorded(writer: Writer, event: Event) -> Recorded {
    Recorded {
        sequence: Sequence(7),
        stored_at: Timestamp::default(),
        writer,
        envelope: Envelope::new("id-7", writer, Timestamp::default(), None, event),
    }
}

fn event(type_name: &str, data: Value) -> Event {
    let event_type = dormouse_messages::events::EventType::of(type_name).expect("a known type");
    event_type.deserialize(data).expect("its data")
}

fn show(view: &mut StatusView, event: Event) -> Vec<(Vec<String>, Value)> {
    let writer = event.writers()[0];
    let recorded = recorded(writer, event);
    let shown = view.show(&recorded).into_iter();
    let shown = shown.map(|shown| {
        let Body::Event(event) = &shown.envelope.body else {
            panic!("an event");
        };
        (
            shown.subjects.clone(),
            serde_json::to_value(event).expect("JSON"),
        )
    });
    shown.collect()
}

fn decided(jobs: Value, waiting: Value) -> Event {
    event(
        "dormouse.allocation.decided.v1",
        json!({"epoch": 3, "jobs": jobs, "waiting": waiting,
            "utilization": {"resources": {"cpu": 0.5}, "total": 0.5}, "fairness_loss": 0.1,
            "fairness_loss_all": 0.1, "fairness_loss_bound": 0.2, "adjusted_jobs": 1,
            "adjustment_bound": 1, "forced_jobs": 0, "unbounded": false,
            "solver": {"name": "highs", "version": "1", "status": "optimal", "objective": 1.0,
                "bound": 1.0, "gap": 0.0, "work": 1, "stopped_by": "gap", "stage": "p2"}}),
    )
}

fn allocation(job: &str, previous: u32, containers: u32) -> Value {
    json!({"job": job, "containers": containers, "nodes": [{"node": "n0", "containers": containers}],
        "previous": previous, "new": previous == 0,
        "share": 0.1, "fair_share": 0.2})
}

#[test]
fn every_event_that_names_a_job_is_shown_to_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../messages/tests/fixtures");
    let (mut of_jobs, mut all) = (0, 0);
    for entry in std::fs::read_dir(folder).expect("the samples") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("readable");
        let Ok((_, recorded)) = Recorded::from_json(text.trim()) else {
            continue;
        };
        all += 1;
        let data: Value = serde_json::from_str(&text).expect("JSON");
        let of_container = data["data"]["container"].as_str();
        let of_container = of_container.and_then(|id| id.rsplitn(3, '/').nth(2));
        let Some(job) = data["data"]["job"].as_str().or(of_container) else {
            continue;
        };
        of_jobs += 1;
        let mut view = StatusView::default();
        let shown = view.show(&recorded);
        let begin = format!("{}.", job.replace('/', "."));
        let subjects = shown.iter().flat_map(|shown| &shown.subjects);
        let found = subjects
            .filter(|subject| subject.starts_with(&begin))
            .count();
        assert_eq!(found, 1, "{}", path.display());
    }
    assert!(of_jobs >= 20 && all >= 35, "{of_jobs} of {all}");
}

#[test]
fn what_became_of_a_message_is_shown_under_its_sequence_also_without_a_name() {
    let mut view = StatusView::default();
    let received = |tenant: &str, sequence: u64| {
        event(
            "dormouse.submission.received.v1",
            json!({"ingress_sequence": sequence, "tenant": tenant, "verb": "submit",
                "content_type": "application/json", "bytes": 2, "sha256": "ab", "raw": "{}",
                "raw_encoding": "utf8", "published_at": "2026-11-21T10:00:00.000000Z"}),
        )
    };
    let refused = |tenant: Value, sequence: u64| {
        event(
            "dormouse.job.refused.v1",
            json!({"job": null, "tenant": tenant, "ingress_sequence": sequence,
                "code": "bad_name", "reason": "no name"}),
        )
    };
    let shown = show(&mut view, received("ads", 4));
    assert_eq!(shown[0].0, ["ads._in.4.submission.received"]);
    assert_eq!(
        (&shown[0].1["raw"], &shown[0].1["sha256"]),
        (&json!(""), &json!("ab"))
    );
    let shown = show(&mut view, refused(json!("ads"), 4));
    assert_eq!(shown[0].0, ["ads._in.4.job.refused"]);
    // A tenant without a valid name is answered on the subject that it used.
    show(&mut view, received("ADS", 5));
    let shown = show(&mut view, refused(Value::Null, 5));
    assert_eq!(shown[0].0, ["ADS._in.5.job.refused"]);
    assert_eq!(show(&mut view, refused(Value::Null, 5)), []);
}

#[test]
fn a_job_sees_its_own_part_of_an_allocation_and_a_new_reason_to_wait_once() {
    let mut view = StatusView::default();
    let waiting =
        |code: &str, reason: &str| json!([{"job": "search/b", "code": code, "reason": reason}]);
    let jobs = json!([allocation("ads/a", 0, 4), allocation("search/b", 0, 0)]);
    let shown = show(
        &mut view,
        decided(
            jobs,
            waiting("resources", "waits behind ads/a and search/c"),
        ),
    );
    let subjects: Vec<&str> = shown.iter().map(|(subjects, _)| &*subjects[0]).collect();
    assert_eq!(
        subjects,
        ["ads.a.allocation.decided", "search.b.allocation.decided"]
    );
    let (a, b) = (&shown[0].1, &shown[1].1);
    assert_eq!(
        (a["jobs"][0]["job"].as_str(), &a["jobs"][1]),
        (Some("ads/a"), &Value::Null)
    );
    assert_eq!(
        (&a["waiting"], &a["jobs"][0]["nodes"]),
        (&json!([]), &json!([{"node": "n0", "containers": 4}]))
    );
    assert_eq!(
        b["waiting"][0]["reason"],
        "waits behind another tenant's job and search/c"
    );
    assert!(!b.to_string().contains("ads/a"));

    assert_eq!(
        show(
            &mut view,
            decided(
                json!([allocation("search/b", 0, 0)]),
                waiting("resources", "x")
            )
        ),
        []
    );
    let shown = show(
        &mut view,
        decided(json!([]), waiting("fairness_bound", "y")),
    );
    assert_eq!(shown.len(), 1);
    // The job got containers, lost them, and waits again.
    show(
        &mut view,
        decided(json!([allocation("search/b", 0, 2)]), json!([])),
    );
    let shown = show(
        &mut view,
        decided(
            json!([allocation("search/b", 2, 0)]),
            waiting("fairness_bound", "y"),
        ),
    );
    assert_eq!(
        (shown.len(), &shown[0].1["waiting"][0]["code"]),
        (1, &json!("fairness_bound"))
    );
}

#[test]
fn each_job_sees_its_own_containers_of_a_placement() {
    let placed = |job: &str| json!({"job": job, "incarnation": 1, "rank": 0, "node": "n0", "gpus": [], "port": 5000});
    let removed = json!({"job": "ads/a", "incarnation": 1, "rank": 1, "node": "n1"});
    let placement = event(
        "dormouse.placement.decided.v1",
        json!({"epoch": 3, "create": [placed("ads/a"), placed("search/b")], "remove": [removed]}),
    );
    let shown = show(&mut StatusView::default(), placement);
    assert_eq!(shown.len(), 2);
    assert_eq!(shown[0].0, ["ads.a.placement.decided"]);
    assert_eq!(shown[0].1["remove"][0]["rank"], 1);
    assert_eq!(shown[1].1["remove"], json!([]));
    assert_eq!(shown[1].1["create"][0]["job"], "search/b");
}

#[test]
fn the_parts_of_one_event_have_ids_of_their_own() {
    let jobs = json!([allocation("ads/a", 0, 4), allocation("ads/b", 0, 1)]);
    let recorded = recorded(Writer::Optimizer, decided(jobs, json!([])));
    let mut view = StatusView::default();
    let shown = view.show(&recorded);
    let ids: Vec<&str> = shown.iter().map(|shown| &*shown.envelope.id).collect();
    assert_eq!(ids, ["id-7/ads/a", "id-7/ads/b"]);
}

#[test]
fn only_names_of_other_tenants_jobs_are_taken_out() {
    for (text, own) in [
        (
            "waits for ads/lr, search/b (running).",
            "waits for ads/lr, another tenant's job (running).",
        ),
        ("nothing named", "nothing named"),
        (
            "cannot open \"/var/lib/dormouse/containers/search/merger-model-3/2/0\": no space",
            "cannot open \"(left out)\": no space",
        ),
        (
            "pulling registry.example.org/search/merger:3, /scratch/ads/x (3/4)",
            "pulling (left out), /scratch/ads/x (3/4)",
        ),
        (
            "GET /healthz was answered with 503",
            "GET /healthz was answered with 503",
        ),
        ("cpu 8 of 16 in all; 1.5/2", "cpu 8 of 16 in all; 1.5/2"),
    ] {
        assert_eq!(own_words(text, "ads"), own);
    }
}

#[test]
fn a_job_that_makes_room_is_not_told_for_whose_service() {
    for (service, told) in [("search/web", Value::Null), ("ads/web", json!("ads/web"))] {
        let resize = event(
            "dormouse.partition.resize_requested.v1",
            json!({"job": "ads/a", "epoch": 1, "incarnation": 1, "generation": 1, "leave": [2],
                "stay": [0, 1], "grace_s": 5, "cause": "adjusted", "for": service}),
        );
        let shown = show(&mut StatusView::default(), resize);
        assert_eq!(shown[0].0, ["ads.a.partition.resize_requested"]);
        assert_eq!(shown[0].1.get("for").unwrap_or(&Value::Null), &told);
    }
}
